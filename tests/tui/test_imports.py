"""Importing history from the chat: the panel, the progress, stopping, and the offer on the welcome."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sakti.actions import import_
from sakti.actions.scope import Scope
from sakti.agent.session.session import Options, Session
from sakti.agent.setup import MachineScan
from sakti.core.config import load
from sakti.core.tokens import Estimator
from sakti.importers import service
from sakti.store.threads import threads
from sakti.tui.app import SaktiApp
from sakti.tui.screens import welcome
from sakti.tui.screens.lists import ImportScreen
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.welcome import WelcomeScreen
from tests.fakes.histories import ClaudeSession, write_codex
from tests.tui.conftest import screen_text, settle
from tests.tui.test_snapshots import posed

SIZES = [(80, 24), (160, 50)]


@pytest.fixture
def app(store, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> SaktiApp:
    for name in ("a", "b"):
        write_codex(home / ".codex", name * 36, [f"till {n}" for n in range(60)])
    ClaudeSession(home / ".claude", "c").turn("stock")
    workspace = tmp_path / "work"
    workspace.mkdir()

    async def select_nothing(*args: object, **kwargs: object) -> None:
        return None

    async def look(*args: object) -> MachineScan:
        return MachineScan()

    monkeypatch.setattr(welcome, "scan_machine", look)
    monkeypatch.setattr("sakti.providers.registry.select_model", select_nothing)
    options = Options(workspace, load(overrides=("memory.model=extractive",)).config, env={})
    return SaktiApp(Session(options, clock=store.clock, counter=Estimator(), store=store))


async def count_threads(app: SaktiApp) -> int:
    return len(await app.session.workspace.store.read(threads.list_summaries, "/home/dev/shop", 50))


async def type_command(app: SaktiApp, pilot, text: str) -> None:
    app.chat.prompt.set_text(text)
    await pilot.press("enter")
    await settle(app, pilot)


async def test_the_welcome_offers_the_import_and_a_card_ends_it(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert isinstance(app.screen, WelcomeScreen) and "Import history" in screen_text(app)
        await pilot.press(*["down"] * 4, "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, ImportScreen)
        shown = screen_text(app)
        assert "☑ claude-code" in shown and "☑ codex" in shown and "360 messages" in shown
        await pilot.press("space", "enter")  # without claude-code
        await settle(app, pilot)
        shown = screen_text(app)
        assert "2 threads, 360 messages: 360 new" in shown and "/search searches" in shown and "--undo" in shown
        assert "importing" not in shown and await count_threads(app) == 2
        await type_command(app, pilot, "/search")
        assert isinstance(app.screen, SearchScreen) and app.screen.input.value == "origin:codex "
        await pilot.press(*"listed")
        await pilot.pause(0.2)
        await settle(app, pilot)
        assert "everything" in screen_text(app) and "codex" in screen_text(app) and app.screen.result_list.current
        await pilot.press("escape")
        await settle(app, pilot)
        await type_command(app, pilot, "/import")
        shown = screen_text(app)
        assert "☑ claude-code" in shown and "☐ codex" in shown and "nothing new" in shown


async def test_esc_stops_an_import_after_its_batch_and_the_next_one_completes_it(app, monkeypatch):
    reached, go_on = asyncio.Event(), asyncio.Event()
    store_batch, begun = service._ProgramImport._store_batch, []

    async def slow_batch(self, *args):
        begun.append(self._service.options.dry_run)
        if begun.count(False) == 2:
            reached.set()
            await go_on.wait()
        await store_batch(self, *args)

    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("escape")
        monkeypatch.setattr(service._ProgramImport, "_store_batch", slow_batch)
        await type_command(app, pilot, "/import")
        await pilot.press("space", "enter")
        await reached.wait()
        await pilot.pause()
        assert app.chat.stop_control.activities.names == ["import"] and "esc stop import" in screen_text(app)
        assert re.search(r"importing codex \d\d %", screen_text(app))
        await pilot.press("escape")
        go_on.set()
        await settle(app, pilot)
        shown = screen_text(app)
        assert "imported threads are kept" in shown and await count_threads(app) == 1
        monkeypatch.setattr(service._ProgramImport, "_store_batch", store_batch)
        rest = import_.HistoryImport(app.session.workspace.store, app.session.workspace.root)
        card = await rest.run(["codex"])
        assert await count_threads(app) == 2
        figures = re.search(r"2 threads, 360 messages: (\d+) new, (\d+) unchanged", card.rows[0][1])
        assert figures and int(figures[1]) + int(figures[2]) == 360 and "0" not in figures.groups()
        again = await rest.run(["codex"])
        assert "2 threads, 360 messages: 0 new, 360 unchanged" in again.rows[0][1]


async def test_sizes_are_shown_before_the_figures_are_counted(app):
    shown: list[tuple[str, int, int, bool]] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        history = import_.HistoryImport(app.session.workspace.store, app.session.workspace.root)
        await history.count(lambda s, percent: shown.append((s.program, percent, s.messages, s.size > 0)))
    assert shown[:2] == [("claude-code", 0, 0, True), ("codex", 0, 0, True)]
    counting = [percent for program, percent, *_ in shown if program == "codex"]
    assert counting == sorted(counting) and 0 < counting[1] < 100
    assert [s[:3] for s in shown if s[1] == import_.COUNTED] == [("claude-code", 100, 3), ("codex", 100, 360)]


async def test_without_a_screen_programs_are_numbered_and_one_is_imported(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        opened = await import_.import_in_chat.run(Scope(app.session, lambda value: None))
        listed = await opened.fallback()
        assert [line[:14] for line in listed.text] == ["1. claude-code", "2. codex      "]
        card = await listed.pick(2)
        assert "360 new" in card.rows[0][1] and await count_threads(app) == 2


@pytest.mark.parametrize("size", SIZES)
def test_picture_of_the_panel(snap_compare, app, size):
    async def show(pilot):
        await posed("sakti-dark", "escape")(pilot)
        await type_command(pilot.app, pilot, "/import")

    assert snap_compare(app, terminal_size=size, run_before=show)


@pytest.mark.parametrize("size", SIZES)
def test_picture_of_the_offer(snap_compare, app, size):
    assert snap_compare(app, terminal_size=size, run_before=posed("sakti-dark"))
