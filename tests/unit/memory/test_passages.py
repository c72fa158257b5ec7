"""A short message is extended to a passage: contiguous, of whole messages, within its limit."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from playhouse.apsw_ext import APSWDatabase

from sakti.core.types import Message, TextPart, Thread
from sakti.memory.recall import PASSAGE_TOKENS, REACH, list_passage
from sakti.store.database import Store
from sakti.store.threads import messages, removal, threads

_NUMBERS = itertools.count()


def fill(db: APSWDatabase, sizes: list[int]) -> str:
    thread = f"t{next(_NUMBERS)}"
    threads.create(db, Thread(thread, "/w", "", 1, 1))
    for i, size in enumerate(sizes):
        text = (TextPart(f"number {i}"),)
        message = Message(f"{thread}-{i}", thread, "/w", "user", text, i + 1, tokens=size, part_tokens=(size,))
        messages.append(db, message)
    return thread


def expect_passage(sizes: list[int], index: int) -> list[int]:
    if sizes[index] > PASSAGE_TOKENS:
        return []
    first = last = index
    is_open = {-1: True, 1: True}
    for distance in range(1, REACH + 1):
        for side in (-1, 1):
            at = index + side * distance
            used = sum(sizes[first : last + 1])
            is_open[side] &= 0 <= at < len(sizes) and used + sizes[at] <= PASSAGE_TOKENS
            if is_open[side]:
                first, last = min(first, at), max(last, at)
    return list(range(first, last + 1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 260), min_size=1, max_size=16), st.integers(0, 15))
@example([10] * 16, 8)
async def test_a_passage_is_contiguous_and_within_its_limit(store: Store, sizes: list[int], place: int) -> None:
    index = place % len(sizes)
    thread = await store.write(fill, sizes)
    passage = await store.read(list_passage, thread, index)
    assert [m.index for m in passage] == expect_passage(sizes, index)
    assert sum(m.tokens for m in passage) <= PASSAGE_TOKENS


async def test_a_passage_ends_at_a_deleted_message(store: Store) -> None:
    thread = await store.write(fill, [10, 10, 10, 10])
    await store.write(removal.delete_messages, f"{thread}-1", 99)
    deleted = {m.index for m in await store.read(messages.list_page, thread) if removal.is_message_deleted(m)}
    assert deleted
    passage = await store.read(list_passage, thread, 3)
    assert not deleted & {m.index for m in passage}
    assert [m.index for m in passage] == list(range(max(deleted) + 1, 4))
