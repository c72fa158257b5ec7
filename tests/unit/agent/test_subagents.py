"""Child threads: their reports, limits, permissions and crashes, with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti.agent.checkpoints import undoing
from sakti.agent.reports import memory_report
from sakti.agent.subagents.child import Child
from sakti.agent.subagents.report import AgentTask
from sakti.agent.threads.actions import ThreadActions
from sakti.core.errors import ToolError
from sakti.core.events import AgentFinished, AgentProgress, AgentStarted, JobsChanged, Notice, get_thread_id
from sakti.core.types import ContextPart, Request, Usage
from sakti.plain import words
from sakti.providers.scripted import Answer, Call, Played, ScriptedProvider
from sakti.store import memory
from sakti.store.database import Store
from sakti.store.log import events as memory_events
from sakti.store.log import lines as log_lines
from sakti.store.maintenance import purging
from sakti.store.memory import group_rows, integrity
from sakti.store.search import search
from sakti.store.threads import messages, removal, runs, threads
from tests.fakes.session import Recorded, start

CODE = "import time\n\n\ndef retry(call, times=3):\n    return policy.decide(call, times)\n"
QUOTE = "policy.decide(call, times)"
TRUE = {"claim": "retries are decided by the policy", "file": "http.py", "lines": "5", "quote": QUOTE}
INVENTED = {"claim": "there is a cap", "file": "http.py", "lines": "1", "quote": "RETRY_CAP_SECONDS = 30.0"}


def report(*findings: dict[str, Any], not_found: tuple[str, ...] = ()) -> Answer:
    values = {"summary": "The policy decides.", "findings": list(findings), "not_found": list(not_found), "gaps": []}
    return Answer(calls=(Call("report", values),), usage=Usage(50, 0, 0, 5, 0, 0.01))


def is_child(request: Request) -> bool:
    return any(t.name == "report" for t in request.tools)


def goal_of(request: Request) -> str:
    return next(m.text for m in request.messages if m.role == "user")


def delegating(child: Callable[[Request], Played], *calls: dict[str, Any]) -> Callable[[Request], Played]:
    """A parent that makes these calls of `agent` at once and then answers; its children play `child`."""

    def play(request: Request) -> Played:
        if is_child(request):
            return child(request)
        if not any(m.role == "assistant" for m in request.messages):
            return Answer(calls=tuple(Call("agent", c) for c in calls), usage=Usage(100, 0, 0, 10, 0, 0.02))
        return Answer("done", usage=Usage(200, 0, 0, 10, 0, 0.02))

    return play


TOUCH = Call("bash", {"command": "touch other.txt"})
EXPLORE = {"mode": "explore", "goal": "where is the retry policy decided?"}


async def session(store: Store, work: Path, play: Callable[[Request], Played], **more: Any) -> Recorded:
    work.mkdir(exist_ok=True)
    (work / "http.py").write_text(CODE)
    return await start(store, work, play, **more)


def results(run: Recorded) -> list[str]:
    return [r.content for m in run.provider.requests[-1].messages for r in m.tool_results if r.name == "agent"]


async def test_report_marks_true_and_invented_quotes(store: Store, tmp_path: Path) -> None:
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE, INVENTED), EXPLORE))
    end = await run.ask("explore it with a child")
    assert end.status == "answered" and end.text == "done"
    (block,) = results(run)
    assert "(http.py:5) [verified]" in block and "(http.py:1) [unverified]" in block and "1 of 2 quotes found" in block
    (finished,) = run.of(AgentFinished)
    assert (finished.state, finished.verified, finished.quotes) == ("finished", 1, 2)
    assert end.usage.cost_usd == 0.05 and run.session.current.usage.cost_usd == 0.05
    (row,) = await store.read(runs.list_children, run.session.thread.id)
    assert row.state == "finished" and row.delivered_at
    first, *_ = await store.read(messages.list_page, row.child_id)
    assert first.text == EXPLORE["goal"] and not first.is_by_user
    await run.session.close()


async def test_findings_enter_the_log_with_the_message_that_brought_them(store: Store, tmp_path: Path) -> None:
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE, not_found=("a cap",)), EXPLORE))
    await run.ask("explore it with a child")
    engine = run.session.current.engine
    assert engine.state.window.active == [] and not engine.state.window.buffered
    assert [g.origin for g in await store.read(memory.list_groups, engine.record_id, "buffered")] == ["report"]
    await run.ask("and now something else")
    done = await run.session.compact()
    texts = [(g.origin, g.text) for g in engine.state.window.active]
    assert done.messages and [o for o, _ in texts] == ["thread", "report"]
    line = 'http.py:5 retries are decided by the policy "policy.decide(call, times)" [verified]'
    assert line in texts[1][1] and "Not found: a cap" in texts[1][1] and "policy.decide" not in texts[0][1]
    lines = await store.read(log_lines.read_lines, engine.record_id)
    (mine,) = [x for x in lines if x.content.startswith("http.py:5")]
    taken_in = [
        e for e in await store.read(memory_events.list_events, engine.record_id, run.session.thread.id) if e.text
    ]
    assert [memory_report.describe_event(e).partition(",")[0] for e in taken_in] == [
        "observed report of explore → 3 lines"
    ]
    came_from = await store.read(group_rows.find_origin, mine.id)
    (row,) = await store.read(runs.list_children, run.session.thread.id)
    assert came_from is not None and came_from.thread_id == row.child_id
    assert not any("User" in x.content and EXPLORE["goal"] in x.content for x in lines)
    assert await run.session.undo_compaction()
    assert [g.origin for g in await store.read(memory.list_groups, engine.record_id, "active")] == []
    await run.session.compact()
    assert [g.origin for g in engine.state.window.active] == ["thread", "report"]
    assert not await store.read(integrity.find_wrong_states, engine.record_id)
    await run.session.close()


async def test_child_without_a_report_is_reminded_twice_and_never_forced(store: Store, tmp_path: Path) -> None:
    run = await session(store, tmp_path / "w", delegating(lambda _r: Answer("It is in http.py."), EXPLORE))
    await run.ask("explore it with a child")
    of_child = [r for r in run.provider.requests if is_child(r)]
    assert len(of_child) == 3 and {r.tool_choice for r in run.provider.requests} == {"auto"}
    (block,) = results(run)
    assert "unstructured, unverified" in block and "It is in http.py." in block
    stored = await store.read(messages.list_page, (await rows(store, run))[0].child_id)
    assert [m.is_by_user for m in stored if m.role == "user"] == [False] * 3
    await run.session.close()


async def rows(store: Store, run: Recorded) -> list[runs.ChildRun]:
    assert run.session.thread is not None
    return await store.read(runs.list_children, run.session.thread.id)


async def test_wrong_arguments_of_a_report_are_named_and_repaired_twice(store: Store, tmp_path: Path) -> None:
    broken = Answer(calls=(Call("report", {"summary": "s", "findings": [{"file": "http.py"}]}),))
    run = await session(store, tmp_path / "w", delegating(lambda _r: broken, EXPLORE))
    await run.ask("explore it with a child")
    of_child = [r for r in run.provider.requests if is_child(r)]
    told = [r.content for m in of_child[-1].messages for r in m.tool_results]
    assert len(of_child) == 3 and "findings[0]" in told[0] and "claim" in told[0]
    await run.session.close()


async def test_fields_of_a_report_have_the_types_of_the_mode(store: Store, tmp_path: Path) -> None:
    wrong = {"attempts": ["a", ["b"]], "root_cause": 3, "other": 1}
    right = {"attempts": ["raise the limit", "retry"], "root_cause": "the pool is closed early", "other": "kept"}
    values = {"summary": "s", "findings": [], "not_found": [], "gaps": []}

    def play(request: Request) -> Played:
        fields = right if any(m.role == "tool" for m in request.messages) else wrong
        return Answer(calls=(Call("report", {**values, "fields": fields}),))

    run = await session(store, tmp_path / "w", delegating(play, {"mode": "bug_fixing", "goal": "find it"}))
    await run.ask("find it with a child")
    of_child = [r for r in run.provider.requests if is_child(r)]
    (problem,) = [r.content for m in of_child[-1].messages for r in m.tool_results]
    assert "fields.attempts[1]: Expected" in problem and "fields.root_cause: Expected" in problem
    schema = next(t for t in of_child[0].tools if t.name == "report").parameters["properties"]["fields"]
    assert schema["properties"]["attempts"] == {"type": "array", "items": {"type": "string"}}
    await run.session.compact()
    await run.ask("and now something else")
    await run.session.compact()
    lines = await store.read(log_lines.read_lines, run.session.current.engine.record_id)
    kept = {x.content: x.metadata["mode_specific"] for x in lines if x.category == "attempts"}
    assert kept == {"attempts: raise the limit; retry": {"attempts": right["attempts"]}}
    await run.session.close()


async def test_limit_ends_a_child_with_a_partial_report(store: Store, tmp_path: Path) -> None:
    def look(request: Request) -> Answer:
        return Answer("looking", calls=(Call("read", {"path": "http.py", "limit": len(request.messages)}),))

    run = await session(store, tmp_path / "w", delegating(look, EXPLORE), overrides=("subagents.max_steps=2",))
    await run.ask("explore it with a child")
    (block,) = results(run)
    assert "ended early: The limit of 2 steps" in block and "looking" in block
    assert [r.state for r in await rows(store, run)] == ["partial"]
    await run.session.close()


async def test_child_may_do_nothing_that_its_parent_may_not(store: Store, tmp_path: Path) -> None:
    def write(request: Request) -> Played:
        if any(m.role == "tool" for m in request.messages):
            return report()
        calls = (
            Call("write", {"path": "new.txt", "content": "x"}),
            Call("bash", {"command": "touch other.txt"}),
            Call("agent", EXPLORE),
        )
        return Answer(calls=calls)

    goals = (EXPLORE, {"mode": "default", "goal": "write it"})
    run = await session(
        store, tmp_path / "w", delegating(write, *goals), overrides=("approval.mode=plan",), interactive=False
    )
    await run.ask("use children")
    told = {
        (r.name, r.is_error) for q in run.provider.requests if is_child(q) for m in q.messages for r in m.tool_results
    }
    assert told == {("write", True), ("bash", True), ("agent", True)}
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == ["http.py"]
    await run.session.close()


async def test_a_refusal_names_what_only_reads(store: Store, tmp_path: Path) -> None:
    def write(request: Request) -> Played:
        return report() if any(m.role == "tool" for m in request.messages) else Answer(calls=(TOUCH,))

    calls = ({"mode": "explore", "goal": "a"}, {"mode": "default", "goal": "b"})
    for mode, agent_mode, reasons in (
        ("ask", "default", {"the read-only child explore runs only commands that read"}),
        ("plan", "default", {"plan mode runs only commands that read"}),
        ("edits", "explore", {"the read-only child explore runs", "the mode explore runs only commands that read"}),
    ):
        overrides = (f"approval.mode={mode}", f"mode={agent_mode}")
        run = await session(store, tmp_path / "w", delegating(write, *calls), overrides=overrides, interactive=False)
        await run.ask(f"use children in {mode} and {agent_mode}")
        told = " ".join(r.content for q in run.provider.requests if is_child(q) for m in q.messages
                        for r in m.tool_results if r.name == "bash")  # fmt: skip
        assert all(reason in told for reason in reasons), told
        assert not (tmp_path / "w/other.txt").exists()
        await run.session.close()


async def test_a_question_of_a_child_names_it_with_its_goal(store: Store, tmp_path: Path) -> None:
    def write(request: Request) -> Played:
        calls = (Call("write", {"path": f"{goal_of(request)}.txt", "content": "x"}),)
        return report() if any(m.role == "tool" for m in request.messages) else Answer(calls=calls)

    calls = [{"mode": "default", "goal": name} for name in ("first", "second")]
    run = await session(store, tmp_path / "w", delegating(write, *calls))
    await run.session.submit("write with two children")
    async with asyncio.timeout(10):
        while len(run.session.approvals) < 2:
            await asyncio.sleep(0.001)
    asked = run.session.approvals
    assert {(a.asker, a.target) for a in asked} == {
        (f"child thread default › {name}", f"{name}.txt") for name in ("first", "second")
    }
    assert words.format_approval(asked, 1)[0] == f"question 1: {asked[0].asker}: allow write? (1 of 2)"
    for each in asked:
        run.session.resolve(each.id, True)
    await run.session.wait()
    await run.session.close()


async def test_four_children_at_once_with_a_failing_provider_add_up(store: Store, tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def play(request: Request) -> Played:
        goal = goal_of(request)
        seen[goal] = seen.get(goal, 0) + 1
        if seen[goal] == 1:
            return Answer("half", error="overloaded")
        if seen[goal] == 2:
            return Answer(calls=(Call("read", {"path": "http.py"}),), usage=Usage(10, 0, 0, 1, 0, 0.01))
        return report(TRUE)

    calls = [{"mode": "explore", "goal": f"goal {n}"} for n in range(5)]
    run = await session(store, tmp_path / "w", delegating(play, *calls))
    end = await run.ask("explore it with children")
    assert [r.state for r in await rows(store, run)] == ["finished"] * 5
    started, finished = run.of(AgentStarted), run.of(AgentFinished)
    child_ids = {r.child_id for r in await rows(store, run)}
    assert {e.child_id for e in started} == {e.child_id for e in finished} == child_ids
    assert round(end.usage.cost_usd, 6) == round(0.04 + 5 * 0.02, 6)
    total = await store.read(runs.load_total_usage, run.session.thread.id, "actor")
    assert round(total.cost_usd or 0, 6) == round(run.session.current.usage.cost_usd or 0, 6) == 0.14
    assert {get_thread_id(e) for e in run.events} <= {"", run.session.thread.id}
    assert {e.child_id for e in run.of(AgentProgress)} == {e.child_id for e in started}
    await run.session.close()


async def test_a_call_with_an_unknown_model_starts_no_child_and_says_why(store: Store, tmp_path: Path) -> None:
    calls = ({**EXPLORE, "model": "nope/none"}, {**EXPLORE, "model": "inherit"})
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE), *calls))
    await run.ask("explore it with another model")
    refused, done = results(run)
    assert "No child was started: the model nope/none is not available" in refused and "[verified]" in done
    assert len(await store.read(runs.list_children, run.session.thread.id)) == 1


async def test_tools_of_a_call_have_the_names_of_agent_files_and_unknown_ones_are_refused(
    store: Store, tmp_path: Path
) -> None:
    def child(request: Request) -> Played:
        if any(m.role == "tool" for m in request.messages):
            return report(TRUE)
        return Answer(calls=(TOUCH, Call("bash", {"command": "git --version"})))

    work = {"mode": "default", "goal": "look at the commits"}
    calls = ({**work, "tools": ["Read", "Frobnicate"]}, {**EXPLORE, "tools": ["Write"]})
    allowed = {**work, "tools": ["Read", "Bash(git:*)", "report"]}
    run = await session(store, tmp_path / "w", delegating(child, *calls, allowed), interactive=False)
    run.session.set_approval_mode("auto")
    await run.ask("look at the commits with a child")
    unknown, outside, done = results(run)
    assert "default has no tool Frobnicate." in unknown and "bash, " in unknown
    assert "explore has no tool Write." in outside and "[verified]" in done
    asked = [r for r in run.provider.requests if is_child(r)]
    assert {t.name for t in asked[0].tools} == {"read", "bash", "report"}
    touched, version = [r for m in asked[-1].messages for r in m.tool_results]
    assert "the agent default may not do this" in touched.content and not (tmp_path / "w" / "other.txt").exists()
    assert "git version" in version.content


async def test_gauges_of_a_finished_child_have_the_limits_that_it_had_while_it_ran(
    store: Store, tmp_path: Path
) -> None:
    children: list[Child] = []

    def child(request: Request) -> Played:
        children[:] = run.session.children.running
        return report(TRUE) if request.messages[-1].role == "tool" else Answer(calls=(Call("ls", {}),))

    run = await session(store, tmp_path / "w", delegating(child, EXPLORE), window=24_000)
    await run.ask("explore it with a child")
    assert "[verified]" in results(run)[0], "also a model with few tools has the one that reports"
    live, stored = children[0].thread.status, await run.session.views.child_memory(children[0].id)
    assert live is not None and stored is not None
    assert stored.status.messages.threshold == live.messages.threshold < 10_000
    assert stored.status.observations.threshold == live.observations.threshold


async def test_repeated_goal_names_the_first_child_and_runs_when_called_again(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Played:
        if is_child(request):
            return report(TRUE)
        asked = sum(m.role == "assistant" for m in request.messages)
        return Answer(calls=(Call("agent", EXPLORE),)) if asked < 3 else "done"

    run = await session(store, tmp_path / "w", play)
    await run.ask("explore it with a child")
    first, second, third = results(run)
    assert "Nothing was started" in second and "Report of the child" in first and "Report of the child" in third
    assert len(await rows(store, run)) == 2
    await run.session.close()


async def test_esc_ends_foreground_children_with_partial_reports(store: Store, tmp_path: Path) -> None:
    reached, waiting = asyncio.Event(), set[str]()

    class Slow(ScriptedProvider):
        async def stream(self, request: Request):
            if is_child(request) and any(m.role == "tool" for m in request.messages):
                waiting.add(goal_of(request))
                if len(waiting) == 2:
                    reached.set()
                await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    look = Answer("half way", calls=(Call("read", {"path": "http.py"}),))
    provider = Slow(delegating(lambda _r: look, EXPLORE, {**EXPLORE, "goal": "another"}))
    run = await session(store, tmp_path / "w", lambda _r: "unused", provider=provider)
    await run.session.submit("explore it with children")
    async with asyncio.timeout(10):
        await reached.wait()
        assert await run.session.interrupt()
    assert [r.state for r in await rows(store, run)] == ["partial"] * 2
    last = (await store.read(messages.list_page, run.session.thread.id))[-1]
    assert all("half way" in r.content and "stopped with the turn" in r.content for r in last.tool_results)
    assert not run.session.children.running
    await run.session.close()


async def test_background_report_comes_with_the_next_step_once(store: Store, tmp_path: Path) -> None:
    later = {**EXPLORE, "background": True}
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE), later))
    await run.ask("explore it in the background")
    await run.session.children.wait_background()
    await run.ask("anything new?")
    await run.ask("and now?")
    parts = [p for m in run.provider.requests[-1].messages for p in m.parts]
    facts = [name for p in parts if isinstance(p, ContextPart) for name in p.facts]
    (row,) = await rows(store, run)
    assert facts.count(f"report {row.child_id}") == 1 and row.delivered_at
    await run.session.compact()
    assert [g.origin for g in run.session.current.engine.state.window.active] == ["thread", "report"]
    refused = await run.session.children.call(None, AgentTask(**EXPLORE))  # type: ignore[arg-type]
    assert "Nothing was started" in refused.content
    await run.session.close()


async def test_commands_of_a_child_in_the_background_are_listed_and_ended(store: Store, tmp_path: Path) -> None:
    def work(request: Request) -> Played:
        steps = (Call("bash", {"command": "sleep 60", "background": True}), Call("wait", {"job": "1"}))
        count = sum(len(m.tool_results) for m in request.messages)
        return Answer(calls=(steps[count],)) if count < len(steps) else report()

    goal = {"mode": "default", "goal": "serve"}
    overrides = ("approval.mode=edits", 'approval.allow=["bash"]')
    run = await session(store, tmp_path / "w", delegating(work, goal), overrides=overrides)
    await run.session.submit("serve in a child")
    async with asyncio.timeout(20):
        while not run.session.background_commands():
            await asyncio.sleep(0.02)
    (number,) = run.session.list_jobs()
    (row,) = await rows(store, run)
    assert number == f"{row.child_id[-8:]}:1" and run.of(JobsChanged)
    assert await run.session.end_background(number) == []
    await run.session.wait()
    assert not run.session.background_commands()
    await run.session.close()


class Held(ScriptedProvider):
    """Holds the second request of each child until `go` is set."""

    def __init__(self, answers: Callable[[Request], Played]) -> None:
        super().__init__(answers)
        self.go, self.held = asyncio.Event(), list[str]()

    async def wait_for(self, number: int) -> None:
        async with asyncio.timeout(10):
            while len(self.held) < number:
                await asyncio.sleep(0.001)

    async def stream(self, request: Request):
        if is_child(request) and any(m.role == "tool" for m in request.messages):
            self.held.append(goal_of(request))
            await self.go.wait()
        async for event in super().stream(request):
            yield event


def looking(request: Request) -> Played:
    """A child that reads, then reports."""
    return report(TRUE) if any(m.role == "tool" for m in request.messages) else Answer("half way", calls=(LOOK,))


async def test_a_child_in_the_background_reports_to_its_own_thread_only(store: Store, tmp_path: Path) -> None:
    provider = Held(delegating(looking, {**EXPLORE, "background": True}))
    run = await session(store, tmp_path / "w", lambda _r: "unused", provider=provider)
    await run.ask("explore it in the background")
    await provider.wait_for(1)
    first = run.session.thread.id
    await run.session.new_thread()
    provider._player = lambda r: looking(r) if is_child(r) else "hello"
    await run.ask("something else")
    provider.go.set()
    assert not await run.session.children.wait_background(), "the open thread has no report"
    await run.ask("anything new?")
    shown = str(provider.requests[-1].messages)
    assert "Child threads" not in shown and "Report of the child" not in shown
    assert run.session.current.usage.cost_usd in (None, 0.0)
    assert {get_thread_id(e) for e in run.of(AgentFinished)} <= {first}
    await run.session.open_thread(first)
    await run.ask("and now?")
    assert "Report of the child" in str(provider.requests[-1].messages)
    assert [(r.state, bool(r.delivered_at)) for r in await rows(store, run)] == [("finished", True)]
    await run.session.close()


async def test_plan_mode_narrows_running_children_at_once(store: Store, tmp_path: Path) -> None:
    def write(request: Request) -> Played:
        steps = sum(m.role == "assistant" for m in request.messages)
        calls = (Call("write", {"path": f"{steps}.txt", "content": "x"}),)
        return Answer(calls=calls) if steps < 2 else report()

    provider = Held(delegating(write, {"mode": "default", "goal": "write it"}))
    run = await session(store, tmp_path / "w", lambda _r: "", provider=provider, overrides=("approval.mode=edits",))
    await run.session.submit("write it with a child")
    await provider.wait_for(1)
    run.session.set_approval_mode("plan")
    provider.go.set()
    await run.session.wait()
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == ["0.txt", "http.py"]
    await run.session.close()


async def test_deleting_a_thread_stops_its_children(store: Store, tmp_path: Path) -> None:
    provider = Held(delegating(looking, {**EXPLORE, "background": True}))
    run = await session(store, tmp_path / "w", lambda _r: "unused", provider=provider)
    await run.ask("explore it in the background")
    await provider.wait_for(1)
    first = run.session.thread.id
    await ThreadActions(run.session).delete(first)
    assert not run.session.children.running
    assert [r.state for r in await store.read(runs.list_children, first)] == ["partial"]
    await run.session.close()


async def test_a_compaction_with_running_children_keeps_the_prefix_and_starts_none_again(
    store: Store, tmp_path: Path
) -> None:
    calls = [{"mode": "explore", "goal": f"goal {n}", "background": True} for n in range(2)]
    provider = Held(delegating(looking, *calls))
    run = await session(store, tmp_path / "w", lambda _r: "unused", provider=provider)
    await run.ask("explore it with two children " * 20)
    await provider.wait_for(2)
    await run.ask("go on " * 50)
    assert (await run.session.compact()).messages
    before = provider.requests[0]
    await run.ask("and meanwhile?")
    during = provider.requests[-1]
    assert (during.tools, during.system[0]) == (before.tools, before.system[0])
    named = str(during.messages)
    assert "goal 0" in named and "goal 1" in named and "do not start them again" in named
    provider.go.set()
    await run.session.children.wait_background()
    await run.ask("and now?")
    after = provider.requests[-1]
    assert (after.tools, after.system) == (during.tools, during.system)
    assert after.messages[: len(during.messages) - 1] == during.messages[:-1], "the prefix is byte-equal"
    assert [r.state for r in await rows(store, run)] == ["finished"] * 2
    await run.session.close()


async def test_undo_restores_what_a_child_changed_and_redo_brings_it_back(store: Store, tmp_path: Path) -> None:
    def child(request: Request) -> Played:
        done = any(m.role == "tool" for m in request.messages)
        return report() if done else Answer(calls=(Call("write", {"path": "new.txt", "content": "x"}),))

    play = delegating(child, {"mode": "default", "goal": "write it"})
    run = await session(store, tmp_path / "w", play, overrides=("approval.mode=edits",))
    await run.ask("write it with a child")
    thread = run.session.thread.id
    assert (tmp_path / "w/new.txt").exists()
    undone = undoing.make_undoing(run.session)
    await undone.undo(await undone.preview(1, "both"))
    assert not (tmp_path / "w/new.txt").exists()
    assert len(await store.read(runs.list_children, thread)) == 1
    await undone.redo()
    assert (tmp_path / "w/new.txt").exists()
    await run.session.close()


async def test_headless_run_ends_after_its_children_in_the_background(store: Store, tmp_path: Path) -> None:
    later = {"subagent_type": "explore", "prompt": EXPLORE["goal"], "run_in_background": True}

    def play(request: Request) -> Played:
        if is_child(request):
            return report(TRUE)
        if not any(m.role == "assistant" for m in request.messages):
            return Answer(calls=(Call("Task", later),))
        facts = [f for m in request.messages for p in m.parts if isinstance(p, ContextPart) for f in p.facts.values()]
        return "with the report" if any("[verified]" in f for f in facts) else "without"

    run = await session(store, tmp_path / "w", play, interactive=False)
    end = await run.ask("explore it in the background")
    assert end.text == "with the report" and end.steps == 3, "none more after the answer to the report"
    assert [(r.state, bool(r.delivered_at)) for r in await rows(store, run)] == [("finished", True)]
    await run.session.close()


ENDED = "The child threads in the background have ended"


def answers_to(run: Recorded) -> list[Request]:
    """The parent's requests."""
    return [r for r in run.provider.requests if not is_child(r)]


async def test_headless_run_asks_for_an_answer_to_the_reports_once(store: Store, tmp_path: Path) -> None:
    provider = Held(delegating(looking, {**EXPLORE, "background": True}))
    run = await session(store, tmp_path / "w", lambda _r: "", provider=provider, interactive=False)
    run.provider = provider
    await run.session.submit("explore it in the background")
    await provider.wait_for(1)
    while len(answers_to(run)) < 2:
        await asyncio.sleep(0.001)
    provider.go.set()
    await run.session.wait()
    texts = [m.text for m in answers_to(run)[-1].messages]
    assert len(answers_to(run)) == 3 and sum(ENDED in t for t in texts) == 1, texts
    await run.session.close()


async def test_report_that_came_with_the_prompt_of_a_headless_run_needs_no_notice(store: Store, tmp_path: Path) -> None:
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE), {**EXPLORE, "background": True}))
    await run.ask("explore it in the background")
    await run.session.children.wait_background()
    thread = run.session.thread.id
    await run.session.close()
    again = await session(store, tmp_path / "w", lambda _r: "noted", resume=thread, interactive=False)
    await again.ask("and now?")
    (request,) = again.provider.requests
    assert "Report of the child" in str(request.messages) and ENDED not in str(request.messages)
    await again.session.close()


async def two_windows(store: Store, work: Path) -> tuple[Recorded, Recorded, Held]:
    """Two windows on one thread; the first has a child that runs and one that waits for a place."""
    calls = [{"mode": "explore", "goal": f"goal {n}", "background": True} for n in range(2)]
    provider = Held(delegating(looking, *calls))
    first = await session(store, work, lambda _r: "", provider=provider, overrides=("subagents.max_threads=1",))
    first.provider = provider
    await first.ask("explore it with two children")
    await provider.wait_for(1)
    second = await session(store, work, lambda _r: "noted", resume=first.session.thread.id)
    return first, second, provider


async def test_second_window_knows_the_children_of_the_first_and_gets_their_reports(
    store: Store, tmp_path: Path
) -> None:
    first, second, provider = await two_windows(store, tmp_path / "w")
    await second.ask("what runs?")
    shown = str(second.provider.requests[-1].messages)
    assert all(words in shown for words in ("goal 0", "goal 1", "do not start them again")), shown
    listed = await second.session.children.list_all()
    assert [c.state for c in listed] == ["running", "running"]
    child_id = listed[0].run.child_id
    assert not await second.session.children.stop(child_id) and await second.session.children.is_elsewhere(child_id)
    resumed = AgentTask("explore", "go on", resume=child_id)
    with pytest.raises(ToolError, match="still running"):
        await second.session.children.call(None, resumed)  # type: ignore[arg-type]
    provider.go.set()
    await first.session.children.wait_background()
    await second.ask("and now?")
    await first.ask("and here?")
    for request in (second.provider.requests[-1], answers_to(first)[-1]):
        parts = [p for m in request.messages for p in m.parts if isinstance(p, ContextPart)]
        names = [name for p in parts for name in p.facts if name.startswith("report ")]
        assert sorted(names) == sorted(f"report {c.run.child_id}" for c in listed)
    assert "No child thread is running." in str(second.provider.requests[-1].messages)
    assert not await second.session.children.is_elsewhere(child_id)
    await second.session.close()
    await first.session.close()


async def test_children_of_a_killed_window_are_interrupted_in_the_other(store: Store, tmp_path: Path) -> None:
    first, second, _provider = await two_windows(store, tmp_path / "w")
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    owner = f"{socket.gethostname()}:{gone.pid}:gone"
    await store.write(lambda db: db.execute_sql("UPDATE leases SET owner = ?", (owner,)))
    assert [c.state for c in await second.session.children.list_all()] == ["interrupted", "interrupted"]
    await second.ask("what runs?")
    assert "do not start them again" not in str(second.provider.requests[-1].messages[-1:])
    warnings = [n for n in second.of(Notice) if "was interrupted" in n.message]
    assert len(warnings) == 2, warnings
    await second.session.close()
    await first.session.close()


class Recording(ScriptedProvider):
    """Copies the database before each model call: what a kill at that moment leaves."""

    store: Store
    folder: Path

    async def stream(self, request: Request):
        copy = self.folder / f"{len(self.requests)}.db"
        with contextlib.closing(apsw.Connection(str(self.store.path))) as database:
            database.execute("VACUUM INTO ?", (str(copy),))
        async for event in super().stream(request):
            yield event


async def test_crash_of_parent_or_child_loses_nothing_and_runs_no_child_twice(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"

    def child(request: Request) -> Played:
        return report(TRUE) if any(m.role == "tool" for m in request.messages) else Answer(calls=(LOOK,))

    provider = Recording(delegating(child, EXPLORE))
    provider.store, provider.folder = store, tmp_path
    run = await session(store, work, lambda _r: "unused", provider=provider)
    await run.ask("explore it with a child")
    thread_id = run.session.thread.id
    await run.session.close()

    def go_on(request: Request) -> Played:
        last = request.messages[-1]
        interrupted = re.search(r"child thread (\w+) did not finish", str(last.parts + request.messages[-2].parts))
        if is_child(request):
            return report(TRUE)
        if interrupted and last.role == "user":
            return Answer(calls=(Call("agent", {**EXPLORE, "resume": interrupted[1]}),))
        return "done"

    assert len(provider.requests) == 4
    for number, started in enumerate((False, True, True, True)):
        again = await Store.open(tmp_path / f"{number}.db", clock=store.clock)
        await again.write(lambda db: db.execute_sql("DELETE FROM leases"))  # their owner is gone
        before = await again.read(messages.list_page, thread_id)
        resumed = await session(again, work, go_on, resume=thread_id)
        await resumed.ask("go on")
        after = await again.read(messages.list_page, thread_id)
        assert [m.id for m in after[: len(before)]] == [m.id for m in before]
        left = await again.read(runs.list_children, thread_id)
        assert [(r.state, bool(r.delivered_at)) for r in left] == [("finished", True)] * started
        assert sum("Report of the child" in r.content for m in after for r in m.tool_results) == started
        await resumed.session.close()
        await again.close()


LOOK = Call("read", {"path": "http.py"})


async def test_deleting_a_thread_deletes_its_children(store: Store, tmp_path: Path) -> None:
    run = await session(store, tmp_path / "w", delegating(lambda _r: report(TRUE), EXPLORE))
    await run.ask("explore it with a child")
    parent = run.session.thread
    (row,) = await rows(store, run)
    ((*_, below, _),) = await store.read(threads.list_summaries, run.session.workspace.resource_id, 9)
    assert [(t.id, state) for t, *_, state in below] == [(row.child_id, "finished")]
    page = await store.read(search.search, "retry policy decided", search.Scope(run.session.workspace.resource_id))
    assert f"{parent.title} › {EXPLORE['goal']}" in {h.thread_title for h in page.hits}
    goals = [h for h in page.hits if h.thread_id == row.child_id and h.text.startswith(EXPLORE["goal"])]
    assert {h.role for h in goals} == {"assistant"}
    now = store.clock.now()
    assert "observations, with 1 child thread" in (await store.read(removal.count_contents, parent.id)).in_words()
    await store.write(removal.delete_thread, parent.id, now)
    assert (await store.read(removal.count_contents, parent.id)).children == 1
    assert await store.read(threads.is_deleted, row.child_id)
    last, *_ = await store.read(removal.list_deleted, run.session.workspace.resource_id)
    assert last.thread.id == parent.id, "restoring the last one restores the parent, not a child"
    await store.write(removal.restore_thread, parent.id)
    assert not await store.read(threads.is_deleted, row.child_id)
    await store.write(removal.delete_thread, parent.id, now)
    await run.session.close()
    for thread_id in (parent.id, row.child_id):
        await purging.purge_thread(store, thread_id)
    assert await store.read(lambda db: db.execute_sql("SELECT count(*) FROM child_runs").fetchone()) == (0,)


async def test_findings_survive_activations_and_a_reflection_word_for_word(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    facts = [f"def handler_number_{n}(request, session): return {n * 7}" for n in range(12)]
    (work / "facts.py").write_text("\n".join(facts))
    findings = [
        {"claim": f"handler {n} answers", "file": "facts.py", "lines": str(n + 1), "quote": fact}
        for n, fact in enumerate(facts)
    ]
    absent = ("a retry cap", "a circuit breaker", "a timeout")
    long = "The scheduler drops jobs when the clock jumps, and nobody notices until monday. " * 30

    def play(request: Request) -> Played:
        if is_child(request):
            return report(*findings, not_found=absent)
        last = request.messages[-1]
        delegates = last.role == "user" and "child" in last.text
        return Answer(calls=(Call("agent", EXPLORE),)) if delegates else f"I noted this. {long}"

    run = await session(store, work, play)
    await run.ask("explore it with a child")
    for n in range(3):
        await run.ask(f"I always want tabs in module {n}. {long}")
        assert (await run.session.compact()).messages
    engine = run.session.current.engine

    def lines() -> list[str]:
        return [x for g in engine.state.window.active for x in g.text.split("\n")]

    def found(claims: list[str]) -> int:
        return sum(any(claim in line for line in lines()) for claim in claims)

    claims = [f'facts.py:{n + 1} handler {n} answers "{fact}" [verified]' for n, fact in enumerate(facts)]
    assert (found(claims), found([f"Not found: {a}" for a in absent])) == (12, 3)
    assert await engine.reflect_now()
    assert found(claims) == 12
    page = await store.read(search.search, "circuit breaker", search.Scope(run.session.workspace.resource_id))
    assert any("Not found: a circuit breaker" in hit.text for hit in page.hits)
    assert not await store.read(integrity.find_wrong_states, engine.record_id)
    await run.session.close()


async def test_findings_beyond_their_share_are_found_by_search_and_listed(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    facts = [f"def handler_number_{n}(request, session): return {n * 7}" for n in range(60)]
    (work / "facts.py").write_text("\n".join(facts))
    findings = [
        {"claim": f"handler {n} answers", "file": "facts.py", "lines": str(n + 1), "quote": fact}
        for n, fact in enumerate(facts)
    ]
    long = "The scheduler drops jobs when the clock jumps, and nobody notices until monday. " * 30

    def play(request: Request) -> Played:
        if is_child(request):
            return report(*findings)
        last = request.messages[-1]
        delegates = last.role == "user" and "child" in last.text
        return Answer(calls=(Call("agent", EXPLORE),)) if delegates else f"I noted this. {long}"

    run = await session(store, work, play, overrides=("memory.reflection.observation_tokens=2000",))
    await run.ask("explore it with a child")
    for n in range(3):
        await run.ask(f"I always want tabs in module {n}. {long}")
        await run.session.compact()
    engine = run.session.current.engine
    await engine.reflect_now()
    text = "\n".join(g.text for g in engine.state.window.active)
    kept = [n for n in range(60) if f"handler {n} answers" in text]
    assert len(kept) < 60
    missing = next(n for n in range(60) if n not in kept)
    page = await store.read(search.search, f"handler_number_{missing}", search.Scope(run.session.workspace.resource_id))
    assert any(hit.kind == "observation" and f"facts.py:{missing + 1}" in hit.text for hit in page.hits)
    (listed,) = [line for line in text.split("\n") if "more verified findings" in line]
    assert f"{60 - len(kept)} more verified findings" in listed and f"facts.py:{missing + 1}" in listed
    await run.session.close()
