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
        assert "Help: sandbox" in shown and "What limits the commands of the model" in shown
        assert "sandbox.md" not in shown and "##" not in shown
        await pilot.press("escape")
        await settle(app, pilot)
        assert "Help: sandbox" not in screen_text(app)


async def test_help_alone_shows_commands_and_keys(running, session):
    async with running() as (app, pilot):
        shown = await typed(app, pilot, "/help")
        assert "/compact" in shown and "Help: " not in shown


async def test_an_unknown_topic_suggests_the_nearest(running, session):
    async with running() as (app, pilot):
        assert "Did you mean `/help sandbox`?" in await typed(app, pilot, "/help sandbx")


async def test_topics_are_completed(running, session):
    async with running() as (app, pilot):
        app.chat.prompt.insert("/help trou")
        await settle(app, pilot)
        await pilot.press("tab")
        assert app.chat.prompt.text.strip() == "/help troubleshooting"
