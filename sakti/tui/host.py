"""Declare the window's interface for widgets, panes and screens, which must not import the app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from textual.app import App
from textual.geometry import Size
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.signal import Signal
from textual.theme import Theme

from sakti.tui.keys import Keymap
from sakti.tui.palette import Palette

if TYPE_CHECKING:
    from sakti.actions.line import Typed
    from sakti.agent.session.session import Session
    from sakti.tui.appearance import Appearance

HINT_S = 2.0  # seconds that a hint is shown
STYLES = Path(__file__).parent / "styles"

Tone: TypeAlias = Literal["information", "warning", "error"]


class Host(Protocol):
    """The window as its widgets see it: session, appearance and services. `SaktiApp` implements it."""

    session: Session
    appearance: Appearance
    theme_changed_signal: Signal[Theme]
    custom_keys: Keymap

    @property
    def palette(self) -> Palette:
        """Return the colours of the current theme."""
        ...

    @property
    def size(self) -> Size: ...

    def start_worker(
        self, work: Callable[..., Awaitable[None]], *args: Any, group: str, exclusive: bool = False
    ) -> None:
        """Run `work(*args)` as a worker; a raised error becomes a notice.

        In the group "command", the chat also scrolls to that notice.
        """
        ...

    async def run_typed(self, command: Typed) -> None:
        """Run a slash command and show its value. Raises `SaktiError`."""
        ...

    def send(self, text: str) -> None:
        """Send a line as the prompt does: a message to the open thread, or a command."""
        ...

    def show_notice(self, text: str, *, title: str = "", tone: Tone = "information") -> None:
        """Add a notice to the chat."""
        ...

    def announce(self, text: str, *, title: str) -> None:
        """Add a notice to the chat once the thread that opens now is loaded."""
        ...

    def set_hint(self, text: str, seconds: float = 0) -> None:
        """Show a hint in the last line for `seconds` (0: until the next one)."""
        ...

    def push(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        """Push `screen` onto the stack; `then` receives its result."""
        ...

    def copy_to_clipboard(self, text: str) -> None: ...

    def key_of(self, binding_id: str) -> str:
        """Return the first key of a binding by its Textual name."""
        ...

    def key_name(self, binding_id: str) -> str:
        """Return the first key of a binding, abbreviated: `^P`, `F3`, `esc`."""
        ...

    def exit(self, result: int | None = None) -> None: ...

    async def action_quit(self) -> None: ...


def get_app(node: MessagePump) -> App[Any]:
    """Return the Textual app of a widget or a screen, for calls to Textual itself."""
    return cast("App[Any]", node.app)  # pyright: ignore[reportUnknownMemberType]


def get_host(node: MessagePump) -> Host:
    """Return the window that contains a widget or a screen."""
    return cast("Host", get_app(node))
