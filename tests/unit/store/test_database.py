from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sakti.core.errors import StoreError
from sakti.core.types import Message, ModelCall, TextPart, ThinkingPart, Thread, ToolCallPart, ToolResultPart, Usage
from sakti.store import copies, migrate
from sakti.store.database import Store
from sakti.store.maintenance import checks, upkeep
from sakti.store.models import MODELS
from sakti.store.threads import messages, removal, runs, threads
from sakti.store.threads.codec import decode, encode


async def thread_in(store: Store, resource: str = "/w") -> Thread:
    now = store.clock.now()
    return await store.write(threads.create, Thread(store.ids.new(), resource, "", now, now))


def message(store: Store, thread: Thread, text: str, role: str = "user") -> Message:
    return Message(store.ids.new(), thread.id, thread.resource_id, role, (TextPart(text),), store.clock.now())


async def test_files_are_private_and_the_schema_is_the_models(store: Store) -> None:
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    await thread_in(store)
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for model in MODELS:
        table = model._meta.table_name
        columns = await store.read(
            lambda db, t=table: {r[1] for r in db.execute_sql(f"PRAGMA table_info({t})").fetchall()}
        )
        assert columns == set(model._meta.columns), table


async def test_messages_come_back_as_they_were(store: Store) -> None:
    thread = await thread_in(store)
    parts = (
        ThinkingPart("hm", "anthropic", {"signature": "s"}),
        TextPart("héllo 🎉"),
        ToolCallPart("c", "read", None, raw="{bad"),
        ToolResultPart("c", "read", "x", True, {"diff": "d"}),
    )
    saved = await store.write(
        messages.append, Message("m1", thread.id, "/w", "assistant", parts, 5, tokens=7, part_tokens=(1, 2, 3, 1))
    )
    assert saved.index == 0
    (back,) = await store.read(messages.list_page, thread.id)
    assert back == saved
    assert all(decode(encode(p)) == p for p in parts)


async def test_pages_walk_a_thread_backwards(store: Store) -> None:
    thread = await thread_in(store)
    for i in range(25):
        await store.write(messages.append, message(store, thread, f"m{i}"))
    newest = await store.read(messages.list_page, thread.id, limit=10)
    assert [m.text for m in newest] == [f"m{i}" for i in range(15, 25)]
    older = await store.read(messages.list_page, thread.id, before=newest[0].index, limit=100)
    assert [m.text for m in older] == [f"m{i}" for i in range(15)]


async def test_provisional_messages_are_found_only_once_they_passed(store: Store) -> None:
    from sakti.store.search.search import Scope, search

    thread = await thread_in(store)
    draft = Message("p", thread.id, "/w", "assistant", (TextPart("zanzibar"),), 1, state="provisional")
    await store.write(messages.append, draft)
    assert (await store.read(search, "zanzibar", Scope("/w"))).total == 0
    await store.write(messages.confirm, ["p"])
    assert (await store.read(search, "zanzibar", Scope("/w"))).total == 1
    await store.write(
        messages.append, Message("w", thread.id, "/w", "assistant", (TextPart("secret"),), 2, state="provisional")
    )
    plain = "UPDATE messages SET raw_content = 'secret' WHERE id = 'w'"  # as in a database that is not packed yet
    await store.write(lambda db: db.execute_sql(plain))
    await store.write(removal.withhold_turn, ["w"], "guardrail")
    kept = await store.read(messages.get, "w")
    assert kept is not None
    assert kept.state == "withheld"
    assert "secret" not in str(kept)
    row = await store.read(lambda db: db.execute_sql("SELECT * FROM messages WHERE id = 'w'").fetchone())
    assert "secret" not in str(row)
    await store.write(messages.confirm, ["w"])
    kept = await store.read(messages.get, "w")
    assert kept is not None and kept.state == "withheld", "only what is being written becomes saved"


async def test_a_message_is_sealed_once(store: Store) -> None:
    thread = await thread_in(store)
    await store.write(messages.append, message(store, thread, "m"))
    (one,) = await store.read(messages.list_page, thread.id, limit=1)
    for now in (10, 20):
        await store.write(messages.seal, [one.id], now)
    sealed = "SELECT sealed_at FROM messages WHERE id = ?"
    assert await store.read(lambda db: db.execute_sql(sealed, (one.id,)).fetchone()) == (10,)


async def test_a_failed_write_leaves_nothing(store: Store) -> None:
    thread = await thread_in(store)

    def broken(db: object) -> None:
        messages.append(db, message(store, thread, "gone"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.write(broken)
    assert await store.read(messages.count_messages, thread.id) == 0


async def test_a_newer_database_is_read_only_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first = await Store.open(path)
    thread = await thread_in(first)
    await first.write(lambda db: db.execute_sql("INSERT INTO schema_migrations VALUES (999, 'future', 0)"))
    await first.close()
    second = await Store.open(path)
    assert second.read_only_reason is not None
    assert "999" in second.read_only_reason
    assert str(migrate.LATEST) in second.read_only_reason
    assert await second.read(threads.get, thread.id) is not None
    with pytest.raises(StoreError):
        await thread_in(second)
    await second.close()


async def test_the_read_connection_cannot_write(store: Store) -> None:
    with pytest.raises(Exception, match="is not writable"):
        await store.read(lambda db: db.execute_sql("DELETE FROM threads"))


async def test_backup_is_whole_and_never_overwrites(store: Store, tmp_path: Path) -> None:
    thread = await thread_in(store)
    await store.write(messages.append, message(store, thread, "kept"))
    (target,) = await store.read(copies.backup, store.path, tmp_path / "copy.db")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = await Store.open(target)
    assert await copy.read(messages.count_messages, thread.id) == 1
    await copy.close()
    with pytest.raises(StoreError):
        await store.read(copies.backup, store.path, target)


async def test_check_mends_a_message_that_search_cannot_see(store: Store) -> None:
    thread = await thread_in(store)
    await store.write(messages.append, message(store, thread, "here"))
    assert all(f.ok for f in await store.read(checks.check))
    await store.write(lambda db: db.execute_sql("DELETE FROM search_docs"))
    (lost,) = [f for f in await store.read(checks.check) if not f.ok]
    assert lost.name == "search" and "1 message is not searchable" in lost.detail
    (mended,) = [f for f in await upkeep.check(store) if f.name == "search"]
    assert mended.ok and mended.detail == "1 message was not searchable: added"
    assert await store.read(lambda db: db.execute_sql("SELECT count(*) FROM search_docs").fetchone()) == (1,)


async def test_usage_adds_up(store: Store) -> None:
    thread = await thread_in(store)
    for cost in (0.5, None):
        await store.write(
            messages.add_step,
            thread.id,
            "actor",
            ModelCall("a/b", Usage(10, 4, 1, 3, 0, cost)),
            id=store.ids.new(),
            now=1,
        )
    assert await store.read(runs.load_total_usage, thread.id, "actor") == Usage(20, 8, 2, 6, 0, 0.5)


WRITER = """
import asyncio, sys, pathlib
from sakti.store.database import Store
from sakti.store.threads import threads; from sakti.store.threads import messages
from sakti.core.types import Message, TextPart
async def main():
    s = await Store.open(pathlib.Path(sys.argv[1]), synchronous="NORMAL")
    for i in range(int(sys.argv[3])):
        await s.write(messages.append, Message(s.ids.new(), sys.argv[2], "/w", "user", (TextPart(f"n{i}"),), i))
    await s.close()
asyncio.run(main())
"""


async def test_two_processes_write_one_thread_without_a_lost_row(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = await Store.open(path)
    thread = await thread_in(store)
    running = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(path), thread.id, "300", stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in running:
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
    rows = await store.read(messages.list_after, thread.id, -1)
    assert [m.index for m in rows] == list(range(600))
    await store.close()


async def test_a_message_for_a_thread_that_was_removed_says_so(store: Store) -> None:
    thread = await thread_in(store)
    await store.write(lambda db: db.execute_sql("DELETE FROM threads WHERE id = ?", (thread.id,)))
    with pytest.raises(StoreError, match="removed in another window"):
        await store.write(messages.append, message(store, thread, "too late"))
