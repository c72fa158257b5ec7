"""A database of which nothing is kept."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sakti.core.errors import StoreError
from sakti.core.types import Message, TextPart, Thread
from sakti.store import copies, leases, migrate
from sakti.store.database import Store
from sakti.store.search import search
from sakti.store.threads import messages, threads
from tests.fakes.clock import FakeClock


def message(number: int, text: str) -> Message:
    return Message(f"m{number}", "t1", "w", "user", (TextPart(text),), number)


async def filled(path: Path, count: int = 3) -> Store:
    store = await Store.open(path, clock=FakeClock(), synchronous="NORMAL")
    await store.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    for number in range(count):
        await store.write(messages.append, message(number, f"the zebra number {number}"))
    return store


def files(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("m.db*")}


def count(db: object) -> int:
    return messages.count_messages(db, "t1")  # pyright: ignore[reportArgumentType]


async def test_what_was_said_is_read_and_found_and_nothing_is_added(tmp_path: Path) -> None:
    kept = await filled(tmp_path / "m.db")
    copy = await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)
    assert copy.not_saved and copy.read_only_reason is None and not kept.not_saved
    assert [m.text for m in await copy.read(messages.list_after, "t1", -1)] == [
        f"the zebra number {n}" for n in range(3)
    ]
    before = await copy.read(messages.read_data_version)
    await copy.write(messages.append, message(7, "an aardvark"))
    await kept.write(messages.append, message(8, "a lion"))
    assert (await copy.read(count), await kept.read(count)) == (4, 4)
    assert await copy.read(messages.read_data_version) != before, "panes notice what is written"
    for store, own, other in ((copy, "aardvark", "lion"), (kept, "lion", "aardvark")):
        assert (await store.read(search.search, own, search.Scope("w"))).hits
        assert not (await store.read(search.search, other, search.Scope("w"))).hits
    assert (await copy.read(search.search, "zebra", search.Scope("w"))).hits
    await copy.close()
    await kept.close()


async def test_the_file_stays_byte_for_byte_what_it_is(tmp_path: Path) -> None:
    await (await filled(tmp_path / "m.db")).close()
    before = files(tmp_path)
    copy = await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)
    for number in range(10, 200):
        await copy.write(messages.append, message(number, f"never kept {number} " * 50))
    await copy.close()
    assert files(tmp_path) == before


async def test_without_a_file_none_is_made(tmp_path: Path) -> None:
    copy = await Store.open(tmp_path / "none" / "m.db", clock=FakeClock(), keep=False)
    await copy.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    await copy.write(messages.append, message(1, "hello"))
    assert await copy.read(count) == 1
    await copy.close()
    assert not (tmp_path / "none").exists()


async def test_a_thread_that_another_window_works_in_is_free_in_the_copy(tmp_path: Path) -> None:
    kept = await filled(tmp_path / "m.db")
    lease = {"record_id": "t1", "kind": "turn", "thread_id": "t1", "operation_id": "o", "now": kept.clock.now()}
    assert await kept.write(leases.acquire, owner=leases.make_owner(), **lease)
    assert not await kept.write(leases.acquire, owner=leases.make_owner(), **lease)
    copy = await Store.open(tmp_path / "m.db", clock=kept.clock, keep=False)
    assert await copy.write(leases.acquire, owner=leases.make_owner(), **lease)
    await copy.close()
    await kept.close()


async def test_two_copies_are_two(tmp_path: Path) -> None:
    await (await filled(tmp_path / "m.db")).close()
    one, two = [await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False) for _ in range(2)]
    await one.write(messages.append, message(9, "only here"))
    assert (await one.read(count), await two.read(count)) == (4, 3)
    await one.close()
    await two.close()


async def test_an_older_database_is_brought_up_to_date_in_the_copy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = sorted(migrate._list_files().items())[:-1]
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "_list_files", lambda: dict(older))
        await (await Store.open(tmp_path / "m.db", clock=FakeClock())).close()
    before = files(tmp_path)
    copy = await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)
    assert await copy.read(migrate.read_current_version) == migrate.LATEST
    assert copy.notices == []
    await copy.close()
    assert files(tmp_path) == before


async def test_reads_and_writes_at_once(tmp_path: Path) -> None:
    await (await filled(tmp_path / "m.db")).close()
    copy = await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)

    async def write() -> None:
        for number in range(100, 250):
            await copy.write(messages.append, message(number, f"line {number}"))

    async def read() -> None:
        while await copy.read(count) < 153:
            assert (await copy.read(search.search, "zebra", search.Scope("w"))).hits

    await asyncio.gather(write(), read())
    await copy.close()


async def test_a_file_that_is_no_database_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="is damaged"):
        await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)


async def test_what_is_too_large_for_a_copy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await filled(tmp_path / "m.db")).close()
    monkeypatch.setattr(copies, "LARGEST", 1 << 16)
    with pytest.raises(StoreError, match="a copy in memory"):
        await Store.open(tmp_path / "m.db", clock=FakeClock(), keep=False)


TALKING = """
import asyncio, sys
from pathlib import Path
from sakti.core.types import Message, TextPart
from sakti.store.threads import messages
from sakti.store.database import Store

async def main():
    store = await Store.open(Path(sys.argv[1]), keep=False)
    await store.write(messages.append, Message("secret", "t1", "w", "user", (TextPart("a secret"),), 1))
    print("said", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_kill_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()

    async def fill() -> None:
        await (await filled(folder / "m.db")).close()

    asyncio.run(fill())
    before = files(folder)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", TALKING, str(folder / "m.db")], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"said\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert files(folder) == before
    assert list((tmp_path / "tmp").iterdir()) == []
