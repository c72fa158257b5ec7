"""Check one request, and the status that goes with it. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from sakti.core.types import Block, Message
from sakti.memory.engine import Prepared
from tests.bench import oracle, shared_checks
from tests.bench.oracle import Numbers
from tests.bench.shared_checks import Finding
from tests.bench.snapshot import Ledger, Snapshot

LOG = ("observations", "reflection")  # the blocks that are the log


class Asked(Struct, frozen=True):
    """Circumstances of a request.

    The thread, the turn's prompts, the tokens that the model's window leaves (None: enough), and another limit on
    messages (`room`: tokens; None: none).
    """

    thread_id: str
    prompts: Collection[str]
    budget: int | None
    room: int | None
    numbers: Numbers
    log_tokens: int


def log_blocks(prepared: Prepared) -> list[Block]:
    return [b for b in prepared.blocks if b.kind in LOG]


def sent(prepared: Prepared) -> list[Message]:
    """Return the messages of a request that are in the store."""
    return [m for m in prepared.messages if m.index >= 0]


def check(prepared: Prepared, now: Snapshot, ledger: Ledger, asked: Asked) -> Iterator[Finding]:
    """Check 1, 5 and 7: every message is there, raw or in the log, once and whole."""
    messages = sent(prepared)
    indexes = [m.index for m in messages]
    if indexes != sorted(set(indexes)):
        yield 1, f"messages are out of order or twice in the request: {indexes[:20]}"
    ids = {m.id for m in messages}
    if missing := [p for p in asked.prompts if p not in ids]:
        yield 1, f"the current prompt is not in the request ({len(missing)} missing)"
    cursor = now.cursor(asked.thread_id)
    behind = [m.index for m in messages if m.index <= cursor and m.id not in asked.prompts]
    if behind:
        yield 1, f"messages {behind[:8]} are raw although the log stands for them"
    pending = [m for m in ledger.after(asked.thread_id, cursor) if m.state != "withheld"]
    yield from _raw(prepared, pending, ids, asked)
    yield from _pairs(messages, ledger)
    yield from _log(prepared, now, ledger)
    reminded = any(m.index < 0 for m in prepared.messages)
    if reminded != (cursor >= 0 and bool(now.active)):
        yield 1, f"the reminder is {'' if reminded else 'not '}there, with the cursor at {cursor}"


def _raw(prepared: Prepared, pending: Sequence[Message], ids: set[str], asked: Asked) -> Iterator[Finding]:
    gone = [m for m in pending if m.id not in ids]
    unknown = ids - {m.id for m in pending} - set(asked.prompts)
    if unknown:
        yield 1, f"{len(unknown)} messages of the request are not the thread's, or were withheld"
    if not gone:
        yield from _fits(prepared, asked)
        return
    own = [m for m in pending if m.id in asked.prompts]
    heads = [m for m in prepared.messages if m.id in asked.prompts and m not in own]
    extra = sum(b.tokens for b in prepared.blocks) + sum(m.tokens for m in prepared.messages if m.index < 0)
    rooms = [r for r in (asked.room, None if asked.budget is None else asked.budget - extra) if r is not None]
    needed = sum(m.tokens for m in pending) + sum(m.tokens for m in heads)
    if not rooms or needed <= min(rooms):
        yield 1, f"messages {[m.index for m in gone[:8]]} are neither raw nor in the log"
        return
    left = [m.id in ids for m in pending if m.id not in asked.prompts]
    if any(before and not after for before, after in itertools.pairwise(left)):
        yield 1, "of what has room some messages are left out that stand between others"
    yield from _fits(prepared, asked)


def _fits(prepared: Prepared, asked: Asked) -> Iterator[Finding]:
    """Check 5: no request exceeds the window, except by what no request can be without."""
    if asked.budget is None:
        return
    blocks = sum(b.tokens for b in prepared.blocks)
    tokens = blocks + sum(m.tokens for m in prepared.messages)
    if tokens <= asked.budget:
        return
    messages = sent(prepared)
    last = {m.id for m in oracle.exchanges(messages)[-1]} if messages else set[str]()
    if more := [m.index for m in messages if m.id not in last and m.id not in asked.prompts]:
        yield 5, f"a request of {tokens} tokens where the window leaves {asked.budget}, with messages {more[:8]}"


def _pairs(messages: Sequence[Message], ledger: Ledger) -> Iterator[Finding]:
    called: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        for result in message.tool_results:
            if result.call_id not in called:
                yield 7, f"a tool result without its call in message {message.index}"
            answered.add(result.call_id)
        called |= {c.id for c in message.tool_calls}
    if alone := sorted(c for c in called - answered if ledger.result(c) is not None):
        yield 7, f"tool calls without results: {alone[:5]}"
    if not messages or messages[-1].role not in ("user", "tool"):
        yield 7, "the request does not end with the user's or a tool's message"


def _log(prepared: Prepared, now: Snapshot, ledger: Ledger) -> Iterator[Finding]:
    shown = Counter(oracle.words("\n".join(b.text for b in log_blocks(prepared)), ledger.words))
    due = Counter(w for g in now.active for w in now.words(g, ledger))
    if lacking := due - shown:
        yield 1, f"{lacking.total()} lines of the log are not in the request"
    if strange := shown - due:
        yield 1, f"the request has {strange.total()} lines that are not in the log"
    if now.record.scope == "resource":
        yield from shared_checks.named("\n".join(b.text for b in log_blocks(prepared)), ledger)


def status(prepared: Prepared, now: Snapshot, ledger: Ledger, asked: Asked) -> Iterator[Finding]:
    """Check 2.2 and 4: the status shows the numbers of this request, and what an activation would remove."""
    told, numbers = prepared.status, asked.numbers
    ready = now.ready(asked.thread_id, ledger)
    sizes = [g.message_tokens for g in ready]
    pending = now.pending(asked.thread_id, ledger)
    waiting = now.waiting_reflections()
    fresh = [g.observation_tokens for g in waiting if not now.stale(g)]
    reflections = fresh or [0, *(g.observation_tokens for g in waiting)]
    reflection = told.buffered_reflection.observation_tokens
    due: Mapping[str, tuple[int, int]] = {
        "pending tokens": (told.messages.tokens, pending),
        "as message threshold": (told.messages.threshold, numbers.threshold),
        "observed tokens": (told.observations.tokens, asked.log_tokens),
        "as threshold of the log": (told.observations.threshold, numbers.reflect_at),
        "groups that are ready": (told.buffered_observations.chunks, len(ready)),
        "tokens in groups that are ready": (told.buffered_observations.message_tokens, sum(sizes)),
        "projected tokens": (
            told.buffered_observations.projected_message_removal,
            sum(sizes[: oracle.boundary(sizes, numbers.floor, pending)]),
        ),
        "tokens of a reflection that waits": (
            reflection,
            reflection if reflection in reflections else reflections[0],
        ),
        "generations": (told.generation_count, now.record.generation_count),
    }
    for name, (shown, is_) in due.items():
        if shown != is_:
            yield 4, f"the status shows {shown} {name}, there are {is_}"


def foreign(prepared: Prepared, forbidden: Mapping[str, str]) -> Iterator[Finding]:
    """Check 12: nothing that was withheld, or is synthetic, reappears in a block.

    `forbidden` names it by a word that only it has.
    """
    for block in prepared.blocks:
        for name in {forbidden[w] for w in oracle.words(block.text, forbidden)}:
            yield 12, f"{name} is in the request's block of {block.kind}"
