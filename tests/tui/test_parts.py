"""Parts of the chat by themselves: each is handed what it needs, so a host of twenty lines is enough."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from sakti.core.calls import summarize_call
from sakti.core.events import (
    StepStarted,
    TextDelta,
    ThreadChanged,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from sakti.core.types import ToolCallPart, ToolResultPart, Usage
from sakti.tui.chat.stop_control import QUIT_HINT, StopControl
from sakti.tui.chat.thread_view import PAGE, ThreadView
from sakti.tui.desktop import LONG_TURN_S, Notifier
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import FakeSession, user


class FakeHost:
    """Remembers what it was asked for; work runs when a test says so."""

    def __init__(self, session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.exits: list[int] = []
        self.work: list = []

    def start_worker(self, work, *args, group, exclusive=False):
        self.work.append((group, work(*args)))

    async def done(self):
        while self.work:
            await self.work.pop(0)[1]

    def set_hint(self, text, seconds=0):
        self.notes.append(text)

    def exit(self, result=None):
        self.exits.append(result)


class FakePrompt:
    """Runs what comes after the next picture at once, timers never."""

    dropped = 0

    def clear_text(self):
        self.dropped += 1

    def call_after_refresh(self, work, *args):
        work(*args)

    def set_timer(self, seconds, work):
        pass


class FakeConversation:
    """Only what stopping uses of it."""

    def __init__(self, prompt=None):
        self.prompt = prompt or FakePrompt()
        self.taken_back = 0

    def unqueue_all(self):
        self.taken_back += 1


@pytest.fixture
def host(tmp_path):
    session = FakeSession(tmp_path)
    session.workspace.clock.step = 0.0
    return FakeHost(session)


def stopping_of(host, prompt=None):
    line = SimpleNamespace(stops="", hint="", show_work=lambda text: None)
    return StopControl(host, FakeConversation(prompt), line), line


async def test_ctrl_c_clears_stops_and_quits_when_pressed_twice(host):
    prompt = FakePrompt()
    stopping, line = stopping_of(host, prompt)
    stopping.stop()
    assert prompt.dropped == 1 and not host.exits and line.hint == QUIT_HINT
    line.hint = "another note"
    host.session.busy = True
    stopping.stop()
    assert prompt.dropped == 1 and not host.exits
    await host.done()
    assert not host.session.busy
    stopping.stop()
    assert host.exits == [0]


async def test_esc_stops_whatever_began_last(host):
    """A turn, two commands of the user's and a compaction, in every order of their beginning."""
    call = [ToolCallPart(f"c{n}", "bash", {"command": "sleep 60"}) for n in (1, 2)]

    def begin_turn(stopping):
        host.session.busy = True
        stopping.handle_event(TurnStarted("t1", user("u1", "go")))

    def begin_compaction(stopping):
        stopping.activities.begin("compaction", lambda: stopped.append("compaction"))

    begins = {
        "turn": begin_turn,
        "c1": lambda stopping: stopping.handle_event(ToolStarted(call[0], own=True)),
        "c2": lambda stopping: stopping.handle_event(ToolStarted(call[1], own=True)),
        "compaction": begin_compaction,
    }
    for order in itertools.permutations(begins):
        stopped: list[str] = []
        host.session.stop_command = stopped.append
        stopping, line = stopping_of(host)
        for name in order:
            begins[name](stopping)
        for name in reversed(order):
            assert line.stops == {"c1": "command", "c2": "command"}.get(name, name)
            assert stopping.interrupt()
            if name == "turn":
                assert [group for group, _ in host.work] == ["interrupt"]
                host.work.pop()[1].close()
                host.session.busy = False
                stopped.append("turn")
        assert stopped == list(reversed(order)) and line.stops == "" and not stopping.interrupt()


def test_what_ended_is_not_stopped(host):
    stopping, line = stopping_of(host)
    stopping.handle_event(TurnStarted("t1", user("u1", "go")))
    stopping.handle_event(ToolStarted(ToolCallPart("c1", "bash", {}), own=True))
    stopping.handle_event(ToolFinished(ToolResultPart("c1", "bash", "", False), 5))
    assert line.stops == "turn"
    stopping.handle_event(TurnFinished("t1", "answered", "", 1, Usage()))
    assert not stopping.interrupt() and line.stops == ""


async def test_a_slash_command_can_be_stopped(host):
    stopping, line = stopping_of(host)
    line.set_timer = lambda seconds, work: work()

    async def run():
        with stopping.command("doctor"):
            await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    assert line.stops == "/doctor" and stopping.interrupt() and host.notes == ["/doctor stopped"]
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.stops == ""


@pytest.mark.parametrize(
    ("jobs", "busy", "named"),
    [({}, True, "turn"), ({"1": "server"}, False, "1 background command"), ({"1": 1, "2": 2}, True, "turn, 2 back")],
)
async def test_quitting_asks_once_if_something_runs(host, jobs, busy, named):
    stopping, line = stopping_of(host)
    assert stopping.may_quit()
    host.session.busy, host.session.jobs = busy, jobs
    assert not stopping.may_quit() and f"still running: {named}" in line.hint
    assert stopping.may_quit()
    stopping.disarm()  # its time is over
    assert not line.hint
    stopping.stop()  # interrupts, or clears the prompt
    await host.done()
    stopping.stop()
    assert host.exits == ([] if jobs else [0])
    stopping.stop()
    assert host.exits[:1] == [0]


async def test_a_turn_that_starts_calls_off_the_quit_that_was_asked_about(host):
    stopping, _ = stopping_of(host)
    host.session.jobs = {"1": "server"}
    assert not stopping.may_quit()
    stopping.handle_event(TurnStarted("t1", user("u1", "go")))
    stopping.stop()
    await host.done()
    assert host.exits == []


def test_only_the_end_of_a_long_turn_calls_and_only_out_of_sight(host):
    written: list[str] = []
    focused = [False]
    notifier = Notifier(host.session, lambda: focused[0], written.append)
    for seconds, seen, calls in ((LONG_TURN_S, False, 0), (LONG_TURN_S + 1, False, 1), (LONG_TURN_S + 1, True, 1)):
        focused[0] = seen
        notifier.begin_turn()
        host.session.workspace.clock.seconds += seconds
        notifier.end_turn("done")
        assert len(written) == calls


class FakeTranscript:
    def __init__(self) -> None:
        self.live = SimpleNamespace(
            has_content=False,
            seen=set(),
            show_stored_children=lambda _children: None,
            show_other_turn=lambda _turn: None,
        )
        self.shown: list[int] = []
        self.jumps: list[str] = []
        self.more = False

    def load(self, messages, more):
        self.shown, self.more = [m.index for m in messages], more

    def load_older(self, messages, more):
        self.shown, self.more = [*(m.index for m in messages), *self.shown], more

    def begin_empty(self):
        self.shown = []

    def jump(self, message_id, pattern=None):
        self.jumps.append(message_id)
        return True


def thread_view(host):
    """A view whose transcript, bar and loads are remembered."""
    loaded: list[int] = []
    transcript, bar = FakeTranscript(), SimpleNamespace(display=False, show=lambda title: None)
    view = ThreadView(host, transcript, bar, lambda: loaded.append(1))
    host.session.subscribe(lambda e: view.change(e.thread.id) if isinstance(e, ThreadChanged) else None)
    return view, transcript, loaded


async def test_a_thread_is_loaded_a_page_at_a_time_and_as_far_as_a_message(host):
    session = host.session
    session.views.messages["t1"] = [user(f"m{n}", "x", n) for n in range(3 * PAGE)]
    view, transcript, loaded = thread_view(host)
    await session.start()
    await host.done()
    assert view.shown == "t1" and loaded and transcript.shown == list(range(2 * PAGE, 3 * PAGE)) and transcript.more
    await view.load_older(until=10)
    assert 10 in transcript.shown and view.oldest == transcript.shown[0] <= 10
    assert transcript.shown == sorted(set(transcript.shown))
    await session.open_thread("t5")
    await host.done()
    assert transcript.shown == [] and view.oldest is None


async def test_pages_that_are_loaded_at_the_same_time_are_shown_once_each(host):
    session = host.session
    session.views.messages["t1"] = [user(f"m{n}", "x", n) for n in range(5 * PAGE)]
    view, transcript, _ = thread_view(host)
    await session.start()
    await host.done()
    read = session.views.transcript

    async def read_later(thread_id, **options):
        await asyncio.sleep(0)
        return await read(thread_id, **options)

    session.views.transcript = read_later
    await asyncio.gather(view.load_older(), view.load_older(), view.load_older(until=10))
    assert transcript.shown == list(range(transcript.shown[0], 5 * PAGE)) and transcript.shown[0] <= 10


@pytest.mark.parametrize("index", [3 * PAGE - 1, PAGE, 5])
async def test_a_visit_loads_another_thread_once_and_as_far_as_the_message(host, index):
    session = host.session
    session.views.messages["t7"] = [user(f"m{n}", "x", n) for n in range(3 * PAGE)]
    view, transcript, loaded = thread_view(host)
    await session.start()
    await host.done()
    loaded.clear()
    await view.visit("t7", f"m{index}", index, None)
    assert not host.work and loaded == [1] and transcript.jumps == [f"m{index}"]
    assert index in transcript.shown and transcript.shown == list(range(transcript.shown[0], 3 * PAGE))


async def test_a_load_that_ends_after_another_thread_was_opened_is_not_shown(host):
    session = host.session
    session.views.messages |= {"t5": [user("m1", "x", 1)], "t7": [user("m2", "x", 2)]}
    view, transcript, _ = thread_view(host)
    await session.start()
    await host.done()
    await session.open_thread("t5")
    gate, read = asyncio.Event(), session.views.transcript

    async def read_late(thread_id, **options):
        await gate.wait()
        return await read(thread_id, **options)

    session.views.transcript = read_late
    late = asyncio.ensure_future(host.work.pop()[1])
    await asyncio.sleep(0)
    session.views.transcript = read
    await session.open_thread("t7")
    await host.done()
    gate.set()
    await late
    assert transcript.shown == [2] and view.oldest == 2


async def test_a_visit_that_is_cancelled_leaves_no_thread_unloaded(host):
    session = host.session
    session.views.messages["t7"] = [user("m2", "x", 2)]
    view, transcript, _ = thread_view(host)
    await session.start()
    await host.done()
    read = session.views.transcript

    async def never(thread_id, **options):
        await asyncio.Event().wait()

    session.views.transcript = never
    visit = asyncio.ensure_future(view.visit("t7", "m2", 2, None))
    await asyncio.sleep(0)
    visit.cancel()
    await asyncio.wait([visit])
    session.views.transcript = read
    await host.done()
    assert view.shown == "t7" and transcript.shown == [2]


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("ask_user", {"questions": [{"question": "Which?", "header": "Db"}, {"question": "b"}]}, "Which?  and 1 more"),
        ("report", {"summary": "It is in a.py", "findings": [{"claim": "x"}], "gaps": []}, "It is in a.py"),
        (
            "apply_patch",
            {"patch": "*** Update File: a.py\n@@\n-x\n*** Add File: b.py\n"},
            "a.py, b.py",
        ),
        ("present_plan", {"title": "T", "steps": [{"title": "a"}]}, "T"),
        ("task-mutate", {"action": "close", "id": "a1", "summary": "done"}, "close done"),
        ("task-query", {"action": "ready", "limit": 3}, "ready"),
        ("skill", {"name": "pdf"}, "pdf"),
        ("wait", {"job": "3", "text": "ready"}, "3"),
        ("edit", {"path": "a.py", "edits": [{"old": "x", "new": "y"}]}, "a.py"),
        ("custom", {"x": [{"deep": {"a": 1}}], "flag": True}, "x=1, flag=True"),
        ("custom", {"path": True, "x": [True, "y"]}, "path=True, x=y"),
        ("edit", {"path": "a.py", "all": True}, "a.py"),
        ("grep", {"pattern": "x", "path": "src"}, "x  in src"),
        ("read", {"path": "a", "offset": 3, "limit": 9}, "a  (3-9)"),
    ],
)
def test_the_line_of_a_call_shows_text_and_no_raw_arguments(tool, arguments, text):
    assert summarize_call(ToolCallPart("c", tool, arguments)) == text


async def test_the_limit_of_the_window_is_seen_in_80_columns_while_an_answer_streams(running, session):
    async with running((80, 24)) as (app, pilot):
        session.emit(TurnStarted("t1", user("u9", "why?", 90)))
        session.emit(StepStarted(1, "m", 24_000))
        session.emit(TextDelta("Because"))
        app.chat.status_line.window = 32_800
        for busy in (False, True):
            app.chat.status_line.jobs, app.chat.status_line.queued = 3 * busy, 2 * busy
            app.chat.status_line.show_context(24_000, about=True)
            await settle(app, pilot)
            last = screen_text(app).split("\n")[-1]
            assert "≈24.0k of 32.8k" in last and "esc stop turn" in last
