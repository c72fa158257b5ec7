"""Where a line of the log comes from: its group's messages, and the one that says it."""

from __future__ import annotations

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store.database import Store
from sakti.store.memory import group_rows
from sakti.store.threads import messages, threads

SAID = ("hello there", "the courier password is in vault slot nine", "the courier drains the queue", "thanks")


def insert(db, first, last) -> None:
    db.execute_sql(
        "INSERT INTO observational_memory (id, lookup_key, scope, resource_id, created_at, updated_at)"
        " VALUES ('r', 'thread:t', 'thread', '/w', 0, 0)"
    )
    db.execute_sql(
        "INSERT INTO observation_groups"
        " (id, record_id, thread_id, kind, state, text, first_index, last_index, created_at)"
        " VALUES ('g', 'r', 't', 'observation', 'active', '', ?, ?, 0)",
        (first, last),
    )
    db.execute_sql(
        "INSERT INTO observations (id, group_id, thread_id, resource_id, line, content, created_at)"
        " VALUES ('o', 'g', 't', '/w', 0, 'User: courier password lies in vault slot nine', 0)"
    )


@pytest.fixture
async def filled(store: Store) -> Store:
    def fill(db) -> None:
        threads.create(db, Thread("t", "/w", "", 0, 0))
        for number, text in enumerate(SAID):
            messages.append(db, Message(f"m{number}", "t", "/w", "user", (TextPart(text),), number))

    await store.write(fill)
    return store


@pytest.mark.parametrize(("first", "last", "index"), [(0, 3, 1), (2, 3, 2), (3, 3, 3)])
async def test_the_message_that_shares_most_words(filled, first, last, index):
    await filled.write(insert, first, last)
    found = await filled.read(group_rows.find_origin, "o")
    assert found == group_rows.Origin("g", "t", first, last, f"m{index}", index)


async def test_a_line_without_messages_has_no_origin(filled):
    assert await filled.read(group_rows.find_origin, "nobody") is None
    await filled.write(insert, 7, 9)  # messages that are gone
    assert await filled.read(group_rows.find_origin, "o") is None
