"""Memory that is only read: nothing observed, nothing corrected, no row more, what there was is shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure
from sakti.core.types import Thread
from sakti.memory.engine import MemoryEngine
from sakti.memory.pages import Pages
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.store.connection import Database
from sakti.store.log import lines as memory_log
from tests.fakes.memory import Driver, ScriptedObserver, ScriptedReflector, settings

LONG = "the scheduler drops jobs when the clock jumps " * 12


def rows(db: Database) -> dict[str, object]:
    """Everything in the database."""
    names = [n for (n,) in db.execute_sql("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    return {n: db.execute_sql(f'SELECT * FROM "{n}"').fetchall() for n in names if not n.startswith("search_")}


async def observed(path: Path, **values: object) -> tuple[Driver, MemorySettings]:
    """A thread with a log, a page and unobserved messages."""
    usual = settings(700, 4_000, **values)
    driver = await Driver.make(path, usual)
    for number in range(8):
        await driver.turn(f"question {number} {LONG}", [{"text": f"answer {number} {LONG}"}])
        await driver.engine.wait_idle()
    await Pages(driver.store, driver.counter, usual, "workspace").update("t1", "# Stack\nPython", actor="user")
    await driver.engine.close()
    return driver, replace(usual, read_only=True)


async def reopened(driver: Driver, memory: MemorySettings, thread: str = "t1") -> MemoryEngine:
    driver.settings, driver.observer, driver.reflector = memory, ScriptedObserver(), ScriptedReflector()
    await driver.open(thread)
    return driver.engine


BY_HAND: dict[str, Callable[[MemoryEngine], Awaitable[object]]] = {
    "compact": lambda e: e.compact(),
    "compact undo": lambda e: e.undo_compaction(),
    "observe": lambda e: e.observe_rest(),
    "reflect": lambda e: e.reflect_now(),
    "reflect undo": lambda e: e.undo_reflection(),
    "pause": lambda e: e.pause(),
    "resume": lambda e: e.resume(),
    "pin": lambda e: e.correct("x", "pin"),
    "restore": lambda e: e.undo_correction(),
}


@pytest.mark.parametrize("name", BY_HAND)
async def test_by_hand_neither(tmp_path: Path, name: str) -> None:
    driver, read_only = await observed(tmp_path / "m.db")
    engine = await reopened(driver, read_only)
    before = await driver.store.read(rows)
    with pytest.raises(MemoryFailure, match=r"read-only here .*nothing is observed") as caught:
        await BY_HAND[name](engine)
    assert caught.value.code == "read_only"
    assert engine.count_tokens_to_observe() == 0
    assert await driver.store.read(rows) == before
    assert driver.observer.inputs == [] and driver.reflector.inputs == []
    await driver.close()


@pytest.mark.parametrize("scope", ["thread", "resource"])
async def test_a_turn_reads_log_and_page_and_writes_nothing(tmp_path: Path, scope: str) -> None:
    driver, read_only = await observed(tmp_path / "m.db", scope=scope)
    before = await driver.store.read(rows)
    engine = await reopened(driver, read_only)
    await engine.begin_turn(provider="other", model="than before")
    for step in (1, 2):
        prepared = await engine.prepare(step=step)
        kinds = [b.kind for b in prepared.blocks]
        assert kinds[0] == "working_memory" and "Python" in prepared.blocks[0].text
        assert "observations" in kinds
        assert prepared.status.note == "memory is read-only: nothing is observed"
    await engine.end_turn()
    await engine.wait_idle()
    assert await driver.store.read(rows) == before
    assert driver.observer.inputs == []
    assert await driver.store.read(memory_log.read_lines, engine.record_id)
    await driver.close()


async def test_far_above_the_threshold_nothing_waits_and_nothing_is_observed(tmp_path: Path) -> None:
    driver, read_only = await observed(tmp_path / "m.db")
    engine = await reopened(driver, read_only)
    groups = len(engine.state.window.active)
    for number in range(6):
        await driver.turn(f"more {number} {LONG * 3}", [{"text": LONG}])
    assert engine.status().messages.tokens > 3 * engine.status().messages.threshold
    assert driver.observer.inputs == []
    assert len(engine.state.window.active) == groups
    await driver.close()


async def test_a_new_thread_keeps_its_carry_over_without_storing_it(tmp_path: Path) -> None:
    driver, read_only = await observed(tmp_path / "m.db")
    driver.settings, driver.observer = read_only, ScriptedObserver()
    now = driver.clock.now()
    engine = driver.engine = MemoryEngine(
        MemoryServices(driver.store, driver.counter, driver.events.append),
        MemoryOptions(settings=read_only, timezone="UTC"),
        driver.observer,
        driver.reflector,
    )
    before = await driver.store.read(rows)
    await engine.open(Thread("new", "workspace", "", now, now))
    texts: list[str] = []
    for _ in range(2):
        await engine.begin_turn(provider="scripted", model="demo")
        (block,) = [b for b in (await engine.prepare(step=1)).blocks if b.kind == "carry_over"]
        texts.append(block.text)
        await engine.end_turn()
    assert texts[0] == texts[1] and "Its task" in texts[0]
    assert await driver.store.read(rows) == before
    await driver.close()


async def test_pages_are_not_written(tmp_path: Path) -> None:
    driver, read_only = await observed(tmp_path / "m.db")
    pages = Pages(driver.store, driver.counter, read_only, "workspace")
    before = await driver.store.read(rows)
    with pytest.raises(MemoryFailure, match="read-only"):
        await pages.update("t1", "# Stack\nRust", actor="agent")
    with pytest.raises(MemoryFailure, match="read-only"):
        await pages.add_note("t1", "use tabs")
    assert await driver.store.read(rows) == before
    assert "Python" in await pages.read()
    await driver.close()
