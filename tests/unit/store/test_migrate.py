"""A database of an earlier sakti is brought up to date, whatever happens meanwhile."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import apsw
import pytest

from sakti.store import maintenance, migrate, search, threads
from sakti.store.database import Store

# Opens a database and, with `die`, is killed in the middle of the last migration.
OPEN = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.core.clock import SystemClock
from sakti.store.database import Store

class Dying(SystemClock):
    def now(self):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = await Store.open(Path(sys.argv[1]), clock=Dying() if "die" in sys.argv else None)
    print(len(store.notices), flush=True)
    await store.close()

asyncio.run(main())
"""


def first_version(path: Path) -> None:
    """A database as the first schema made it, with a thread of three messages."""
    script = resources.files("sakti.store.migrations").joinpath("0001_initial.sql").read_text("utf-8")
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = wal")
    db.execute("BEGIN")
    db.execute(
        "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
    )
    db.execute(script)
    db.execute("INSERT INTO schema_migrations VALUES (1, '0001_initial.sql', 1)")
    db.execute("INSERT INTO threads (id, resource_id, title, created_at, updated_at) VALUES ('t', '/w', 'Old', 1, 1)")
    for i, word in enumerate(("walrus", "zebra", "heron")):
        db.execute(
            "INSERT INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content, created_at)"
            " VALUES (?, 't', '/w', 'user', ?, ?, ?, ?)",
            (f"m{i}", i, f'[{{"t": "text", "text": "the {word} sings"}}]', f"the {word} sings", i),
        )
        db.execute(
            "INSERT INTO search_docs (kind, doc_id, resource_id, thread_id, position, created_at, text)"
            " VALUES ('message', ?, '/w', 't', ?, ?, ?)",
            (f"m{i}", i, i, f"the {word} sings"),
        )
    db.execute("COMMIT")
    db.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    first_version(tmp_path / "s.db")
    return tmp_path / "s.db"


def start(path: Path, *arguments: str) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", OPEN, str(path), *arguments]
    return subprocess.Popen(code, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


async def whole(path: Path) -> Store:
    store = await Store.open(path)
    assert all(f.ok for f in await store.read(maintenance.check))
    for word in ("walrus", "zebra", "heron"):
        page = await store.read(search.search, word, search.Scope("/w"))
        assert [h.text for h in page.hits] == [f"the {word} sings"]
    assert [t.id for t in await store.read(threads.recent, "/w", 5)] == ["t"]
    return store


def shape(path: Path) -> dict[str, str]:
    """Every table's columns, and what else there is, by name."""
    db = apsw.Connection(str(path))
    names = [n for (n,) in db.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
    out = {n: str(sorted(str(r[1:4]) for r in db.execute(f'PRAGMA table_info("{n}")'))) for n in names}
    db.close()
    return out


async def test_an_older_database_is_brought_up_to_date_and_copied_first(old: Path, tmp_path: Path) -> None:
    store = await whole(old)
    private, notice = store.notices
    assert "yours alone now" in private and stat.S_IMODE(old.stat().st_mode) == 0o600
    copy = tmp_path / f"s.db.before-{migrate.LATEST:04d}"
    assert str(copy) in notice
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    await store.close()
    backup = apsw.Connection(str(copy))
    assert backup.execute("SELECT max(version) FROM schema_migrations").fetchall() == [(1,)]
    backup.close()
    await (await Store.open(tmp_path / "new.db")).close()
    assert shape(old) == shape(tmp_path / "new.db")
    again = await Store.open(old)
    assert again.notices == []
    await again.close()


async def test_killed_in_the_middle_it_begins_again(old: Path) -> None:
    process = start(old, "die")
    assert process.wait(30) == -signal.SIGKILL
    db = apsw.Connection(str(old))
    assert db.execute("SELECT max(version) FROM schema_migrations").fetchall() == [(1,)]
    db.close()
    await (await whole(old)).close()


async def test_started_many_times_at_once_it_is_done_once(old: Path) -> None:
    running = [start(old) for _ in range(4)]
    try:
        for process in running:
            assert process.wait(30) == 0
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    db = apsw.Connection(str(old))
    applied = [v for (v,) in db.execute("SELECT version FROM schema_migrations ORDER BY version")]
    db.close()
    assert applied == list(range(1, migrate.LATEST + 1))
    await (await whole(old)).close()
