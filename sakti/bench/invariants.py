"""What must hold of memory at every step of a replay. Each check gives its number and a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sakti.core.events import Event, MemoryActivation, MemoryStatus
from sakti.core.types import Message
from sakti.memory.engine import Prepared
from sakti.memory.policy import Numbers
from sakti.store.memory import Group

Finding: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: int
    turn: int
    step: int
    message: str


@dataclass(slots=True)
class Log:
    """The groups of a record as the database has them, and how it was when we last looked."""

    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    cursors: dict[str, int] = field(default_factory=dict[str, int])

    def covered(self, thread_id: str) -> set[int]:
        """Indexes of the messages of a thread that an active group stands for, directly or merged."""
        out: set[int] = set()
        for group in self.groups.values():
            if group.state == "active":
                out |= self._covers(group, thread_id)
        return out

    def _covers(self, group: Group, thread_id: str) -> set[int]:
        if group.kind == "reflection":
            merged = (self.groups[i] for i in group.merged_group_ids if i in self.groups)
            return set[int]().union(*(self._covers(g, thread_id) for g in merged))
        if group.thread_id != thread_id or group.first_index is None or group.last_index is None:
            return set()
        return set(range(group.first_index, group.last_index + 1))


def request(
    prepared: Prepared, said: Sequence[Message], prompts: Collection[str], covered: Collection[int], *, limited: bool
) -> Iterator[Finding]:
    """1 and 7: of one request. `said` are the thread's messages; `limited`: not everything had room."""
    sent = [m for m in prepared.messages if "synthetic" not in m.metadata]
    ids, indexes = {m.id for m in sent}, [m.index for m in sent]
    if indexes != sorted(set(indexes)):
        yield 1, f"messages are out of order or twice in the request: {indexes[:20]}"
    if missing := set(prompts) - ids:
        yield 1, f"the current prompt is not in the request ({len(missing)} missing)"
    gone = [m.index for m in said if m.id not in ids and m.index not in covered]
    if gone and not limited:
        yield 1, f"messages {gone[:10]} are neither raw nor in the log"
    raw_and_covered = [i for i in indexes if i in covered and not _is_prompt(i, sent, prompts)]
    if raw_and_covered:
        yield 1, f"messages {raw_and_covered[:10]} are raw although the log stands for them"
    open_calls: set[str] = set()
    for message in sent:
        for result in message.tool_results:
            if result.call_id not in open_calls:
                yield 7, f"a tool result without its call in message {message.index}"
            open_calls.discard(result.call_id)
        open_calls |= {c.id for c in message.tool_calls}
    if open_calls:
        yield 7, f"tool calls without results: {sorted(open_calls)[:5]}"
    if not sent or sent[-1].role not in ("user", "tool"):
        yield 7, "the request does not end with the user's or a tool's message"


def _is_prompt(index: int, sent: Sequence[Message], prompts: Collection[str]) -> bool:
    return any(m.index == index and m.role == "user" for m in sent) or not prompts


def size(prepared: Prepared, budget: int | None, last_exchange: int) -> Iterator[Finding]:
    """5: no request above the window, but for what no request can be without."""
    if budget is None:
        return
    blocks = sum(b.tokens for b in prepared.blocks)
    tokens = blocks + sum(m.tokens for m in prepared.messages)
    if tokens > max(budget, blocks + last_exchange):
        yield 5, f"a request of {tokens} tokens where the window leaves {budget}"


def log_moves(before: Log, after: Log, *, undone: bool) -> Iterator[Finding]:
    """2, 3 and 8: between two looks at the database."""
    for old in before.groups.values():
        new = after.groups.get(old.id)
        if new is None:
            yield 2, f"group {old.id[-8:]} is gone"
        elif new.text != old.text:
            yield 2, f"the text of group {old.id[-8:]} was changed"
        elif new.kind == "observation" and new.state == "discarded" != old.state and not undone:
            yield 2, f"the finished observation {old.id[-8:]} was thrown away"
    for thread, cursor in before.cursors.items():
        if after.cursors.get(thread, -1) < cursor and not undone:
            yield 3, f"the cursor went back from {cursor} to {after.cursors.get(thread)}"
    for new in after.groups.values():
        if new.id in before.groups:
            continue
        if new.kind == "observation" and new.state != "discarded":
            yield from _observed_twice(new, after)
        elif new.kind == "reflection":
            merged = sum(after.groups[i].observation_tokens for i in new.merged_group_ids if i in after.groups)
            if new.observation_tokens >= merged:
                yield 8, f"a reflection of {new.observation_tokens} tokens for {merged}"


def _observed_twice(new: Group, log: Log) -> Iterator[Finding]:
    for other in log.groups.values():
        if (
            other.id != new.id
            and other.kind == "observation"
            and other.state != "discarded"
            and other.thread_id == new.thread_id
            and (other.first_index or 0) <= (new.last_index or 0)
            and (other.last_index or 0) >= (new.first_index or 0)
        ):
            yield 3, f"messages {new.first_index}–{new.last_index} were observed twice"
            return


def finished(answered: Iterable[tuple[str, int, int]], log: Log) -> Iterator[Finding]:
    """2: what an Observer has answered is in the store."""
    for thread, first, last in answered:
        if not any(
            g.kind == "observation"
            and g.state != "discarded"
            and g.thread_id == thread
            and (g.first_index or 0) <= first
            and (g.last_index or 0) >= last
            for g in log.groups.values()
        ):
            yield 2, f"the finished observation of messages {first}–{last} is nowhere"


def projections(events: Sequence[Event], last: MemoryStatus | None) -> Iterator[Finding]:
    """4: what the newest status projected is what the activation removed, and what pending then fell by."""
    removed: tuple[int, int] | None = None
    for event in events:
        if isinstance(event, MemoryStatus):
            if removed is not None and event.messages.tokens != removed[0] - removed[1]:
                yield 4, f"pending fell from {removed[0]} to {event.messages.tokens}, not by {removed[1]}"
            removed, last = None, event
        elif isinstance(event, MemoryActivation) and event.operation_type == "observation":
            if last is None or event.tokens_activated != last.buffered_observations.projected_message_removal:
                shown = last.buffered_observations.projected_message_removal if last else None
                yield 4, f"{shown} tokens were projected, {event.tokens_activated} were removed"
            if last is not None:
                removed = last.messages.tokens, event.tokens_activated


def waiting(
    numbers: Numbers, pending: int, log_tokens: int, *, ready: bool, running: bool, reflecting: bool
) -> Iterator[Finding]:
    """6: whether a step that waits may. `running`: it is the background's work that it
    waits for; `reflecting`: a reflection ran or was ready before it."""
    above = pending > numbers.block_after or (pending >= numbers.threshold and not ready and not running)
    log_above = log_tokens > numbers.reflect_block_after or (log_tokens >= numbers.reflect_at and not reflecting)
    if not above and not log_above:
        yield (
            6,
            (
                f"a step waited at {pending} of {numbers.threshold} pending and {log_tokens} of "
                f"{numbers.reflect_at} observed tokens"
            ),
        )


def after_step(status: MemoryStatus, numbers: Numbers, *, may_observe: bool) -> Iterator[Finding]:
    """5 and 6: a step that goes on above its limits says why; `may_observe`: something could have gone."""
    pending = status.messages.tokens
    if (
        pending >= numbers.threshold
        and status.buffered_observations.chunks == 0
        and (status.buffered_observations.status != "running" and not status.note)
    ):
        yield 5, f"{pending} of {numbers.threshold} tokens are pending, and the status does not say why"
    if pending > numbers.block_after and may_observe:
        yield 6, f"a step did not wait at {pending} tokens, above {numbers.block_after}"


def foreign(asked: Iterable[Message], prompts: Iterable[str], texts: Mapping[str, str]) -> Iterator[Finding]:
    """12: nothing of our own reaches the Observer. `texts`: what must not be in its input, by name."""
    for message in asked:
        if "synthetic" in message.metadata or message.role == "system" or message.state != "saved":
            yield 12, f"the Observer was given message {message.index}, which is not the conversation's"
    for prompt in prompts:
        for name, text in texts.items():
            if text in prompt:
                yield 12, f"the Observer was given {name}"
