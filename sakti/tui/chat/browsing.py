"""Send keys to the prompt, a part that the user browses, the find bar, or through the welcome.

Only a part's own keys act in it: any other letter, and every paste, goes to the prompt. Words that begin with such a
key are not lost either: of a burst nothing acts, and letters typed just before go to the prompt with the one that
leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from sakti.core.clock import Clock
from sakti.core.lazy import lazy_imports
from sakti.core.text import counted, phrase
from sakti.tui.activities import Download
from sakti.tui.chat.thread_view import ThreadView
from sakti.tui.host import Host
from sakti.tui.keys import is_text
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import PANES, Sidebar
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.screens import welcome as welcome_screen
from sakti.tui.transcript.copying import rows_with, seek
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.store.threads.messages import MessageMatch

with lazy_imports:
    from sakti.agent import setup as machine


class FindBar(Horizontal):
    """The search input, the number of matches, and the keys."""

    DEFAULT_CSS = """
    FindBar { height: 1; background: $panel; padding: 0 1; }
    FindBar Static { width: auto; color: $sakti-muted; }
    FindBar #find-count { margin-left: 2; }
    FindBar Input { width: 1fr; min-width: 8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(1)", "Older match", show=False, id="find.older"),
        Binding("down", "step(-1)", "Newer match", show=False, id="find.newer"),
        Binding("escape", "close", "Close", show=False, id="find.close"),
    ]

    class Changed(Message):
        """Other words."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Step(Message):
        """To the next older place (1) or the next newer one (-1); `read`: the keys go to the conversation."""

        def __init__(self, step: int, *, read: bool = False) -> None:
            super().__init__()
            self.step = step
            self.read = read

    class Closed(Message):
        """The bar was closed."""

    def compose(self) -> ComposeResult:
        yield Static("/ ", markup=False)
        yield SafeInput(placeholder="find in this thread", compact=True, select_on_focus=False, id="find-text")
        yield Static("", markup=False, id="find-count")

    @property
    def text(self) -> str:
        return self.query_one(Input).value.strip()

    def say(self, text: str) -> None:
        """Show `text`, which is safe to show."""
        self.query_one("#find-count", Static).update(text)

    def open(self) -> None:
        """Show the bar, empty, and give it the keys at once: the next one may be there already."""
        self.display = True
        line = self.query_one(Input)
        line.value = ""
        self.screen.set_focus(line)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Step(1, read=True))

    def action_step(self, step: int) -> None:
        self.post_message(self.Step(step))

    def action_close(self) -> None:
        self.post_message(self.Closed())


class ThreadFind:
    """Search within the open thread; its bar is below the transcript."""

    def __init__(self, host: Host, transcript: Transcript, view: ThreadView) -> None:
        self._host, self._transcript, self._view = host, transcript, view
        self.bar = FindBar()
        self.bar.display = False
        self._places: tuple[MessageMatch, ...] = ()  # the messages that have the words, oldest first
        self._words = ""
        self._at = -1  # which of them is shown; -1: none yet
        self._row = -1  # which of its lines

    def open(self, step: int = 0) -> None:
        """Open the bar, or go to it; with `step` go on to the next place."""
        if step and self.bar.display:
            self.step(step)
        elif self.bar.display:
            self.bar.screen.set_focus(self.bar.query_one(Input))
        elif self.bar.is_attached:
            self._words, self._places, self._at = "", (), -1
            self.bar.open()

    def look_for(self, text: str) -> None:
        """Find other words."""
        self._host.start_worker(self._count, text, group="find", exclusive=True)

    def step(self, step: int, *, read: bool = False) -> None:
        """Go to the next older place (1) or newer one (-1); `read`: the keys go to the conversation."""
        if read:
            self.bar.screen.set_focus(self._transcript)
        self._host.start_worker(self._step, step, group="find", exclusive=True)

    def leave(self) -> bool:
        """Close the bar and unmark everything; False if it was not open."""
        self._places, self._words, self._at = (), "", -1
        self._transcript.show_found(None)
        if not self.bar.display:
            return False
        focused = self.bar.screen.focused
        if focused is not None and self.bar in focused.ancestors:
            self.bar.screen.set_focus(self._transcript)  # before it is hidden: otherwise Textual chooses the focus
        self.bar.display = False
        return True

    async def _count(self, text: str) -> None:
        """Mark every occurrence of `text` on the screen and count it in the entire thread."""
        session = self._host.session
        self._words, self._at, self._row = text, -1, -1
        thread = session.thread
        self._transcript.show_found(phrase(text) if text else None)
        self._places = tuple(await session.views.within(thread.id, text)) if text and thread else ()
        self._show_count()

    def _show_count(self) -> None:
        bar = self.bar
        total = sum(p.count for p in self._places)
        if not self._words:
            bar.say("")
        elif not total:
            bar.say("no match in this thread")
        elif self._at < 0:
            messages = len(self._places)
            bar.say(f"{total:,} in {counted(messages, 'message')} · enter goes there")
        else:
            newer = len(self._places) - self._at
            bar.say(f"message {newer:,} of {len(self._places):,}, {total:,} in all · n older · N newer · esc")

    async def _step(self, step: int) -> None:
        """Go to the next older (1) or newer (-1) line or message with a match, wrapping around."""
        if self.bar.display and self.bar.text != self._words:
            await self._count(self.bar.text)
        if not self._places:
            return
        chat = self._transcript
        rows = self._rows() if self._at >= 0 else []
        if 0 <= self._row - step < len(rows):
            self._row -= step
        else:
            self._at = self._first() if self._at < 0 else (self._at - step) % len(self._places)
            place = self._places[self._at]
            if chat.document.index_of(place.message_id) is None:
                await self._view.load_older(place.index)
            rows = self._rows()
            self._row = len(rows) - 1 if step > 0 else 0
        if rows:
            chat.show_row(*rows[self._row])
        else:
            chat.jump(self._places[self._at].message_id)
        self._show_count()

    def _first(self) -> int:
        """Return the index of the newest message with a match that is not below the screen."""
        chat = self._transcript
        for at in range(len(self._places) - 1, -1, -1):
            index = chat.document.index_of(self._places[at].message_id)
            if index is None or chat.document.top(index) < chat.scroll_offset.y + chat.size.height:
                return at
        return len(self._places) - 1

    def _rows(self) -> list[tuple[int, int]]:
        """List the matching lines of the current message, unfolding blocks that hide them."""
        document, pattern = self._transcript.document, phrase(self._words)
        message_id = self._places[self._at].message_id
        if not (rows := rows_with(document, message_id, pattern)):
            seek(document, message_id, pattern)
            rows = rows_with(document, message_id, pattern)
        return rows


CONVERSATION = "conversation"
WORD_S = 0.6  # seconds at most between two letters of a word
BURST_S = 0.01  # seconds in which the rest of a burst of letters is there


class Area(Struct, frozen=True):
    """An area that can be browsed: its name, and its keys (id, description), the most wanted ones first.

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


def area_of(widget: Widget | None) -> str:
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


def after(area: str, sidebar: Sidebar) -> str:
    """Return the area after `area`: the conversation, then the visible panes, then the prompt ("")."""
    order = ["", CONVERSATION, *(p for p in PANES if sidebar.shows(p)), ""]
    return order[order.index(area) + 1] if area in order else ""


def is_for_the_prompt(event: object, screen: Screen[Any]) -> bool:
    """Return whether a key or paste belongs to the prompt because nothing else takes it.

    Another input line, or a part or a question that the key acts on, would take it.
    """
    if isinstance(screen.focused, Input | TextArea):
        return False
    if isinstance(event, events.Paste):
        return True
    return isinstance(event, events.Key) and is_text(event) and event.key not in screen.active_bindings


class TypedLetters:
    """Letters that acted on a browsed part one after the other: they may be the beginning of a word."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._letters = ""
        self._last = float("-inf")

    def add(self, event: events.Key) -> None:
        """Note a letter that acts now; the same one again moves or scrolls, and begins no word."""
        letter, now = event.character or "", self._clock.monotonic()
        before = self._letters if now - self._last <= WORD_S else ""
        self._letters = before + letter if letter.isalpha() and letter not in before else ""
        self._last = now

    def take(self) -> str:
        """Return the letters typed just before the key that leaves for the prompt."""
        letters = self._letters if self._clock.monotonic() - self._last <= WORD_S else ""
        self._letters = ""
        return letters


# Keys of the chat that leave the welcome, as typing does.
PASSED_ON = ("app.help", "app.memory", "app.log", "app.tasks", "app.browse", "app.panes", "app.search", "app.threads")


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
        """Open it, whether it is due or not."""
        self._host.push(welcome_screen.WelcomeScreen(self._apply, self._download))

    def typed_through(self, event: events.Event, app: App[Any]) -> None:
        """Leave the welcome at input meant for the chat: typed or pasted text, and the keys of the chat."""
        passed = isinstance(event, events.Paste) or (isinstance(event, events.Key) and self._is_passed_on(event))
        if passed and isinstance(app.screen, welcome_screen.WelcomeScreen) and not app.screen.typing:
            app.screen.dismiss(None)

    def _is_passed_on(self, event: events.Key) -> bool:
        return is_text(event) or any(event.key == self._host.key_of(key_id) for key_id in PASSED_ON)
