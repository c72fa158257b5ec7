"""The way from an event to what is seen of it leads through few modules: counted while it happens."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sakti.core.clock import TimeIds
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.store.database import Store
from sakti.store.log import lines as stored_lines
from sakti.store.memory import group_rows
from sakti.store.threads import messages as stored_messages
from sakti.tui.app import SaktiApp
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.transcript.document import Document
from sakti.tui.widgets.transcript import Transcript
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.real import real_session, say
from tests.tui.walks import Walks, following

# Modules on the way. Lower a ceiling when a walk became shorter; never raise one.
KEY_TO_PANES = 17  # Enter → the stored row, the message in the chat, the meter of the memory pane
HIT_TO_JUMP = 12  # Enter on a search hit → its page read, shown, and the jump to the message
OBSERVATION_TO_PANES = 15  # the Observer is asked → the stored group, its lines read again, both panes


@pytest.fixture
def opened(tmp_path, clock):
    """`async with opened(walks, *answers) as (app, pilot)`: a chat whose every thread is watched."""

    @contextlib.asynccontextmanager
    async def start(walks, *answers, overrides=()):
        with following(walks):
            store = await Store.open(tmp_path / "x.db", clock=clock, ids=TimeIds(clock), synchronous="NORMAL")
            app = SaktiApp(real_session(store, tmp_path / "work", *answers, overrides=overrides))
            async with app.run_test(size=(120, 35)) as pilot:
                await settle(app, pilot)
                yield app, pilot
            await store.close()

    return start


async def until(app, pilot, done):
    async with asyncio.timeout(30):
        while not done():
            await pilot.pause()
    await settle(app, pilot)


def check(walks, ceiling):
    print(
        walks.times,
        len(walks.walk),
        "modules:",
        ", ".join(sorted(walks.walk)),
        f"({len(walks.entered)} entered at all)",
    )
    assert not [name for name, times in walks.times.items() if not times]
    assert len(walks.walk) <= ceiling, sorted(walks.walk)


async def test_a_message_goes_from_the_key_to_its_row_and_the_panes(opened):
    walks = Walks(row=stored_messages.append, chat=Document.append, meter=MemoryPane.watch_status)
    async with opened(walks, "The answer.") as (app, pilot):
        await pilot.press(*"hello")
        await settle(app, pilot)
        walks.begin()
        await pilot.press("enter")
        await until(app, pilot, lambda: "The answer." in chat_text(app) and not app.session.busy)
        check(walks, KEY_TO_PANES)


async def test_a_search_hit_is_loaded_and_jumped_to(opened):
    walks = Walks(page=stored_messages.list_page, screen=Transcript.load, jump=Transcript.jump)
    async with opened(walks, "One.", "Two.") as (app, pilot):
        await say(app, pilot, "about the redirect")
        await app.session.new_thread()
        await settle(app, pilot)
        await say(app, pilot, "something else")
        await pilot.press("ctrl+f", *"redirect")
        await until(app, pilot, lambda: "about the redirect" in screen_text(app))
        walks.begin()
        await pilot.press("enter")
        await until(app, pilot, lambda: "about the redirect" in chat_text(app))
        check(walks, HIT_TO_JUMP)
        assert walks.times["screen"] == walks.times["jump"] == 1


async def test_an_observation_goes_from_the_observer_to_its_row_and_the_panes(opened):
    walks = Walks(
        stored=group_rows.insert_group,
        read=stored_lines.read_lines,
        log=ObservationsPane.show,
        events=MemoryPane.handle_operation,
    )
    numbers = ("memory.observation.message_tokens=900",)
    async with opened(walks, "One.", "Two.", "Three.", overrides=numbers) as (app, pilot):
        walks.begin_at(ExtractiveObserver.observe)
        for _ in range(3):
            await say(app, pilot, "about the redirect " * 50)
            await app.session.current.engine.wait_idle()
            await settle(app, pilot)
        check(walks, OBSERVATION_TO_PANES)
