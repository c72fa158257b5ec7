"""A fork: its own thread and memory, nothing observed twice, nothing lost, the other thread untouched."""

from __future__ import annotations

import pytest

from sakti.core.errors import StoreError
from sakti.core.types import TextPart
from sakti.store import memory
from sakti.store.log import lines as memory_log
from sakti.store.search import search
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import messages, threads
from tests.fakes.memory import Driver, settings

LONG = "the scheduler drops jobs when the clock jumps and nobody notices until monday morning " * 6


async def grown(tmp_path, turns=14):
    """A thread that was observed and reflected, with messages that are not observed yet."""
    driver = await Driver.make(tmp_path / "x.db", settings(700, 150, buffer_tokens=0.3))
    for n in range(turns):
        await driver.turn(f"question {n} {LONG[: 80 + n]}", [{"text": f"answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    return driver


async def tables(store):
    """Everything that a fork must leave alone."""

    def read(db):
        return [
            db.execute_sql(f"SELECT * FROM {name} WHERE {where}").fetchall()
            for name, where in (
                ("messages", "thread_id = 't1'"),
                ("observation_groups", "thread_id = 't1'"),
                ("observations", "thread_id = 't1'"),
                ("observational_memory", "thread_id = 't1'"),
            )
        ]

    return await store.read(read)


async def make(driver, upto=None, id="fork"):
    store = driver.store
    return await store.write(
        thread_fork.fork, "t1", id=id, ids=store.ids, now=driver.clock.now(), upto=upto
    )  # fmt: skip


async def groups_of(store, thread_id):
    record = await store.read(memory.get_record, f"thread:{thread_id}")
    return record, [
        g for s in ("active", "buffered", "superseded") for g in await store.read(memory.list_groups, record.id, s)
    ]


@pytest.mark.parametrize("cut", [None, 0, 3, 11, 20])
async def test_the_fork_goes_on_where_the_other_stood(tmp_path, cut):
    driver = await grown(tmp_path)
    before = await tables(driver.store)
    made = await make(driver, cut)
    assert await tables(driver.store) == before
    said = await driver.store.read(messages.list_after, made.id, -1)
    old = await driver.store.read(messages.list_after, "t1", -1)
    last = len(old) - 1 if cut is None else cut
    assert [(m.index, m.parts, m.created_at, m.tokens) for m in said] == [
        (m.index, m.parts, m.created_at, m.tokens) for m in old[: last + 1]
    ]
    assert not {m.id for m in said} & {m.id for m in old}
    record, groups = await groups_of(driver.store, made.id)
    assert all((g.last_index or 0) <= last for g in groups)
    ids = {m.id for m in said}
    assert all(
        {g.first_message_id, g.last_message_id, *g.message_ids} <= ids for g in groups if g.kind == "observation"
    )
    covered = [i for g in groups if g.kind == "observation" for i in range(g.first_index, g.last_index + 1)]
    assert len(covered) == len(set(covered)), "observed twice"
    cursor = await driver.store.read(memory.find_cursor, record.id, made.id)
    active = [g for g in groups if g.state == "active"]
    assert cursor == max((g.last_index for g in active), default=-1)
    assert record.observation_token_count == sum(g.observation_tokens for g in active)
    # and it goes on: the driver checks every request
    await driver.open(made.id)
    driver.said = list(said)
    for n in range(6):
        await driver.turn(f"more {n}", [{"text": f"other answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    _, groups = await groups_of(driver.store, made.id)
    covered = [i for g in groups if g.kind == "observation" for i in range(g.first_index, g.last_index + 1)]
    assert len(covered) == len(set(covered)), "observed twice"
    assert await tables(driver.store) == before
    await driver.close()


async def test_a_reflection_that_reaches_beyond_the_cut_is_taken_apart(tmp_path):
    driver = await grown(tmp_path)
    _, groups = await groups_of(driver.store, "t1")
    reflection = next(g for g in groups if g.kind == "reflection" and g.state == "active")
    cut = reflection.last_index - 1
    made = await make(driver, cut)
    _, copied = await groups_of(driver.store, made.id)
    assert reflection.text not in [g.text for g in copied]
    whole = {g.text for g in groups if g.kind == "observation" and g.last_index <= cut}
    assert whole
    assert {g.text for g in copied if g.kind == "observation"} == whole
    await driver.close()


async def test_a_reflection_taken_back_in_the_fork_leaves_the_other_thread_alone(tmp_path):
    driver = await grown(tmp_path)
    before = await tables(driver.store)
    made = await make(driver)
    assert [x.content for x in await log(driver.store, made.id)] == [x.content for x in await log(driver.store, "t1")]
    await driver.open(made.id)
    await driver.engine.undo_reflection()
    assert await tables(driver.store) == before
    assert [x.content for x in await log(driver.store, made.id)] != [x.content for x in await log(driver.store, "t1")]
    await driver.close()


async def log(store, thread_id):
    record = await store.read(memory.get_record, f"thread:{thread_id}")
    return await store.read(memory_log.read_lines, record.id)


async def test_what_is_said_in_the_fork_is_found_and_the_fork_is_not_split_in_mid_turn(tmp_path):
    driver = await Driver.make(tmp_path / "x.db")
    await driver.turn("where is the xylophone", [{"text": "in the attic"}])
    made = await make(driver)
    await driver.open(made.id)
    driver.said = list(await driver.store.read(messages.list_after, made.id, -1))
    await driver.begin("and the zither")
    page = await driver.store.read(search.search, "xylophone", search.Scope("workspace", "fork"))
    assert {h.thread_id for h in page.hits} == {"fork"}
    page = await driver.store.read(search.search, "zither", search.Scope("workspace"))
    assert {h.thread_id for h in page.hits} == {"fork"}
    assert (await driver.store.read(threads.get, "fork")).metadata["forked_from"] == "t1"
    await driver.close()


async def test_provisional_messages_and_empty_threads(tmp_path):
    driver = await Driver.make(tmp_path / "x.db")
    with pytest.raises(StoreError, match="no message"):
        await make(driver)
    await driver.turn("one", [{"text": "two"}])
    third = await driver.say("user", TextPart("three"))
    await driver.store.write(
        lambda db: db.execute_sql("UPDATE messages SET state = 'provisional' WHERE id = ?", (third.id,))
    )
    made = await make(driver)
    assert made.metadata["forked_at"] == 1
    with pytest.raises(StoreError, match="removed for good"):
        await driver.store.write(
            thread_fork.fork, "nowhere", id="x", ids=driver.store.ids, now=0
        )  # fmt: skip
    await driver.close()


async def test_with_one_log_for_the_workspace_the_fork_is_observed_as_far_as_the_other(tmp_path):
    driver = await Driver.make(tmp_path / "x.db", settings(700, 100_000, buffer_tokens=0.3, scope="resource"))
    for n in range(8):
        await driver.turn(f"question {n}", [{"text": f"answer {n} {LONG}"}])
        await driver.engine.wait_idle()
    record = driver.engine.state.window.record
    cursor = await driver.store.read(memory.find_cursor, record.id, "t1")
    assert cursor > 3
    await make(driver)
    await make(driver, 3, id="early")
    assert await driver.store.read(memory.find_cursor, record.id, "fork") == cursor
    assert await driver.store.read(memory.find_cursor, record.id, "early") == 3
    await driver.close()
