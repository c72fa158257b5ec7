"""Show the task board on its own screen: four columns, refreshed from the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.getters import query_one
from textual.widgets import Input, Static

from sakti.actions.tasks import changes
from sakti.core.errors import TaskError
from sakti.core.text import format_count, to_one_line
from sakti.tui.host import STYLES
from sakti.tui.palette import Palette
from sakti.tui.panes.tasks import BoardChanged, describe_blockers, name_worker
from sakti.tui.screens import task_card as task_cards
from sakti.tui.screens.panel import BACK, KeyLine, Keys, Panel
from sakti.tui.transcript.wrap import Line, join_lines, shorten, wrap
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import AskLine

if TYPE_CHECKING:
    from sakti.tasks.queries import Board, BoardTask

POLL_S = 1.0  # seconds between checks for changes by other processes; those made here show at once
COLUMNS = {"ready": "Ready", "blocked": "Blocked", "in_progress": "In progress", "closed_today": "Done today"}
EMPTY = {"ready": "No tasks. n adds one."}
# The actions on a card, by column, with their labels.
ACTIONS = {
    "ready": ("claim", "close", "depend", "tree", "delete", "card"),
    "blocked": ("depend", "close", "tree", "delete", "card"),
    "in_progress": ("release", "close", "depend", "tree", "delete", "card"),
    "closed_today": ("reopen", "tree", "delete", "card"),
}
LABELS = {
    "claim": ("c claim", "claim"),
    "release": ("r release", "release"),
    "close": ("x close", "ask('close')"),
    "reopen": ("o reopen", "reopen_task"),
    "depend": ("d waits for", "ask('depend')"),
    "tree": ("t tree", "tree"),
    "delete": ("del delete", "delete"),
    "card": ("enter open", "card"),
    "create": ("n new", "ask('create')"),
    "undo": ("u undo", "undo"),
    "filter": ("/ filter", "ask('filter')"),
    "left": ("← →", "column(1)"),
}
ALWAYS = ("create", "undo", "filter", "left")
FORCEABLE = ("release", "close", "dep", "delete")  # also available for a task that another chat has claimed
PROMPTS = {
    "filter": "filter by text",
    "force": "type y and press Enter to do it anyway",
    "create": "title of the new task",
    "close": "summary: what was done, in which files",
    "depend": "task to be done first: its handle, or a part of its title",
}
MATCHES = 5  # maximum number of matching tasks to choose from


class BoardScreen(Panel[None]):
    """Columns of cards; an input line below takes a title, a summary, a handle or a filter."""

    keys: ClassVar[Keys] = (*(LABELS[n] for n in ALWAYS), BACK)
    HELP = "The task board. Arrow keys move, Enter opens a task; the lines below list the other keys."
    CSS_PATH: ClassVar[Any] = [*Panel.CSS_PATH, STYLES / "board.tcss"]
    AUTO_FOCUS = "#board-ready"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "column(-1)", "Left", show=False, id="board.left"),
        Binding("right,l", "column(1)", "Right", show=False, id="board.right"),
        Binding("n", "ask('create')", "New", show=False, priority=True, id="board.create"),
        Binding("c", "claim", "Claim", show=False, id="board.claim"),
        Binding("r", "release", "Release", show=False, id="board.release"),
        Binding("x", "ask('close')", "Close with a summary", show=False, priority=True, id="board.close"),
        Binding("o", "reopen_task", "Reopen", show=False, id="board.reopen"),
        Binding("d", "ask('depend')", "Add a dependency", show=False, priority=True, id="board.depend"),
        Binding("t", "tree", "Dependency tree", show=False, id="board.tree"),
        Binding("delete,backspace", "delete", "Delete", show=False, id="board.delete"),
        Binding("u", "undo", "Undo the last change", show=False, id="board.undo"),
        Binding("slash", "ask('filter')", "Filter", show=False, priority=True, id="board.filter"),
    ]
    line = query_one("#board-input", AskLine)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for `ask` while the input line is open: its keys are text there."""
        return super().check_action(action, parameters) and not (action == "ask" and self.line.question)

    def __init__(self) -> None:
        super().__init__("Tasks")
        self._version = self._minute = -1  # the board's version and the minute last drawn
        self._board: Board | None = None
        self._filter = ""
        self._result = ""  # result of the last change
        self._card: BoardTask | None = None
        self._back: LineList | None = None
        self._refused: tuple[str, tuple[str, ...]] = ("", ())  # refused change that force would allow
        self._matches: list[BoardTask] = []  # tasks that match the last title, to choose from by number

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="board-columns"):
            for name in COLUMNS:
                with Vertical(classes="board-column"):
                    yield Static(COLUMNS[name], id=f"board-title-{name}", classes="board-title", markup=False)
                    yield LineList(
                        _make_drawer(name, self._get_time), id=f"board-{name}", empty=EMPTY.get(name, "none")
                    )
        yield AskLine(id="board-input")
        yield KeyLine((), id="board-actions")

    def on_mount(self) -> None:
        self.set_interval(POLL_S, self.reload_soon)
        self.reload_soon()

    @on(events.DescendantFocus)
    def _show_actions(self) -> None:
        """Show the keys of the card at the cursor; none while the input line is open."""
        can = ACTIONS[self._name_of(self.column)] if self.column.current is not None else ()
        actions = self.query_one("#board-actions", KeyLine)
        actions.show([LABELS[n] for n in can])
        actions.display = not self.line.question

    @on(LineList.Moved)
    def _follow_cursor(self, event: LineList.Moved) -> None:
        event.stop()
        self._show_actions()

    def _get_time(self) -> int:
        return self.host.session.workspace.clock.now()

    def _list(self, name: str) -> LineList:
        return self.query_one(f"#board-{name}", LineList)

    # --- display ----------------------------------------------------------------------------------------------

    def reload_soon(self) -> None:
        """Show changes since the last check."""
        if self.is_current:
            self.host.start_worker(self._reload, group="board-screen", exclusive=True)

    async def _reload(self) -> None:
        """Reload the board if it changed, and once a minute to update ages."""
        views = self.host.session.views
        minute = self._get_time() // 60_000
        version = await views.board_version()
        if (version, minute) == (self._version, self._minute):
            return
        board = await views.board()
        if self.is_open:
            self._version, self._minute, self._board = version, minute, board
            self._draw()

    def _draw(self) -> None:
        board = self._board
        if board is None:
            return
        for at, (name, title) in enumerate(COLUMNS.items()):
            cards: tuple[BoardTask, ...] = getattr(board, name)
            shown = self._select_matching(cards)
            count = len(shown) if self._filter or board.counts is None else board.counts[at]
            parts = self._select_matching(board.containers) if name == "blocked" else []
            number = len(parts) if self._filter else board.container_count
            self.query_one(f"#board-title-{name}", Static).update(
                _make_heading(title, count, len(shown), number if name == "blocked" else 0, len(parts))
            )
            self._fill(self._list(name), [*shown, *parts])
        self._show_title()
        self._show_actions()

    def _select_matching(self, cards: Iterable[BoardTask]) -> list[BoardTask]:
        return [card for card in cards if self._filter in _search_text(card)]

    @staticmethod
    def _fill(column: LineList, cards: Sequence[BoardTask]) -> None:
        """Show `cards`; the cursor stays on its task, or near its place."""
        before = column.current
        index = next((i for i, c in enumerate(cards) if before is not None and c.id == before.id), None)
        column.set_rows(cards, cursor=index if index is not None else max(0, min(column.cursor, len(cards) - 1)))

    def _show_title(self) -> None:
        filtered = f"filter: {self._filter}" if self._filter else ""
        self.set_title("  ".join(p for p in ("Tasks", filtered, self._result) if p))

    def _show_result(self, text: str) -> None:
        self._result = to_one_line(text, 180)
        self._show_title()

    # --- moving -----------------------------------------------------------------------------------------------

    @property
    def column(self) -> LineList:
        """Return the focused column, or the one focused before the input line."""
        focused = self.focused
        return focused if isinstance(focused, LineList) else self._back or self._list("ready")

    @staticmethod
    def _name_of(column: LineList) -> str:
        return (column.id or "board-ready").removeprefix("board-")

    def action_column(self, step: int) -> None:
        names = list(COLUMNS)
        at = names.index(self._name_of(self.column))
        self._show_result("")
        self.set_focus(self._list(names[(at + step) % len(names)]))

    # --- changing ---------------------------------------------------------------------------------------------

    def action_ask(self, what: str) -> None:
        """Open the input line for a title, a summary, a handle or a filter."""
        self._card = self.column.current
        if what in ("close", "depend") and self._card is None:
            return
        if what != "force":
            self._show_result("")
        self._matches = []
        self._back = self.column
        self.line.ask(what, PROMPTS[what], self._filter if what == "filter" else "")

    @on(Input.Changed, "#board-input")
    def _filter_cards(self, event: Input.Changed) -> None:
        if self.line.question == "filter":
            self._filter = event.value.strip().lower()
            self._draw()

    @on(Input.Submitted, "#board-input")
    def _submit_line(self, event: Input.Submitted) -> None:
        event.stop()
        text, what, card = event.value.strip(), self.line.question, self._card
        self.line.end()
        if what == "create" and text:
            self._change("create", text)
        elif what == "close" and card is not None:
            self._change("close", card.id, text)
        elif what == "depend" and card is not None and text:
            self._depend(card, text)
        elif what == "force" and text.lower().startswith("y"):
            name, args = self._refused
            self._change(name, *args, force=True)

    def _depend(self, card: BoardTask, text: str) -> None:
        """Make a card wait for the task named by `text`; ask again with numbers if several match."""
        offered = self._matches[int(text) - 1 : int(text)] if text.isdecimal() and int(text) else []
        matches = offered or find_cards(self._open_cards(), text)
        matches = [each for each in matches if each.id != card.id] or matches
        self._matches = matches[:MATCHES] if len(matches) > 1 else []
        if not self._matches:
            self._change("dep", card.id, matches[0].handle if matches else text)
            return
        names = ", ".join(f"{n} {c.handle} {to_one_line(c.title, 40)}" for n, c in enumerate(self._matches, 1))
        more = ", …" if len(matches) > MATCHES else ""
        self._show_result(f"“{to_one_line(text, 20)}” could be {names}{more}: type its number, or more of its title")
        self.line.ask("depend", PROMPTS["depend"])

    def _open_cards(self) -> list[BoardTask]:
        board = self._board
        return [] if board is None else [*board.ready, *board.blocked, *board.in_progress, *board.containers]

    def action_claim(self) -> None:
        self._change_current("claim")

    def action_release(self) -> None:
        self._change_current("release")

    def action_reopen_task(self) -> None:
        self._change_current("reopen")

    def action_delete(self) -> None:
        self._change_current("delete")

    def action_undo(self) -> None:
        self._change("undo")

    def action_card(self) -> None:
        self.column.action_open()

    def action_tree(self) -> None:
        if self.column.current is not None:
            self.host.push(task_cards.TreeScreen(self.column.current.id))

    def _change_current(self, name: str) -> None:
        if self.column.current is not None:
            self._change(name, self.column.current.id)

    def _change(self, name: str, *args: str, force: bool = False) -> None:
        self.host.start_worker(self._run_change, name, args, force, group="board-change")

    async def _run_change(self, name: str, args: tuple[str, ...], force: bool) -> None:
        """Apply a change and reload the board; offer to force a refused one."""
        refused = False
        try:
            done = await changes.change_task(self.host.session, name, *args, force=force)
        except TaskError as e:
            done = f"No task is called “{to_one_line(args[-1], 40)}”." if e.code == "not_found" else e.message
            refused = e.code == "already_claimed" and name in FORCEABLE
        await self._reload()
        self.post_message(BoardChanged())
        if self.is_open:
            self._show_result(done)
            if refused:
                self._refused = name, args
                self.action_ask("force")

    @on(LineList.Opened)
    def _open_card(self, event: LineList.Opened) -> None:
        event.stop()
        self.host.push(task_cards.TaskCardScreen(event.row.id))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def find_cards(cards: Iterable[BoardTask], text: str) -> list[BoardTask]:
    """Return the card with the handle `text`, else those with that title, else those with all its words."""
    distinct, text = list({c.id: c for c in cards}.values()), text.lower()
    return (
        [c for c in distinct if c.handle.lower() == text]
        or [c for c in distinct if to_one_line(c.title, 300).lower() == text]
        or [c for c in distinct if all(w in c.title.lower() for w in text.split())]
    )


def _make_heading(title: str, count: int, shown: int, containers: int, containers_shown: int) -> str:
    """Return a heading such as `Blocked  2 · 1 container`, with the number of cards not shown."""
    parts = [f"{title}  {count}"]
    if containers:
        parts.append(format_count(containers, "container"))
    more = max(0, count - shown) + max(0, containers - containers_shown)
    return " · ".join([*parts, *([f"and {more} more"] if more else [])])


def _search_text(card: BoardTask) -> str:
    return f"{card.handle} {card.title} {card.type} {card.assignee or ''} {card.held_by or ''}".lower()


def _make_drawer(column: str, now: Callable[[], int]) -> Callable[[Any, int, Palette], list[Line]]:
    def draw(card: BoardTask, width: int, palette: Palette) -> list[Line]:
        return draw_card(card, column, width - 1, palette, now())  # the last cell belongs to the scroll bar

    return draw


def draw_card(card: BoardTask, column: str, width: int, palette: Palette, now: int) -> list[Line]:
    """Lay out a card: priority and handle, title (one or two lines), blockers or assignee and age."""
    handle, kind = to_one_line(card.handle, 40), to_one_line(card.type, 12)
    lines: list[Line] = [
        [
            Segment(f"P{card.priority} ", palette.faint),
            Segment(shorten(handle, max(4, width - 4)), palette.muted),
            Segment(f"  {kind}" if len(handle) + len(kind) + 5 <= width else "", palette.faint),
        ],
        *_draw_title(to_one_line(card.title, 300), width, palette),
    ]
    if note := _make_note(card, column, now):
        style = {"blocked": palette.bad, "closed_today": palette.faint}.get(column, palette.ok)
        if card.waits_for_children and not card.blocked_by:
            style = palette.muted
        lines.append([Segment(shorten(note, width), style)])
    return [*lines, []]


def _make_note(card: BoardTask, column: str, now: int) -> str:
    """Return the blockers of a card, its worker, or the time since it was closed, by its column."""
    match column:
        case "blocked":
            return describe_blockers(card)
        case "in_progress":
            ended = "claim ended" if card.abandoned else ""
            return " · ".join(
                p for p in (name_worker(card), ended, _format_age(card.since, now), describe_blockers(card)) if p
            )
        case "closed_today":
            return _format_age(card.since, now)
        case _:
            return "ready to close" if column == "ready" and card.ready_to_close else ""


def _draw_title(text: str, width: int, palette: Palette) -> list[Line]:
    """Return at most two lines of the title."""
    first, *rest = wrap([(text, palette.text)], width)
    if not rest:
        return [first]
    return [first, [Segment(shorten(join_lines(rest), width), palette.text)]]


def _format_age(start: int | None, now: int) -> str:
    if start is None:
        return ""
    minutes = max(0, now - start) // 60_000
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"
