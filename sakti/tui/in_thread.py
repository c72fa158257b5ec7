"""What the reader of the conversation asks the app for: to find words in the whole thread, to open a link, to copy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, cast

from textual.css.query import NoMatches

from sakti.core.text import one_line, phrase, sanitise
from sakti.tui import opening
from sakti.tui.transcript.copying import amount
from sakti.tui.transcript.seek import rows_with, seek
from sakti.tui.widgets.find_bar import FindBar
from sakti.tui.widgets.status import StatusLine
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.store.within import Place
    from sakti.tui.app import SaktiApp
    from sakti.tui.transcript.live import LiveTurn

SHORTLY = 2.0  # seconds that a note stands


class InThread:
    """The part of the app that serves the conversation's reader; `self` is the app."""

    _places: tuple[Place, ...] = ()  # the messages that have the words, oldest first
    _words = ""
    _at = -1  # which of them is shown; -1: none yet
    _row = -1  # which of its lines

    @property
    def _here(self) -> SaktiApp:
        return cast("SaktiApp", self)

    @cached_property
    def live(self) -> LiveTurn:
        """The turn under way: looked for once, asked for with every token."""
        return self._here.transcript.live

    # --- notes ------------------------------------------------------------------------------------------------

    def on_transcript_said(self, event: Transcript.Said) -> None:
        self.say_below(event.text, event.seconds)

    def say_below(self, text: str, seconds: float = 0) -> None:
        """A note in the last line, for so long (0: until there is another)."""
        said = one_line(text, 300)
        for line in self._status:
            line.hint = said
        if said and seconds:
            self._here.set_timer(seconds, lambda: self._unsay(said))

    def _unsay(self, said: str) -> None:
        for line in self._status:
            line.hint = "" if line.hint == said else line.hint

    @property
    def _status(self) -> Iterable[StatusLine]:
        """The line below; nothing while the window closes."""
        return self._here.screen_stack[0].query(StatusLine) if self._here.is_running else ()

    def copy_to_clipboard(self, text: str) -> None:
        """`text` into the clipboard (OSC 52), nothing in it that a terminal would obey; says how much it was."""
        text = sanitise(text)
        super().copy_to_clipboard(text)  # type: ignore[misc]
        if text:
            self.say_below(f"copied {amount(text)}", SHORTLY)

    # --- links --------------------------------------------------------------------------------------------------

    def on_transcript_opened(self, event: Transcript.Opened) -> None:
        kind, target = event.target
        self._here.go(self._open_link, kind, target, group="link")

    async def _open_link(self, kind: str, target: str) -> None:
        app = self._here
        if kind == "file":
            path = target.removeprefix("./")
            if (app.session.workspace / path).is_file():
                app.prompt.add(f"@{path} ")
                app.prompt.focus()
            else:
                self.say_below(f"there is no file {path} here", SHORTLY)
        elif opening.open_address(target, app.session.env, app.session.workspace):
            self.say_below(f"opened {target}", SHORTLY)
        else:
            app.copy_to_clipboard(target)
            self.say_below(f"nothing here opens links: copied {target}", SHORTLY)

    # --- finding --------------------------------------------------------------------------------------------------

    def on_transcript_find_wanted(self, event: Transcript.FindWanted) -> None:
        event.stop()
        if event.step and self._find_bar is not None:
            self._here.go(self._step, event.step, group="find", exclusive=True)
        elif (bar := self._find_bar) is not None:
            bar.query_one("#find-text").focus()
        else:
            self._words, self._places, self._at = "", (), -1
            self._here.query_one("#chat").mount(FindBar(), after=self._here.transcript)

    @property
    def _find_bar(self) -> FindBar | None:
        try:
            return self._here.query_one(FindBar)
        except NoMatches:
            return None

    def on_find_bar_changed(self, event: FindBar.Changed) -> None:
        self._here.go(self._count, event.text, group="find", exclusive=True)

    def on_find_bar_step(self, event: FindBar.Step) -> None:
        if event.read:
            self._here.transcript.focus()
        self._here.go(self._step, event.step, group="find", exclusive=True)

    def on_find_bar_closed(self) -> None:
        self._leave_find()

    def on_transcript_find_left(self) -> None:
        self._leave_find()

    def _leave_find(self) -> None:
        app = self._here
        self._places, self._words, self._at = (), "", -1
        app.transcript.show_found(None)
        if (bar := self._find_bar) is not None:
            bar.remove()
        app.transcript.focus()

    async def _count(self, text: str) -> None:
        """Mark `text` wherever it stands and count it in the whole thread."""
        app = self._here
        self._words, self._at, self._row = text, -1, -1
        thread = app.session.thread
        app.transcript.show_found(phrase(text) if text else None)
        self._places = tuple(await app.session.views.within(thread.id, text)) if text and thread else ()
        self._say_found()

    def _say_found(self) -> None:
        bar = self._find_bar
        if bar is None:
            return
        total = sum(p.count for p in self._places)
        if not self._words:
            bar.say("")
        elif not total:
            bar.say("not in this thread")
        elif self._at < 0:
            messages = len(self._places)
            bar.say(f"{total:,} in {messages:,} message{'s' * (messages > 1)} · enter goes there")
        else:
            newer = len(self._places) - self._at
            bar.say(f"message {newer:,} of {len(self._places):,}, {total:,} in all · n older · N newer · esc")

    async def _step(self, step: int) -> None:
        """To the next line, or the next message, that has the words: older (1) or newer (-1), round the ends."""
        app, bar = self._here, self._find_bar
        if bar is not None and bar.text != self._words:
            await self._count(bar.text)
        if not self._places:
            return
        chat = app.transcript
        rows = self._rows() if self._at >= 0 else []
        if 0 <= self._row - step < len(rows):
            self._row -= step
        else:
            self._at = self._first() if self._at < 0 else (self._at - step) % len(self._places)
            place = self._places[self._at]
            if chat.document.index_of(place.message_id) is None:
                await app.load_older(place.index)
            rows = self._rows()
            self._row = len(rows) - 1 if step > 0 else 0
        if rows:
            chat.show_row(*rows[self._row])
        else:
            chat.jump(self._places[self._at].message_id)
        self._say_found()

    def _first(self) -> int:
        """The newest message with the words that does not stand below the screen."""
        chat = self._here.transcript
        for at in range(len(self._places) - 1, -1, -1):
            index = chat.document.index_of(self._places[at].message_id)
            if index is None or chat.document.top(index) < chat.scroll_offset.y + chat.size.height:
                return at
        return len(self._places) - 1

    def _rows(self) -> list[tuple[int, int]]:
        """The lines with the words of the message that is shown; what hides them is unfolded."""
        document, pattern = self._here.transcript.document, phrase(self._words)
        message_id = self._places[self._at].message_id
        if not (found := rows_with(document, message_id, pattern)):
            seek(document, message_id, pattern)
            found = rows_with(document, message_id, pattern)
        return found
