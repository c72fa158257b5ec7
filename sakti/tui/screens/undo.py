"""Preview an undo or redo before it is applied, and list the turns to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.getters import query_one

from sakti.actions import undo as words
from sakti.actions.values import Done
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, quote, sanitize_text, to_one_line
from sakti.tui.host import Host
from sakti.tui.palette import Palette
from sakti.tui.screens.lists import format_age
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.screens.text import DiffBlock
from sakti.tui.transcript.blocks import CardBlock, TextBlock
from sakti.tui.transcript.wrap import Line, fit_width, shorten
from sakti.tui.widgets.approval import GUARD_S
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.checkpoints.plan import PlanItem
    from sakti.agent.checkpoints.undoing import PastTurn, Undoing, UndoPreview, What
    from sakti.core.clock import Clock

with lazy_imports:
    from sakti.agent.checkpoints import undoing

RESULT_S = 8.0  # seconds for which the hint is shown
SCOPES: tuple[What, ...] = ("both", "conversation", "files")
REPLACES = "Your prompt is back; typing / replaces it."


class UndoScreen(Panel[frozenset[str] | None]):
    """Dismisses with the conflicting files to restore as well, or None to undo nothing."""

    AUTO_FOCUS = "#context-list"
    keys: ClassVar[Keys] = (
        ("y undo", "undo"),
        ("space keep or restore a conflict", "conflict"),
        ("↑↓ choose", ""),
        BACK,
    )
    HELP = "The effect of an undo on files. Files changed since then are kept unless you choose to restore them."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "undo", "Undo", priority=True, id="undo.yes"),
        Binding("n", "close", "Change nothing", priority=True, id="undo.no"),
        Binding("space", "conflict", "Conflict: keep the file, or restore it", priority=True, id="undo.conflict"),
    ]
    THREAD: ClassVar[str] = "continues before the turn; /redo restores it"
    files = query_one("#context-list", LineList)
    reader = query_one(Transcript)

    def __init__(self, preview: UndoPreview, clock: Clock) -> None:
        super().__init__(self.make_title(preview))
        self._preview, self._clock = preview, clock
        self._since = clock.monotonic()
        self._restored: set[str] = set()

    def make_title(self, preview: UndoPreview) -> str:
        if preview.completes is not None:
            return "Complete the last undo"
        turns = format_count(len(preview.turns), "turn")
        title = shorten(words.format_title(preview.turns[0]), 30)
        return f"Undo {turns} · {words.SCOPES[preview.what]} · from {quote(title)}"

    def list_keys(self) -> Keys:
        """Return the keys that apply to this preview."""
        act, conflict, choose, back = self.keys
        plan = self._preview.plan
        return (act, *((conflict,) if plan.conflicts else ()), choose if plan.rows else ("↑↓ scroll", ""), back)

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="context-body"):
            yield LineList(self._draw, id="context-list")
            yield Transcript()

    def on_mount(self) -> None:
        self._since = self._clock.monotonic()
        items = sorted(self._preview.plan.rows, key=lambda i: (not i.conflict, i.path))
        self.files.set_rows(items, cursor=0)
        self.files.display = bool(items)
        if not items:
            self.reader.focus()
        self.call_after_refresh(self._show)

    def _draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        item: PlanItem = row
        right = ""
        if item.conflict:
            right = " restore" if item.path in self._restored else " keep"
        style = palette.warn if item.conflict else palette.text
        room = max(4, width - len(right) - 3)
        name = Segment(fit_width(to_one_line(item.path, 300), room), style)
        return [[Segment(f"{words.ACTION_LETTERS[item.action]} ", palette.muted), name, Segment(right, palette.warn)]]

    @on(LineList.Moved, "#context-list")
    def _show_row(self, event: LineList.Moved) -> None:
        event.stop()
        self._show()

    @on(LineList.Opened, "#context-list")
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.reader.focus()

    def _show(self) -> None:
        preview, item = self._preview, self.files.current
        rows = [("files", preview.in_words())]
        if preview.what != "files":
            rows.append(("thread", self.THREAD))
            rows += [("undone", words.format_title(past)) for past in preview.turns]
        rows += [("not undone", f"{kind}: {names}") for kind, names in preview.remains.describe(5)]
        self.reader.document.clear()
        self.reader.document.append(CardBlock(title="What changes", rows=tuple(rows)))
        if item is not None:
            if item.conflict:
                text = f"{to_one_line(item.path, 100)} {item.conflict}: it is kept as it is, unless you restore it."
                self.reader.document.append(TextBlock(text=text, open=True, gap=True))
            self.reader.document.append(DiffBlock(diff=sanitize_text(preview.diffs.get(item.path, "")), gap=True))
        self.reader.show_top()

    def action_conflict(self) -> None:
        """Toggle between keeping and restoring a file that changed since then."""
        item = self.files.current
        if item is not None and item.conflict:
            self._restored ^= {item.path}
            self.files.set_rows(self.files.rows)

    def action_undo(self) -> None:
        """Confirm; a key typed for the prompt just before is ignored."""
        if self._clock.monotonic() - self._since >= GUARD_S:
            self.dismiss(frozenset(self._restored))


class RedoScreen(UndoScreen):
    """Preview of a redo, if files changed since the undo."""

    keys: ClassVar[Keys] = (
        ("y redo", "undo"),
        ("space keep or restore a conflict", "conflict"),
        ("↑↓ choose", ""),
        BACK,
    )
    HELP = "The effect of a redo on files. Files changed since the undo are kept unless you choose to restore them."
    THREAD: ClassVar[str] = "returns to the state before the undo"

    def make_title(self, preview: UndoPreview) -> str:
        return f"Redo · {words.SCOPES[preview.what]}"


class RewindScreen(ListPanel):
    """The turns of the thread, newest first; dismisses with the first turn to undo and the scope."""

    HELP = "Undo a turn and everything after it: messages, files, or both. A preview comes first."
    placeholder = "filter turns"
    empty = "no turn yet"
    keys: ClassVar[Keys] = (("enter preview", "open"), ("tab what", "what"), BACK)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "what", "Undo both, the messages or the files", priority=True, id="rewind.what"),
    ]

    def __init__(self, turns: Sequence[PastTurn], now: int) -> None:
        super().__init__("")
        self._turns, self._now = turns, now
        self._what = 0

    def on_mount(self) -> None:
        super().on_mount()
        self._update_title()

    def _update_title(self) -> None:
        what = " · ".join(f"[{w}]" if n == self._what else w for n, w in enumerate(SCOPES))
        self.set_title(f"Rewind to before:  {what}")

    def rows(self, text: str) -> list[PastTurn]:
        return [t for t in reversed(self._turns) if text.lower() in t.text.lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        past: PastTurn = row
        files = "undone" if past.undone else format_count(past.files, "file") if past.files else ""
        right = f"  {files}  {format_age(past.message.created_at, self._now)}"
        room = max(4, width - len(right))
        title = Segment(fit_width(words.format_title(past), room).ljust(room), palette.text)
        return [[title, Segment(right, palette.muted)]]

    def action_what(self) -> None:
        self._what = (self._what + 1) % len(SCOPES)
        self._update_title()

    def choose(self, row: Any) -> None:
        self.dismiss((row.index, SCOPES[self._what]))


async def choose_turn(host: Host, return_to_prompt: Callable[[str], None]) -> None:
    """Let the user choose a turn, then preview its undo; `return_to_prompt` puts its text into the prompt."""
    if host.session.thread is None:
        return
    undo = undoing.make_undoing(host.session)

    def preview_undo(result: tuple[int, What] | None) -> None:
        if result is not None:
            host.start_worker(_preview, host, return_to_prompt, undo, *result, group="undo", exclusive=True)

    host.push(RewindScreen(await undo.turns(), host.session.workspace.clock.now()), preview_undo)


async def _preview(host: Host, return_to_prompt: Callable[[str], None], found: Undoing, first: int, what: What) -> None:
    open_preview(host, return_to_prompt, found, await found.preview(what=what, first=first))


def open_preview(host: Host, return_to_prompt: Callable[[str], None], found: Undoing, preview: UndoPreview) -> None:
    """Preview an undo, and apply it if the user confirms."""
    if preview.empty:
        host.show_notice("There is nothing to undo.", title="Undo")
        return

    def run_undo(take: frozenset[str] | None) -> None:
        if take is not None:
            host.start_worker(_undo, host, return_to_prompt, found, preview, take, group="undo", exclusive=True)

    host.push(UndoScreen(preview, host.session.workspace.clock), run_undo)


def open_redo(host: Host, found: Undoing, preview: UndoPreview) -> None:
    """Preview a redo, and apply it if the user confirms."""

    def run_redo(take: frozenset[str] | None) -> None:
        if take is not None:
            host.start_worker(_redo, host, found, preview, take, group="undo", exclusive=True)

    host.push(RedoScreen(preview, host.session.workspace.clock), run_redo)


async def _redo(host: Host, found: Undoing, preview: UndoPreview, take: frozenset[str]) -> None:
    done = words.describe_result(preview, await found.redo(preview, take=take))
    host.announce(done.sentence, title=done.title)


async def _undo(
    host: Host, return_to_prompt: Callable[[str], None], found: Undoing, preview: UndoPreview, take: frozenset[str]
) -> None:
    result = await found.undo(preview, take=take)
    done = words.describe_result(preview, result)
    if not result.done.went_to:
        host.show_notice(done.sentence, title=done.title)
        return
    show_undone(host, return_to_prompt, done, result.prompt)


def show_undone(host: Host, return_to_prompt: Callable[[str], None], done: Done, prompt: str) -> None:
    """Describe a finished undo below the messages, and put the text of the turn into the prompt."""
    host.announce(done.sentence, title=done.title)
    host.set_hint(REPLACES, RESULT_S)
    return_to_prompt(prompt)
