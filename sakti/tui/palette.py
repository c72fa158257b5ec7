"""Define the colours of text that sakti draws itself, by role, with defaults for themes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from rich.style import Style
from textual.color import Color

PREFIX = "sakti-"
BACKGROUND_KEY = PREFIX + "ground"  # a key of `CURSOR_BACKGROUNDS` if colours are few; matches are then in reverse
CURSOR_BACKGROUNDS = {
    "none": ("#383838", "#c8c8c8"),
    "standard": ("#0000aa", "#aaaaaa"),
}  # under the cursor, dark and light

# role: (in a dark theme, in a light theme). Text roles reach WCAG AA on the theme's background.
DEFAULTS: dict[str, tuple[str, str]] = {
    "muted": ("#9aa3b2", "#565d69"),
    "faint": ("#828a9a", "#5f6673"),
    "line": ("#2c333f", "#d5d1c7"),
    "user": ("#e5b567", "#8a5200"),
    "agent": ("#7fb0e8", "#2458a6"),
    "heading": ("#a9c7ee", "#1f4a8c"),
    "code": ("#d7ba8f", "#7a4a12"),
    "code-bg": ("#191e27", "#f0ede6"),
    "link": ("#7fb0e8", "#2458a6"),
    "ok": ("#8fc48a", "#2c6b2f"),
    "warn": ("#e5b567", "#8a5200"),
    "bad": ("#e98089", "#b02a33"),
    "added": ("#9ad094", "#22602a"),
    "added-bg": ("#16271c", "#e2f2e0"),
    "removed": ("#f0959c", "#a1252f"),
    "removed-bg": ("#2d191d", "#fbe5e4"),
    "keyword": ("#b79ceb", "#6a3fb5"),
    "string": ("#9ac48f", "#32692f"),
    "comment": ("#818b9b", "#636a76"),
    "number": ("#e0a37a", "#96480f"),
    "name": ("#7fb0e8", "#2458a6"),
    "mark-bg": ("#5a4a1e", "#ffe9a8"),
    "gauge": ("#7fb0e8", "#2f66b8"),
    "gauge-high": ("#e5b567", "#a86400"),
}


def build_variable_defaults(dark: bool, colours: str = "truecolor") -> dict[str, str]:
    """Return the defaults of sakti's own colour variables, for `get_theme_variable_defaults`.

    `colours`: the colour support of the terminal; with "none" and "standard" (sixteen), the backgrounds of a theme
    cannot be told apart.
    """
    defaults = {PREFIX + role: pair[0 if dark else 1] for role, pair in DEFAULTS.items()}
    return defaults | ({BACKGROUND_KEY: colours} if colours in CURSOR_BACKGROUNDS else {})


class Palette(Struct, frozen=True):
    """Rich styles by role; each sets a foreground, or the attribute in its name, and nothing else."""

    text: Style
    bold: Style
    muted: Style
    faint: Style
    line: Style
    user: Style
    agent: Style
    heading: Style
    code: Style
    code_block: Style
    link: Style
    ok: Style
    warn: Style
    bad: Style
    added: Style
    removed: Style
    keyword: Style
    string: Style
    comment: Style
    number: Style
    name: Style
    mark: Style
    gauge: Style
    gauge_high: Style
    cursor: Style


_USED_VARIABLES = ("foreground", "panel", BACKGROUND_KEY, *(PREFIX + role for role in DEFAULTS))


def make_palette(variables: Mapping[str, str], dark: bool) -> Palette:
    """Return the palette for `App.theme_variables`; a colour that cannot be parsed uses its default."""
    return _make(tuple((n, variables[n]) for n in _USED_VARIABLES if n in variables), dark)


@lru_cache(maxsize=32)
def _make(pairs: tuple[tuple[str, str], ...], dark: bool) -> Palette:
    variables = dict(pairs)
    defaults = build_variable_defaults(dark)

    def colour(name: str) -> str:
        for value in (variables.get(name), defaults.get(name)):
            if value:
                try:
                    return Color.parse(value).rich_color.name
                except Exception:  # Textual raises several kinds of errors; use the default for all
                    continue
        return "#d5dae2" if dark else "#23272e"

    def role(name: str, *, bold: bool | None = None, bg: str | None = None, italic: bool | None = None) -> Style:
        return Style(color=colour(PREFIX + name), bold=bold, italic=italic, bgcolor=colour(PREFIX + bg) if bg else None)

    backgrounds = CURSOR_BACKGROUNDS.get(variables.get(BACKGROUND_KEY, ""))
    foreground = colour("foreground")
    plain = set(Palette.__struct_fields__) & {n.replace("-", "_") for n in DEFAULTS}
    styles = {name: role(name.replace("_", "-")) for name in plain}
    styles |= {
        "text": Style(color=foreground),
        "bold": Style(color=foreground, bold=True),
        "user": role("user", bold=True),
        "agent": role("agent", bold=True),
        "heading": role("heading", bold=True),
        "code_block": Style(color=foreground, bgcolor=colour(PREFIX + "code-bg")),
        "added": role("added", bg="added-bg"),
        "removed": role("removed", bg="removed-bg"),
        "comment": role("comment", italic=True),
        "mark": Style(reverse=True) if backgrounds else Style(bgcolor=colour(PREFIX + "mark-bg")),
        "cursor": Style(bgcolor=backgrounds[0 if dark else 1] if backgrounds else colour("panel")),
    }
    return Palette(**styles)
