"""A copy of an open database without its write-ahead log says so; nothing else does."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store import copies
from sakti.store import database as store_database
from sakti.store.database import Store
from sakti.store.threads import messages, threads

MISSING = "without the file ending in -wal"

SPEAK = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.core.types import Message, TextPart, Thread
from sakti.store.database import Store
from sakti.store.threads import messages, threads

async def main():
    store = await Store.open(Path(sys.argv[1]))
    await store.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    await store.write(messages.append, Message("m1", "t1", "w", "user", (TextPart("the zebra"),), 1))
    await store._loop.run_in_executor(store._writer, store._upkeep, 1.0, False)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def speaking(path: Path) -> Store:
    """A window in which something was said, and the upkeep behind it has run."""
    store = await Store.open(path)
    await store.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    await say(store, "m1")
    return store


async def say(store: Store, id: str) -> None:
    await store.write(messages.append, Message(id, "t1", "w", "user", (TextPart("the zebra"),), 1))
    await upkeep(store, idle=False)


async def upkeep(store: Store, *, idle: bool) -> None:
    await store._loop.run_in_executor(store._writer, store._upkeep, 1.0, idle)


async def warnings(path: Path) -> list[str]:
    store = await Store.open(path)
    await store.close()
    return [notice for notice in store.notices if MISSING in notice]


def copy(path: Path, name: str, *, log: bool = False) -> Path:
    target = path.with_name(name)
    shutil.copyfile(path, target)
    target.chmod(0o600)
    if log:
        shutil.copyfile(f"{path}-wal", f"{target}-wal")
    return target


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


async def test_copy_of_an_open_database_without_its_log_warns(path: Path) -> None:
    store = await speaking(path)
    bare, complete = copy(path, "bare.db"), copy(path, "complete.db", log=True)
    assert len(await warnings(bare)) == 1
    assert await warnings(complete) == []
    await say(store, "m2")  # as long as it is in use
    assert len(await warnings(copy(path, "later.db"))) == 1
    await store.close()


async def test_copy_after_a_pause_or_after_closing_does_not_warn(path: Path) -> None:
    store = await speaking(path)
    await upkeep(store, idle=True)
    assert await warnings(copy(path, "idle.db")) == []
    await say(store, "m2")
    assert len(await warnings(copy(path, "again.db"))) == 1
    await store.close()
    assert await warnings(copy(path, "closed.db")) == []
    assert await warnings(path) == []


async def test_database_behind_a_link_is_marked_too(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    await (await Store.open(path)).close()
    store = await speaking(link)
    assert len(await warnings(copy(path, "copy.db"))) == 1
    await store.close()


async def test_backup_of_an_open_database_does_not_warn(path: Path, tmp_path: Path) -> None:
    store = await speaking(path)
    await store.read(copies.backup, path, tmp_path / "backup.db")
    assert await warnings(tmp_path / "backup.db") == []
    await store.close()


async def test_second_window_that_closes_first_keeps_later_writes_marked(path: Path) -> None:
    first, second = await speaking(path), await Store.open(path)
    await say(second, "m2")
    await second.close()
    await say(first, "m3")
    assert len(await warnings(copy(path, "copy.db"))) == 1
    await first.close()


def killed(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SPEAK, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


async def test_killed_window_leaves_no_warning(path: Path) -> None:
    killed(path)
    assert Path(f"{path}-wal").stat().st_size
    moved = path.rename(path.with_name("moved.db"))
    Path(f"{path}-wal").rename(f"{moved}-wal")
    assert await warnings(moved) == []


async def test_log_that_another_program_copied_into_the_file_is_not_missed(path: Path) -> None:
    killed(path)
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM threads").fetchall()
    connection.close()
    assert not Path(f"{path}-wal").exists()
    assert await warnings(path) == []
    assert await warnings(copy(path, "closed.db")) == []


async def test_copy_of_a_killed_windows_file_alone_warns(path: Path) -> None:
    killed(path)
    assert len(await warnings(copy(path, "bare.db"))) == 1


async def test_mark_is_checkpointed_soon_after_the_first_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_database, "MARK_S", 0.0)
    store = await Store.open(path)
    await store.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    for _ in range(3):
        await store.read(lambda db: None)
    await store._loop.run_in_executor(store._writer, lambda: None)
    assert len(await warnings(copy(path, "bare.db"))) == 1
    await store.close()
