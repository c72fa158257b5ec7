"""Find words in the open thread: the bar below the transcript, and moving between matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from sakti.core.text import compile_phrase, format_count
from sakti.tui.chat.thread_view import ThreadView
from sakti.tui.host import Host
from sakti.tui.transcript.selection import find_best_match, find_rows
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.store.threads.messages import MessageMatch


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
        """The search text changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Step(Message):
        """Go to the next older (1) or newer (-1) match; `read`: also focus the conversation."""

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

    def show_status(self, text: str) -> None:
        """Show `text`, which is safe to show."""
        self.query_one("#find-count", Static).update(text)

    def open(self) -> None:
        """Show the empty bar and focus it at once: the next key may already be there."""
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
        self._matches: tuple[MessageMatch, ...] = ()  # messages with a match, oldest first
        self._words = ""
        self._match_index = -1  # index of the message shown; -1: none yet
        self._row_index = -1  # index of the line among its matching lines

    def open(self, step: int = 0) -> None:
        """Open the bar, or focus it; with `step` go to the next match."""
        if step and self.bar.display:
            self.step(step)
        elif self.bar.display:
            self.bar.screen.set_focus(self.bar.query_one(Input))
        elif self.bar.is_attached:
            self._words, self._matches, self._match_index = "", (), -1
            self.bar.open()

    def search(self, text: str) -> None:
        """Search the thread for `text`."""
        self._host.start_worker(self._count, text, group="find", exclusive=True)

    def step(self, step: int, *, read: bool = False) -> None:
        """Go to the next older (1) or newer (-1) match; `read`: also focus the conversation."""
        if read:
            self.bar.screen.set_focus(self._transcript)
        self._host.start_worker(self._step, step, group="find", exclusive=True)

    def close(self) -> bool:
        """Close the bar and unmark everything; False if it was not open."""
        self._matches, self._words, self._match_index = (), "", -1
        self._transcript.mark_matches(None)
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
        self._words, self._match_index, self._row_index = text, -1, -1
        thread = session.thread
        self._transcript.mark_matches(compile_phrase(text) if text else None)
        self._matches = tuple(await session.views.within(thread.id, text)) if text and thread else ()
        self._show_count()

    def _show_count(self) -> None:
        bar = self.bar
        total = sum(p.count for p in self._matches)
        if not self._words:
            bar.show_status("")
        elif not total:
            bar.show_status("no match in this thread")
        elif self._match_index < 0:
            messages = len(self._matches)
            bar.show_status(f"{total:,} in {format_count(messages, 'message')} · enter goes there")
        else:
            newer = len(self._matches) - self._match_index
            bar.show_status(f"message {newer:,} of {len(self._matches):,}, {total:,} in all · n older · N newer · esc")

    async def _step(self, step: int) -> None:
        """Go to the next older (1) or newer (-1) line or message with a match, wrapping around."""
        if self.bar.display and self.bar.text != self._words:
            await self._count(self.bar.text)
        if not self._matches:
            return
        chat = self._transcript
        rows = self._find_match_rows() if self._match_index >= 0 else []
        if 0 <= self._row_index - step < len(rows):
            self._row_index -= step
        else:
            self._match_index = (
                self._find_first_match() if self._match_index < 0 else (self._match_index - step) % len(self._matches)
            )
            place = self._matches[self._match_index]
            if chat.document.index_of(place.message_id) is None:
                await self._view.load_older(place.index)
            rows = self._find_match_rows()
            self._row_index = len(rows) - 1 if step > 0 else 0
        if rows:
            chat.show_row(*rows[self._row_index])
        else:
            chat.jump(self._matches[self._match_index].message_id)
        self._show_count()

    def _find_first_match(self) -> int:
        """Return the index of the newest message with a match, ignoring messages below the screen."""
        chat = self._transcript
        for at in range(len(self._matches) - 1, -1, -1):
            index = chat.document.index_of(self._matches[at].message_id)
            if index is None or chat.document.top(index) < chat.scroll_offset.y + chat.size.height:
                return at
        return len(self._matches) - 1

    def _find_match_rows(self) -> list[tuple[int, int]]:
        """List the matching lines of the current message, unfolding blocks that hide them."""
        document, pattern = self._transcript.document, compile_phrase(self._words)
        message_id = self._matches[self._match_index].message_id
        if not (rows := find_rows(document, message_id, pattern)):
            find_best_match(document, message_id, pattern)
            rows = find_rows(document, message_id, pattern)
        return rows
