"""What a turn may take, going in circles, and another model when the first one stays overloaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sakti.agent.limits import LoopDetector
from sakti.core.events import Notice, RetryScheduled, StepStarted
from sakti.core.types import ModelInfo, Request, ToolCallPart, ToolResultPart, Usage
from sakti.providers.protocol import StreamEvent, TextChunk
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from tests.fakes.session import start
from tests.fakes.tools import ended


def circle(*paths: str):
    def play(request: Request) -> Answer:
        step = sum(m.role == "assistant" for m in request.messages)
        return Answer(calls=(Call("ls", {"path": paths[step % len(paths)]}),))

    return play


@pytest.mark.parametrize("size", [2, 3, 4])
async def test_patterns_of_calls_are_told_and_then_stopped(store: Store, tmp_path: Path, size: int) -> None:
    work = tmp_path / "w"
    names = [f"d{n}" for n in range(size)]
    for name in names:
        (work / name).mkdir(parents=True)
    run = await start(store, work, circle(*names))
    end = await run.ask("loop")
    assert (end.status, end.steps) == ("repetition", 5 * size)
    last = run.provider.requests[-1].messages
    told = ["calls were made" in r.content for m in last for r in m.tool_results]
    assert told.index(True) == 3 * size - 1, "after three rounds"


def rounds(circles: LoopDetector, times: int, results) -> LoopDetector:
    for n in range(times):
        for name in ("a", "b"):
            call = ToolCallPart(f"{name}{n}", "bash", {"command": name})
            circles.see([call], [ToolResultPart(call.id, "bash", results(n))])
    return circles


def test_a_pattern_that_brings_something_new_has_more_time() -> None:
    assert rounds(LoopDetector(), 5, lambda _n: "same").stopped
    assert not rounds(LoopDetector(), 7, str).stopped
    assert rounds(LoopDetector(), 8, str).stopped


def test_work_is_no_circle() -> None:
    circles = LoopDetector()
    for n in range(40):  # edit and test, edit and test
        for call in (ToolCallPart(f"e{n}", "edit", {"n": n}), ToolCallPart(f"t{n}", "bash", {"command": "make"})):
            assert circles.see([call], [ToolResultPart(call.id, call.name, "ok")]) == ""
    assert not circles.stopped


def endless(request: Request) -> Answer:
    call = Call("read", {"path": str(len(request.messages))})
    return Answer(calls=(call,), usage=Usage(1_000, 0, 0, 100, 0, 0.02))


@pytest.mark.parametrize(
    ("limit", "steps", "code"),
    [("max_tokens=5_000", 5, "max_tokens"), ("max_usd=0.05", 3, "max_usd"), ("max_steps=4", 4, "max_steps")],
)
async def test_a_turn_ends_at_its_limit(store: Store, tmp_path: Path, limit: str, steps: int, code: str) -> None:
    run = await start(store, tmp_path / "w", endless, overrides=(f"agent.{limit}",))
    end = await run.ask("work")
    assert (end.status, end.error_code, end.steps) == ("limit", code, steps)
    assert "go on" in end.error
    assert [n.title for n in run.of(Notice)] == (["No price"] if code == "max_usd" else [])


async def test_a_turn_ends_at_its_time_between_steps_and_in_an_answer(store: Store, tmp_path: Path) -> None:
    def slow(request: Request) -> Answer:
        return Answer(calls=(Call("read", {"path": str(len(request.messages))}),), delay=20)

    run = await start(store, tmp_path / "w", slow, overrides=("agent.max_seconds=50",))
    end = await run.ask("work")
    assert (end.status, end.error_code) == ("limit", "max_seconds")
    run = await start(
        store, tmp_path / "w2", [Answer("word " * 500, chunk_delay=1)], overrides=("agent.max_seconds=9",)
    )
    end = await run.ask("talk")
    assert (end.status, end.error_code) == ("limit", "max_seconds")
    assert end.text.startswith("word "), "what was said is kept"


async def test_a_turns_time_ends_a_running_tool_with_all_that_it_started(store: Store, tmp_path: Path) -> None:
    command = "sleep 600 & echo $! > child; wait"
    answers = [Answer("I run it.", calls=(Call("bash", {"command": command}),)), "done"]
    run = await start(store, tmp_path / "w", answers, overrides=("agent.max_seconds=2", "approval.allow=['bash']"))
    end = await run.ask("work")
    assert (end.status, end.error_code, end.steps) == ("limit", "max_seconds", 1)
    assert "2 s" in end.error and "go on" in end.error
    child = int((tmp_path / "w" / "child").read_text())
    assert await ended(child), "nothing goes on in the background"
    assert (await run.ask("go on")).text == "done"
    [result] = [r for m in run.provider.requests[-1].messages for r in m.tool_results]
    assert result.is_error and "did not finish" in result.content, "the history is whole"


async def test_a_turns_time_ends_a_model_that_is_silent(store: Store, tmp_path: Path) -> None:
    never = asyncio.Event()

    class Silent(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
            yield TextChunk("begun")
            await never.wait()

    run = await start(store, tmp_path / "w", ["never"], overrides=("agent.max_seconds=0.2",))
    run.session.workspace.models.provider = Silent([], clock=store.clock, count=len)
    end = await run.ask("talk")
    assert (end.status, end.error_code, end.text) == ("limit", "max_seconds", "begun")


async def test_waiting_is_bounded_by_the_turns_time(store: Store, tmp_path: Path) -> None:
    answers = [Answer(error="rate_limit", retry_after=100, message="slow down"), "never"]
    run = await start(store, tmp_path / "w", answers, overrides=("agent.max_seconds=60",))
    end = await run.ask("hi")
    assert (end.status, end.error_code) == ("error", "rate_limit")
    assert "slow down" in end.error and "100 s" in end.error
    assert run.of(RetryScheduled) == [] and run.session.workspace.clock.slept == []


async def test_waits_of_all_calls_of_a_turn_are_counted_together(store: Store, tmp_path: Path) -> None:
    answers = [Answer(error="rate_limit", retry_after=500), Answer(calls=(Call("ls", {}),))]
    run = await start(store, tmp_path / "w", answers * 2)
    end = await run.ask("hi")
    assert (end.status, len(run.of(RetryScheduled))) == ("error", 1)


# --- another model --------------------------------------------------------------------------------------------


async def test_another_model_answers_the_rest_of_the_turn(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    answers = [*[Answer(error="overloaded", message="busy.")] * 8, "the first one again"]
    run = await start(store, tmp_path / "w", answers)
    other = ScriptedProvider([Answer(calls=(Call("ls", {}),)), "from the other"], name="other")

    async def fallback():
        return other, ModelInfo("b", "other", 50_000)

    run.session.workspace.models.fallback = fallback
    end = await run.ask("hi")
    assert (end.status, end.text) == ("answered", "from the other")
    assert len(run.of(RetryScheduled)) == 7
    (notice,) = run.of(Notice)
    assert "scripted/demo" in notice.message and "other/b" in notice.message and "busy." in notice.message
    assert [s.model for s in run.of(StepStarted)] == ["scripted/demo"] * 8 + ["other/b"] * 2
    asked = other.requests[0]
    assert asked.model == "b"
    assert asked.messages == run.provider.requests[-1].messages, "what was said is kept"
    assert asked.tools == run.provider.requests[-1].tools
    assert (await run.ask("and now?")).text == "the first one again"


async def test_without_a_fallback_the_failure_is_the_end(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer(error="overloaded", message="busy.")] * 8)
    end = await run.ask("hi")
    assert (end.status, end.error_code) == ("error", "overloaded")


async def test_an_endless_answer_is_stopped(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("x" * 5_000_000, chunk=100_000)])
    end = await run.ask("hi")
    assert (end.status, end.error_code) == ("error", "endless")
    assert len(run.provider.requests) == 1
    assert len(end.text) <= 4_200_000
