"""What `advance` lets happen to groups and what it refuses: on rows alone, as another process may have left them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.core.errors import MemoryFailure
from sakti.core.types import Message, TextPart, Thread
from sakti.store import leases, memory
from sakti.store.database import Store
from sakti.store.log import corrections as memory_corrections
from sakti.store.memory import (
    Activate,
    Add,
    Group,
    Move,
    MoveResult,
    NewLine,
    ResultLease,
    UndoCompaction,
    UndoReflection,
)
from sakti.store.memory import moves as done
from sakti.store.memory.moves import Compaction, are_in_state, change_state, has_messages_between
from sakti.store.threads import messages, removal, threads
from tests.bench import raw_rows
from tests.fakes.clock import FakeClock

HELD = ResultLease("observing", "me", "op", "t")
CONDENSING = ResultLease("reflecting", "me", "op")
TOKENS = 10  # of a message


class Rows:
    """A record of one or two threads, and moves on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1_000

    async def begin(self) -> None:
        for thread in ("t", "u"):
            await self.store.write(threads.create, Thread(thread, "w", "", 0, 0))
        await self.store.write(memory.get_or_create, memory.RecordOwner("w"), id="r", timezone="UTC", now=0)
        for held in (HELD, CONDENSING, replace(HELD, thread_id="u")):
            await self.store.write(
                leases.acquire,
                record_id="r",
                kind=held.kind,
                thread_id=held.thread_id,
                owner=held.owner,
                operation_id=held.operation_id,
                now=self.now,
            )
        await self.say(12)

    async def say(self, count: int, thread: str = "t", **values: Any) -> None:
        for _ in range(count):
            message = Message(self.store.ids.new(), thread, "w", "user", (TextPart("."),), 0, tokens=TOKENS, **values)
            await self.store.write(messages.append, message)

    async def move(self, move: Move, thread: str = "t") -> MoveResult:
        self.now += 100
        return await self.store.write(memory.advance, "r", thread, move, self.now)

    async def refused(self, move: Move, thread: str = "t", code: str = "conflict") -> None:
        """It is refused, and nothing has happened."""
        before = await self.all()
        with pytest.raises(MemoryFailure) as refusal:
            await self.move(move, thread)
        assert refusal.value.code == code
        assert await self.all() == before

    async def all(self) -> tuple[Any, ...]:
        return (
            await self.store.read(raw_rows.states, "r"),
            await self.store.read(memory.get_record, "resource:w"),
            [await self.store.read(threads.get, t) for t in ("t", "u")],
        )

    async def states(self) -> dict[str, str]:
        return dict(await self.store.read(raw_rows.states, "r"))

    async def record(self) -> memory.Record:
        found = await self.store.read(memory.get_record, "resource:w")
        assert found is not None
        return found

    async def told(self, thread: str = "t") -> dict[str, Any]:
        found = await self.store.read(threads.get, thread)
        assert found is not None
        return found.metadata

    async def found(self) -> set[str]:
        return set(await self.store.read(raw_rows.searched, "r"))

    async def observe(self, id: str, first: int, last: int, *, activate: bool = False, **values: Any) -> MoveResult:
        return await self.move(observation(id, first, last, activate=activate, **values), values.get("thread_id", "t"))

    async def reflect(self, id: str, *merged: str, corrections: int = 0, **values: Any) -> MoveResult:
        return await self.move(reflection(id, *merged, corrections=corrections, **values))

    async def compacted(self, id: str, groups: tuple[str, ...], **before: Any) -> None:
        """A compaction as it is recorded."""
        noted = {"buffered": [], "last_buffered_at_tokens": 77, "last_observed_at": 5, "thread": {}, **before}
        row = Compaction(id, "t", "w", "r", "", 0, 3, 4, (), groups, noted, 0, 0, self.now)
        await self.store.write(done.add_compaction, row)


def line(group: str, text: str = "It is said.", **values: Any) -> NewLine:
    return NewLine(f"{group}-line", 1, 0, "", "10:00", "medium", text, {}, **values)


def observation(
    id: str, first: int, last: int, *, activate: bool = False, held: ResultLease = HELD, **values: Any
) -> Add:
    thread = values.pop("thread_id", "t")
    values.setdefault("observation_tokens", 3)
    group = Group(
        id,
        "r",
        thread,
        "observation",
        "buffered",
        "* It is said.",
        0,
        first_index=first,
        last_index=last,
        message_tokens=(last - first + 1) * TOKENS,
        **values,
    )
    return Add(group, [line(id)], replace(held, thread_id=thread), activate=activate)


def reflection(id: str, *merged: str, corrections: int = 0, **values: Any) -> Add:
    values = {"first_index": 0, "last_index": 7, "observation_tokens": 2, **values}
    group = Group(id, "r", "t", "reflection", "buffered", "* Said.", 0, merged_group_ids=merged, **values)
    return Add(group, [line(id, "Said.")], CONDENSING, corrections=corrections)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which the record has begun: made once, as that takes longer than the moves."""
    path = tmp_path_factory.mktemp("begun") / "m.db"

    async def make() -> None:
        store = await Store.open(path, clock=FakeClock(), synchronous="NORMAL")
        await Rows(store).begin()
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
async def rows(begun: Path, tmp_path: Path) -> AsyncIterator[Rows]:
    path = tmp_path / "m.db"
    shutil.copy(begun, path)
    store = await Store.open(path, clock=FakeClock(), synchronous="NORMAL")
    yield Rows(store)
    await store.close()


# --- what comes in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "held",
    [replace(HELD, owner="you"), replace(HELD, operation_id="another"), replace(HELD, kind="reflecting")],
)
async def test_only_who_holds_the_lease_adds(rows: Rows, held: ResultLease) -> None:
    await rows.refused(observation("a", 0, 3, held=held), code="lease_lost")
    await rows.observe("a", 0, 3)
    assert await rows.states() == {"a": "buffered"}


@pytest.mark.parametrize(("first", "last"), [(4, 7), (3, 4), (7, 8), (5, 6), (2, 9)])
@pytest.mark.parametrize("activate", [True, False])
async def test_no_message_is_in_two_groups(rows: Rows, first: int, last: int, activate: bool) -> None:
    await rows.observe("a", 0, 1, activate=True)
    await rows.observe("b", 4, 7)
    await rows.refused(observation("c", first, last, activate=activate))
    await rows.observe("d", 2, 3, activate=activate)
    await rows.observe("e", 8, 8)
    assert (await rows.states())["e"] == "buffered"


async def test_other_threads_have_their_own_places(rows: Rows) -> None:
    await rows.say(3, "u")
    await rows.observe("a", 0, 3, activate=True)
    await rows.observe("b", 0, 2, activate=True, thread_id="u")
    await rows.refused(Activate(("b",)), "t")
    await rows.observe("c", 4, 5)
    await rows.refused(Activate(("c",)), "u")
    await rows.refused(Activate(("c", "nobody")))
    assert await rows.states() == {"a": "active", "b": "active", "c": "buffered"}


async def test_what_a_guardrail_looks_at_is_not_observed(rows: Rows) -> None:
    await rows.say(2, state="provisional")
    await rows.refused(observation("a", 10, 12))
    await rows.observe("b", 0, 11)


async def test_what_was_observed_is_not_observed_again(rows: Rows) -> None:
    await rows.observe("a", 0, 3, activate=True)
    await rows.observe("b", 4, 7, activate=True)
    await rows.reflect("x", "a", "b")
    await rows.move(Activate((), reflection=True))
    await rows.refused(observation("c", 7, 9))
    await rows.observe("d", 8, 9, activate=True)
    assert await rows.store.read(memory.find_cursor, "r", "t") == 9


@pytest.mark.parametrize(("group", "user"), [(True, False), (False, True)])
async def test_titles_are_the_newest_and_the_users(rows: Rows, group: bool, user: bool) -> None:
    if user:
        await rows.store.write(threads.rename, "t", "Mine", 1, by_user=True)
    told = await rows.observe("b", 4, 7, metadata={"title": "Later"})
    assert (told.retitled is not None) is group
    told = await rows.observe("a", 0, 3, metadata={"title": "Earlier"})
    assert told.retitled is None
    thread = await rows.store.read(threads.get, "t")
    assert thread is not None
    assert thread.title == ("Mine" if user else "Later")


# --- what enters the log ------------------------------------------------------------------------------------


async def test_nothing_enters_the_log_ahead_of_a_hole(rows: Rows) -> None:
    await rows.refused(observation("x", 1, 3, activate=True))
    for id, first, last in (("a", 0, 3), ("c", 6, 7), ("d", 9, 9)):
        await rows.observe(id, first, last)
    await rows.refused(Activate(("c",)))
    await rows.refused(Activate(("a", "c")))
    await rows.move(Activate(("a",)))
    await rows.observe("b", 4, 5)
    await rows.refused(Activate(("c", "b")))
    await rows.refused(Activate(("b", "c", "d")))  # index 8 is in none of them
    await rows.move(Activate(("b", "c")))
    await rows.refused(Activate(("b",)))
    await rows.refused(Activate(("d",)))
    ids = await rows.store.read(messages.list_after, "t", 7)
    await rows.store.write(removal.withhold_turn, [ids[0].id], "no")
    await rows.move(Activate(("d",)))  # what was withheld stands in nobody's way
    assert set((await rows.states()).values()) == {"active"}


async def test_nothing_enters_the_log_twice(rows: Rows) -> None:
    await rows.observe("x", 2, 5)
    await rows.store.write(_state, "x", "discarded")
    await rows.observe("a", 0, 3, activate=True)
    await rows.store.write(_state, "x", "buffered")
    await rows.refused(Activate(("x",)))


async def test_messages_between_are_strictly_between(rows: Rows) -> None:
    async def between(after: int, before: int) -> bool:
        return await rows.store.read(has_messages_between, "t", after, before)

    assert not await between(3, 4)
    assert await between(3, 5)
    assert await between(-1, 1)
    assert not await between(11, 14)
    assert await between(10, 14)
    assert not await between(4, 4)


async def test_what_enters_is_counted_and_told(rows: Rows) -> None:
    await rows.store.write(memory.set_buffered_at, "r", 100, 0)
    await rows.store.write(threads.update_metadata, "t", {threads.HOLD: 500})
    before = await rows.record()
    await rows.observe("a", 0, 3, current_task="old", suggested_response="wait")
    await rows.observe("b", 4, 5, current_task="new", suggested_response="go")
    await rows.observe("c", 6, 6)
    assert (await rows.record()).last_buffered_at_tokens == 100
    assert (await rows.record()).revision > before.revision
    assert (await rows.told())[threads.HOLD] == 500
    await rows.move(Activate(("a", "b", "c")))
    record, told = await rows.record(), await rows.told()
    assert (record.total_tokens_observed, record.last_buffered_at_tokens) == (70, 30)
    assert (record.observation_token_count, record.last_observed_at) == (9, rows.now)
    assert (told["current_task"], told["suggested_response"]) == ("new", "go")
    assert (told["task_index"], told["last_observed_at"]) == (5, rows.now)
    assert threads.HOLD not in told
    pending = await rows.store.read(_pending)
    assert pending == 5 * TOKENS


def _pending(db: Any) -> int:
    return db.execute_sql("SELECT pending_message_tokens FROM observational_memory").fetchone()[0]


# --- reflections --------------------------------------------------------------------------------------------


async def log(rows: Rows) -> None:
    await rows.observe("a", 0, 3, activate=True, current_task="first", suggested_response="one")
    await rows.observe("b", 4, 7, activate=True, current_task="second", suggested_response="two")


async def test_a_reflection_is_of_the_log_as_it_is(rows: Rows) -> None:
    await log(rows)
    await rows.observe("c", 8, 8)
    await rows.refused(reflection("x", "a", "c"))
    await rows.refused(reflection("x", "a", "nobody"))
    await rows.refused(reflection("x", "a", "b", corrections=1))
    await rows.store.write(memory_corrections.correct_line, "r", "a-line", "pin", now=1)
    await rows.refused(reflection("x", "a", "b"))
    await rows.reflect("x", "a", "b", corrections=1)
    await rows.refused(reflection("y", "a", corrections=1))


async def test_it_takes_the_place_of_what_it_merged(rows: Rows) -> None:
    await log(rows)
    await rows.store.write(memory.set_record_metadata, "r", {memory.HOLD_REFLECTION: 99})
    await rows.reflect("x", "a", "b", current_task="condensed")
    assert (await rows.move(Activate(()))).reflection is None
    told = await rows.move(Activate((), reflection=True))
    assert told.reflection is not None
    assert {g.id for g in told.removed} == {"a", "b"}
    assert await rows.states() == {"a": "superseded", "b": "superseded", "x": "active"}
    record = await rows.record()
    assert (record.generation_count, record.last_reflection_at, record.observation_token_count) == (1, rows.now, 2)
    assert memory.HOLD_REFLECTION not in record.metadata
    assert await rows.store.read(memory.find_cursor, "r", "t") == 7
    assert (await rows.told())["current_task"] == "condensed"


async def test_the_observers_newer_task_stays(rows: Rows) -> None:
    await log(rows)
    await rows.observe("c", 8, 8, activate=True, current_task="third")
    await rows.reflect("x", "a", "b", current_task="condensed")
    await rows.move(Activate((), reflection=True))
    assert (await rows.told())["current_task"] == "third"


async def test_with_what_enters_beside_it_the_task_is_the_observers(rows: Rows) -> None:
    await log(rows)
    await rows.observe("c", 8, 8, current_task=None)
    await rows.reflect("x", "a", "b", current_task="condensed")
    await rows.move(Activate(("c",), reflection=True))
    assert (await rows.told())["current_task"] == "second"


async def test_a_reflection_of_several_threads_says_no_threads_task(rows: Rows) -> None:
    await rows.say(3, "u")
    await log(rows)
    await rows.observe("d", 0, 2, activate=True, thread_id="u")
    await rows.reflect("x", "a", "b", "d", current_task="condensed")
    await rows.move(Activate((), reflection=True))
    assert (await rows.told())["current_task"] == "second"


async def test_a_reflection_that_the_log_has_outrun_is_discarded(rows: Rows) -> None:
    await log(rows)
    await rows.compacted("k", ("b",))
    await rows.reflect("x", "a", "b")
    assert "x-line" in await rows.found()
    await rows.store.write(_state, "b", "discarded")
    told = await rows.move(Activate((), reflection=True))
    assert (told.reflection, [g.id for g in told.removed]) == (None, ["x"])
    assert await rows.states() == {"a": "active", "b": "discarded", "x": "discarded"}
    assert "x-line" not in await rows.found()


def _state(db: Any, id: str, state: str) -> None:
    """As a crash of an older version may have left it."""
    db.execute_sql("UPDATE observation_groups SET state = ? WHERE id = ?", (state, id))


# --- a compaction that is undone ----------------------------------------------------------------------------

TASK = {"current_task": "before", "suggested_response": None, "task_index": 1, "last_observed_at": 3}


async def compacted(rows: Rows) -> None:
    """b was ready, c was made."""
    await rows.observe("a", 0, 3, activate=True, current_task="first")
    await rows.observe("b", 4, 5)
    await rows.move(Activate(("b",)))
    await rows.observe("c", 6, 7, activate=True, current_task="compacted")
    await rows.compacted("k", ("b", "c"), buffered=["b"], thread=TASK)


async def test_an_undo_takes_back_what_the_compaction_did_and_nothing_else(rows: Rows) -> None:
    await compacted(rows)
    await rows.refused(UndoCompaction("another", 25))
    told = await rows.move(UndoCompaction("k", 25))
    assert {g.id for g in told.removed} == {"b", "c"}
    assert await rows.states() == {"a": "active", "b": "buffered", "c": "discarded"}
    assert await rows.found() == {"a-line", "b-line"}
    record, thread = await rows.record(), await rows.told()
    assert (record.total_tokens_observed, record.last_buffered_at_tokens, record.last_observed_at) == (40, 77, 5)
    assert record.observation_token_count == 3
    assert {k: thread.get(k) for k in TASK} == TASK
    assert thread[threads.HOLD] == 8 * TOKENS + 25
    groups = {g.id: g for g in await rows.store.read(memory.get_groups, ["b", "c"])}
    assert (groups["b"].activated_at, groups["b"].discarded_at) == (None, None)
    assert groups["c"].discarded_at == rows.now
    await rows.refused(UndoCompaction("k", 25))
    assert await rows.store.read(done.last_compaction, "t") is None


async def test_an_undo_drops_the_reflection_that_waits_for_it(rows: Rows) -> None:
    await compacted(rows)
    await rows.reflect("x", "a", "c")
    await rows.move(UndoCompaction("k", 25))
    assert (await rows.states())["x"] == "discarded"
    assert "x-line" not in await rows.found()


async def test_an_undo_keeps_a_reflection_of_the_rest(rows: Rows) -> None:
    await compacted(rows)
    await rows.reflect("x", "a")
    await rows.move(UndoCompaction("k", 25))
    assert (await rows.states())["x"] == "buffered"


async def test_an_undo_that_would_change_more_is_refused(rows: Rows) -> None:
    await compacted(rows)
    await rows.observe("d", 8, 9, activate=True)
    await rows.refused(UndoCompaction("k", 25))  # more was observed after it
    await rows.store.write(_state, "d", "discarded")
    await rows.reflect("x", "b", "c")
    await rows.move(Activate((), reflection=True))
    await rows.refused(UndoCompaction("k", 25))  # a reflection stands on it
    await rows.move(UndoReflection(1))
    await rows.move(UndoCompaction("k", 25))


async def test_the_last_compaction_of_the_thread_is_undone_first(rows: Rows) -> None:
    await rows.observe("a", 0, 3, activate=True)
    await rows.compacted("k", ("a",))
    await rows.observe("b", 4, 5, activate=True)
    await rows.compacted("l", ("b",))
    await rows.refused(UndoCompaction("k", 1))
    await rows.refused(UndoCompaction("l", 1), "u")
    await rows.move(UndoCompaction("l", 1))
    await rows.move(UndoCompaction("k", 1))
    assert set((await rows.states()).values()) == {"discarded"}


async def test_a_compaction_of_another_thread_is_not_undone_here(rows: Rows) -> None:
    await rows.say(3, "u")
    await rows.observe("a", 0, 3, activate=True)
    await rows.observe("b", 0, 2, activate=True, thread_id="u")
    await rows.compacted("k", ("a", "b"))
    await rows.refused(UndoCompaction("k", 1))


# --- a reflection that is undone ----------------------------------------------------------------------------


async def reflected(rows: Rows) -> dict[str, Any]:
    await log(rows)
    before = await rows.told()
    await rows.reflect("x", "a", "b", current_task="condensed")
    await rows.move(Activate((), reflection=True))
    return before


async def test_the_log_is_what_it_was(rows: Rows) -> None:
    before = await reflected(rows)
    away = rows.now
    told = await rows.move(UndoReflection(40))
    assert ({g.id for g in told.groups}, [g.id for g in told.removed]) == ({"a", "b"}, ["x"])
    assert await rows.states() == {"a": "active", "b": "active", "x": "discarded"}
    assert await rows.found() == {"a-line", "b-line"}
    record = await rows.record()
    assert (record.generation_count, record.last_reflection_at, record.observation_token_count) == (0, None, 6)
    assert record.metadata[memory.HOLD_REFLECTION] == 6 + 40
    assert await rows.told() == before
    groups = await rows.store.read(memory.get_groups, ["a", "b"])
    assert [(g.superseded_at, g.metadata["away"]) for g in groups] == [(None, [[away, rows.now]])] * 2
    await rows.refused(UndoReflection(40), code="not_found")


async def test_what_is_condensed_meanwhile_read_another_log(rows: Rows) -> None:
    await reflected(rows)
    corrections = await rows.store.read(memory.count_corrections, "r")
    await rows.observe("c", 8, 8, activate=True)
    await rows.reflect("y", "x", "c", corrections=corrections)
    await rows.move(UndoReflection(40))
    assert (await rows.states())["y"] == "discarded"
    await rows.refused(reflection("z", "a", "b", corrections=corrections))


async def test_a_newer_task_stays(rows: Rows) -> None:
    await reflected(rows)
    await rows.observe("c", 8, 8, activate=True, current_task="condensed")
    await rows.move(UndoReflection(40))
    assert (await rows.told())["current_task"] == "condensed"


async def test_generations_are_undone_from_the_newest_on(rows: Rows) -> None:
    await reflected(rows)
    await rows.observe("c", 8, 8, activate=True)
    await rows.reflect("y", "x", "c", generation=2)
    await rows.move(Activate((), reflection=True))
    await rows.refused(UndoReflection(1, 7), code="not_found")
    await rows.refused(UndoReflection(1, 0))  # x, of which y was made
    told = await rows.move(UndoReflection(1))
    assert told.removed[0].id == "y"
    told = await rows.move(UndoReflection(1, 0))
    assert told.removed[0].id == "x"


async def test_what_people_changed_in_it_is_counted(rows: Rows) -> None:
    await reflected(rows)
    await rows.store.write(memory_corrections.correct_line, "r", "x-line", "edit", text="Otherwise.", now=1)
    assert (await rows.move(UndoReflection(40))).corrected_lines == 1


# --- states ------------------------------------------------------------------------------------------------


async def test_a_state_changes_from_what_it_was_alone(rows: Rows) -> None:
    await rows.observe("a", 0, 3, activate=True)
    await rows.observe("b", 4, 5)
    for ids in (["a"], ["a", "b"], ["b", "nobody"]):
        with pytest.raises(MemoryFailure):
            await rows.store.write(change_state, ids, "buffered", "active", 1)
    assert await rows.states() == {"a": "active", "b": "buffered"}
    assert not await rows.store.read(are_in_state, ["a", "b"], "active")
    assert await rows.store.read(are_in_state, ["a"], "active")
    await rows.store.write(change_state, ["b"], "buffered", "active", 7)
    await rows.store.write(change_state, ["b"], "active", "buffered", 8)
    (group,) = await rows.store.read(memory.get_groups, ["b"])
    assert (group.state, group.activated_at) == ("buffered", None)


async def test_a_lease_ends_with_its_last_result(rows: Rows) -> None:
    async def kinds() -> set[tuple[str, str]]:
        return {(x.kind, x.thread_id) for x in await rows.store.read(leases.list_leases, "r", rows.now)}

    before = await kinds()
    assert before >= {("observing", "t"), ("reflecting", "")}
    await rows.move(observation("a", 0, 3, activate=True))
    assert await kinds() == before
    with pytest.raises(MemoryFailure):
        await rows.move(replace(observation("b", 0, 3), ends=True))
    assert await kinds() == before, "what is refused has changed nothing"
    await rows.move(replace(observation("b", 4, 5), ends=True))
    assert await kinds() == before - {("observing", "t")}
    with pytest.raises(MemoryFailure, match="took over this work"):
        await rows.move(observation("c", 6, 7))
    await rows.move(replace(reflection("x", "a"), ends=True))
    assert await kinds() == before - {("observing", "t"), ("reflecting", "")}


async def test_another_memory_of_a_thread_has_its_own_groups(rows: Rows) -> None:
    await rows.observe("a", 0, 3, activate=True)
    await rows.store.write(memory.get_or_create, memory.RecordOwner("w", "t"), id="s", timezone="UTC", now=0)
    lease = {"kind": "observing", "thread_id": "t", "owner": "me", "operation_id": "op"}
    await rows.store.write(leases.acquire, record_id="s", now=rows.now, **lease)
    add = observation("b", 0, 5, activate=True)
    await rows.store.write(memory.advance, "s", "t", replace(add, group=replace(add.group, record_id="s")), rows.now)
    assert await rows.store.read(memory.find_cursor, "s", "t") == 5
    assert await rows.store.read(memory.find_cursor, "r", "t") == 3
    assert [g.id for g in await rows.store.read(memory.list_groups, "r", "active")] == ["a"]


# --- rows ---------------------------------------------------------------------------------------------------


async def test_groups_are_read_anew_when_their_state_changes(rows: Rows) -> None:
    await rows.observe("a", 0, 3)
    known = {g.id: g for g in await rows.store.read(memory.list_current_groups, "r", {})}
    assert known["a"].state == "buffered"
    await rows.move(Activate(("a",)))
    (group,) = await rows.store.read(memory.list_current_groups, "r", known)
    assert (group.state, group.activated_at) == ("active", rows.now)


async def test_reflections_stand_before_what_was_observed_after_them(rows: Rows) -> None:
    await reflected(rows)
    await rows.observe("c", 8, 8, activate=True)
    await rows.observe("d", 9, 9)
    assert [g.id for g in await rows.store.read(memory.list_current_groups, "r", {})] == ["x", "c", "d"]


async def test_pinned_lines_are_what_people_left_of_them(rows: Rows) -> None:
    await log(rows)
    await rows.observe("c", 8, 8, activate=True)
    for id in ("a", "b"):
        await rows.store.write(memory_corrections.correct_line, "r", f"{id}-line", "pin", now=1)
    await rows.store.write(memory_corrections.correct_line, "r", "a-line", "edit", text="Otherwise.", now=1)
    ids = ["a", "b", "c"]
    assert await rows.store.read(memory.list_pinned_lines, ids) == [
        "* 🟡 (10:00) Otherwise.",
        "* 🟡 (10:00) It is said.",
    ]
    await rows.store.write(memory_corrections.correct_line, "r", "b-line", "forget", now=1)
    assert await rows.store.read(memory.list_pinned_lines, ids) == ["* 🟡 (10:00) Otherwise."]


async def test_a_revision_follows_every_change(rows: Rows) -> None:
    seen = {await rows.store.read(memory.read_revision, "r", "t")}
    await rows.observe("a", 0, 3)
    seen.add(await rows.store.read(memory.read_revision, "r", "t"))
    await rows.store.write(memory.set_record_metadata, "r", {"x": 1, "y": 2})
    seen.add(await rows.store.read(memory.read_revision, "r", "t"))
    await rows.store.write(memory.set_record_metadata, "r", {"y": None})
    assert "y" not in (await rows.record()).metadata
    await rows.say(1)
    seen.add(await rows.store.read(memory.read_revision, "r", "t"))
    assert len(seen) == 4
