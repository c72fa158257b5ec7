"""The context inspector: what it shows is what the model is sent."""

from __future__ import annotations

import json

from sakti.core.events import TextDelta
from sakti.core.types import ContextPart, join_plain_text
from sakti.providers.scripted import Answer
from sakti.tui.app import SaktiApp
from sakti.tui.screens.text import ContextScreen
from tests.tui.conftest import screen_text, settle
from tests.tui.real import real_session, say


async def test_an_open_inspector_follows_the_turn_and_keeps_its_cursor(store, tmp_path):
    session = real_session(store, tmp_path / "w", "One.", Answer("word " * 300, chunk_delay=0.001))
    app = SaktiApp(session)
    async with app.run_test(size=(140, 50)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first")
        app.run_command("/context")
        await settle(app, pilot)
        await pilot.press("down", "down")
        screen = app.screen
        at = screen.blocks_list.current
        titles: list[str] = []

        def look(event) -> None:
            if isinstance(event, TextDelta):
                app.chat.panes.show_windows()
                assert screen.blocks_list.current == at
                titles.append(str(screen.query_one("#panel-title").render()))

        session.subscribe(look)
        await session.submit("second")
        await session.wait()
        await settle(app, pilot)
        assert len(set(titles)) > 2 and all("≈" in title for title in titles[1:])
        app.chat.panes.show_windows()
        await pilot.pause()
        assert [b.text for b in screen._blocks] == [b.text for b in await session.views.context()]
        assert sum(b.tokens for b in screen._blocks) == app.chat.status_line.context
        assert "≈" not in str(screen.query_one("#panel-title").render()) and screen.blocks_list.current == at


async def test_the_inspector_shows_the_request_that_is_sent(store, tmp_path):
    session = real_session(
        store,
        tmp_path / "w",
        *(f"The port of api {n} is 80{n}0, " + "as before. " * 30 for n in range(8)),
        overrides=("memory.observation.message_tokens=900",),
    )
    app = SaktiApp(session)
    async with app.run_test(size=(140, 50)) as pilot:
        await settle(app, pilot)
        await app.chat.conversation.run("#the tests run with pytest")
        for n in range(6):
            await say(app, pilot, f"remember that service {n} listens on {n}00 " + "and more of it " * 10)
            await session.current.engine.wait_idle()
        shown = await session.views.context()
        await say(app, pilot, "and now?")
        sent = session.workspace.models.provider.requests[-1]
        kinds = [b.kind for b in shown]
        assert {"tools", "system", "working_memory", "observations", "message", "tail"} <= set(kinds)
        # what is sent is what was shown, and the new prompt behind it
        assert [b.text for b in shown if b.kind not in ("tools", "message", "tail")] == [b.text for b in sent.system]
        messages = [b.text for b in shown if b.kind == "message"]
        assert messages == [join_plain_text(m.parts) for m in sent.messages[:-1]]
        assert join_plain_text(sent.messages[-1].parts) == "and now?"
        labels = [b.label for b in shown if b.kind == "message"]
        assert labels[0].startswith("reminder  ") and "reminder" not in {x.split()[0] for x in labels[1:]}, (
            "what is sent, but said by nobody"
        )
        tools = next(b for b in shown if b.kind == "tools")
        assert all(f"{t.name}: {t.description}" in tools.text for t in sent.tools)
        assert all(json.dumps(t.parameters, indent=1, ensure_ascii=False) in tools.text for t in sent.tools)
        assert tools.tokens == session.current.toolbox.count(session.workspace.counter, sent.tools)
        tail = next(b for b in shown if b.kind == "tail")
        told = next(p for p in sent.messages[-1].parts if isinstance(p, ContextPart))
        assert tail.text.split("\n")[0] == told.text.split("\n")[0]
        total = sum(b.tokens for b in shown)
        app.run_command("/context")
        await settle(app, pilot)
        assert isinstance(app.screen, ContextScreen)
        assert abs(sum(b.tokens for b in app.screen._blocks) - app.chat.status_line.context) < total // 20
        await pilot.press("down", "enter")
        await settle(app, pilot)
        assert sent.system[0].text.split("\n")[0][:60] in screen_text(app)
