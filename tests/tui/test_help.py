"""`/help` and `/help TOPIC` in the chat."""

from __future__ import annotations

from tests.tui.conftest import screen_text, settle


async def typed(app, pilot, line: str) -> str:
    app.chat.prompt.text = line
    await pilot.press("enter")
    await settle(app, pilot)
    return screen_text(app)


async def test_a_topic_opens_its_page_and_esc_closes_it(running, session):
    async with running() as (app, pilot):
        shown = await typed(app, pilot, "/help sandbox")
        assert "Help: sandbox" in shown and "How the model's commands are limited" in shown
        assert "sandbox.md" not in shown and "##" not in shown
        await pilot.press("escape")
        await settle(app, pilot)
        assert "Help: sandbox" not in screen_text(app)


async def test_help_alone_shows_commands_and_keys(running, session):
    async with running() as (app, pilot):
        shown = await typed(app, pilot, "/help")
        assert "/compact" in shown and "Help: " not in shown


async def test_typing_filters_help_by_keys_commands_and_words(running, session):
    async with running((120, 40)) as (app, pilot):
        await pilot.press("f1")
        await settle(app, pilot)
        await pilot.press(*"suspend")
        await settle(app, pilot)
        shown = screen_text(app)
        assert "ctrl+z" in shown and "/compact" not in shown
        await pilot.press("ctrl+u", *"messages copy")
        await settle(app, pilot)
        assert "Messages" in screen_text(app) and "/search" not in screen_text(app)
        await pilot.press("ctrl+u", *"while browsing")
        await settle(app, pilot)
        assert "letters, pastes" in screen_text(app) and "go to the prompt" in screen_text(app)
        await pilot.press("ctrl+u", *"xyzzy")
        await settle(app, pilot)
        assert "Nothing found" in screen_text(app)
        await pilot.press("ctrl+u")
        await settle(app, pilot)
        assert "/compact" in screen_text(app)
        before = screen_text(app)
        await pilot.press("pagedown")
        await settle(app, pilot)
        assert screen_text(app) != before
        await pilot.press("escape")
        assert app.screen is app.chat


async def test_an_unknown_topic_suggests_the_nearest(running, session):
    async with running() as (app, pilot):
        assert "Did you mean `/help sandbox`?" in await typed(app, pilot, "/help sandbx")


async def test_topics_are_completed(running, session):
    async with running() as (app, pilot):
        app.chat.prompt.insert("/help trou")
        await settle(app, pilot)
        await pilot.press("tab")
        assert app.chat.prompt.text.strip() == "/help troubleshooting"
