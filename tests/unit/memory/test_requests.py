"""What one engine sends and does at a time, and what it takes in of another window's work before it does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sakti.core.errors import MemoryFailure
from sakti.core.types import Message
from sakti.memory.context import REMINDER_ID
from sakti.memory.engine import Prepared
from sakti.memory.phases import Phase
from sakti.memory.window import find_first_fitting
from sakti.store.threads import messages as message_store
from tests.fakes.memory import Driver, ScriptedObserver, settings

WORDS = "word and number 12 in src/auth.ts "
NEVER = 1_000_000
CALM = settings(NEVER, NEVER, buffer_tokens=False, activate_after_idle=False)


async def talked(path: Path, **values: Any) -> Driver:
    made = await Driver.make(path, CALM, **values)
    for number in range(4):
        await made.turn(f"part {number} {WORDS * 20}", [{"text": f"answer {number} {WORDS * 10}"}])
    return made


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    made = await talked(tmp_path / "m.db")
    yield made
    await made.close()


@pytest.fixture
async def other(driver: Driver, tmp_path: Path) -> AsyncIterator[Driver]:
    """Another window of the same thread, opened after all that was said."""
    made = await Driver.make(tmp_path / "m.db", CALM, clock=driver.clock)
    yield made
    await made.close()


async def observe(driver: Driver, count: int) -> None:
    assert await driver.engine.observation.now(driver.engine.state.window.find_uncovered_messages()[:count])


def ids(prepared: Prepared) -> list[str]:
    return [m.id for m in prepared.messages if m.id != REMINDER_ID]


def said(messages: list[Message]) -> list[str]:
    return [m.id for m in messages]


# --- requests -----------------------------------------------------------------------------------------------


async def test_everything_is_sent_raw_or_stands_in_the_log(driver: Driver) -> None:
    await driver.begin("what now?")
    prepared = await driver.engine.prepare(step=1)
    assert ids(prepared) == said(driver.said)
    assert prepared.messages[0].id != REMINDER_ID
    await observe(driver, 4)
    prepared = await driver.engine.prepare(step=2)
    assert ids(prepared) == said(driver.said)[4:]
    assert prepared.messages[0].id == REMINDER_ID
    assert [b.kind for b in prepared.blocks] == ["memory", "observations"]


async def test_no_more_is_sent_than_the_models_window_takes(driver: Driver) -> None:
    await observe(driver, 2)
    await driver.begin("what now?")
    budget = 1_000
    prepared = await driver.engine.prepare(step=1, budget=budget)
    blocks = sum(b.tokens for b in prepared.blocks)
    assert blocks + sum(m.tokens for m in prepared.messages) <= budget
    assert prepared.status.messages.threshold == budget * 3 // 7
    assert prepared.status.observations.threshold == budget * 4 // 7


async def test_of_what_fits_the_newest_is_sent_and_the_prompt(driver: Driver) -> None:
    await driver.engine.pause()  # else it would be observed
    await driver.begin("what now?")
    size = sum(m.tokens for m in driver.said[-3:])
    prepared = await driver.engine.prepare(step=1, budget=size)
    assert ids(prepared) == said(driver.said)[-3:]
    prepared = await driver.engine.prepare(step=1, budget=size - 1)
    assert ids(prepared) == said(driver.said)[-2:]


async def test_the_prompt_is_in_every_request_of_its_turn(driver: Driver) -> None:
    await driver.begin("what now?")
    await driver.step({"tool": {"name": "read", "args": {}, "result": WORDS}}, "c1")
    await driver.step({"tool": {"name": "read", "args": {}, "result": WORDS}}, "c2")
    assert await driver.engine.observe_now()
    assert driver.engine.state.window.cursor >= driver.prompts[0].index
    prepared = await driver.engine.prepare(step=2)
    assert ids(prepared) == [driver.prompts[0].id, *said(driver.said)[-2:]]
    await driver.engine.close()
    await driver.open()  # after a crash, too
    assert ids(driver.engine.preview()) == [driver.prompts[0].id, *said(driver.said)[-2:]]


async def test_what_is_said_meanwhile_is_a_prompt_of_the_turn(driver: Driver) -> None:
    await driver.begin("what now?")
    await driver.engine.prepare(step=1)
    steered = await driver.say("user", *driver.prompts[0].parts)
    assert said(driver.engine.state.prompts) == [driver.prompts[0].id, steered.id]
    await driver.engine.end_turn()
    await driver.begin("and now?")
    assert said(driver.engine.state.prompts) == said(driver.prompts)


async def test_task_and_response_are_the_observers(driver: Driver) -> None:
    await driver.begin("what now?")
    await driver.step({"text": "Nothing."}, "c1")
    await observe(driver, 10)
    tail = "\n".join(driver.engine.preview().tail)
    assert "Primary: task 1" in tail
    assert "Go on 1" in tail
    await driver.begin("and now?")
    tail = "\n".join(driver.engine.preview().tail)
    assert "Primary: task 1" in tail
    assert "Go on 1" not in tail  # of before the prompt


async def test_what_was_withheld_is_sent_no_more(driver: Driver) -> None:
    await driver.begin("what now?")
    pending = driver.engine.status().messages.tokens
    driver.engine.forget([driver.prompts[0].id])
    assert driver.engine.status().messages.tokens == pending - driver.prompts[0].tokens
    assert driver.prompts[0].id not in [m.id for m in driver.engine.state.window.messages]


async def test_what_was_too_long_is_sent_in_part_until_the_turn_ends(driver: Driver) -> None:
    driver.observer.fail = lambda _: True
    await driver.begin("what now?")
    before = sum(m.tokens for m in (await driver.engine.prepare(step=1)).messages)
    assert await driver.engine.observe_now()
    assert sum(m.tokens for m in (await driver.engine.prepare(step=1)).messages) <= before // 2
    await driver.step({"text": "Yes."}, "c1")
    await driver.engine.end_turn()
    driver.clock.advance(3_600)
    await driver.begin("and now?")
    assert ids(await driver.engine.prepare(step=1)) == said(driver.said)


async def test_the_beginning_and_the_end_of_an_answer_that_is_too_long_are_sent(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", CALM)
    engine, driver.observer.fail = driver.engine, lambda _: True
    await driver.turn("say all", [{"text": f"It begins. {WORDS * 1_000} It ends."}])
    engine.set_budget(3_000)
    before = engine.preview()
    await driver.begin("and now?")
    prepared = await engine.prepare(step=1, budget=3_000)
    _, answer, prompt = prepared.messages[-3:]
    assert answer.id == driver.said[-2].id and prompt == driver.said[-1]
    assert "It begins." in answer.text and "left out" in answer.text and "It ends." in answer.text
    assert sum(m.tokens for m in prepared.messages) + sum(b.tokens for b in prepared.blocks) <= 3_000
    assert [m.tokens for m in before.messages[:2]] == [m.tokens for m in prepared.messages[:2]], "as it was shown"
    for status in (before.status, prepared.status, engine.status()):
        assert status.unsent == driver.said[-2].tokens - answer.tokens
    stored = await driver.store.read(message_store.get_many, [answer.id])
    assert stored[0].text == driver.said[-2].text
    await driver.close()


async def test_a_result_above_the_models_window_is_sent_shortened(driver: Driver) -> None:
    await driver.begin("read it")
    await driver.step({"tool": {"name": "read", "args": {}, "result": f"first {WORDS * 1_000} last"}}, "c1")
    result = (await driver.engine.prepare(step=2, budget=3_000)).messages[-1].tool_results[0].content
    assert result.startswith("first") and "left out" in result and "last" in result and len(result) < 20_000


# --- failures -----------------------------------------------------------------------------------------------


async def test_what_could_not_be_observed_is_pending_and_tried_later(driver: Driver) -> None:
    driver.observer.fail = lambda _: True
    state = driver.engine.state
    assert not await driver.engine.observation.now(state.window.find_uncovered_messages()[:4])
    assert (state.phase, state.retry.failures, state.window.cursor) == (Phase.BACKING_OFF, 1, -1)
    assert state.window.active == []
    assert await driver.store.read(message_store.count_messages, "t1") == len(driver.said)
    state.settle()
    assert state.phase is Phase.BACKING_OFF
    driver.clock.advance(61)
    state.settle()
    assert state.phase is Phase.IDLE
    driver.observer.fail = lambda _: False
    await observe(driver, 4)
    assert (state.phase, state.retry.failures, state.note) == (Phase.IDLE, 0, "")


# --- other windows ------------------------------------------------------------------------------------------


async def test_a_turn_begins_with_what_others_did(driver: Driver, other: Driver) -> None:
    await observe(other, 4)
    await driver.engine.begin_turn(provider="scripted", model="demo")
    assert driver.engine.state.window.cursor == 3
    await other.engine.pause()
    await driver.engine.begin_turn(provider="scripted", model="demo")
    assert driver.engine.state.phase is Phase.PAUSED
    await other.engine.resume(start=False)
    await driver.engine.begin_turn(provider="scripted", model="demo")
    assert driver.engine.state.phase is Phase.IDLE


async def test_what_people_do_by_hand_is_done_to_memory_as_it_is(driver: Driver, other: Driver) -> None:
    await observe(other, 6)
    assert await driver.engine.reflect_now()
    assert (await driver.engine.compact()).messages == 0
    assert driver.engine.state.window.cursor == 5
    assert (await other.engine.undo_reflection()).generation == 1


async def test_a_request_that_is_too_long_is_made_of_what_another_window_observed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(NEVER, NEVER))
    other = await talked(tmp_path / "m.db", observer=ScriptedObserver())
    await observe(other, 6)
    await driver.engine.observe_now()
    assert driver.engine.state.window.active[0].id == other.engine.state.window.active[0].id
    await other.close()
    await driver.close()


async def test_no_model_is_asked_for_what_another_window_observed(driver: Driver, other: Driver) -> None:
    await observe(other, 4)
    found = driver.engine.state.window.find_uncovered_messages()[:4]
    assert not await driver.engine.observation.now(found)
    assert driver.observer.inputs == []
    assert (driver.engine.state.phase, driver.engine.state.window.cursor) == (Phase.IDLE, 3)
    await observe(driver, 2)
    assert [m.index for m in driver.observer.inputs[0].messages] == [4, 5]
    assert "user 0" in driver.observer.inputs[0].log


async def test_a_refused_move_shows_what_was_done_instead(driver: Driver, other: Driver) -> None:
    for one in (driver, other):
        one.engine.observation._begin(one.engine.state.window.find_uncovered_messages()[:4], "buffering", "", [])
        await one.engine.wait_idle()
        await one.engine.state.refresh()
    assert [g.id for g in driver.engine.state.window.ready()] == [g.id for g in other.engine.state.window.ready()]
    await other.engine.state.activate_ready()
    assert driver.engine.state.window.cursor == -1
    await driver.engine.state.activate_ready()
    assert driver.engine.state.window.cursor == 3


async def test_nothing_is_written_where_memory_is_only_read(tmp_path: Path) -> None:
    driver = await talked(tmp_path / "m.db", observer=ScriptedObserver())
    await driver.engine.close()
    driver.settings = settings(10, 10, read_only=True)
    await driver.open()
    await driver.begin("what now?")
    await driver.engine.prepare(step=1)
    await driver.engine.end_turn()
    await driver.engine.wait_idle()
    for work in (driver.engine.compact, driver.engine.reflect_now, driver.engine.pause, driver.engine.undo_reflection):
        with pytest.raises(MemoryFailure, match="read-only"):
            await work()
    assert driver.observer.inputs == []
    await driver.close()


# --- a log larger than the window -----------------------------------------------------------------------------


def test_of_a_log_larger_than_its_room_the_newest_groups_are_sent_from_the_same_one_on() -> None:
    assert find_first_fitting([100] * 20, 2_000, 7) == 0
    assert find_first_fitting([100] * 20, 1_000, 0) == 15  # half of the room, so that it stays there for long
    assert find_first_fitting([100] * 25, 1_000, 15) == 15
    assert find_first_fitting([100] * 26, 1_000, 15) == 21
    assert find_first_fitting([100, 5_000], 1_000, 0) == 1  # the newest is sent at any cost


async def test_a_log_that_nobody_condenses_is_sent_in_part_and_no_turn_ends(driver: Driver) -> None:
    await driver.engine.pause()
    for number in range(12):
        await driver.turn(f"part {number}", [{"text": WORDS}])
        await driver.engine.observation.now(driver.engine.state.window.find_uncovered_messages())
    log = driver.engine.state.observation_tokens
    await driver.begin("what now?")
    prepared = await driver.engine.prepare(step=1, budget=log)
    assert [b.kind for b in prepared.blocks][:3] == ["memory", "memory", "observations"]
    assert sum(b.tokens for b in prepared.blocks if b.kind == "observations") <= 0.75 * log
    assert (
        "part 11" in prepared.blocks[-1].text or driver.engine.state.window.active[-1].text in prepared.blocks[-1].text
    )
    again = await driver.engine.prepare(step=2, budget=log)
    assert again.blocks == prepared.blocks
    whole = await driver.engine.prepare(step=3, budget=10 * log)
    assert len(whole.blocks) == 1 + len(driver.engine.state.window.active)
