"""Parts of the chat by themselves: each is handed what it needs, so a host of twenty lines is enough."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from sakti.core.events import ThreadChanged
from sakti.tui.chat.stopping import TWICE, Stopping
from sakti.tui.chat.thread_view import PAGE, ThreadView
from sakti.tui.notify import LONG_TURN, Notifier
from tests.tui.fakes import FakeSession, user


class FakeHost:
    """Remembers what it was asked for; work runs when a test says so."""

    def __init__(self, session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.exits: list[int] = []
        self.work: list = []

    def go(self, work, *args, group, exclusive=False):
        self.work.append((group, partial(work, *args)))

    async def done(self):
        while self.work:
            await self.work.pop(0)[1]()

    def note(self, text, seconds=0):
        self.notes.append(text)

    def exit(self, result=None):
        self.exits.append(result)


class FakePrompt:
    """Runs what comes after the next picture at once, timers never."""

    dropped = 0

    def drop(self):
        self.dropped += 1

    def call_after_refresh(self, work):
        work()

    def set_timer(self, seconds, work):
        pass


class FakeConversation:
    """Only what stopping uses of it."""

    def __init__(self, prompt=None):
        self.prompt = prompt or FakePrompt()
        self.taken_back = 0

    def take_back_queue(self):
        self.taken_back += 1


@pytest.fixture
def host(tmp_path):
    session = FakeSession(tmp_path)
    session.workspace.clock.step = 0.0
    return FakeHost(session)


async def test_ctrl_c_clears_stops_and_quits_when_pressed_twice(host):
    prompt, compaction = FakePrompt(), SimpleNamespace(stop=lambda: False)
    stopping = Stopping(host, FakeConversation(prompt), compaction)
    stopping.stop()
    assert prompt.dropped == 1 and not host.exits and host.notes == ["ctrl+c again quits"]
    host.session.workspace.clock.seconds += TWICE
    host.session.busy = True
    stopping.stop()
    assert prompt.dropped == 1 and not host.exits
    await host.done()
    assert not host.session.busy
    stopping.stop()
    assert host.exits == [0]


def test_esc_stops_the_own_command_before_the_turn(host):
    host.session.busy, host.session.commands = True, ["sleep 60"]
    stopping = Stopping(host, FakeConversation(), SimpleNamespace(stop=lambda: False))
    assert stopping.interrupt() and not host.session.commands and not host.work
    assert stopping.interrupt() and [group for group, _ in host.work] == ["interrupt"]


def test_esc_gives_up_a_compaction_before_the_turn(host):
    host.session.busy = True
    stopped = []
    stopping = Stopping(host, FakeConversation(), SimpleNamespace(stop=lambda: not stopped and not stopped.append(1)))
    assert stopping.interrupt() and not host.work
    assert stopping.interrupt() and [group for group, _ in host.work] == ["interrupt"]


def test_quitting_asks_twice_while_the_agent_works(host):
    stopping = Stopping(host, FakeConversation(), SimpleNamespace(stop=lambda: False))
    assert stopping.may_quit()
    host.session.busy = True
    assert not stopping.may_quit() and "press again" in host.notes[-1]
    assert stopping.may_quit()


def test_only_the_end_of_a_long_turn_calls_and_only_out_of_sight(host):
    written: list[str] = []
    focused = [False]
    notifier = Notifier(host.session, lambda: focused[0], written.append)
    for seconds, seen, calls in ((LONG_TURN, False, 0), (LONG_TURN + 1, False, 1), (LONG_TURN + 1, True, 1)):
        focused[0] = seen
        notifier.turn_began()
        host.session.workspace.clock.seconds += seconds
        notifier.turn_ended("done")
        assert len(written) == calls


class FakeTranscript:
    def __init__(self) -> None:
        self.live = SimpleNamespace(speaking=False, seen=set())
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
    late = asyncio.ensure_future(host.work.pop()[1]())
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
