"""Deleting threads: out of sight with everything kept, back as it was, and for good only by `purge`."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from sakti.agent.threads import erasure as removal
from sakti.core.errors import SaktiError, StoreError
from sakti.core.types import Message, TextPart, Thread
from sakti.store import leases
from sakti.store.log import lines as memory_log
from sakti.store.maintenance import checks, purging, upkeep
from sakti.store.memory import records
from sakti.store.search import search
from sakti.store.threads import fork, messages, threads
from sakti.store.threads import removal as thread_removal
from tests.fakes.memory import Driver, settings

LONG = "the scheduler drops jobs when the clock jumps and nobody notices until monday " * 6


@pytest.fixture
async def driver(tmp_path):
    made = await Driver.make(tmp_path / "x.db", settings(700, 10_000, buffer_tokens=0.3))
    for n in range(8):
        await made.turn(f"question {n} about the xylophone", [{"text": f"answer {n} {LONG}"}])
        await made.engine.wait_idle()
    page = {"scope": "thread", "owner_id": "t1", "content": "the zither page", "tokens": 4, "actor": "user"}
    await made.store.write(
        records.put_working_memory, records.PageVersion("w", now=1, resource_id="workspace", **page), expected_version=0
    )
    yield made
    await made.close()


async def everything(store):
    def read(db):
        names = [r[0] for r in db.execute_sql("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        kept = [n for n in names if not n.startswith("search_") and n not in ("sqlite_stat1", "sqlite_stat4")]
        rows = {n: sorted(map(repr, db.execute_sql(f"SELECT * FROM {n}").fetchall())) for n in kept if "words" not in n}
        docs = "kind, doc_id, resource_id, thread_id, role, position, created_at, text, idents, prev, summary, paths"
        rows["docs"] = sorted(map(repr, db.execute_sql(f"SELECT {docs} FROM search_docs").fetchall()))
        return rows

    return await store.read(read)


async def delete(store, thread_id, now):
    await store.write(thread_removal.delete_thread, thread_id, now)
    await upkeep.reindex(store)


async def restore(store, thread_id):
    await store.write(thread_removal.restore_thread, thread_id)
    await upkeep.reindex(store)


async def found(store, text):
    return (await store.read(search.search, text, search.Scope("workspace"))).total


async def test_deleted_is_out_of_sight_and_comes_back_as_it_was(driver):
    store = driver.store
    before = await everything(store)
    assert await found(store, "xylophone") and await found(store, "scheduler") and await found(store, "zither")
    gone = await store.read(thread_removal.count_contents, "t1")
    await delete(store, "t1", driver.clock.now())
    assert (gone.messages, gone.lines > 0) == (16, True)
    assert "16 messages" in gone.in_words()
    assert await store.read(threads.list_recent, "workspace") == []
    assert await store.read(threads.find, "workspace", "t1") == []
    for word in ("xylophone", "scheduler", "zither"):
        assert await found(store, word) == 0
    assert await store.read(memory_log.build_carry_over, "workspace", "another") is None
    assert await store.read(memory_log.find_message, "workspace", driver.said[0].id) is None
    findings = await store.read(checks.check)
    assert all(f.ok for f in findings)
    assert await found(store, "xylophone") == 0, "the check does not bring it back"
    assert [c.thread.id for c in await store.read(thread_removal.list_deleted, "workspace")] == ["t1"]
    await restore(store, "t1")
    assert await everything(store) == before


async def test_refusals(driver):
    store, now = driver.store, driver.clock.now()
    with pytest.raises(StoreError, match="removed for good"):
        await store.write(thread_removal.delete_thread, "nowhere", now)
    with pytest.raises(StoreError, match="not deleted"):
        await store.write(thread_removal.restore_thread, "t1")
    with pytest.raises(StoreError, match="Only a deleted thread"):
        await purging.purge_thread(store, "t1")
    lease = {"record_id": "t1", "kind": "turn", "owner": leases.make_owner(), "operation_id": "o", "thread_id": "t1"}
    assert await store.write(leases.acquire, now=now, **lease)
    with pytest.raises(SaktiError, match="working in this thread"):
        await store.write(thread_removal.delete_thread, "t1", now)
    await store.write(thread_removal.delete_thread, "t1", now + leases.EXPIRES_MS)
    with pytest.raises(StoreError, match="already deleted"):
        await store.write(thread_removal.delete_thread, "t1", now)


async def test_what_is_written_to_a_deleted_thread_is_kept_and_not_found(driver):
    store = driver.store
    await delete(store, "t1", driver.clock.now())
    for n in range(4):
        await driver.turn(f"late accordion {n}", [{"text": f"late {n} {LONG}"}])
        await driver.engine.wait_idle()
    assert await found(store, "accordion") == 0
    await restore(store, "t1")
    assert await found(store, "accordion") >= 4


async def test_purged_is_gone_and_nothing_else(driver):
    store = driver.store
    await driver.open("t2")
    driver.said = []
    await driver.turn("the bassoon", [{"text": "in the cellar"}])
    await delete(store, "t1", driver.clock.now())
    await purging.purge_thread(store, "t1")
    left = await everything(store)
    assert not [n for n, rows in left.items() for row in rows if "'t1'" in row or "xylophone" in row]
    assert await found(store, "bassoon")
    assert all(f.ok for f in await store.read(checks.check))
    assert await store.read(thread_removal.list_deleted, "workspace") == []


async def test_a_log_that_the_workspace_shares_keeps_its_lines_until_the_purge(tmp_path):
    driver = await Driver.make(tmp_path / "y.db", settings(700, 10_000, buffer_tokens=0.3, scope="resource"))
    for n in range(8):
        await driver.turn(f"question {n}", [{"text": f"answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    store, record = driver.store, driver.engine.record_id
    log = await store.read(memory_log.read_lines, record)
    gone = await store.read(thread_removal.count_contents, "t1")
    await delete(store, "t1", driver.clock.now())
    assert (gone.lines, gone.shared_lines) == (0, len(log))
    assert f"{len(log)} lines stay in the log that the workspace shares until" in gone.in_words()
    assert gone.purged_in_words().endswith(f"; {len(log)} lines of the log that the workspace shares")
    assert "; 1 line stays in the log" in replace(gone, shared_lines=1).in_words()
    (told,) = (await removal.purge(store, before=1 << 60, do=False)).in_words()
    assert told == gone.purged_in_words()
    assert await store.read(memory_log.read_lines, record) == log
    hits = (await store.read(search.search, "scheduler", search.Scope("workspace"))).hits
    assert {h.kind for h in hits} == {"observation"}
    await purging.purge_thread(store, "t1")
    assert await store.read(memory_log.read_lines, record) == []
    assert (await store.read(search.search, "scheduler", search.Scope("workspace"))).total == 0
    await driver.close()


def shared_log(db):
    """Two threads in one log: groups a1 a2 of one, b1 b2 of the other; R1 of a1 and b1, R2 of R1 and b2, R3 of b3."""
    db.execute_sql(
        "INSERT INTO observational_memory (id, lookup_key, scope, resource_id, observation_token_count,"
        " generation_count, created_at, updated_at) VALUES ('r', 'resource:/w', 'resource', '/w', 99, 2, 1, 1)"
    )
    rows = [
        ("a1", "a", "observation", "superseded", "[]", 0),
        ("b1", "b", "observation", "superseded", "[]", 0),
        ("R1", "b", "reflection", "superseded", '["a1", "b1"]', 1),
        ("b2", "b", "observation", "superseded", "[]", 0),
        ("R2", "b", "reflection", "active", '["R1", "b2"]', 2),
        ("b3", "b", "observation", "superseded", "[]", 0),
        ("R3", "a", "reflection", "active", '["b3"]', 1),
        ("a2", "a", "observation", "active", "[]", 0),
        ("b4", "b", "observation", "active", "[]", 0),
    ]
    for group, thread, kind, state, merged, generation in rows:
        db.execute_sql(
            "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, merged_group_ids, generation, text,"
            " observation_tokens, created_at) VALUES (?, 'r', ?, ?, ?, ?, ?, ?, 10, 1)",
            (group, thread, kind, state, merged, generation, f"said in {group}"),
        )
        db.execute_sql(
            "INSERT INTO observations (id, group_id, thread_id, resource_id, line, content, created_at)"
            " VALUES (?, ?, ?, '/w', 0, ?, 1)",
            (f"line-{group}", group, thread, f"said in {group}"),
        )


async def test_what_a_shared_log_made_of_it_and_of_others_is_taken_back_for_the_others(store):
    for name in "ab":
        await store.write(threads.create, Thread(name, "/w", name, 1, 1))
    await store.write(shared_log)
    await store.write(thread_removal.delete_thread, "a", 5)
    await purging.purge_thread(store, "a")

    def rows(db):
        groups = db.execute_sql("SELECT id, thread_id, state FROM observation_groups ORDER BY pk").fetchall()
        record = db.execute_sql("SELECT observation_token_count, generation_count FROM observational_memory")
        return groups, [i for (i,) in db.execute_sql("SELECT id FROM observations ORDER BY pk")], record.fetchone()

    groups, lines, record = await store.read(rows)
    assert groups == [
        ("b1", "b", "active"),
        ("b2", "b", "active"),
        ("b3", "b", "superseded"),
        ("R3", "b", "active"),
        ("b4", "b", "active"),
    ]
    assert lines == [f"line-{g}" for g, _, _ in groups]
    assert record == (40, 1)
    assert all(f.ok for f in await store.read(checks.check))


def says(db, group, text, **metadata):
    db.execute_sql(
        "UPDATE observations SET content = ?, observed_date = 'Jan 16, 2026', metadata = ? WHERE group_id = ?",
        (text, json.dumps(metadata), group),
    )
    db.execute_sql("UPDATE observation_groups SET text = ? WHERE id = ?", (f"* {text}", group))


async def test_others_no_longer_say_which_of_its_words_they_replace(store):
    for name in "ab":
        await store.write(threads.create, Thread(name, "/w", name, 1, 1))
    await store.write(shared_log)
    first, second = (
        {"text": "the xylophone is red", "date": "Jan 15, 2026", "time": "9:00"},
        {"text": "the port is 8080", "date": "Jan 16, 2026", "time": "9:05"},
    )
    notes = " [replaces Jan 15, 9:00: the xylophone is red] [replaces 9:05: the port is 8080]"

    def say(db):
        says(db, "a2", "User: The xylophone is red and the port is 8080")
        says(db, "b2", "the port is 8080, says the manual")
        says(db, "b4", f"it is blue{notes}", replaces=[first, second], files=["a.py"])

    await store.write(say)
    await store.write(
        fork.store_carry_over, "b", "head", [fork.CarriedPiece("line", "line-b4", f"* it is blue{notes}")]
    )
    await store.write(thread_removal.delete_thread, "a", 5)
    await purging.purge_thread(store, "a")
    left = await everything(store)
    assert not [n for n, rows in left.items() for row in rows if "xylophone" in row]
    (line,) = await store.read(memory_log.select_lines, "g.id = ?", ("b4",))
    assert line[0].content == "it is blue [replaces 9:05: the port is 8080]"
    assert line[0].metadata == {"replaces": [second], "files": ["a.py"]}
    assert await store.read(fork.read_carried_text, "b") == f"head\n* {line[0].content}"
    assert (await store.read(search.search, "blue", search.Scope("/w"))).hits


async def test_undone_branches_go_and_come_back_with_the_thread_that_continues_them(store):
    def fill(db):
        for n, id in enumerate(("first", "second", "third")):
            threads.create(db, Thread(id, "/w", id, n, n))
            message = Message(f"m-{id}", id, "/w", "user", (TextPart(f"the walrus of {id}"),), n)
            messages.append(db, message)
        threads.mark_undone(db, "first", "second", 10)
        threads.mark_undone(db, "second", "third", 20)

    async def visible():
        return sorted(t.id for t in await store.read(threads.list_recent, "/w", 10))

    await store.write(fill)
    assert await visible() == ["third"]
    contents = await store.read(thread_removal.preview_removal, "third")
    assert contents.branches == 2 and "with 2 undone branches" in contents.in_words() and contents.keepers == 0
    await delete(store, "third", 30)
    assert await visible() == [] and not (await store.read(search.search, "walrus", search.Scope("/w"))).hits
    await restore(store, "third")
    assert await visible() == ["third"]
    await delete(store, "third", 40)
    await purging.purge_thread(store, "third")
    await restore(store, "second")
    assert await visible() == ["second"]
    (second,) = await store.read(threads.list_recent, "/w", 10, continued=True)
    assert threads.find_successor(second) == "", "no thread is begun under the id of a purged one"
