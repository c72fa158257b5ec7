"""`/compact`: what it will do, does and did. Pictures of its screen and of the settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.reports.memory_report import describe_compaction as compacted_rows
from sakti.agent.settings import list_settings
from sakti.agent.threads.history import LastCompaction
from sakti.core.config import load
from sakti.core.events import CompactionFinished
from sakti.store.memory.moves import Compaction
from sakti.tui.app import SaktiApp
from sakti.tui.screens.settings import SettingsScreen
from sakti.tui.screens.text import CompactionScreen
from tests.fakes.memory import ScriptedObserver
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene
from tests.tui.test_safety import EVIL, check
from tests.tui.test_snapshots import SIZES, THEMES, posed


async def test_the_only_exchange_is_not_called_observed(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "One."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first")
        app.run_command("/compact")
        await settle(app, pilot)
        assert "Nothing to compact yet: the last exchange is kept as it is." in chat_text(app)


async def test_the_last_compaction_is_shown_as_a_diff(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"The port of api {n} is 80{n}0." for n in range(6))))
    async with app.run_test(size=(120, 45)) as pilot:
        await settle(app, pilot)
        app.run_command("/compact diff")
        await settle(app, pilot)
        assert "No compaction in this thread" in chat_text(app)
        for part in range(2):
            await say(app, pilot, *(f"remember that service {part}{n} listens on {part}{n}00" for n in range(3)))
            store.clock.advance(60)
            app.run_command("/compact the ports")
            await settle(app, pilot)
        app.run_command("/compact diff")
        await settle(app, pilot)
        assert isinstance(app.screen, CompactionScreen)
        text = screen_text(app)
        assert "the ports" in text and "/compact undo" in text
        assert "+ " in text and "service 11" in text
        new = [line for line in text.split("\n") if "│+ " in line.replace(" ", "", 1) or " + " in line]
        assert not any("service 00" in line for line in new), "what the log had before is no change"
        await pilot.press("escape")
        app.run_command("/compact undo")
        await settle(app, pilot)
        app.run_command("/compact diff")
        await settle(app, pilot)
        assert "service 0" in screen_text(app), "the one before it"


async def test_compacting_is_seen_stopped_and_taken_back(store, tmp_path):
    gate, observer = asyncio.Event(), ScriptedObserver()
    observer.gate = gate
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"The port of api {n} is 80{n}0." for n in range(3))))
    async with app.run_test(size=(120, 45)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, *(f"remember that service {n} listens on {n}00" for n in range(3)))
        app.session.current.engine._worker.observer = observer
        before = app.session.current.engine.preview()
        app.run_command("/compact the ports")
        while not observer.inputs:
            await pilot.pause()
        assert "4 messages," in chat_text(app)
        assert "compacting: extractive reads 4 messages" in screen_text(app)
        assert "esc stop compaction" in screen_text(app)
        await pilot.press("f1")
        await pilot.pause()
        last = screen_text(app).split("\n")[-1]
        assert "compacting:" in last and "esc back" in last and "esc stop" not in last
        await pilot.press("escape")
        await pilot.pause()
        assert "esc stop compaction" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert [e.text for e in app.chat.sidebar.memory.all_events()] == ["observation stopped by you"]
        assert "failed" not in screen_text(app)
        assert "Not compacted" in chat_text(app) and "Stopped: nothing was changed" in chat_text(app)
        assert "compacting:" not in screen_text(app) and "context " in screen_text(app)
        gate.set()
        app.run_command("/compact the ports")
        await settle(app, pilot)
        text = chat_text(app)
        assert "Removed" in text and "Kept" in text and "/compact undo restores" in text and " freed" in text
        assert app.session.current.engine.preview().messages != before.messages
        app.run_command("/compact undo")
        await settle(app, pilot)
        assert "4 messages are in the window again, unchanged" in chat_text(app)
        after = app.session.current.engine.preview()
        assert [m.id for m in after.messages] == [m.id for m in before.messages] and after.blocks == before.blocks
        app.run_command("/compact undo")
        await settle(app, pilot)
        assert "There is no compaction to undo" in chat_text(app)


def test_the_card_says_what_there_is_to_say():
    done = CompactionFinished("r", 38, 21_400, 2_100, 1, gone_tokens=20_000, kept=2, kept_tokens=553)
    said = dict(compacted_rows(done))
    assert said["Removed"].startswith("38 messages, 20.0k tokens")
    assert said["Observations"] == "1 line; the log has 1.5k tokens now"
    assert said["Tokens"] == "21.4k → 2.1k in both windows, 19.3k freed" and said["Kept"].startswith("2 messages")
    assert not {"Pinned", "Doubtful"} & set(said)
    said = dict(compacted_rows(replace(done, pinned=1, doubtful=2)))
    assert said["Pinned"].startswith("1 line,") and said["Doubtful"].startswith("2 new lines")


def compacted(text="the redirect"):
    done = Compaction("c", "t1", "/work", "r", text, 0, 11, 12, (), (), {}, 21_400, 3_900, NOW)
    lines = tuple(log())
    return LastCompaction(done, lines[:3], lines)


async def test_its_text_is_harmless(running):
    async with running() as (app, pilot):
        shown = compacted(EVIL)
        after = tuple(replace(x, content=EVIL, date=EVIL, time=EVIL, flags=(EVIL,)) for x in shown.after)
        app.push_screen(CompactionScreen(LastCompaction(shown.compaction, shown.before, after)))
        await settle(app, pilot)
        assert "[/red]" in check(app)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["compaction", "settings"])
def test_pictures(snap_compare, size, theme, name, tmp_path):
    async def open_it(pilot):
        await posed(theme)(pilot)
        if name == "compaction":
            screen = CompactionScreen(compacted())
        else:
            config = load(overrides=("ui.theme=sakti-night", "memory.observation.message_tokens=20000")).config
            file = tmp_path / "none.toml"
            screen = SettingsScreen(
                list_settings(config, user_file=file, project_file=file, env={}),
                Path("/c/config.toml"),
                Path("/w/.sakti/config.toml"),
                pilot.app.chat.apply_setting,
            )
        pilot.app.push_screen(screen)
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=open_it)
