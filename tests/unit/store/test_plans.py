"""What panes and memory ask for at every step or keystroke is found by an index; and whatever else the package asks in
the test run, by what `conftest` has listened to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sakti.store import memory, user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import corrections as memory_corrections
from sakti.store.log import events as memory_events
from sakti.store.log import lines as memory_log
from sakti.store.threads import messages
from tests.fakes.clock import FakeClock
from tests.fakes.statements import Product
from tests.fakes.walks import WALKS

QUERIES: dict[str, Callable[[Any], object]] = {
    "the log": lambda db: memory_log.read_lines(db, "r"),
    "the log at a time": lambda db: memory_corrections.read_log_at(db, "r", 1),
    "events": lambda db: memory_events.list_events(db, "r", "t"),
    "figures": lambda db: memory_log.compute_figures(db, "r"),
    "groups": lambda db: memory.list_groups(db, "r", "active"),
    "the cursor": lambda db: memory.find_cursor(db, "r", "t"),
    "the groups of a window": lambda db: memory.list_current_groups(db, "r", {}),
    "a look between": lambda db: messages.list_states_after(db, "t", 3),
    "summaries": lambda db: messages.list_summaries(db, "t", above=0, limit=9),
    "count": lambda db: messages.count_messages(db, "t"),
    "actors": lambda db: memory_log.list_actor_calls(db, "t"),
}


class Listening:
    """A database that keeps what it was asked."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.asked: list[tuple[str, Any]] = []

    def execute_sql(self, sql: str, values: Any = ()) -> Any:
        self.asked.append((sql, values))
        return self._db.execute_sql(sql, values)


@pytest.mark.parametrize("name", QUERIES)
async def test_no_table_is_walked_through(name: str, tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "m.db", clock=FakeClock(), synchronous="NORMAL")

    def plans(db: Database) -> list[str]:
        listening = Listening(db)
        QUERIES[name](listening)
        assert listening.asked
        return [
            row[3] for sql, values in listening.asked for row in db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values)
        ]

    steps = await store.read(plans)
    assert steps
    assert not [s for s in steps if s.startswith("SCAN") and "VIRTUAL TABLE" not in s and s != "SCAN CONSTANT ROW"]
    await store.close()


async def test_a_walk_of_the_package_fails_the_test_that_came_to_it(store: Store) -> None:
    product = Product()
    await store.read(lambda db: setattr(db.connection(), "exec_trace", product.take))
    await store.read(lambda db: db.execute_sql("SELECT id FROM tasks WHERE title = 'a'").fetchall())
    assert product.fresh == {}  # a test's own
    await store.read(user_state.load_ui_state)
    (found,) = product.unlisted({})
    assert found.startswith("user_state.py:load_ui_state: SCAN ui_state: SELECT ")
    await store.read(user_state.load_ui_state)
    assert product.unlisted({}) == []  # told once
    assert all(reason for reason in WALKS.values())
