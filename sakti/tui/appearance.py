"""Control the look of the window: theme files, the theme, the terminal's colours, animation."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from textual import constants
from textual.app import App
from textual.theme import Theme
from textual.widgets import Input, TextArea

from sakti.core.lazy import lazy_pattern
from sakti.core.resources import iter_folders
from sakti.core.text import show_value
from sakti.tui.palette import build_variable_defaults

if TYPE_CHECKING:
    from sakti.agent.session.session import Session


FALLBACK = "sakti-dark"
SIXTEEN_COLOURS_THEME = "sakti-sixteen"  # its replacement in terminals with sixteen colours
_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
_HEX = lazy_pattern(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


class Themes(Struct, frozen=True):
    """`problems` are sentences for the user, each naming its file."""

    themes: dict[str, Theme]
    problems: tuple[str, ...]


def fingerprint_theme_files() -> tuple[tuple[str, int, int], ...]:
    """Return path, modification time and size of every theme file, to detect changes."""
    files: list[tuple[str, int, int]] = []
    for folder in iter_folders("themes"):
        for path in sorted(folder.glob("*.toml")):
            with contextlib.suppress(OSError):  # deleted during the scan
                stat = path.stat()
                files.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(files)


def load_configured_theme(name: str) -> Themes:
    """Return the installed theme `name` alone, or every theme if the user has theme files."""
    places = list(iter_folders("themes"))
    with contextlib.suppress(ValueError, OSError, TypeError):  # `load_themes` reports it
        if len(places) == 1 and (theme := read_theme(places[0] / f"{name}.toml")).name == name:
            return Themes({name: theme}, ())
    return load_themes()


def load_themes() -> Themes:
    """Return every theme that can be read. `sakti-dark` is always among them."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in iter_folders("themes"):
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except (ValueError, OSError, TypeError) as e:
                problems.append(f"{path}: {e}")
                continue
            themes.setdefault(theme.name, theme)
    themes.setdefault(
        FALLBACK,
        Theme(
            name=FALLBACK,
            primary="#7fb0e8",
            background="#10141b",
            surface="#151a22",
            panel="#1e2530",
            foreground="#d8dde6",
            variables=build_variable_defaults(True),
        ),
    )
    return Themes(themes, tuple(problems))


def read_theme(path: Path) -> Theme:
    """Read one theme file. Raises ValueError or OSError with a description of the problem."""
    table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    name = table.pop("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise ValueError("`name` takes letters, digits and dashes.")
    variables: dict[str, Any] = table.pop("variables", {})
    for key, value in [*table.items(), *variables.items()]:
        is_colour = key in _COLOURS or key.startswith("sakti-")
        if is_colour and not (isinstance(value, str) and _HEX.fullmatch(value)):
            raise ValueError(f"{key} = {show_value(value)} is not a colour such as #1e2530.")
    if "primary" not in table:
        raise ValueError("`primary` is missing.")
    defaults = build_variable_defaults(bool(table.get("dark", True)))
    return Theme(name=name, variables=defaults | {str(k): str(v) for k, v in variables.items()}, **table)


class Appearance:
    """Themes and colours of the window; created before the app, which `attach` passes in."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._app: App[Any] | None = None
        self._themes = load_configured_theme(session.workspace.config.ui.theme)  # the others follow later
        self._colours = "truecolor"

    @property
    def variable_defaults(self) -> dict[str, str]:
        return build_variable_defaults(True, self._colours)

    @property
    def app(self) -> App[Any]:
        assert self._app is not None
        return self._app

    def attach(self, app: App[Any]) -> None:
        """Register the themes with `app` and show the configured one."""
        self._app = app
        self._register()
        name = self._session.workspace.config.ui.theme
        app.theme = name if name in self._themes.themes else FALLBACK

    def _register(self) -> None:
        for theme in self._themes.themes.values():
            self.app.register_theme(theme)

    def reload(self) -> Themes:
        """Read the theme files again."""
        self._themes = load_themes()
        self._register()
        return self._themes

    def refresh(self) -> None:
        """Apply the current theme again, since its file may have changed."""
        self.app.mutate_reactive(App.theme)  # pyright: ignore[reportUnknownMemberType]

    def use(self, name: str) -> bool:
        """Show the theme `name`, read from its current file; False if it does not exist."""
        if name not in self.reload().themes:
            return False
        if name == self.app.theme:
            self.refresh()
        self.app.theme = name
        return True

    @property
    def theme(self) -> str:
        """Return the name of the theme that is shown."""
        return self.app.theme

    def preview(self, name: str) -> None:
        """Show a theme that is already loaded."""
        self.app.theme = name

    @property
    def colours(self) -> str:
        """Return the colour support of the terminal: "none", "standard" (sixteen), "256", "truecolor"."""
        app = self.app
        return "none" if app.no_color else (app.console.color_system or "none") if not app.is_headless else "256"

    @property
    def theme_key(self) -> str:
        """Return the key under which the chosen theme is stored."""
        return "theme16" if self.colours == "standard" else "theme"

    async def remember(self, name: str) -> str:
        """Store the chosen theme; return a note if a setting replaces it at the next start, else ""."""
        await self._session.views.set_ui_state(self.theme_key, name)
        configured = self._session.workspace.config.ui.theme
        if configured in (FALLBACK, name):
            return ""
        return f"{name} is shown in this window only: the setting ui.theme is {configured}. /settings changes it."

    def restore(self, state: Mapping[str, str]) -> None:
        """Show the theme that was chosen last, unless one is configured."""
        name = state.get(self.theme_key, "")
        if name in self._themes.themes and self._session.workspace.config.ui.theme == FALLBACK:
            self.app.theme = name

    def adapt_to_terminal(self) -> None:
        """Adapt to the colours that the terminal supports."""
        self._colours = self.colours
        self.app.set_class(self._colours == "none", "-no-colours")
        self.app.set_class(self._colours == "standard", "-sixteen-colours")
        if self._colours in ("none", "standard"):
            theme = self.app.theme
            self.use(SIXTEEN_COLOURS_THEME if self._colours == "standard" and theme == FALLBACK else theme)

    def apply_motion(self) -> None:
        """Turn off blinking and animation if reduced motion is set."""
        app = self.app
        app.animation_level = (
            "none" if self._session.workspace.config.ui.reduced_motion else constants.TEXTUAL_ANIMATIONS
        )
        blink = app.animation_level != "none"
        for screen in app.screen_stack:
            for line in (*screen.query(Input), *screen.query(TextArea)):
                line.cursor_blink = blink
