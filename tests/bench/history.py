"""Prepare a long thread before a replay begins: observed and condensed."""

from __future__ import annotations

from msgspec import structs

from sakti.core.tokens import Counter, sum_message_tokens
from sakti.core.types import Message, TextPart, Thread
from sakti.store import leases, memory
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.memory import Activate, Add, Group, NewLine, ResultLease
from sakti.store.threads import messages

GROUP_MESSAGES = 500
_TEXTS = ("Please look at src/auth/token.py again.", "I looked at it: the token is refreshed before each request.")


async def add(store: Store, counter: Counter, thread: Thread, record_id: str, count: int) -> None:
    """Put `count` messages into an empty thread, with the groups that cover them merged into one reflection."""
    tokens = [counter.count(t) for t in _TEXTS]
    made: list[Group] = []
    for first in range(0, count, GROUP_MESSAGES):
        size = min(GROUP_MESSAGES, count - first)
        made.append(await store.write(_some, thread, record_id, first, size, tokens))
    if made:
        await store.write(_merge, record_id, thread, made)


def _some(db: Database, thread: Thread, record_id: str, first: int, size: int, tokens: list[int]) -> Group:
    rows = [
        messages.append(
            db,
            Message(
                f"history-{thread.id}-{number:08d}",
                thread.id,
                thread.resource_id,
                "user" if number % 2 == 0 else "assistant",
                (TextPart(_TEXTS[number % 2]),),
                thread.created_at,
                tokens=sum_message_tokens((tokens[number % 2],)),
                part_tokens=(tokens[number % 2],),
                token_counter="o200k_base",
            ),
        )
        for number in range(first, first + size)
    ]
    text = f"* 🟡 (12:00) Messages {first} to {first + size - 1} were about src/auth/token.py"
    group = Group(
        f"history-group-{thread.id}-{first:08d}",
        record_id,
        thread.id,
        "observation",
        "buffered",
        text,
        thread.created_at,
        first_message_id=rows[0].id,
        last_message_id=rows[-1].id,
        first_index=rows[0].index,
        last_index=rows[-1].index,
        message_ids=tuple(m.id for m in rows),
        message_tokens=sum(m.tokens for m in rows),
        observation_tokens=24,
    )
    _add(db, group, thread)
    return structs.replace(group, state="active")


def _merge(db: Database, record_id: str, thread: Thread, made: list[Group]) -> None:
    text = "* 🔴 (12:00) The token is refreshed before each request, src/auth/token.py"
    reflection = Group(
        f"history-reflection-{thread.id}",
        record_id,
        thread.id,
        "reflection",
        "buffered",
        text,
        thread.created_at,
        first_message_id=made[0].first_message_id,
        last_message_id=made[-1].last_message_id,
        first_index=made[0].first_index,
        last_index=made[-1].last_index,
        generation=1,
        observation_tokens=20,
        merged_group_ids=tuple(g.id for g in made),
        message_tokens=sum(g.message_tokens for g in made),
    )
    _add(db, reflection, thread)


def _add(db: Database, group: Group, thread: Thread) -> None:
    observed = group.kind == "observation"
    held = ResultLease("observing" if observed else "reflecting", "history", group.id)
    now, record, operation = thread.created_at, group.record_id, held.operation_id
    leases.acquire(db, record_id=record, kind=held.kind, owner=held.owner, operation_id=operation, now=now)
    line = NewLine(f"line-{group.id}", 0, 0, "", "12:00", "medium", group.text, {"files": [], "line_numbers": []})
    memory.advance(db, record, thread.id, Add(group, [line], held, activate=observed), now)
    if not observed:
        memory.advance(db, record, thread.id, Activate((), reflection=True), now)
    leases.release(db, record_id=record, kind=held.kind, owner=held.owner, operation_id=operation)
