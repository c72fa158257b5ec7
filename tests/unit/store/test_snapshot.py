"""What one question reads fits together, whatever is written between its queries."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from sakti.core.errors import StoreError
from sakti.store import opening
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.tasks import queries, service
from sakti.tasks.service import Actor


class Restless:
    """A database in which another connection deletes a task, or brings it back, before every single query."""

    def __init__(self, db: Any, path: Path) -> None:
        self._db, self._other = db, apsw.Connection(str(path))
        self._other.set_busy_timeout(10_000)  # the store may be copying its log
        self.changes = 0

    def execute_sql(self, sql: str, values: Any = ()) -> Any:
        self._change()
        return self._db.execute_sql(sql, values)

    def _change(self) -> None:
        self.changes += 1
        other: Any = SimpleNamespace(execute_sql=self._other.execute, connection=lambda: self._other)
        self._other.execute("BEGIN IMMEDIATE")
        what = service.delete if self.changes % 2 else service.restore
        what(other, Actor("/w", "s", self.changes), "restless")
        self._other.execute("COMMIT")

    def close(self) -> None:
        if self.changes % 2:
            self._change()
        self._other.close()


@pytest.fixture
async def tasks(store: Store) -> Path:
    for name, more in (("restless", {}), ("waits", {"depends_on": ["restless"]}), ("quiet", {})):
        await store.write(service.create, Actor("/w", "s", 1), service.NewTask(name, name, **more))
    return store.path


def look(db: Database, path: Path) -> tuple[list[str], list[tuple[str, list[str]]], int]:
    """Titles of the ready ones, of the blocked ones with what they wait for, the count that `ready` gives."""
    restless: Any = Restless(db, path)
    try:
        seen = queries.load_board(restless, "/w", 0)
        answer = queries.list_ready(restless, "/w", 9)
        assert restless.changes > 4
    finally:
        restless.close()
    assert len(answer["tasks"]) == answer["readyCount"] == len(seen.ready)
    return [t.title for t in seen.ready], [(t.title, list(t.blocked_by)) for t in seen.blocked], answer["readyCount"]


async def test_a_board_is_never_torn(store: Store, tasks: Path) -> None:
    handle = (await store.read(queries.find, "/w", "restless")).handle
    for _ in range(4):
        seen = await store.read(look, tasks)
        assert seen in ((["restless", "quiet"], [("waits", [handle])], 2), (["waits", "quiet"], [], 2))


async def test_a_program_that_asks_once_sees_a_whole_board(store: Store, tasks: Path) -> None:
    handle = (await store.read(queries.find, "/w", "restless")).handle
    assert opening.read_once(tasks, look, tasks) == (["restless", "quiet"], [("waits", [handle])], 2)


async def test_a_question_that_fails_leaves_no_transaction(store: Store) -> None:
    with pytest.raises(StoreError):
        await store.read(lambda db: db.execute_sql("SELECT * FROM nothing"))
    with pytest.raises(ZeroDivisionError):
        await store.read(lambda db: 1 // 0)
    await store.write(service.create, Actor("/w", "s", 1), service.NewTask("new", "new"))
    assert await store.read(lambda db: db.execute_sql("SELECT count(*) FROM tasks").fetchone()) == (1,)
