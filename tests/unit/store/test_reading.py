"""A question to the database without a store."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from sakti.store import opening
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.tasks import queries


def test_what_is_no_database_of_this_version_is_left_to_the_store(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with pytest.raises(opening.NotReady):
        opening.read_once(path, queries.list_ready, "/w", 5)
    assert not path.exists()
    apsw.Connection(str(path)).close()
    with pytest.raises(opening.NotReady):
        opening.read_once(path, queries.list_ready, "/w", 5)


async def test_it_reads_writes_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = await Store.open(path)
    assert opening.read_once(path, queries.list_ready, "/w", 5)["readyCount"] == 0  # beside one that is open
    await store.close()

    def change(db: Database) -> None:
        db.execute_sql("DELETE FROM schema_migrations")

    with pytest.raises(opening.NotReady):
        opening.read_once(path, change)
    assert opening.read_once(path, queries.list_ready, "/w", 5)["readyCount"] == 0
    assert [p.name for p in tmp_path.glob("x.db*")] == ["x.db"]
