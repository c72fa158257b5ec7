"""Deleting threads: out of sight with everything kept, back as it was, and for good only by `purge`."""

from __future__ import annotations

import pytest

from sakti.core.errors import SaktiError, StoreError
from sakti.store import leases, maintenance, memory_log, search, thread_removal, threads, working_memory
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
        working_memory.put_working_memory, id="w", now=1, expected_version=0, resource_id="workspace", **page
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


async def found(store, text):
    return (await store.read(search.search, text, search.Scope("workspace"))).total


async def test_deleted_is_out_of_sight_and_comes_back_as_it_was(driver):
    store = driver.store
    before = await everything(store)
    assert await found(store, "xylophone") and await found(store, "scheduler") and await found(store, "zither")
    gone = await store.write(thread_removal.delete, "t1", driver.clock.now())
    assert (gone.messages, gone.lines > 0) == (16, True)
    assert "16 messages" in gone.in_words()
    assert await store.read(threads.recent, "workspace") == []
    assert await store.read(threads.find, "workspace", "t1") == []
    for word in ("xylophone", "scheduler", "zither"):
        assert await found(store, word) == 0
    assert await store.read(memory_log.carry_over, "workspace", "another") is None
    assert await store.read(memory_log.find_message, "workspace", driver.said[0].id) is None
    findings = await store.read(maintenance.check)
    assert all(f.ok for f in findings)
    assert await found(store, "xylophone") == 0, "the check does not bring it back"
    assert [c.thread.id for c in await store.read(thread_removal.deleted, "workspace")] == ["t1"]
    await store.write(thread_removal.restore, "t1")
    assert await everything(store) == before


async def test_refusals(driver):
    store, now = driver.store, driver.clock.now()
    with pytest.raises(StoreError, match="no thread"):
        await store.write(thread_removal.delete, "nowhere", now)
    with pytest.raises(StoreError, match="not deleted"):
        await store.write(thread_removal.restore, "t1")
    with pytest.raises(StoreError, match="Only a deleted thread"):
        await store.write(thread_removal.purge, "t1")
    lease = {"record_id": "t1", "kind": "turn", "owner": leases.new_owner(), "operation_id": "o", "thread_id": "t1"}
    assert await store.write(leases.acquire, now=now, **lease)
    with pytest.raises(SaktiError, match="at work in this thread"):
        await store.write(thread_removal.delete, "t1", now)
    await store.write(thread_removal.delete, "t1", now + leases.EXPIRES_MS)
    with pytest.raises(StoreError, match="deleted already"):
        await store.write(thread_removal.delete, "t1", now)


async def test_what_is_written_to_a_deleted_thread_is_kept_and_not_found(driver):
    store = driver.store
    await store.write(thread_removal.delete, "t1", driver.clock.now())
    for n in range(4):
        await driver.turn(f"late accordion {n}", [{"text": f"late {n} {LONG}"}])
        await driver.engine.wait_idle()
    assert await found(store, "accordion") == 0
    await store.write(thread_removal.restore, "t1")
    assert await found(store, "accordion") >= 4


async def test_purged_is_gone_and_nothing_else(driver):
    store = driver.store
    await driver.open("t2")
    driver.said = []
    await driver.turn("the bassoon", [{"text": "in the cellar"}])
    await store.write(thread_removal.delete, "t1", driver.clock.now())
    await store.write(thread_removal.purge, "t1")
    left = await everything(store)
    assert not [n for n, rows in left.items() for row in rows if "'t1'" in row or "xylophone" in row]
    assert await found(store, "bassoon")
    assert all(f.ok for f in await store.read(maintenance.check))
    assert await store.read(thread_removal.deleted, "workspace") == []


async def test_a_log_that_the_workspace_shares_keeps_its_lines(tmp_path):
    driver = await Driver.make(tmp_path / "y.db", settings(700, 10_000, buffer_tokens=0.3, scope="resource"))
    for n in range(8):
        await driver.turn(f"question {n}", [{"text": f"answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    store, record = driver.store, driver.engine.record_id
    log = await store.read(memory_log.log_lines, record)
    gone = await store.write(thread_removal.delete, "t1", driver.clock.now())
    assert (gone.lines, gone.shared_lines) == (0, len(log))
    await store.write(thread_removal.purge, "t1")
    assert await store.read(memory_log.log_lines, record) == log
    hits = (await store.read(search.search, "scheduler", search.Scope("workspace"))).hits
    assert {h.kind for h in hits} == {"observation"}
    await driver.close()
