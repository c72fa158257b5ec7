"""A database file that is removed, replaced or truncated while windows have it open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sakti.core.errors import StoreError
from sakti.core.types import Message, TextPart, Thread
from sakti.store import copies
from sakti.store.database import Store
from sakti.store.database_file import FileIdentity
from sakti.store.maintenance import checks
from sakti.store.search import search
from sakti.store.threads import messages, threads


def message(text: str) -> Message:
    return Message(text, "t1", "w", "user", (TextPart(text),), 1)


async def say(store: Store, text: str) -> None:
    await store.write(messages.append, message(text))


async def texts(store: Store) -> list[str]:
    return [m.text for m in await store.read(messages.list_after, "t1", -1)]


class Windows:
    """Two windows on one database with a thread of two messages, and the reasons that each was given."""

    def __init__(self, path: Path, first: Store, second: Store) -> None:
        self.path, self.first, self.second = path, first, second
        self.reasons: dict[Store, list[str]] = {first: [], second: []}
        first.on_damage = self.reasons[first].append
        second.on_damage = self.reasons[second].append


@pytest.fixture
async def windows(tmp_path: Path) -> AsyncIterator[Windows]:
    path = tmp_path / "m.db"
    first, second = await Store.open(path), await Store.open(path)
    await first.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    shutil.copyfile(path, tmp_path / "older.db")
    await say(first, "first says zebra")
    await say(second, "second says heron")
    yield Windows(path, first, second)
    for store in (first, second):
        with contextlib.suppress(RuntimeError):  # closed by the test
            await store.close()


def remove_all(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def restore(path: Path) -> None:
    (path.parent / "older.db").replace(path)


def remove_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


LOSSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "removed with its log": (remove_all, "m.db was removed"),
    "removed": (Path.unlink, "m.db was removed"),
    "moved": (move, "m.db was removed"),
    "restored from an older copy": (restore, "m.db was replaced"),
    "its log removed": (remove_log, "m.db-wal was removed"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_lost_file_is_reported_and_everything_can_be_copied(loss: str, windows: Windows, tmp_path: Path) -> None:
    lose, words = LOSSES[loss]
    lose(windows.path)
    await say(windows.first, "first says aardvark")
    assert await texts(windows.second) == ["first says zebra", "second says heron"]
    await say(windows.second, "second says lion")
    await asyncio.sleep(0)
    for store, word in ((windows.first, "aardvark"), (windows.second, "lion")):
        (reason,) = windows.reasons[store]
        assert words in reason and "`/backup FILE`" in reason
        assert store.not_saved == reason and store.read_only_reason is None
        assert (await store.read(search.search, word, search.Scope("w"))).hits
        said = await texts(store)
        copy = tmp_path / f"{word}.db"
        await store.read(copies.backup, store.path, copy)
        saved = await Store.open(copy)
        assert saved.not_saved is None and await texts(saved) == said
        assert len(said) == 3 and word in said[2]
        assert all(f.ok for f in await saved.read(checks.check))
        await saved.close()


@pytest.mark.parametrize("loss", ["removed with its log", "removed", "moved"])
async def test_database_created_in_its_place_starts_empty(loss: str, windows: Windows) -> None:
    """A log left beside the name is not applied to it, however it was left."""
    LOSSES[loss][0](windows.path)
    created = await Store.open(windows.path)
    assert await texts(created) == []
    await created.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    await say(created, "another")
    await say(windows.first, "first goes on")
    await say(windows.second, "second goes on")
    assert await texts(created) == ["another"] and created.not_saved is None
    await created.close()
    again = await Store.open(windows.path)
    assert await texts(again) == ["another"]
    assert all(f.ok for f in await again.read(checks.check))
    await again.close()


async def test_moved_file_has_everything_that_was_said_before(windows: Windows) -> None:
    move(windows.path)
    await say(windows.first, "first goes on")
    moved = await Store.open(windows.path.with_name("moved.db"))
    assert await texts(moved) == ["first says zebra", "second says heron"]
    await moved.close()


async def test_restored_file_is_not_changed_by_the_log_of_the_one_before(windows: Windows) -> None:
    older = (windows.path.parent / "older.db").read_bytes()
    restore(windows.path)
    await say(windows.first, "first goes on")
    await say(windows.second, "second goes on")
    await windows.first.close()
    await windows.second.close()
    assert windows.path.read_bytes() == older
    restored = await Store.open(windows.path)
    assert await texts(restored) == []
    assert all(f.ok for f in await restored.read(checks.check))
    await restored.close()


@pytest.mark.parametrize("size", [0, 8192])
async def test_truncated_file_stops_both_windows_at_once(size: int, windows: Windows) -> None:
    assert await windows.first.flush()
    os.truncate(windows.path, size)
    for store in (windows.first, windows.second):
        with pytest.raises(StoreError, match="was truncated while it was in use") as caught:
            await say(store, "one more")
        assert caught.value.code == "read_only"
        await asyncio.sleep(0)
        assert windows.reasons[store] == [store.not_saved]


async def test_backup_of_a_truncated_file_says_what_is_damaged(windows: Windows, tmp_path: Path) -> None:
    assert await windows.first.flush()
    os.truncate(windows.path, 0)
    with pytest.raises(StoreError) as caught:
        await windows.second.read(copies.backup, windows.path, tmp_path / "backup.db")
    assert "`sakti db recover`" in caught.value.message and caught.value.code == "damaged"
    assert "backup.db" not in caught.value.message and not list(tmp_path.glob("backup.db*"))


@pytest.mark.parametrize("size", [0, 5000])
@pytest.mark.parametrize("emptied_before", [True, False])
async def test_truncated_log_is_said_before_anything_else_is_saved(
    size: int, emptied_before: bool, windows: Windows
) -> None:
    if emptied_before:
        assert await windows.first.flush()
        await say(windows.first, "first goes on")
        await say(windows.second, "second goes on")
    os.truncate(windows.path.with_name("m.db-wal"), size)
    before = windows.path.read_bytes()
    for store in (windows.first, windows.second):
        with contextlib.suppress(StoreError):
            await say(store, "one more")
        await asyncio.sleep(0)
        (reason,) = windows.reasons[store]
        assert "m.db-wal was truncated while it was in use" in reason and store.not_saved == reason
        await store.close()
    assert windows.path.read_bytes() == before
    assert windows.path.with_name("m.db-wal").stat().st_size in (0, size)


async def test_log_emptied_by_either_window_is_no_loss(windows: Windows) -> None:
    for number in range(6):
        for store in (windows.first, windows.second):
            await say(store, f"line {number} of {id(store)}")
            assert await store.flush()
    assert len(await texts(windows.first)) == 14
    assert windows.reasons == {windows.first: [], windows.second: []}


def overwrite(path: Path, content: bytes) -> None:
    """Write into the file as `cp` does, a moment after the last checkpoint."""
    written = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(written, written + 10_000_000))


async def settle(store: Store) -> None:
    await store._loop.run_in_executor(store._writer, store._upkeep, 1.0, True)


@pytest.mark.parametrize("settled", [True, False])
async def test_file_overwritten_in_place_by_an_older_copy_of_its_size_is_noticed(
    settled: bool, windows: Windows, tmp_path: Path
) -> None:
    if settled:
        await settle(windows.first)
    await windows.first.read(copies.backup, windows.path, tmp_path / "backup.db")
    await say(windows.second, "second goes on")
    await settle(windows.second)
    assert await windows.first.flush()
    assert not any(windows.reasons.values())
    restored = (tmp_path / "backup.db").read_bytes()
    assert len(restored) == windows.path.stat().st_size
    overwrite(windows.path, restored)
    for store in (windows.first, windows.second):
        with contextlib.suppress(StoreError):
            await store.read(messages.count_messages, "t1")
        await asyncio.sleep(0)
        (reason,) = windows.reasons[store]
        assert "m.db was overwritten by an older copy" in reason
        await store.close()
    assert windows.path.read_bytes() == restored


async def test_idle_window_notices_at_its_next_look(windows: Windows) -> None:
    windows.path.unlink()
    await windows.first.read(messages.read_data_version)
    await asyncio.sleep(0)
    assert len(windows.reasons[windows.first]) == 1


async def test_no_change_is_seen_while_windows_work(windows: Windows) -> None:
    identity = FileIdentity(windows.path)
    for number in range(40):
        await say(windows.first, f"first {number}")
        await say(windows.second, f"second {number}")
        assert identity.find_loss() is None
    await windows.second.flush()
    assert identity.find_loss() is None
    await windows.second.close()
    await say(windows.first, "alone")
    assert identity.find_loss() is None
    assert windows.reasons == {windows.first: [], windows.second: []}
