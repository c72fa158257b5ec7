"""Draw the header (thread, model, modes) and the status line (activity, queue, keys)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from sakti.agent.reports.memory_report import format_context
from sakti.core.clock import Clock
from sakti.core.events import Event, McpServerChanged
from sakti.core.text import count_seconds, format_count, format_duration, to_one_line
from sakti.tui.activities import ActivityState, ActivityTracker
from sakti.tui.transcript.wrap import shorten

NOT_SAVED = "NOT SAVED"


class Header(Widget):
    """First line: thread, model, modes and branch. Untrusted text is sanitised when drawn.

    `not_saved`: the session is not saved. `memory` and `fresh`: the message window, and the number of observations not
    shown yet, while the panes are closed.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"header--name", "header--muted", "header--warn", "header--fresh"}

    thread_title: reactive[str] = reactive("")
    model: reactive[str] = reactive("")
    mode: reactive[str] = reactive("default")
    approval: reactive[str] = reactive("ask")
    branch: reactive[str] = reactive("")
    changed: reactive[int] = reactive(0)
    not_saved: reactive[bool] = reactive(False)
    memory: reactive[str] = reactive("")
    fresh: reactive[int] = reactive(0)

    def render(self) -> Text:
        memory = self._build_memory_text()
        width = self.size.width - memory.cell_len
        muted = self.get_component_rich_style("header--muted", partial=True)
        name = self.get_component_rich_style("header--name", partial=True)
        warn = self.get_component_rich_style("header--warn", partial=True)
        title = to_one_line(self.thread_title or "new thread", 200)
        right, git = self._build_facts(width)
        room = max(0, width - cell_len(right + git) - 4)
        text = Text(no_wrap=True, overflow="crop", end="")
        text.append(" sakti", name)
        label = shorten(f" ─ {title} ", room - 6) if room > 12 else ""
        text.append(label, muted if not self.thread_title else "")
        text.append("─" * max(0, width - 8 - cell_len(label) - cell_len(right + git)), muted)
        stands_out = NOT_SAVED if self.not_saved else "auto" if self.approval == "auto" else ""
        if stands_out and right.endswith(stands_out):
            text.append(f" {right.removesuffix(stands_out)}", muted).append(stands_out, warn)
        else:
            text.append(f" {right}", muted)
        text.append(f"{git} ", muted)
        text.truncate(max(0, width))
        text.append_text(memory)
        text.truncate(max(0, self.size.width))
        return text

    def _build_facts(self, width: int) -> tuple[str, str]:
        """Return the model with the modes, and the branch, as far as they fit."""
        git = self._describe_git()
        facts = [to_one_line(f, 60) for f in (self.model, self.mode, self.approval) if f]
        while facts and cell_len(" · ".join(facts) + git) > width * 2 // 3 - 8:
            facts.pop(1 if len(facts) > 2 else 0)
        right = " · ".join(facts)
        if cell_len(right + git) > width - 20:
            git = ""
        if self.not_saved:
            right = f"{right} · {NOT_SAVED}" if right else NOT_SAVED
        return (right, git) if right else (git.removeprefix(" ─ "), "")

    def _describe_git(self) -> str:
        branch = shorten(to_one_line(self.branch, 60), 24)
        changed = f" ±{self.changed}" if self.changed else ""
        return f" ─ {branch}{changed}" if branch else ""

    def _build_memory_text(self) -> Text:
        """Return the message window and the number of new observations; empty while the panes show them."""
        text = Text(no_wrap=True, end="")
        if self.memory or self.fresh:
            text.append(f"· {self.memory}".rstrip(), self.get_component_rich_style("header--muted", partial=True))
            new = f" ●{self.fresh} " if self.fresh else " "
            text.append(new, self.get_component_rich_style("header--fresh", partial=True))
        return text


# key, label, and the action that a click runs
KEYS = (
    ("^P", "palette", "app.command_palette"),
    ("F2", "memory", "screen.pane('memory')"),
    ("F3", "observations", "screen.pane('log')"),
    ("F4", "tasks", "screen.pane('tasks')"),
    ("F1", "help", "screen.help"),
)
# activities dropped, in this order, until the key that stops the activity fits
DROPPABLE = (
    *("confined", "label", "servers", "jobs", "queued", "goal", "clock", "limit", "context", "download", "vim"),
    *("sandbox", "activity"),
)
FIRST_KEYS = ("esc", "^C", "F1", "^P")  # keys shown first if room is scarce


def _fit_keys(keys: Sequence[tuple[str, str, str]], room: int) -> list[tuple[str, str, str]]:
    """Return the keys that fit, in order; help takes precedence over panes."""
    taken: list[tuple[str, str, str]] = []
    for key in sorted(keys, key=lambda k: FIRST_KEYS.index(k[0]) if k[0] in FIRST_KEYS else len(FIRST_KEYS)):
        room -= len(f"{key[0]} {key[1]}") + 3
        if room < 0:
            break
        taken.append(key)
    return [key for key in keys if key in taken]


WIDE = 120  # minimum columns for the reason why there is no sandbox


class BrowsedArea(Struct, frozen=True):
    """The browsed area, the key that leads back to the prompt, and the keys that act there.

    Each key has its Textual name, its display form and its description. The last key lists all keys; it is shown if
    not all others fit.
    """

    title: str
    back: str
    keys: tuple[tuple[str, str, str], ...]


def _name_keys_in(browsing: BrowsedArea, room: int) -> list[tuple[str, str, str]]:
    """Return the keys of an area that fit: all of them, or the first ones and the last."""
    widths = [3 + cell_len(f"{name} {what}") for _, name, what in browsing.keys]
    *keys, all_keys = browsing.keys
    if sum(widths[:-1]) <= room:
        return keys
    for count in range(len(keys), -1, -1):
        if sum(widths[:count]) + widths[-1] <= room:
            return [*keys[:count], all_keys]
    return []


class StatusLine(Widget):
    """Last line of the chat; its timer runs only while something is running.

    `browsing`: the pane that has the keys instead of the prompt. `approval`: the mode, and the key that changes it.
    `sandbox`: how commands are confined, in a word and in full. `not_saved`: the session is not saved. `vim`:
    the mode of the prompt if it has vim's keys. `context` in tokens, 0 if not known yet. `why`: the reason for the
    model, shown if there is room. `stops`: the activity that Esc would stop; `closes`: its first effect. `stopping`:
    one that was asked to stop and still runs. `covered`: a screen is open, which Esc closes first.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *("status--key", "status--muted", "status--busy", "status--warn", "status--danger")
    }

    browsing: reactive[BrowsedArea | None] = reactive(None)
    approval: reactive[tuple[str, str]] = reactive(("", ""))
    sandbox: reactive[tuple[str, str]] = reactive(("", ""))
    vim: reactive[str] = reactive("")
    context: reactive[int] = reactive(0)
    window: reactive[int] = reactive(0)
    queued: reactive[int] = reactive(0)
    not_saved: reactive[bool] = reactive(False)
    hint: reactive[str] = reactive("")
    why: reactive[str] = reactive("")
    stops: reactive[str] = reactive("")
    closes: reactive[str] = reactive("")
    stopping: reactive[str] = reactive("")
    covered: reactive[bool] = reactive(False)
    download: reactive[str] = reactive("")
    importing: reactive[str] = reactive("")
    jobs: reactive[int] = reactive(0)
    failed_servers: reactive[tuple[str, ...]] = reactive(())
    goal: reactive[str] = reactive("")

    def __init__(self, clock: Clock, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._now = clock.monotonic()  # time of the last tick or event
        self.ticked: Callable[[], object] = bool  # advances the other clocks of the chat
        self._activity = ActivityTracker()
        self._estimated = False  # whether part of the context is estimated
        self._work: tuple[float, str] | None = None  # start time and name
        self._waiting: float | None = None  # seconds for another window
        self._timer: Timer | None = None
        self._click_areas: list[tuple[int, int, str]] = []  # clickable areas: first cell, end cell, action

    def handle_event(self, event: Event) -> None:
        """Update the activity and its duration from an event."""
        if self._activity.handle_event(event, self._clock.monotonic()):
            self._update_clock()

    def handle_server(self, event: McpServerChanged) -> None:
        """Name an MCP server for as long as it has failed."""
        others = tuple(name for name in self.failed_servers if name != event.name)
        self.failed_servers = (*others, event.name) if event.state == "failed" else others

    def show_context(self, tokens: int, *, about: bool = False) -> None:
        """Show the tokens of the next request; `about`: some of them are estimated."""
        if (tokens, about) != (self.context, self._estimated):
            self.context, self._estimated = tokens, about
            self.refresh()

    def show_work(self, what: str) -> None:
        """Show work outside of a turn that Esc stops; "" when it has ended."""
        self._work = (self._clock.monotonic(), what) if what else None
        self._update_clock()

    def show_wait(self, seconds: float | None) -> None:
        """Show how long another window's write has been awaited; None: the wait is over."""
        self._waiting = seconds
        self.refresh()

    def _update_clock(self) -> None:
        self._now = self._clock.monotonic()
        needed = self._activity.state is not None or self._work is not None
        if needed and self._timer is None:
            self._timer = self.set_interval(1.0, self.tick)
        elif not needed and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.refresh()

    def tick(self) -> None:
        """Advance all clocks of the chat at the same moment."""
        self._now = self._clock.monotonic()
        self.refresh()
        self.ticked()

    def _find_style(self, name: str) -> Style:
        return self.get_component_rich_style(f"status--{name}", partial=True)

    def _append_area(self, browsing: BrowsedArea, text: Text) -> Text:
        """Append the browsed area and the key that leaves it to `text`, then a hint or its keys."""
        key = self._find_style("key")
        muted = self._find_style("muted")
        text.append(f" {browsing.title} ", key + Style(reverse=True))
        start = cell_len(text.plain)
        text.append(f" {browsing.back}", key).append(" prompt", muted)
        self._click_areas = [(start, cell_len(text.plain), "screen.interrupt")]
        if self.hint:
            room = max(0, self.size.width - cell_len(text.plain) - 4)
            warn = self._find_style("warn")
            return text.append(" · ", muted).append(shorten(to_one_line(self.hint, 200), room), warn)
        for pressed, name, what in _name_keys_in(browsing, self.size.width - cell_len(text.plain) - 1):
            start = cell_len(text.plain) + 3
            self._click_areas.append((start, start + cell_len(f"{name} {what}"), f"app.simulate_key({pressed!r})"))
            text.append(" · ", muted).append(name, key).append(f" {what}", muted)
        return text

    def _get_approval_style(self, warn: Style, muted: Style) -> Style:
        """Return the style of the approval mode, more striking for less strict modes."""
        if self.approval[0] == "full":
            return self._find_style("danger")
        return warn if self.approval[0] == "auto" else muted

    def _fit_parts(self, state: ActivityState | None, room: int) -> list[tuple[str, Style]]:
        """Return the activities, without those of `DROPPABLE` that do not fit into `room` cells."""
        for count in range(len(DROPPABLE)):
            parts = self._list_parts(state, DROPPABLE[:count])
            if sum(3 + cell_len(part) for part, _ in parts) <= room:
                return parts
        return self._list_parts(state, DROPPABLE)

    def _list_parts(self, state: ActivityState | None, dropped: Sequence[str] = ()) -> list[tuple[str, Style]]:
        """Return the running activities as pieces of text."""
        activity = self._describe_activity(state, with_clock="clock" not in dropped)
        confined = self.sandbox[0] == self.sandbox[1]
        pieces = (
            ("", NOT_SAVED if self.not_saved else "", "danger"),
            ("confined" if confined else "sandbox", self._name_sandbox(), "muted" if confined else "warn"),
            ("vim", self.vim, "key"),
            ("activity", activity, _get_activity_style(state)),
            ("context", self._describe_context(dropped), "muted"),
            ("download", self.download, "busy"),
            ("importing", self.importing, "busy"),
            ("goal", self.goal, "muted"),
            ("servers", self._name_failed_servers(), "warn"),
            ("jobs", format_count(self.jobs, "job") if self.jobs else "", "muted"),
            ("queued", f"{self.queued} queued" if self.queued else "", "busy"),
        )
        shows = [(text, style) for name, text, style in pieces if text and name not in dropped]
        return [(text, self._find_style(style)) for text, style in shows]

    def _name_failed_servers(self) -> str:
        return f"mcp {', '.join(self.failed_servers)} failed" if self.failed_servers else ""

    def _describe_context(self, dropped: Sequence[str]) -> str:
        """Return the tokens of the next request and the window; "" before they are known."""
        text = format_context(self.context, self.window, about=self._estimated) if self.context else ""
        text = re.sub(r"( of |,).*", "", text) if "limit" in dropped else text
        return text.removeprefix("context ") if "label" in dropped else text

    def _describe_activity(self, state: ActivityState | None, *, with_clock: bool) -> str:
        if self.stopping or state is None:
            return f"stopping {self.stopping}" if self.stopping else ""
        clock = f" {self._format_clock(state.since)}" if with_clock else ""
        return shorten(state.text, max(8, self.size.width // 3)) + clock.removesuffix(" 0 s")

    def _format_clock(self, since: float) -> str:
        """Return the time since a moment in the format of the transcript, such as "1 m 02 s"."""
        return format_duration(count_seconds(since, self._now) * 1000)

    def _name_sandbox(self) -> str:
        word, text = self.sandbox
        return shorten(to_one_line(text, 200), self.size.width // 3) if word and self.size.width >= WIDE else word

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the clicked key."""
        for start, end, action in self._click_areas:
            if start <= event.x < end:
                await self.run_action(action)

    def render(self) -> Text:
        text = Text(no_wrap=True, overflow="crop", end="")
        if self.browsing is not None and not self.covered:
            return self._append_area(self.browsing, text)
        text.append(" ")
        state = self._activity.state
        if not self._append_notice(state, text):
            self._append_parts(state, text)
            self._append_reason(text)
        return text

    @property
    def _first_escape(self) -> str:
        """Return the action of Esc that precedes stopping; "" if it stops an activity now."""
        return "back" if self.covered else self.closes

    def _name_escape(self) -> str:
        return self._first_escape or (f"stop {self.stops}" if self.stops else "")

    def _append_notice(self, state: ActivityState | None, text: Text) -> bool:
        """Append a wait, a retry, a hint or work outside of a turn, which are shown alone; False if none."""
        width = self.size.width
        muted, busy, warn = self._find_style("muted"), self._find_style("busy"), self._find_style("warn")
        retry = self._retry_of(state)
        work = None if self.stopping else self._work
        stops = self._waiting is None and (retry is not None or work is not None)
        self._click_areas = [(0, width, "screen.interrupt")] if stops else []
        if self._waiting is not None:
            wait = format_duration(round(self._waiting) * 1000)
            text.append(shorten(f"waiting for another window · {wait}", max(8, width - 2)), warn)
        elif retry is not None:
            wait = format_duration(max(0, round(retry.since - self._clock.monotonic())) * 1000)
            text.append(shorten(f"retrying in {wait}  {retry.text}", max(8, width - 20)), warn)
            text.append(f" · esc {self._first_escape or 'gives up'}", muted)
        elif self.hint:
            text.append(shorten(to_one_line(self.hint, 200), max(0, width - 2)), warn)
        elif work is not None:
            since, what = work
            took = f" · {self._format_clock(since)}"
            text.append(shorten(what, max(8, width - len(took) - len(self.stops) - 14)), busy).append(took, busy)
            text.append(f" · esc {self._name_escape()}", muted)
        else:
            return False
        return True

    def _retry_of(self, state: ActivityState | None) -> ActivityState | None:
        """Return `state` if it is a retry that is not being stopped."""
        return state if state is not None and state.kind == "retrying" and not self.stopping else None

    def _append_parts(self, state: ActivityState | None, text: Text) -> None:
        """Append the approval mode, the activities and the keys that fit."""
        width = self.size.width
        key, muted, warn = self._find_style("key"), self._find_style("muted"), self._find_style("warn")
        if self.approval[0]:
            self._click_areas.append((1, 1 + len(" ".join(self.approval)), "screen.cycle_approval"))
            text.append(self.approval[0], self._get_approval_style(warn, muted))
            text.append(f" {self.approval[1]}", key)
        escape = self._name_escape()
        stop = ("esc", escape, "screen.interrupt") if escape else ("^C", "quit", "screen.stop")
        room = width - cell_len(text.plain) - 1
        parts = self._fit_parts(state, room - len(f" · esc {escape}")) if escape else self._list_parts(state)
        for number, (part, style) in enumerate(parts):
            text.append(" · " if number or self.approval[0] else "", muted).append(part, style)
        for name, what, action in _fit_keys((stop, *KEYS), width - cell_len(text.plain) - 1):
            piece = f"{name} {what}"
            text.append(" · " if text.plain.strip() else "", muted)
            start = cell_len(text.plain)
            self._click_areas.append((start, start + len(piece), action))
            text.append(name, key).append(f" {what}", muted)

    def _append_reason(self, text: Text) -> None:
        """Append the reason for the model at the right end if there is room."""
        muted = self._find_style("muted")
        room = self.size.width - cell_len(text.plain) - 3
        if self.why and cell_len(self.why) <= room:
            text.append(" " * (room - cell_len(self.why) + 2)).append(self.why, muted)


def _get_activity_style(state: ActivityState | None) -> str:
    return "warn" if state is not None and state.kind == "waiting" else "busy"


class Chip(Static):
    """`key` and a text; a click runs `action` of its screen. `behind`: a dot precedes it."""

    DEFAULT_CSS = """
    Chip { width: auto; height: 1; margin-right: 2; color: $sakti-muted; }
    Chip:hover { background: $panel; color: $foreground; }
    Chip.-on { color: $sakti-agent; text-style: bold; }
    """

    def __init__(self, key: str, text: str, action: str, *, behind: bool = False, id: str | None = None) -> None:
        super().__init__(f"{'· ' if behind else ''}{key} {text}", id=id, markup=False)
        self._key, self._action = key, action

    def set_text(self, text: str, *, on: bool) -> None:
        """Set the displayed value; `on`: it differs from the default. `text` is safe to show."""
        self.update(f"{self._key} {text}")
        self.set_class(on, "-on")

    async def on_click(self) -> None:
        await self.run_action(self._action)
