"""Themes: every file loads, text is readable (WCAG AA), a broken one is reported."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.command import CommandList

from sakti.core.resources import config_home
from sakti.tui.app import SaktiApp
from sakti.tui.appearance import FALLBACK, SIXTEEN_COLOURS_THEME, Appearance, load_themes
from sakti.tui.palette import make_palette
from tests.tui.conftest import chat_text, settle
from tests.tui.real import real_session

THEMES = load_themes().themes
ON_CODE = ("keyword", "string", "comment", "number", "name")


def contrast(first: str, second: str) -> float:
    """WCAG 2.1 contrast ratio, https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio."""

    def luminance(colour: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in Color.parse(colour).normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_there_are_light_ones_and_ones_for_colour_blind_users():
    assert len(THEMES) >= 8
    assert sum(not t.dark for t in THEMES.values()) >= 2
    assert {"sakti-clear", "sakti-clear-light"} <= set(THEMES)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_text_is_readable(theme):
    colours = theme.variables
    weak = []
    for role in ("muted", "faint", "user", "agent", "heading", "link", "ok", "warn", "bad"):
        for ground in (theme.background, theme.surface, theme.panel):
            ratio = contrast(colours[f"sakti-{role}"], ground)
            if ratio < 4.5:
                weak.append((role, ground, round(ratio, 2)))
    for role in ON_CODE:
        ratio = contrast(colours[f"sakti-{role}"], colours["sakti-code-bg"])
        if ratio < 4.5:
            weak.append((role, "code-bg", round(ratio, 2)))
    for role in ("added", "removed"):
        ratio = contrast(colours[f"sakti-{role}"], colours[f"sakti-{role}-bg"])
        if ratio < 4.5:
            weak.append((role, "bg", round(ratio, 2)))
    assert contrast(theme.foreground, theme.background) >= 7
    assert contrast(theme.foreground, colours["sakti-mark-bg"]) >= 4.5
    assert weak == []


@pytest.mark.parametrize(
    ("colours", "shown"), [("standard", SIXTEEN_COLOURS_THEME), ("none", FALLBACK), ("256", FALLBACK)]
)
async def test_few_colours_are_told_apart(session, monkeypatch, colours, shown):
    monkeypatch.setattr(Appearance, "colours", colours)
    app = SaktiApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(app, pilot)
        assert app.theme == shown
        palette = make_palette(app.theme_variables, True)
        assert bool(palette.mark.reverse) == (colours != "256")
        ground = Color.from_rich_color(palette.cursor.bgcolor).hex
        assert ground == {"standard": "#0000AA", "none": "#383838"}.get(colours, app.current_theme.panel.upper())
        await pilot.press("ctrl+p")
        await settle(app, pilot)
        chosen = app.screen.query_one(CommandList).get_visual_style("option-list--option-highlighted")
        plain = app.screen.query_one(CommandList).get_visual_style("option-list--option")
        assert chosen.background != plain.background
        assert contrast(chosen.foreground.hex, chosen.background.hex) >= 4.5
        await pilot.press("escape")
        await settle(app, pilot)
        for role in ("text", "muted", "bad") if colours != "256" else ():
            assert contrast(Color.from_rich_color(getattr(palette, role).color).hex, ground) >= 4
        await app.chat.conversation.run("/theme sakti-light")
        await settle(app, pilot)
        assert session.views.state["theme16" if colours == "standard" else "theme"] == "sakti-light"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "bad.toml"),
        ('name = "bad"\nprimary = "no-colour"', "primary"),
        ('name = "bad"', "primary"),
        ('name = "bad"\nprimary = "#fff"\nnothing = 1', "nothing"),
        ('name = "bad"\nprimary = "#fff"\n[variables]\nsakti-user = "red; }"', "sakti-user"),
    ],
)
async def test_a_broken_theme_is_reported_and_the_others_work(session, running, text, why):
    folder = config_home() / "themes"
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_text(text)
    async with running((100, 30)) as (app, _):
        assert "bad.toml" in chat_text(app)
        assert why in chat_text(app)
        assert app.theme == FALLBACK


async def test_a_theme_of_the_user_wins(session, running):
    folder = config_home() / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('name = "sakti-dark"\nprimary = "#ff0000"\ndark = true\n')
    async with running((100, 30)) as (app, _):
        assert app.get_theme("sakti-dark").primary == "#ff0000"


@pytest.mark.parametrize("configured", ["", "sakti-light"])
async def test_a_theme_that_a_setting_replaces_at_the_next_start_says_so(store, tmp_path, configured):
    overrides = (f"ui.theme={configured}",) if configured else ()
    app = SaktiApp(real_session(store, tmp_path / "w", overrides=overrides))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        app.run_command("/theme sakti-clear")
        await settle(app, pilot)
        assert app.theme == "sakti-clear"
        assert ("the setting ui.theme is sakti-light" in " ".join(chat_text(app).split())) == bool(configured)
        app.run_command("/theme")
        await settle(app, pilot)
        await pilot.press(*"mono", "enter")
        await settle(app, pilot)
        assert ("sakti-mono is shown in this window only" in " ".join(chat_text(app).split())) == bool(configured)


async def test_placeholders_and_the_chosen_command_are_readable_in_every_theme(running):
    weak = []

    def measure(app, words):
        segments = (segment for strip in app.screen._compositor.render_strips() for segment in strip)
        style = next(segment.style for segment in segments if words in segment.text)
        return contrast(*(Color.from_rich_color(colour).hex for colour in (style.color, style.bgcolor)))

    async with running() as (app, pilot):
        for key, texts in (("f1", ["ilter by key"]), ("ctrl+p", ["earch for commands", "list the child threads"])):
            await pilot.press(key)
            await settle(app, pilot)
            for name in THEMES:
                app.theme = name
                await settle(app, pilot)
                ratios = [round(measure(app, text), 2) for text in texts]
                weak += [(name, text, ratio) for text, ratio in zip(texts, ratios, strict=True) if ratio < 4.5]
            await pilot.press("escape")
            await settle(app, pilot)
    assert not weak
