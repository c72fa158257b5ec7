"""Search follows what is deleted and restored a few rows at a time: others write in between, a crash loses nothing, and
what is deleted is not found from the first transaction on."""

from __future__ import annotations

from typing import Any

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks, upkeep
from sakti.store.memory import records
from sakti.store.search import index_upkeep, reindexing, search
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import messages, threads
from sakti.store.threads import removal as thread_removal
from tests.fakes.memory import Driver, settings

LONG = "the scheduler drops jobs when the clock jumps and nobody notices until monday " * 6
PAGE = {"scope": "thread", "owner_id": "t1", "tokens": 4, "actor": "user", "resource_id": "workspace"}


class Killed(Exception):
    """Stands for the end of the process between two transactions."""


class Writes:
    """The transactions of a store from here on: how many rows of search each of them took out or put in. Before the
    one numbered `killed` the process ends."""

    def __init__(self, store: Store, killed: int = 1 << 30) -> None:
        self.rows: list[int] = []
        self._store, self._write, self._killed = store, store.write, killed

    async def __aenter__(self) -> Writes:
        self._store.write = self._counted  # type: ignore[method-assign]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._store.write = self._write  # type: ignore[method-assign]

    async def between(self) -> None:
        """What happens after each transaction."""

    async def _counted(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if len(self.rows) == self._killed:
            raise Killed
        before = await self._store.read(index_upkeep.count_texts)
        done = await self._write(fn, *args, **kwargs)
        self.rows.append(abs(await self._store.read(index_upkeep.count_texts) - before))
        await self.between()
        return done


@pytest.fixture(autouse=True)
def _one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PIECE_S", 0)


@pytest.fixture
async def driver(tmp_path):
    """A thread with a log and a page of its own."""
    made = await Driver.make(tmp_path / "x.db", settings(700, 10_000, buffer_tokens=0.3))
    for n in range(8):
        await made.turn(f"question {n} about the xylophone", [{"text": f"answer {n} {LONG}"}])
        await made.engine.wait_idle()
    await made.store.write(
        records.put_working_memory, records.PageVersion("w", now=1, content="zither", **PAGE), expected_version=0
    )
    yield made
    await made.close()


def docs(db: Database) -> list[Any]:
    columns = "kind, doc_id, resource_id, thread_id, role, position, created_at, text, idents, prev, summary, paths"
    return sorted(db.execute_sql(f"SELECT {columns} FROM search_docs").fetchall(), key=repr)


async def found(store: Store, *words: str) -> int:
    hits = [await store.read(search.search, word, search.Scope("workspace")) for word in words]
    return sum(page.total for page in hits)


ALL = "xylophone", "scheduler", "zither"


async def test_others_write_between_any_two_rows(driver: Driver, tmp_path) -> None:
    store = driver.store
    other = await Store.open(tmp_path / "x.db", wait=30)  # the upkeep of either may be at work for a moment
    before = await store.read(docs)

    async def write() -> None:
        await other.write(threads.touch, "t1", 7)

    async with Writes(store) as writes:
        writes.between = write  # type: ignore[method-assign]
        await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
        assert writes.rows == [0]
        await upkeep.reindex(store)
        assert max(writes.rows) == 1 and sum(writes.rows) == len(before)
        writes.rows.clear()
        await store.write(thread_removal.restore_thread, "t1")
        await upkeep.reindex(store)
        assert writes.rows[0] == 0 and max(writes.rows) == 1 and sum(writes.rows) == len(before)
    await other.close()
    assert await store.read(docs) == before


async def test_deleted_is_not_found_from_the_first_transaction_on(driver: Driver) -> None:
    store, seen = driver.store, list[tuple[int, int]]()

    async def look() -> None:
        filtered = await store.read(search.search, "role:user", search.Scope("workspace"))
        seen.append((await store.read(index_upkeep.count_texts), await found(store, *ALL) + filtered.total))

    assert await found(store, *ALL) > 5
    async with Writes(store) as writes:
        writes.between = look  # type: ignore[method-assign]
        await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
        await upkeep.reindex(store)
    assert seen[0][0] > 16 and seen[-1][0] == 0
    assert {hits for _, hits in seen} == {0}
    assert (await store.read(search.search, "", search.Scope())).total == 0


@pytest.mark.parametrize("killed", [0, 1, 9, 25])
async def test_the_next_process_goes_on(driver: Driver, tmp_path, killed: int) -> None:
    store = driver.store
    before = await store.read(docs)
    other = await Store.open(tmp_path / "x.db")
    for change, left in ((thread_removal.delete_thread, []), (thread_removal.restore_thread, before)):
        now = () if left else (driver.clock.now(),)
        await store.write(change, "t1", *now)  # type: ignore[arg-type]
        async with Writes(store, killed):
            with pytest.raises(Killed):
                await upkeep.reindex(store)
        finding = {f.name: f for f in await other.read(checks.check)}["search"]
        assert not finding.ok and finding.is_repairable and "not finished" in finding.detail
        await upkeep.run_quietly(other, upkeep.reindex)
        assert await other.read(docs) == left
        assert await other.read(reindexing.list_notes) == []
        assert all(f.ok for f in await other.read(checks.check))
    await other.close()


async def test_the_check_finishes_it(driver: Driver) -> None:
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert "not finished: done now" in {f.name: f.detail for f in await upkeep.check(store)}["search"]
    assert await store.read(docs) == []


@pytest.mark.parametrize("killed", [1, 6, 20])
async def test_restored_half_way_it_is_as_it_was(driver: Driver, killed: int) -> None:
    store = driver.store
    before = await store.read(docs)
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    async with Writes(store, killed):
        with pytest.raises(Killed):
            await upkeep.reindex(store)
    left = await store.read(index_upkeep.count_texts)
    assert 0 < left <= len(before) and await found(store, *ALL) == 0
    await store.write(thread_removal.restore_thread, "t1")
    assert await store.read(docs) == [row for row in before if row in await store.read(docs)]
    assert await found(store, *ALL) > 0, "what is still there is found again at once"
    await upkeep.reindex(store)
    assert await store.read(docs) == before


async def test_deleted_again_while_it_comes_back(driver: Driver) -> None:
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await upkeep.reindex(store)
    await store.write(thread_removal.restore_thread, "t1")
    async with Writes(store, 9):
        with pytest.raises(Killed):
            await upkeep.reindex(store)
    assert await store.read(index_upkeep.count_texts) > 3
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    assert await found(store, *ALL) == 0
    await upkeep.reindex(store)
    assert await store.read(docs) == []


async def test_work_for_what_is_no_longer_so_stops(driver: Driver) -> None:
    """Another process is in the middle of it, with its list of what is to go."""
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    (old,) = await store.read(reindexing.list_notes)
    listed = await store.read(reindexing.list_items, old)
    await store.write(thread_removal.restore_thread, "t1")
    before = await store.read(docs)
    await store.write(reindexing.work_off, listed, old)
    await store.write(reindexing.is_done, old)
    assert await store.read(docs) == before
    assert len(await store.read(reindexing.list_notes)) == 1


async def test_a_line_that_was_changed_meanwhile_comes_back_as_it_is(driver: Driver) -> None:
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())

    def edit(db: Database) -> None:
        db.execute_sql("UPDATE observations SET edited = 'the harmonium' WHERE pk = (SELECT min(pk) FROM observations)")

    await store.write(edit)
    await store.write(thread_removal.restore_thread, "t1")
    await upkeep.reindex(store)
    assert await found(store, "harmonium") > 0


async def test_a_page_of_a_deleted_thread_is_found_when_it_is_back(driver: Driver) -> None:
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    await upkeep.reindex(store)
    await store.write(
        records.put_working_memory, records.PageVersion("w2", now=2, content="the celesta", **PAGE), expected_version=1
    )
    assert await found(store, "celesta") == 0
    await store.write(thread_removal.restore_thread, "t1")
    await upkeep.reindex(store)
    assert await found(store, "celesta") == 1


async def test_lines_of_a_shared_log_are_found_all_the_while(tmp_path) -> None:
    driver = await Driver.make(tmp_path / "y.db", settings(700, 10_000, buffer_tokens=0.3, scope="resource"))
    for n in range(8):
        await driver.turn(f"question {n}", [{"text": f"answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    store = driver.store
    await store.write(thread_removal.delete_thread, "t1", driver.clock.now())
    for _ in range(2):
        hits = (await store.read(search.search, "scheduler", search.Scope("workspace"))).hits
        assert {h.kind for h in hits} == {"observation"}
        await upkeep.reindex(store)
    await driver.close()


async def test_a_fork_made_while_its_parent_comes_back_lacks_nothing(store: Store) -> None:
    def say(db: Database) -> None:
        threads.create(db, Thread("a", "workspace", "", 1, 1))
        for n in range(9):
            messages.append(db, Message(f"m{n}", "a", "workspace", "user", (TextPart(f"bassoon {n}"),), n + 1))

    await store.write(say)
    await store.write(thread_removal.delete_thread, "a", 5)
    await upkeep.reindex(store)
    await store.write(thread_removal.restore_thread, "a")
    await store.write(thread_fork.fork, "a", id="b", ids=store.ids, now=6)
    await upkeep.reindex(store)
    rows = [row[3] for row in await store.read(docs)]
    assert (rows.count("a"), rows.count("b")) == (9, 9)


async def test_a_key_that_is_used_again_is_another_row(store: Store) -> None:
    """Two processes take the same thread out, and a message of another one is written in between."""

    def say(db: Database, thread: str) -> None:
        threads.create(db, Thread(thread, "workspace", "", 1, 1))
        messages.append(db, Message(f"m-{thread}", thread, "workspace", "user", (TextPart("bassoon"),), 1))

    await store.write(say, "a")
    await store.write(thread_removal.delete_thread, "a", 5)
    (noted,) = await store.read(reindexing.list_notes)
    listed = await store.read(reindexing.list_items, noted)
    await store.write(reindexing.work_off, listed, noted)
    await store.write(say, "b")
    await store.write(reindexing.work_off, listed, noted)
    assert await found(store, "bassoon") == 1
