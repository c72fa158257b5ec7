"""Card of a side question: the question, and its answer as it streams."""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sakti.core.events import SideQuestion
from sakti.core.text import one_line, sanitise
from sakti.tui.host import host_of
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, Span, indent, plain_lines, shorten, wrap
from sakti.tui.widgets.approval import SHARE

_STATES = {"answering": "answering …", "stopped": "stopped", "failed": "no answer", "answered": ""}


def lay_out_aside(
    question: str, text: str, state: str, width: int, palette: Palette, height: int, start: int
) -> tuple[list[Line], int]:
    """Lay out a side question, at most `height` lines, its answer from line `start` on.

    Returns the lines, and the largest start.
    """
    room = max(4, width - 2)
    head: list[Line] = [
        [Segment("btw ", palette.heading), Segment(shorten(one_line(question, 300), max(1, room - 4)), palette.bold)]
    ]
    keys = wrap(_keys(state, palette), room)
    style = palette.bad if state == "failed" else palette.text
    rows = plain_lines(sanitise(text).strip(), style, room) if text.strip() else []
    free = max(1, height - len(head) - len(keys))
    last = max(0, len(rows) - free)
    at = min(start, last)
    return indent([*head, *rows[at : at + free], *keys], Segment("┃ ", palette.agent)), last


def _keys(state: str, palette: Palette) -> list[Span]:
    spans: list[Span] = [(f"{_STATES[state]}  ", palette.muted)] if _STATES[state] else []
    named = (("esc", "Close"), ("y", "Copy"), ("^O", "Into the prompt"), ("↑↓", "Scroll"))
    for number, (key, what) in enumerate(named):
        spans += [(" · " if number else "", palette.muted), (f"{key} ", palette.agent), (what, palette.muted)]
    return spans


class AsideView(Widget, can_focus=True):
    """Draws one side question and takes the keys while it has the focus."""

    HELP = "The answer to /btw. Esc closes it, y copies it, ctrl+o puts it into the prompt, up and down scroll."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "use('copy')", "Copy the answer", show=False, id="aside.copy"),
        Binding("ctrl+o", "use('prompt')", "Put the answer into the prompt", show=False, id="aside.prompt"),
        Binding("up", "scroll_by(-1)", "Scroll up", show=False, id="aside.up"),
        Binding("down", "scroll_by(1)", "Scroll down", show=False, id="aside.down"),
        Binding("pageup", "scroll_by(-10)", "Scroll a page up", show=False, id="aside.page-up"),
        Binding("pagedown", "scroll_by(10)", "Scroll a page down", show=False, id="aside.page-down"),
    ]

    class AnswerUsed(Message):
        """Copy the answer, or put it into the prompt."""

        def __init__(self, text: str, how: Literal["copy", "prompt"]) -> None:
            super().__init__()
            self.text, self.how = text, how

    question = ""
    text = ""
    state = "answered"
    start: int | None = None  # first line of the answer that is shown; None: its end is followed

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.display = False

    def hear(self, event: SideQuestion) -> None:
        """Show a question, the next piece of its answer, or its end."""
        if not self.display or event.question != self.question or (event.state == "answering" and not event.text):
            self.question, self.text, self.start = event.question, "", None
            self.display = True
        self.state = event.state
        if event.state == "answering":
            self.text += event.text
        elif event.text:
            self.text = event.text
        self.refresh(layout=True)

    def close(self) -> bool:
        """Close the card; false if it is not open."""
        was_open, self.display = bool(self.display), False
        return was_open

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._layout(width)[0])

    def _layout(self, width: int) -> tuple[list[Line], int]:
        host = host_of(self)
        height = max(3, int((host.size.height - 4) * SHARE))
        start = 1 << 30 if self.start is None else self.start
        return lay_out_aside(self.question, self.text, self.state, max(4, width), host.palette, height, start)

    def render_line(self, y: int) -> Strip:
        lines = self._layout(self.size.width)[0]
        base = self.rich_style
        line: Line = lines[y] if y < len(lines) else []
        return Strip(Segment.apply_style(line, base)).crop_extend(0, self.size.width, base)

    def action_use(self, how: Literal["copy", "prompt"]) -> None:
        if self.text.strip():
            self.post_message(self.AnswerUsed(self.text.strip(), how))

    def action_scroll_by(self, lines: int) -> None:
        last = self._layout(self.size.width)[1]
        at = (last if self.start is None else self.start) + lines
        self.start = None if at >= last else max(0, at)
        self.refresh()
