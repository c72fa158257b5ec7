"""Send keys to the prompt, to a part that the user browses, or through the welcome.

Only a part's own keys act in it: any other letter, and every paste, goes to the prompt. Words that begin with such a
key stay complete: letters that arrive in a burst do not act, and letters typed just before go to the prompt as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from textual import events
from textual.app import App
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from sakti.core.clock import Clock
from sakti.core.lazy import lazy_imports
from sakti.tui.activities import Download
from sakti.tui.chat.find import FindBar
from sakti.tui.host import Host
from sakti.tui.keys import is_text
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import PANES, Sidebar
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.screens import welcome as welcome_screen
from sakti.tui.widgets.transcript import Transcript

with lazy_imports:
    from sakti.agent import setup as machine


CONVERSATION = "conversation"
WORD_PAUSE_S = 0.6  # maximum seconds between two letters of a word
BURST_S = 0.01  # seconds within which the rest of a burst of letters arrives


class Area(Struct, frozen=True):
    """An area that can be browsed: its name, and its keys (id, description), the most useful ones first.

    `switch` is the id of the key that shows, enters and hides a pane.
    """

    title: str
    keys: tuple[tuple[str, str], ...]
    switch: str = ""


AREAS: Mapping[str, Area] = {
    CONVERSATION: Area(
        "Messages",
        (
            ("transcript.previous", "back"),
            ("transcript.next", "on"),
            ("transcript.toggle", "unfold"),
            ("transcript.find", "find"),
            ("transcript.copy", "copy"),
            ("transcript.select", "select"),
            ("transcript.link", "links"),
        ),
    ),
    "memory": Area("Memory", (("memory.events", "all events"),), "app.memory"),
    "log": Area(
        "Observations",
        (
            ("list.open", "sources"),
            ("observations.filter", "filter"),
            ("observations.edit", "edit"),
            ("observations.forget", "forget"),
            ("observations.undo", "undo"),
            ("observations.pin", "pin"),
            ("observations.earlier", "past"),
        ),
        "app.log",
    ),
    "tasks": Area("Tasks", (("tasks.board", "board"),), "app.tasks"),
}


def find_area(widget: Widget | None) -> str:
    """Return the area that contains `widget`; "" for the prompt, a question, or no focus."""
    for node in widget.ancestors_with_self if widget is not None else ():
        match node:
            case Transcript() | FindBar():
                return CONVERSATION
            case MemoryPane():
                return "memory"
            case ObservationsPane():
                return "log"
            case TasksPane():
                return "tasks"
            case _:
                pass
    return ""


def find_next_area(area: str, sidebar: Sidebar) -> str:
    """Return the area after `area`: the conversation, then the visible panes, then the prompt ("")."""
    order = ["", CONVERSATION, *(p for p in PANES if sidebar.shows(p)), ""]
    return order[order.index(area) + 1] if area in order else ""


def is_for_the_prompt(event: object, screen: Screen[Any]) -> bool:
    """Return whether a key or paste belongs to the prompt: no other input line, part or question uses it."""
    if isinstance(screen.focused, Input | TextArea):
        return False
    if isinstance(event, events.Paste):
        return True
    return isinstance(event, events.Key) and is_text(event) and event.key not in screen.active_bindings


class TypedLetters:
    """Letters that acted on a browsed part in quick succession and may be the beginning of a word."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._letters = ""
        self._last = float("-inf")

    def add(self, event: events.Key) -> None:
        """Note a letter that acts now; a repeated letter moves or scrolls and does not begin a word."""
        letter, now = event.character or "", self._clock.monotonic()
        before = self._letters if now - self._last <= WORD_PAUSE_S else ""
        self._letters = before + letter if letter.isalpha() and letter not in before else ""
        self._last = now

    def take(self) -> str:
        """Return the letters typed just before the key that leaves for the prompt."""
        letters = self._letters if self._clock.monotonic() - self._last <= WORD_PAUSE_S else ""
        self._letters = ""
        return letters


# Keys of the chat that leave the welcome, as typing does.
WELCOME_CLOSING_KEYS = (
    "app.help",
    "app.memory",
    "app.log",
    "app.tasks",
    "app.browse",
    "app.panes",
    "app.search",
    "app.threads",
)


class Welcome:
    """Opens the welcome; `apply` shows a setting that was changed there."""

    def __init__(self, host: Host, apply: Callable[[str], str], download: Download) -> None:
        self._host, self._apply, self._download = host, apply, download

    async def open_once(self, state: Mapping[str, str], occupied: Callable[[], bool]) -> None:
        """Open the welcome screen on the first start, unless the user is already busy."""
        session = self._host.session
        if occupied() or not await machine.is_welcome_due(session, state) or occupied():
            return
        self.open()
        await session.views.set_ui_state(machine.SHOWN, "1")

    def open(self) -> None:
        """Open the welcome screen."""
        self._host.push(welcome_screen.WelcomeScreen(self._apply, self._download))

    def close_on_input(self, event: events.Event, app: App[Any]) -> None:
        """Leave the welcome at input meant for the chat: typed or pasted text, and the keys of the chat."""
        passed = isinstance(event, events.Paste) or (isinstance(event, events.Key) and self._is_passed_on(event))
        if passed and isinstance(app.screen, welcome_screen.WelcomeScreen) and not app.screen.is_typing:
            app.screen.dismiss(None)

    def _is_passed_on(self, event: events.Key) -> bool:
        return is_text(event) or any(event.key == self._host.key_of(key_id) for key_id in WELCOME_CLOSING_KEYS)
