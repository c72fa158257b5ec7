"""A draft and a queue come back after a crash, editable, and nothing of them is sent by itself."""

from __future__ import annotations

import asyncio

from sakti.core.errors import StoreError
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.test_safety import EVIL, check


async def test_what_was_queued_stands_in_the_prompt_and_is_not_sent(running, session):
    session.views.unsent = ("half a sentence", ["first queued", "second\nqueued"])
    async with running() as (app, pilot):
        assert app.chat.prompt.value == "first queued\n\nsecond\nqueued\n\nhalf a sentence"
        assert session.sent == [] and session.queued == ()
        assert "2 messages were queued when sakti ended" in " ".join(chat_text(app).split())
        await pilot.press("enter")
        await settle(app, pilot)
        assert len(session.sent) == 1


async def test_a_draft_comes_back_without_a_word_and_before_what_was_typed_meanwhile(session):
    session.gate = asyncio.Event()
    session.views.unsent = ("draft", [])
    app = SaktiApp(session)
    async with app.run_test() as pilot:
        await pilot.press(*"early")
        session.gate.set()
        await settle(app, pilot)
        assert app.chat.prompt.value == "draft\n\nearly"
        assert "Not sent" not in screen_text(app)


async def test_every_change_is_kept_and_what_is_sent_is_not(running, session, monkeypatch):
    monkeypatch.setattr("sakti.tui.chat.completer.SAVE_DELAY_S", 0.001)
    async with running() as (app, pilot):
        big = "line\n" * 100
        await pilot.press(*"ab")
        app.chat.prompt.insert_text(big)
        await settle(app, pilot)
        await pilot.pause(0.01)
        await settle(app, pilot)
        assert session.views.kept[-1] == (f"ab{big}", (), False)
        await pilot.press("enter")
        await pilot.pause(0.01)
        await settle(app, pilot)
        assert session.views.kept[-1] == ("", (), False)
        await pilot.press(*"later", "enter")
        await settle(app, pilot)
        assert session.views.kept[-1][1] == ("later",)
        await pilot.press(*"draft")
        await app.chat.drafts.save_at_exit()
        assert session.views.kept[-1] == ("draft", ("later",), True)


async def test_where_nothing_can_be_stored_it_is_said_once(running, session, monkeypatch):
    async def full(*_, **__):
        raise StoreError("The disk is full.")

    monkeypatch.setattr("sakti.tui.chat.completer.SAVE_DELAY_S", 0.001)
    async with running() as (app, pilot):
        session.views.keep_unsent = full
        for text in ("a", "b", "c"):
            await pilot.press(text)
            await pilot.pause(0.01)
            await settle(app, pilot)
        assert chat_text(app).count("The disk is full.") == 1
        await app.chat.drafts.save_at_exit()


async def test_what_comes_back_is_shown_harmlessly(running, session):
    session.views.unsent = (EVIL, [EVIL])
    async with running() as (app, _):
        check(app)


async def test_a_stored_draft_is_erased_at_once_when_it_is_sent(running, session, monkeypatch):
    monkeypatch.setattr("sakti.tui.chat.completer.SAVE_DELAY_S", 0.001)
    async with running() as (app, pilot):
        await pilot.press(*"ab")
        await pilot.pause(0.01)
        await settle(app, pilot)
        assert session.views.kept[-1] == ("ab", (), False)
        monkeypatch.setattr("sakti.tui.chat.completer.SAVE_DELAY_S", 600)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["ab"]
        assert session.views.kept[-1] == ("", (), False)
