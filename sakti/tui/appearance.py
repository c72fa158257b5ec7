"""Set how the window looks: its theme, the terminal's colours, whether anything moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from textual import constants
from textual.app import App
from textual.widgets import Input, TextArea

from sakti.tui.palette import variable_defaults
from sakti.tui.themes import FALLBACK, SIXTEEN, Themes, load_first, load_themes

if TYPE_CHECKING:
    from sakti.agent.session.session import Session


class Appearance:
    """Owns the themes that were read. Made before the app is: `dress` hands it over."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._app: App[Any] | None = None
        self._themes = load_first(session.workspace.config.ui.theme)  # the others follow the first picture
        self._colours = "truecolor"

    @property
    def variable_defaults(self) -> dict[str, str]:
        return variable_defaults(True, self._colours)

    @property
    def app(self) -> App[Any]:
        assert self._app is not None
        return self._app

    def dress(self, app: App[Any]) -> None:
        """Give `app` the themes, and the one that is configured."""
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
        """Show the current theme again: it has the same name, but maybe not the same colours."""
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
        """Show a theme that was read before."""
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

    def restore(self, state: Mapping[str, str]) -> None:
        """Show the theme that was chosen last, unless one is configured."""
        name = state.get(self.theme_key, "")
        if name in self._themes.themes and self._session.workspace.config.ui.theme == FALLBACK:
            self.app.theme = name

    def adapt(self) -> None:
        """Adapt to the colours that the terminal supports."""
        self._colours = self.colours
        self.app.set_class(self._colours == "none", "-no-colours")
        self.app.set_class(self._colours == "standard", "-sixteen-colours")
        if self._colours in ("none", "standard"):
            theme = self.app.theme
            self.use(SIXTEEN if self._colours == "standard" and theme == FALLBACK else theme)

    def use_motion(self) -> None:
        """Let nothing blink or glide where the user wants it so."""
        app = self.app
        app.animation_level = (
            "none" if self._session.workspace.config.ui.reduced_motion else constants.TEXTUAL_ANIMATIONS
        )
        blink = app.animation_level != "none"
        for screen in app.screen_stack:
            for line in (*screen.query(Input), *screen.query(TextArea)):
                line.cursor_blink = blink
