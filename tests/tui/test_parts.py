"""Parts of the chat by themselves: each is handed what it needs, so a host of twenty lines is enough."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sakti.core.errors import StoreError
from sakti.tui.chat.loader import PAGE, ThreadLoader
from sakti.tui.chat.stopping import TWICE, Stopping
from sakti.tui.notify import LONG_TURN, Notifier
from sakti.tui.workers import guarded, log_path
from tests.tui.fakes import FakeSession, user


class FakeHost:
    """Remembers what it was asked for; work runs when a test says so."""

    def __init__(self, session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.exits: list[int] = []
        self.work: list = []

    def go(self, work, *args, group, exclusive=False):
        self.work.append((group, work(*args)))

    async def done(self):
        while self.work:
            await self.work.pop(0)[1]

    def drop(self, group):
        for name, work in self.work:
            if name == group:
                work.close()
        self.work = [w for w in self.work if w[0] != group]

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


def test_esc_gives_up_a_compaction_before_the_turn(host):
    host.session.busy = True
    stopped = []
    stopping = Stopping(host, FakeConversation(), SimpleNamespace(stop=lambda: not stopped and not stopped.append(1)))
    assert stopping.interrupt() and not host.work
    assert stopping.interrupt() and [group for group, _ in host.work] == ["interrupt"]
    host.drop("interrupt")


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
        self.live = SimpleNamespace(speaking=False)
        self.shown: list[int] = []
        self.more = False

    def load(self, messages, more):
        self.shown, self.more = [m.index for m in messages], more

    def load_older(self, messages, more):
        self.shown, self.more = [*(m.index for m in messages), *self.shown], more

    def begin_empty(self):
        self.shown = []


async def test_a_thread_is_loaded_a_page_at_a_time_and_as_far_as_a_message(host):
    session, loaded = host.session, []
    session.views.messages["t1"] = [user(f"m{n}", "x", n) for n in range(3 * PAGE)]
    transcript = FakeTranscript()
    loader = ThreadLoader(host, transcript, lambda: loaded.append(1))
    await session.start()
    loader.show("t1")
    await host.done()
    assert loader.shown == "t1" and loaded and transcript.shown == list(range(2 * PAGE, 3 * PAGE)) and transcript.more
    await loader.load_older(until=10)
    assert 10 in transcript.shown and loader.oldest == transcript.shown[0] <= 10
    assert transcript.shown == sorted(set(transcript.shown))
    await loader.open("t5")
    assert transcript.shown == [] and loader.oldest is None


async def test_what_a_worker_raises_is_said_and_a_surprise_is_logged():
    said: list[tuple[str, str]] = []

    def say(text, *, title, tone):
        said.append((title, text))

    async def fail(error):
        raise error

    await guarded(fail, (StoreError("The disk is full.", title="Store"),), say)
    assert said == [("Store", "The disk is full.")] and not log_path().exists()
    await guarded(fail, (ZeroDivisionError("by zero"),), say)
    assert str(log_path()) in said[-1][1] and "ZeroDivisionError: by zero" in log_path().read_text()
    with pytest.raises(asyncio.CancelledError):
        await guarded(fail, (asyncio.CancelledError(),), say)
