"""Removed for good: not a word of it is left, in no table, no index, no free space, no copy, no file beside."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti.agent.threads import erasure as removal
from sakti.core.errors import StoreError
from sakti.core.types import ImagePart, Message, TextPart, ToolResultPart
from sakti.store import copies, files, user_state
from sakti.store.database import Store
from sakti.store.maintenance import checks, purging, upkeep
from sakti.store.memory import records
from sakti.store.search import index_upkeep, search
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import messages, threads
from sakti.store.threads import removal as thread_removal
from sakti.tasks import service
from sakti.tasks.service import Actor
from tests.fakes.memory import Driver, settings

WORD = "quetzalcoatlus"  # what is looked for in the raw bytes
PIECES = (b"quetzalcoatlus", b"quetzalco", b"zalcoatl", b"Quetzalcoatlus", b"QUETZAL")
ZLIB = re.compile(b"\x48\x89|\x78\x9c")  # what compressed parts begin with, short and long ones
LONG = "the scheduler drops jobs when the clock jumps and nobody notices until monday " * 6


def traces(folder: Path) -> list[str]:
    """Files of a folder with a piece of the word in their bytes, compressed or not, or in their names."""
    return [
        f"{p.name}: {piece.decode()}"
        for p in sorted(folder.rglob("*"))
        if p.is_file()
        for data in [content(p)]
        for piece in PIECES
        if piece in data or piece.decode() in p.name
    ]


def content(path: Path) -> bytes:
    """The bytes of a file, and whatever there is compressed in them, also where its end is not behind its beginning."""
    data = path.read_bytes()
    out = [data]
    for begin in ZLIB.finditer(data):
        stream = zlib.decompressobj()
        with contextlib.suppress(zlib.error):
            for at in range(begin.start(), begin.start() + 4096):
                out.append(stream.decompress(data[at : at + 1]))
    return b"".join(out)


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A thread full of the word, another one that began with what it left, and all that goes with them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "data" / "state"))
    made = await Driver.make(tmp_path / "data" / "x.db", settings(700, 10_000, buffer_tokens=0.3))
    store = made.store
    await store.write(threads.rename, "t1", f"the {WORD} plan", 1, by_user=True)
    for n in range(8):
        await made.turn(f"question {n} about the {WORD}{n}", [{"text": f"answer {n}: {WORD} {LONG}"}])
        await made.engine.wait_idle()
    page = {"scope": "thread", "owner_id": "t1", "content": f"{WORD} page", "tokens": 4, "actor": "user"}
    await store.write(
        records.put_working_memory, records.PageVersion("w", now=1, resource_id="workspace", **page), expected_version=0
    )
    await store.write(threads.update_metadata, "t1", {"current_task": f"feed the {WORD}"})
    yield made
    await made.close()


async def begin_another(driver: Driver) -> str:
    """A new thread; the block it begins with."""
    driver.said = []
    await driver.engine.close()
    await driver.open("t2")
    await driver.begin("something else")
    prepared = await driver.prepare()
    return "".join(b.text for b in prepared.blocks if b.kind == "carry_over")


async def purge(store: Store, **more: Any) -> removal.Purged:
    return await removal.purge(store, before=1 << 60, do=True, **more)


async def test_no_trace_is_left(driver: Driver, tmp_path: Path) -> None:
    store, folder = driver.store, tmp_path / "data"
    outputs = folder / "state" / "sakti" / "outputs"
    outputs.mkdir(parents=True)
    kept = outputs / "call-1.txt"
    kept.write_text(f"all of the {WORD}")
    await driver.say("tool", ToolResultPart("c", "bash", "short", False, {"output_file": str(kept)}))
    pasted = folder / "state" / "sakti" / "pasted" / "pasted-1.png"
    pasted.parent.mkdir(parents=True)
    pasted.write_bytes(PIECES[0])
    await driver.say("user", TextPart(f"look at {pasted} now"), ImagePart("image/png", "aGk=", str(pasted)))
    assert f"Last thread: the {WORD} plan" in await begin_another(driver)
    await store.write(user_state.add_prompt, "workspace", f"typed {WORD}", 1, "t1")
    await store.write(user_state.add_prompt, "workspace", f"question 3 about the {WORD}3", 1)  # of an earlier sakti
    await store.write(
        user_state.save_unsent, "workspace", "gone:1:x", user_state.Unsent(f"half a {WORD}", [WORD], "t1"), 1
    )
    actor = Actor("workspace", "s", 1, "t2")
    await store.write(
        service.create, actor, service.NewTask("k", f"hunt the {WORD}", description=LONG + WORD, labels=[WORD])
    )
    await store.write(service.update, actor, "k", {"description": f"no {WORD}"})
    await store.write(messages.append, _of_task(driver))
    for name in ("x.db.before-0003", "x.db.backup-20260101", "x.db.damaged-20260101"):
        await store.read(copies.copy_database, folder / name)
    assert len({t.partition(":")[0] for t in traces(folder)}) >= 5
    assert len(ZLIB.findall(store.path.read_bytes())) >= 4 and WORD.encode() in content(store.path)

    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await store.write(service.delete, actor, "k")
    before = await removal.purge(store, before=1 << 60, do=False)
    assert traces(folder) and (folder / "x.db.before-0003").exists()
    done = await purge(store)
    assert (
        before.in_words() == done.in_words() and len(done.copies) == 3 and sorted(done.files) == sorted([kept, pasted])
    )
    assert done.flushed and removal.overwrite_free_space(done) == ""
    assert traces(folder) == []
    assert all(f.ok for f in await store.read(checks.check))
    assert [t.id for t in await store.read(threads.list_recent, "workspace")] == ["t2"]
    assert (await store.read(messages.get, "of-task")).task_id is None
    await driver.engine.begin_turn(provider="scripted", model="demo")
    assert WORD not in "".join(b.text for b in driver.engine.preview().blocks)
    assert (await purge(store)).empty


def _of_task(driver: Driver) -> Message:
    return Message("of-task", "t2", "workspace", "user", (TextPart("of the task"),), 9, task_id="k")


async def test_while_another_window_reads_it_says_what_may_be_left(driver: Driver, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sakti.store.database.FLUSH_S", 0.0)
    store = driver.store
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM threads").fetchall()
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    done = await purge(store)
    assert not done.flushed and removal.overwrite_free_space(done) == removal.IN_USE
    other.execute("COMMIT")
    other.close()
    assert await store.flush()
    assert traces(tmp_path / "data") == []


async def test_copies_can_be_kept(driver: Driver, tmp_path: Path) -> None:
    copy = tmp_path / "data" / "x.db.backup-1"
    await driver.store.read(copies.copy_database, copy)
    await driver.store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert (await purge(driver.store, keep_copies=True)).copies == []
    assert {t.partition(":")[0] for t in traces(tmp_path / "data")} == {copy.name}


async def test_a_purge_that_was_killed_goes_on_and_nothing_comes_back_meanwhile(driver: Driver, monkeypatch) -> None:
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await upkeep.reindex(store)

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(purging.upkeep, "run_until_done", die)
    with pytest.raises(KeyboardInterrupt):
        await purging.purge_thread(store, "t1")
    monkeypatch.undo()
    with pytest.raises(StoreError, match="being removed for good"):
        await store.write(thread_removal.restore_thread, "t1")
    assert [c.thread.id for c in (await purge(store)).threads] == ["t1"]
    assert await store.read(thread_removal.list_deleted) == []


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.agent.threads import erasure as removal
from sakti.store.maintenance import upkeep
from sakti.store.database import Store

upkeep.PIECE_S = 0  # as many writes each time, whatever else the machine does
Store._schedule_upkeep = lambda *_: None

async def main():
    store, left = await Store.open(Path(sys.argv[1])), [int(sys.argv[2])]
    write = Store.write
    async def counted(self, *args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await write(self, *args, **kwargs)
    Store.write = counted
    await removal.purge(store, before=1 << 60, do=True)
    print(int(sys.argv[2]) - left[0])
    await store.close()

asyncio.run(main())
"""


def purging_until(path: Path, writes: int) -> subprocess.CompletedProcess[str]:
    """A purge in a process of its own, which is killed before one of its writes."""
    arguments = [sys.executable, "-c", KILLED, str(path), str(writes)]
    return subprocess.run(arguments, check=False, capture_output=True, text=True)


async def test_killed_anywhere_the_next_one_leaves_no_trace(driver: Driver, tmp_path: Path) -> None:
    store, folder = driver.store, tmp_path / "data"
    output = folder / "state" / "sakti" / "outputs" / "call-1.txt"
    output.parent.mkdir(parents=True)
    output.write_text(f"all of the {WORD}")
    await driver.say("tool", ToolResultPart("c", "bash", "short", False, {"output_file": str(output)}))
    await store.write(service.create, Actor("workspace", "s", 1), service.NewTask("k", f"hunt the {WORD}"))
    await store.write(service.delete, Actor("workspace", "s", 2), "k")
    await store.read(copies.copy_database, folder / "x.db.backup-1")
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert await store.flush()
    first = tmp_path / "first"
    shutil.copytree(folder, first)
    all_writes = int(purging_until(folder / "x.db", 1_000).stdout)
    assert all_writes > 20 and traces(folder) == []
    for writes in (1, 2, all_writes // 2, all_writes - 5, all_writes - 1):
        shutil.rmtree(folder)
        shutil.copytree(first, folder)
        assert purging_until(folder / "x.db", writes).returncode == -signal.SIGKILL
        store = await Store.open(folder / "x.db")
        done = await purge(store)
        assert all(f.ok for f in await store.read(checks.check))
        await store.close()
        assert removal.overwrite_free_space(done) == "" and traces(folder) == [], writes
        assert upkeep.is_clean(store.path)


async def test_only_what_is_deleted_can_be_purged(driver: Driver) -> None:
    actor = Actor("workspace", "s", 1)
    await driver.store.write(service.create, actor, service.NewTask("k", "a task"))
    with pytest.raises(StoreError, match="Only a deleted task"):
        await driver.store.write(purging._remove_task, "k", 1)
    assert (await purge(driver.store)).empty


async def test_what_was_done_with_a_purged_task_is_passed_over_by_undo(driver: Driver) -> None:
    store, actor = driver.store, Actor("workspace", "s", 1)
    for name in ("a", "b"):
        await store.write(service.create, actor, service.NewTask(name, f"task {name}"))
    await store.write(service.depend, actor, "a", "b")
    await store.write(service.depend, actor, "a", "b", add=False)
    await store.write(service.delete, actor, "b")
    await purge(store)
    ((action, task),) = await store.write(service.undo_changes, actor, 1)
    assert (action, task.id) == ("create", "a")  # neither the deletion of b nor what waited for it
    assert all(f.ok for f in await store.read(checks.check))


# --- an older file ------------------------------------------------------------------------------------------


async def test_the_free_space_of_an_older_file_is_written_anew(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "x.db", synchronous="NORMAL")
    await store.close()
    assert upkeep.is_clean(store.path)
    connection = apsw.Connection(str(store.path))
    connection.execute("PRAGMA user_version = 0")
    connection.execute(
        "INSERT INTO prompt_history (resource_id, text, created_at) VALUES ('/w', ?, 1)", (WORD * 9_000,)
    )
    connection.execute("DELETE FROM prompt_history")
    connection.close()
    assert traces(tmp_path) != []
    assert removal.overwrite_free_space(removal.Purged(store.path)) == ""
    assert traces(tmp_path) == [] and upkeep.is_clean(store.path)
    store = await Store.open(store.path)
    with pytest.raises(StoreError, match="open in another window"):
        upkeep.vacuum(store.path)
    await store.close()
    before, after = upkeep.vacuum(store.path)
    assert after <= before and oct(store.path.stat().st_mode)[-3:] == "600"
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(files.SIDES)]


# --- what a thread begins with ------------------------------------------------------------------------------


def test_a_file_that_cannot_be_opened_is_said_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open"):
        upkeep.is_clean(tmp_path / "none.db")


async def test_what_is_carried_over_stays_as_it_was_but_for_what_is_removed(driver: Driver) -> None:
    store = driver.store
    (line,) = await store.read(
        lambda db: db.execute_sql("SELECT id FROM observations WHERE content LIKE '%about%' LIMIT 1").fetchone()
    )
    await store.write(lambda db: db.execute_sql("UPDATE observations SET pinned = 1 WHERE id = ?", (line,)))
    await store.write(service.create, Actor("workspace", "s", 1), service.NewTask("k", "mend the roof"))
    whole = await begin_another(driver)
    assert "mend the roof" in whole and "feed the" in whole

    async def now() -> str:
        await driver.engine.begin_turn(provider="scripted", model="demo")
        return "".join(b.text for b in driver.engine.preview().blocks if b.kind == "carry_over")

    await store.write(threads.rename, "t1", "another title", 2, by_user=True)
    await store.write(service.update, Actor("workspace", "s", 2), "k", {"title": "mend the cellar"})
    await store.write(service.close, Actor("workspace", "s", 2), "k", "completed", "done")
    assert await now() == whole
    text = next(x for x in whole.splitlines() if x.startswith("* "))

    await store.write(lambda db: db.execute_sql("UPDATE observations SET forgotten = 1 WHERE id = ?", (line,)))
    assert await now() == whole.replace(f"{text}\n", "")
    await store.write(
        lambda db: db.execute_sql("UPDATE observations SET forgotten = 0, edited = 'corrected' WHERE id = ?", (line,))
    )
    assert await now() == whole.replace(text, "* corrected")
    await store.write(lambda db: db.execute_sql("UPDATE observations SET edited = NULL WHERE id = ?", (line,)))
    assert await now() == whole

    await store.write(service.delete, Actor("workspace", "s", 3), "k")
    assert "mend the roof" not in await now()
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert await now() == ""
    await store.write(thread_removal.restore_thread, "t1")
    assert await now() == "\n".join(x for x in whole.splitlines() if "mend the roof" not in x)
    rows = await store.read(lambda db: db.execute_sql("SELECT metadata FROM threads WHERE id = 't2'").fetchone())
    assert WORD not in json.dumps(rows)


async def test_later_requests_quote_nothing_of_a_purged_thread(driver: Driver) -> None:
    store = driver.store
    whole = await begin_another(driver)
    assert WORD in whole
    await store.write(messages.store_request, "t2", {"a": f"before {whole}", "b": "something else"})
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await purge(store)
    (left,) = await store.read(lambda db: db.execute_sql("SELECT text FROM request_blocks").fetchall())
    assert left == ("something else",)


# --- single messages ----------------------------------------------------------------------------------------


async def test_files_that_a_fork_names_stay_when_the_thread_is_purged(driver: Driver, tmp_path: Path) -> None:
    store, outputs = driver.store, tmp_path / "data" / "state" / "sakti" / "outputs"
    outputs.mkdir(parents=True)
    for name in ("shared", "own"):
        (outputs / name).write_text(name)
        await driver.say("tool", ToolResultPart("c", "bash", "short", False, {"output_file": str(outputs / name)}))
        if name == "shared":
            await store.write(thread_fork.fork, "t1", id="t2", ids=store.ids, now=1)
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert (await purge(store)).files == [outputs / "own"]
    assert (outputs / "shared").exists()


async def test_a_single_message_is_gone_and_its_place_stays(driver: Driver, tmp_path: Path) -> None:
    store = driver.store
    (said,) = [m for m in await store.read(messages.list_after, "t1", -1) if f"{WORD}3" in m.text]
    await store.write(user_state.add_prompt, "workspace", said.text, 1, "t1")
    gone = await store.write(thread_removal.delete_messages, said.id, driver.clock.now())
    assert gone.message_ids == (said.id,) and gone.lines > 0
    rows = await store.read(messages.list_after, "t1", -1)
    assert [m.index for m in rows] == list(range(16))
    assert thread_removal.is_message_deleted(rows[said.index]) and rows[said.index].text == ""
    page = await store.read(search.search, f"{WORD}3", search.Scope("workspace", kinds=("message",)))
    assert f"{WORD}3" not in json.dumps([h.text for h in page.hits])
    docs = await store.read(
        lambda db: db.execute_sql("SELECT text, prev FROM search_docs WHERE kind = 'message'").fetchall()
    )
    assert f"{WORD}3" not in json.dumps(docs)
    assert said.text not in await store.read(user_state.list_prompts, "workspace", 99)
    assert all(f.ok for f in await store.read(checks.check))
    with pytest.raises(StoreError, match="no message"):
        await store.write(thread_removal.delete_messages, said.id, 1)


async def test_a_call_goes_with_its_result_and_a_summary_with_its_message(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "x.db", settings(50_000, 50_000))
    await driver.turn(
        "read it", [{"text": "I look", "tool": {"name": "read", "args": {"p": 1}, "result": WORD}}, {"text": "done"}]
    )
    store = driver.store
    call = next(m for m in driver.said if m.tool_calls)

    def summarize(db) -> None:
        db.execute_sql(
            "UPDATE messages SET injection_text = ?, metadata = json_set(metadata, '$.summary',"
            ' json(\'{"last": 9, "message_tokens": 5000}\')) WHERE message_index = 0',
            (f"all about the {WORD}",),
        )

    await store.write(summarize)
    result = driver.said[call.index + 1]
    gone = await store.write(thread_removal.delete_messages, result.id, driver.clock.now())
    assert gone.message_ids == (call.id, result.id)
    rows = await store.read(
        lambda db: db.execute_sql("SELECT parts, injection_text, metadata FROM messages").fetchall()
    )
    assert WORD not in json.dumps(rows)
    assert await store.flush()
    assert traces(tmp_path) == []
    await driver.close()


async def test_a_message_of_a_thread_that_was_deleted_and_restored_leaves_no_trace(
    driver: Driver, tmp_path: Path
) -> None:
    """Until they are made one piece, the indexes hold what deleting the thread took out of them."""
    store = driver.store
    said = await driver.say("user", TextPart("only here: archaeopteryx"))
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await upkeep.reindex(store)
    await store.write(thread_removal.restore_thread, "t1")
    await upkeep.reindex(store)
    await purging.delete_message(store, said.id)
    assert b"archaeop" not in b"".join(p.read_bytes() for p in (tmp_path / "data").iterdir() if p.is_file())
    assert not await store.read(index_upkeep.may_hold_deleted_words)
