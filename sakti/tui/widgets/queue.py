"""Show messages queued while the agent works; a click or ctrl+x takes one back, Esc all."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from sakti.core.text import one_line
from sakti.tui.transcript.wrap import shorten

SHOWN = 4


class QueueView(Widget, can_focus=False):
    """One line a message; × takes it back into the prompt."""

    class Removed(Message):
        """Take message `index` back."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    queued: reactive[tuple[str, ...]] = reactive((), layout=True)

    def watch_queued(self, queued: tuple[str, ...]) -> None:
        self.display = bool(queued)
        self.styles.height = min(len(queued), SHOWN) or 1

    def render(self) -> Text:
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, queued in enumerate(self.queued[:SHOWN]):
            last = number == SHOWN - 1 and len(self.queued) > SHOWN
            line = f"and {len(self.queued) - SHOWN + 1} more" if last else one_line(queued, 300)
            sign = "  " if last else "× "
            text.append(("\n" if number else "") + sign + shorten(f"queued: {line}", max(4, self.size.width - 2)))
        return text

    def on_click(self, event: events.Click) -> None:
        if event.y < min(len(self.queued), SHOWN):
            self.post_message(self.Removed(event.y))
