"""Child threads on the screen: a line for each, its transcript, the list, and stopping one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.agent.subagents.children import ListedChild
from sakti.core.events import AgentProgress, AgentStarted, Gauge, ToolStarted
from sakti.core.types import ToolCallPart
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.threads.runs import ChildRun
from sakti.tui.app import SaktiApp
from sakti.tui.screens.agents import ChildScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import messages, scene
from tests.tui.test_snapshots import posed

GOAL = "where is the retry policy decided?"
QUOTE = "policy.decide(call, times)"
FINDING = {"claim": "the policy decides", "file": "http.py", "lines": "1", "quote": QUOTE}
REPORT = {"summary": "The policy.", "findings": [FINDING], "not_found": ["a cap"], "gaps": []}
ANSWERS = (
    Answer(calls=(Call("agent", {"mode": "explore", "goal": GOAL}),)),
    Answer("I look into it.", calls=(Call("read", {"path": "http.py"}),)),
    Answer(calls=(Call("report", REPORT),)),
    Answer("The policy decides."),
)


async def choose_child(app, pilot):
    await pilot.press("f6", "[")
    await settle(app, pilot)
    while "enter follows the child" not in screen_text(app):
        await pilot.press("[")
        await settle(app, pilot)


async def test_child_is_a_line_that_opens_its_transcript(store, tmp_path):
    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"{QUOTE}\n")
    session = real_session(store, work, *ANSWERS)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "explore it with a child")
        line = next(x for x in chat_text(app).split("\n") if "✓ explore  where is the retry" in x)
        assert "1 of 1 quote found · 1 not found" in line
        await choose_child(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "main agent" in screen_text(app) and "you  12" not in screen_text(app)
        assert "I look into it." in screen_text(app) and f"explore › {GOAL}" in screen_text(app)
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        app.run_command("/agents")
        await pilot.pause()
        await settle(app, pilot)
        assert "Child threads 1" in screen_text(app) and GOAL in screen_text(app)
        await pilot.press("x")
        await settle(app, pilot)
        assert "not running" in screen_text(app)


class Held(ScriptedProvider):
    """Holds a child's second answer, behind its first words, until `go` is set."""

    def __init__(self, answers):
        super().__init__(answers)
        self.go, self.is_held = asyncio.Event(), asyncio.Event()

    async def stream(self, request):
        is_second = any(t.name == "report" for t in request.tools) and any(m.role == "tool" for m in request.messages)
        async for event in super().stream(request):
            yield event
            if is_second:
                self.is_held.set()
                await self.go.wait()


async def test_running_child_is_followed_with_its_memory_and_stopped(store, tmp_path):
    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"{QUOTE}\n")
    provider = Held([*ANSWERS[:2], Answer("Half of it is in the policy."), "Noted."])
    app = SaktiApp(real_session(store, work, provider=provider))
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(app, pilot)
        await app.session.submit("explore it with a child")
        async with asyncio.timeout(10):
            await provider.is_held.wait()
        while "step 2" not in chat_text(app):
            await asyncio.sleep(0.05)
            await settle(app, pilot)
        assert "No price" in chat_text(app) and "subagents.max_usd does not limit" in chat_text(app)
        await choose_child(app, pilot)
        await pilot.press("space")
        await settle(app, pilot)
        assert "▸ read http.py" in chat_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        await pilot.press(*"and now")
        await pilot.press("enter")
        await settle(app, pilot)
        shown = screen_text(app)
        assert all(words in shown for words in ("▾ Memory", "▾ Observations", "sent to the main thread")), shown
        assert "Half of it" in shown and "▸ explore ›" in shown and "step 2 · writing" in shown, shown
        assert shown.count("I look into it.") == 1 and "✓ read  http.py" in shown
        assert app.session.queued == ("and now",)
        await pilot.press("x")
        await app.session.wait()
        await settle(app, pilot)
        assert "ended early: stopped by the user" in chat_text(app) and "Noted." in chat_text(app)


async def test_stop_key_names_the_other_window_that_runs_a_child(store, tmp_path):
    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"{QUOTE}\n")
    call = Call("agent", {"mode": "explore", "goal": GOAL, "background": True})

    def play(request):
        if any(t.name == "report" for t in request.tools):
            return ANSWERS[1]
        return "Begun." if any(m.role == "assistant" for m in request.messages) else Answer(calls=(call,))

    provider = Held(play)
    other = real_session(store, work, provider=provider)
    await other.start()
    await other.submit("explore it in the background")
    async with asyncio.timeout(10):
        await other.wait()
        await provider.is_held.wait()
    app = SaktiApp(real_session(store, work, "unused"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await app.session.open_thread(other.thread.id)
        app.run_command("/agents")
        await pilot.pause()
        await settle(app, pilot)
        assert "Child threads 1 · 1 running" in screen_text(app)
        await pilot.press("x")
        await settle(app, pilot)
        assert "runs in another window" in screen_text(app)
    await other.close()


async def test_background_children_are_never_shown_as_done_before_they_are(store, tmp_path):
    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"{QUOTE}\n")
    (Path.home() / ".claude/agents").mkdir(parents=True)
    (Path.home() / ".claude/agents/tester.md").write_text("---\nname: tester\ndescription: Tests it.\n---\nTest.\n")
    calls = tuple(Call("agent", {"mode": "explore", "goal": f"{GOAL} {n}", "background": True}) for n in (1, 2))
    look = Answer(calls=(Call("read", {"path": "http.py"}),))
    played = {"parent": [Answer(calls=calls), "Begun."], "child": [look, Answer("x", calls=(Call("report", REPORT),))]}

    def play(request):
        is_child = any(t.name == "report" for t in request.tools)
        return played["child" if is_child else "parent"][sum(m.role == "assistant" for m in request.messages) % 2]

    provider = Held(play)
    app = SaktiApp(real_session(store, work, provider=provider, overrides=("subagents.max_threads=1",)))

    def lines(text):
        return [x for x in text.split("\n") if GOAL[:20] in x]

    async with app.run_test(size=(160, 50)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "explore it with two children")
        async with asyncio.timeout(10):
            await provider.is_held.wait()
        while "step 2" not in chat_text(app):
            await asyncio.sleep(0.02)
            await settle(app, pilot)
        first, second = lines(chat_text(app))[-2:]
        assert "▸ explore" in first and "◌ explore" in second and "waiting for a free slot" in second, chat_text(app)
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert "still running: 2 child threads · ctrl+c stops all and quits" in screen_text(app)
        app.run_command("/agents")
        await pilot.pause()
        await settle(app, pilot)
        assert "Child threads 2 · 2 running · 1 custom agent" in screen_text(app)
        first, second = lines(screen_text(app))[:2]
        assert "▸ explore" in first and "◌ explore" in second and "agent-tester Tests it." in screen_text(app)
        provider.go.set()
        async with asyncio.timeout(10):
            while "Child threads 2 · 1 custom agent" not in screen_text(app):
                await asyncio.sleep(0.05)
                await settle(app, pilot)
        assert screen_text(app).count("✓ explore") == 4 and "1 of 1 quote found" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        shown = screen_text(app)
        assert "✓ explore ›" in shown and "Messages" in shown and "of 60k" in shown, "the windows of a finished child"
        await pilot.press("escape", "escape")
        await app.screen.view.load()
        await settle(app, pilot)
        assert all("✓ explore" in x and "1 of 1 quote found" in x for x in lines(chat_text(app))[-2:])


LIVE = (
    ToolStarted(ToolCallPart("c9", "agent", {"mode": "explore", "goal": GOAL})),
    AgentStarted("child", "c9", "explore", GOAL),
    AgentProgress("child", "c9", 7, "read http.py", Gauge(12_400, 60_000), 0.03, 34.0, ("grep retry", "read http.py")),
)


@pytest.mark.parametrize("is_followed", [False, True], ids=["line", "followed"])
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_a_child(snap_compare, size, is_followed):
    scenery = scene(Path("/work"))

    async def show(pilot):
        app = pilot.app
        await posed("sakti-dark")(pilot)
        scenery.workspace.clock.step = 0.0
        for event in LIVE:
            scenery.emit(event)
        await settle(app, pilot)
        if is_followed:
            run = ChildRun("child", "t1", "c9", "explore", GOAL, NOW, agent="explore")
            app.push_screen(ChildScreen(ListedChild(run, run.state, run.in_words), messages()[:3], None))
            await pilot.pause()
            app.screen.prompt.cursor_blink = False
        else:
            await pilot.press("ctrl+o")
        await settle(app, pilot)

    assert snap_compare(SaktiApp(scenery), terminal_size=size, run_before=show)
