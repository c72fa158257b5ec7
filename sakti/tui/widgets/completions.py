"""Lists above the prompt that never take the focus: queued messages and completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from sakti.actions.line import MAX_SHOWN, Choice
from sakti.core.text import to_one_line
from sakti.tui.transcript.wrap import fit_width, shorten


class Completions(Widget, can_focus=False):
    """Up to eight choices, one of them selected."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"completions--chosen", "completions--hint"}

    class Picked(Message):
        """A choice was clicked."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices: list[Choice] = []
        self.index = 0
        self.display = False

    def show(self, choices: Sequence[Choice]) -> None:
        """Offer `choices`; an empty list hides the widget."""
        if list(choices[:MAX_SHOWN]) != self.choices:
            self.choices, self.index = list(choices[:MAX_SHOWN]), 0
        self.display = bool(self.choices)
        self.styles.height = len(self.choices) or 1
        self.refresh()

    def move(self, step: int) -> None:
        if self.choices:
            self.index = (self.index + step) % len(self.choices)
            self.refresh()

    @property
    def current(self) -> Choice | None:
        return self.choices[self.index] if self.display and self.choices else None

    def render(self) -> Text:
        width = self.size.width
        chosen = self.get_component_rich_style("completions--chosen")
        hint = self.get_component_rich_style("completions--hint", partial=True)
        label = min(max((len(c.label) for c in self.choices), default=0) + 2, max(12, width * 2 // 3))
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, choice in enumerate(self.choices):
            if number:
                text.append("\n")
            if choice.hint:
                line = Text(" " + fit_width(choice.label, label))
                line.append(fit_width(choice.hint, max(0, width - label - 1)), hint)
            else:
                line = Text(" " + fit_width(shorten(choice.label, width - 2), max(0, width - 1)))
            if number == self.index:
                line.stylize(chosen)
            text.append_text(line)
        return text

    def on_click(self, event: events.Click) -> None:
        if 0 <= event.y < len(self.choices):
            self.index = event.y
            self.post_message(self.Picked())


QUEUE_LINES = 4


class QueueView(Widget, can_focus=False):
    """Queued messages, one per line; × returns one to the prompt."""

    class Removed(Message):
        """Take message `index` back."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    queued: reactive[tuple[str, ...]] = reactive((), layout=True)

    def watch_queued(self, queued: tuple[str, ...]) -> None:
        self.display = bool(queued)
        self.styles.height = min(len(queued), QUEUE_LINES) or 1

    def render(self) -> Text:
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, queued in enumerate(self.queued[:QUEUE_LINES]):
            last = number == QUEUE_LINES - 1 and len(self.queued) > QUEUE_LINES
            line = f"and {len(self.queued) - QUEUE_LINES + 1} more" if last else to_one_line(queued, 300)
            sign = "  " if last else "× "
            text.append(("\n" if number else "") + sign + shorten(f"queued: {line}", max(4, self.size.width - 2)))
        return text

    def on_click(self, event: events.Click) -> None:
        if event.y < min(len(self.queued), QUEUE_LINES):
            self.post_message(self.Removed(event.y))
