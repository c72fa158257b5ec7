"""The last line: what goes on now, what is queued, the keys that matter."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from sakti.core.clock import Clock
from sakti.core.text import count_k, one_line
from sakti.tui.transcript.wrap import shorten

# key, what it does, and the action that a click on it runs
KEYS = (
    ("^P", "palette", "app.command_palette"),
    ("F2", "memory", "screen.pane('memory')"),
    ("F3", "log", "screen.pane('log')"),
    ("F4", "tasks", "screen.pane('tasks')"),
    ("F1", "help", "screen.help"),
)


class StatusLine(Widget):
    """`context` in tokens (0: not known yet), `why` this model answers, shown where there is room.

    Its timer runs only while something is under way.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"status--key", "status--muted", "status--busy", "status--warn"}

    context: reactive[int] = reactive(0)
    window: reactive[int] = reactive(0)
    queued: reactive[int] = reactive(0)
    hint: reactive[str] = reactive("")
    why: reactive[str] = reactive("")

    def __init__(self, clock: Clock, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._busy_since: float | None = None
        self._retry: tuple[float, str] | None = None  # when, why
        self._work: tuple[float, str] | None = None  # since when, what
        self._waiting: float | None = None  # seconds for another window
        self._timer: Timer | None = None
        self._spots: list[tuple[int, int, str]] = []  # from cell, to cell: the action of what stands there

    def busy(self, on: bool) -> None:
        """A turn is under way."""
        self._busy_since = (self._busy_since or self._clock.monotonic()) if on else None
        if not on:
            self._retry = None
        self._tick_while_needed()

    def work(self, what: str) -> None:
        """Something beside a turn is waited for, which Esc ends; empty: no longer."""
        self._work = (self._clock.monotonic(), what) if what else None
        self._tick_while_needed()

    def waiting(self, seconds: float | None) -> None:
        """Another window writes to the database and is waited for; None: no longer."""
        self._waiting = seconds
        self.refresh()

    def retry(self, delay: float, attempt: int, limit: int, reason: str) -> None:
        """Count down to the next attempt, `delay` seconds from now."""
        self._retry = (self._clock.monotonic() + delay, f"{attempt}/{limit} · {one_line(reason, 120)}")
        self._tick_while_needed()

    def going_on(self) -> None:
        """The retry is over: something came."""
        if self._retry is not None:
            self._retry = None
            self.refresh()

    def _tick_while_needed(self) -> None:
        needed = self._busy_since is not None or self._work is not None
        if needed and self._timer is None:
            self._timer = self.set_interval(1.0, self.refresh)
        elif not needed and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.refresh()

    async def on_click(self, event: events.Click) -> None:
        """A key that is clicked does what it does when it is pressed."""
        for start, end, action in self._spots:
            if start <= event.x < end:
                await self.run_action(action)

    def render(self) -> Text:
        width = self.size.width
        key = self.get_component_rich_style("status--key", partial=True)
        muted = self.get_component_rich_style("status--muted", partial=True)
        busy = self.get_component_rich_style("status--busy", partial=True)
        warn = self.get_component_rich_style("status--warn", partial=True)
        text = Text(no_wrap=True, overflow="crop", end="")
        text.append(" ")
        if self._waiting is not None:
            self._spots = []
            text.append(shorten(f"waiting for another window · {self._waiting:.0f}s", max(8, width - 2)), warn)
            return text
        waits = self._retry is not None or self._work is not None
        self._spots = [(0, width, "screen.interrupt")] if waits else []
        if self._retry is not None:
            left = max(0, round(self._retry[0] - self._clock.monotonic()))
            text.append(shorten(f"retry in {left}s  {self._retry[1]}", max(8, width - 20)), warn)
            text.append(" · esc gives up", muted)
            return text
        if self.hint:
            text.append(shorten(one_line(self.hint, 200), max(0, width - 2)), warn)
            return text
        if self._work is not None:
            since, what = self._work
            took = f" · {int(self._clock.monotonic() - since)}s"
            text.append(shorten(what, max(8, width - len(took) - 14)), busy).append(took, busy)
            text.append(" · esc stops", muted)
            return text
        parts: list[tuple[str, object]] = []
        if self._busy_since is not None:
            parts.append((f"working {int(self._clock.monotonic() - self._busy_since)}s", busy))
        if self.context:
            of = f" / {count_k(self.window)}" if self.window else ""
            parts.append((f"{count_k(self.context)}{of} ctx", muted))
        if self.queued:
            parts.append((f"{self.queued} queued", busy))
        for number, (part, style) in enumerate(parts):
            text.append(" · " if number else "", muted).append(part, style)  # pyright: ignore[reportArgumentType]
        busy_now = self._busy_since is not None
        for name, what, action in (("^C", "stop" if busy_now else "quit", "screen.stop"), *KEYS):
            piece = f"{name} {what}"
            if cell_len(text.plain) + len(piece) + 4 > width:
                break
            text.append(" · " if text.plain.strip() else "", muted)
            start = cell_len(text.plain)
            self._spots.append((start, start + len(piece), action))
            text.append(name, key).append(f" {what}", muted)
        room = width - cell_len(text.plain) - 3
        if self.why and cell_len(self.why) <= room:
            text.append(" " * (room - cell_len(self.why) + 2)).append(self.why, muted)
        return text
