"""Memory's groups in wrong states: found, put right from their ranges, and nothing of a sound memory touched."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.core.events import Notice
from sakti.store import memory
from sakti.store.connection import Database
from sakti.store.log.lines import read_lines
from sakti.store.maintenance import checks
from sakti.store.memory import group_rows, integrity
from sakti.store.memory.integrity import GroupSpan
from sakti.store.search import search
from tests.fakes.memory import Driver, settings

SMALL = settings(500, 4_000, buffer_tokens=0.2)


def observation(id: str, state: Any, first: int, last: int, thread: str = "t") -> GroupSpan:
    return GroupSpan(id, thread, "observation", state, first, last)


def reflection(id: str, state: Any, *merged: str) -> GroupSpan:
    return GroupSpan(id, "t", "reflection", state, 0, 99, merged)


def everything(_: str, after: int, before: int) -> bool:
    return before - after > 1


SOUND = [
    observation("a", "superseded", 0, 3),
    observation("b", "superseded", 4, 7),
    observation("c", "active", 8, 9),
    observation("d", "buffered", 10, 12),
    observation("x", "discarded", 8, 12),
    reflection("r", "active", "a", "b"),
]


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, {}),
        # a reflection was taken away from what it merged: that is the log again
        ({"r": "discarded"}, {"a": "active", "b": "active"}),
        # a group was jumped over: it goes where it belongs
        ({"b": "buffered", "r": "discarded"}, {"a": "active", "b": "active"}),
        # a group that is merged stands in the log beside the reflection
        ({"a": "active"}, {"a": "superseded"}),
        # what was in the log was discarded though more was observed behind it
        ({"c": "discarded", "d": "active"}, {"c": "active"}),
        ({"x": "buffered"}, {"x": "discarded"}),
    ],
)
def test_wrong_states_are_put_right(change: dict[str, Any], right: dict[str, str]) -> None:
    spans = [replace(s, state=change.get(s.id, s.state)) for s in SOUND]
    assert integrity.compute_states(spans, everything) == right


def test_what_nothing_covers_is_observed_again_and_the_rest_waits_for_it() -> None:
    spans = [observation("a", "active", 0, 3), observation("c", "active", 8, 9), observation("d", "buffered", 10, 12)]
    assert integrity.compute_states(spans, everything) == {"c": "buffered"}
    withheld = integrity.compute_states(
        spans, lambda _thread, after, before: (after, before) != (3, 8) and before - after > 1
    )
    assert withheld == {}


def test_what_was_discarded_behind_an_older_cursor_comes_back() -> None:
    spans = [observation("a", "active", 0, 3), *(observation(f"d{n}", "discarded", n, n + 3) for n in (4, 8, 12))]
    assert integrity.compute_states(spans, everything) == {}
    assert integrity.compute_states(spans, everything, {"t": 11}) == {"d4": "active", "d8": "active"}


def test_a_gap_is_filled_once() -> None:
    spans = [
        observation("a", "active", 0, 3),
        observation("d", "discarded", 4, 5),
        observation("e", "discarded", 4, 7),
        observation("f", "discarded", 6, 7),
        observation("g", "active", 8, 9),
    ]
    assert integrity.compute_states(spans, everything) == {"d": "active", "f": "active"}
    # where nothing that counts is missing nothing comes back
    assert integrity.compute_states(spans, lambda _thread, _after, _before: False) == {}


def test_of_two_reflections_on_one_group_the_newer_stands() -> None:
    spans = [
        observation("a", "superseded", 0, 3),
        observation("b", "superseded", 4, 7),
        reflection("r", "active", "a"),
        reflection("s", "active", "a", "b"),
    ]
    assert integrity.compute_states(spans, everything) == {"r": "discarded"}


def test_a_reflection_ahead_of_a_hole_is_dissolved() -> None:
    spans = [
        observation("a", "superseded", 0, 3),
        observation("c", "superseded", 8, 9),
        reflection("r", "active", "a", "c"),
    ]
    assert integrity.compute_states(spans, everything) == {"a": "active", "c": "buffered", "r": "discarded"}


def test_a_group_without_a_range_of_its_thread_stands_outside() -> None:
    report = GroupSpan("p", "t", "observation", "active")
    assert integrity.compute_states([observation("a", "active", 0, 3), report], everything) == {}
    sources = observation("a", "superseded", 0, 3), replace(report, state="superseded")
    merged = [*sources, reflection("r", "active", "a", "p")]
    assert integrity.compute_states(merged, everything) == {}


states = st.sampled_from(["buffered", "active", "superseded", "discarded"])
spans = st.lists(st.tuples(states, st.integers(0, 12), st.integers(0, 4)), max_size=7)
merges = st.lists(st.tuples(states, st.sets(st.integers(0, 6), min_size=1)), max_size=3)


@given(spans, merges)
def test_whatever_the_states_are_what_comes_of_it_is_sound(made: list[Any], merged: list[Any]) -> None:
    groups = [observation(f"g{n}", state, first, first + size) for n, (state, first, size) in enumerate(made)]
    groups += [
        reflection(f"r{n}", state, *(f"g{i}" for i in ids if i < len(made))) for n, (state, ids) in enumerate(merged)
    ]
    right = integrity.compute_states(groups, everything)
    after = [replace(g, state=right.get(g.id, g.state)) for g in groups]
    assert integrity.compute_states(after, everything) == {}
    standing = [g for g in after if g.kind == "reflection" and g.state == "active"]
    claimed = [i for g in standing for i in g.merged]
    assert len(claimed) == len(set(claimed)), "one reflection stands for a group"
    for group in after:
        if group.kind == "observation":
            assert (group.state == "superseded") == (group.id in claimed)
    free = sorted((g.first, g.last) for g in after if g.kind == "observation" and g.state == "active")
    assert all(a[1] < b[0] for a, b in pairwise(free)), "no index is covered twice"


# --- the database -----------------------------------------------------------------------------------------


async def talked(path: Path) -> Driver:
    driver = await Driver.make(path, SMALL)
    for n in range(8):
        await driver.turn(f"{n}: what about the zanzibar{n} queue? " * 8, [{"text": f"Queue {n} drains. " * 20}])
        await driver.engine.wait_idle()
    return driver


async def states_of(driver: Driver) -> list[tuple[str, str]]:
    return await driver.store.read(
        lambda db: db.execute_sql("SELECT id, state FROM observation_groups ORDER BY pk").fetchall()
    )


DAMAGE = {
    "a group that was jumped over": "UPDATE observation_groups SET state = 'buffered' WHERE pk = 2",
    "a group that another thread's undo discarded": "UPDATE observation_groups SET state = 'discarded',"
    " discarded_at = 1 WHERE pk IN (1, 2)",
    "superseded by nothing": "UPDATE observation_groups SET state = 'superseded', superseded_at = 1 WHERE pk <= 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_memory_opens_mended_with_one_notice(damage: str, tmp_path: Path) -> None:
    driver = await talked(tmp_path / "m.db")
    before, log = await states_of(driver), driver.engine.preview().blocks
    cursor = await driver.store.read(memory.find_cursor, driver.engine.record_id, "t1")

    def hurt(db: Database) -> None:
        db.execute_sql(DAMAGE[damage])

    await driver.store.write(hurt)
    checked = {f.name: f for f in await driver.store.read(checks.check)}
    assert not checked["memory"].ok
    assert "should be in the log" in checked["memory"].detail
    await driver.engine.close()
    await driver.open()
    assert await states_of(driver) == before
    assert [b.text for b in driver.engine.preview().blocks] == [b.text for b in log]
    assert await driver.store.read(memory.find_cursor, driver.engine.record_id, "t1") == cursor
    (notice,) = driver.of(Notice)
    assert (notice.title, notice.severity) == ("Memory was repaired", "warning")
    assert "put back into the log" in notice.message
    assert {f.name: f.ok for f in await driver.store.read(checks.check)}["memory"]
    scope = search.Scope("workspace", kinds=("observation",))
    assert (await driver.store.read(search.search, "zanzibar0", scope)).hits
    driver.events.clear()
    await driver.engine.close()
    await driver.open()
    assert not driver.of(Notice)
    await driver.close()


async def test_mending_puts_search_and_figures_right_too(tmp_path: Path) -> None:
    driver = await talked(tmp_path / "m.db")
    record = driver.engine.record_id
    columns = "SELECT * FROM observational_memory"

    def look(db: Database) -> dict[str, Any]:
        cursor = db.execute_sql(columns)
        names = [d[0] for d in cursor.description]
        row = dict(zip(names, cursor.fetchone(), strict=True))
        return {k: v for k, v in row.items() if k not in ("updated_at", "metadata", "revision")}

    def hurt(db: Database) -> None:
        for group in group_rows.get_groups(db, [first]):
            group_rows.unindex_group(db, group)
        db.execute_sql("UPDATE observation_groups SET state = 'discarded', discarded_at = 1 WHERE id = ?", (first,))
        db.execute_sql("UPDATE observational_memory SET generation_count = 7, observation_token_count = 0")
        integrity.repair_states(db, record, 5)

    before = await driver.store.read(look)
    first = (await states_of(driver))[0][0]
    await driver.store.write(hurt)
    assert await driver.store.read(look) == before
    scope = search.Scope("workspace", kinds=("observation",))
    assert (await driver.store.read(search.search, "zanzibar0", scope)).hits, "what counts again is found again"
    await driver.close()


async def test_what_mending_discards_is_not_found_any_more(tmp_path: Path) -> None:
    driver = await talked(tmp_path / "m.db")

    def hurt(db: Database) -> int:
        (low, high) = db.execute_sql("SELECT first_index, last_index FROM observation_groups WHERE pk = 2").fetchone()
        db.execute_sql("UPDATE observation_groups SET first_index = ?, last_index = ? WHERE pk = 1", (low, high))
        integrity.repair_states(db, driver.engine.record_id, 5)
        return db.execute_sql(
            "SELECT count(*) FROM search_docs s JOIN observations o ON o.id = s.doc_id"
            " JOIN observation_groups g ON g.id = o.group_id WHERE g.state = 'discarded'"
        ).fetchone()[0]

    assert await driver.store.write(hurt) == 0
    assert "discarded" in [state for _, state in await states_of(driver)]
    await driver.close()


async def test_mending_counts_the_reflections_that_stand_and_finds_nothing_forgotten(tmp_path: Path) -> None:
    driver = await talked(tmp_path / "m.db")
    assert await driver.engine.reflect_now()
    record = driver.engine.record_id
    for n in range(3):
        await driver.turn(f"then the quagga{n} queue? " * 8, [{"text": f"Queue {n} drains. " * 20}])
        await driver.engine.wait_idle()
    await driver.engine.compact()
    lines = await driver.store.read(read_lines, record)
    forgotten = next(x for x in lines if "quagga0" in x.content)
    await driver.engine.correct(forgotten.id, "forget")

    def hurt(db: Database) -> None:
        for group in group_rows.get_groups(db, [forgotten.group_id]):
            assert group.state == "active"
            group_rows.unindex_group(db, group)
        gone = "UPDATE observation_groups SET state = 'discarded', discarded_at = 1 WHERE id = ?"
        db.execute_sql(gone, (forgotten.group_id,))
        db.execute_sql("UPDATE observational_memory SET generation_count = 7")
        assert integrity.repair_states(db, record, 5)

    await driver.store.write(hurt)
    counted = await driver.store.read(
        lambda db: db.execute_sql("SELECT generation_count FROM observational_memory").fetchone()
    )
    assert counted == (1,)
    scope = search.Scope("workspace", kinds=("observation",))
    found = await driver.store.read(search.search, "quagga0", scope)
    assert forgotten.id not in {h.id for h in found.hits}
    await driver.close()
