"""The task board as a list: in progress, ready, blocked (and by what), closed today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.getters import query_one

from sakti.core.text import one_line
from sakti.tui.palette import Palette
from sakti.tui.panes.title import PaneTitle
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.tasks.board import Board, BoardTask
    from sakti.tui.app import SaktiApp
    from sakti.tui.screens.board import BoardScreen

POLL = 2.0  # seconds between looks at whether another process changed a task, while the pane shows


@dataclass(frozen=True, slots=True)
class TaskRow:
    """`state` is one of in_progress, ready, blocked, container, closed, more; `note` says by whom or by what."""

    state: str
    priority: str
    title: str
    note: str


_SIGNS = {"in_progress": "▶", "ready": "·", "blocked": "✗", "container": "◦", "closed": "✓", "more": " "}


def task_rows(board: Board) -> list[TaskRow]:
    """The board's tasks, what is worked on first."""
    rows: list[TaskRow] = []
    ready, blocked, working, closed = board.counts or (0, 0, 0, 0)
    for state, tasks, count in (
        ("in_progress", board.in_progress, working),
        ("ready", board.ready, ready),
        ("blocked", board.blocked, blocked),
        ("container", board.containers, board.container_count),
        ("closed", board.closed_today, closed),
    ):
        for task in tasks:
            parts = (who(task), waits_for(task)) if state == "in_progress" else (waits_for(task),)
            note = " ".join(p for p in parts if p) if state not in ("ready", "closed") else ""
            rows.append(TaskRow(state, _priority(task.priority), one_line(str(task.title), 200), note))
        if count > len(tasks):
            rows.append(TaskRow("more", "", f"and {count - len(tasks)} more", ""))
    return rows


def waits_for(task: BoardTask) -> str:
    """What a card waits for: `← t4k2`, or its children."""
    if task.blocked_by:
        return f"← {', '.join(one_line(str(b), 60) for b in task.blocked_by)}"
    count = task.waits_for_children
    return "" if not count else "waits for its child" if count == 1 else f"waits for its {count} children"


def who(task: BoardTask) -> str:
    """Name who works on it: the assignee, a shell's or the window's user, a chat by its title."""
    if task.assignee:
        return one_line(task.assignee, 24)
    return one_line((task.held_by or "").removeprefix("shell:").removeprefix("user:"), 24)


def _priority(value: object) -> str:
    text = one_line(str(value), 4)
    return text.upper() if text[:1].lower() == "p" else f"P{text}"


def draw_task(row: TaskRow, width: int, palette: Palette) -> list[Line]:
    """`▶ P1 fix login redirect   you`"""
    if row.state == "more":
        return [[Segment(shorten(f"  {row.title}", width), palette.faint)]]
    style = {"in_progress": palette.ok, "blocked": palette.bad, "closed": palette.faint}.get(row.state, palette.muted)
    text = {"in_progress": palette.bold, "ready": palette.text}.get(row.state, palette.muted)
    note = shorten(row.note, max(0, width // 3))
    room = max(4, width - 5 - (len(note) + 2 if note else 0))
    line: Line = [
        Segment(f"{_SIGNS[row.state]} ", style),
        Segment(f"{row.priority} ", palette.faint),
        Segment(shorten(row.title, room), text),
    ]
    if note:
        line.append(Segment(f"  {note}", palette.bad if row.state == "blocked" else palette.faint))
    return [line]


class TasksPane(Vertical):
    """Title with counts, and the list."""

    HELP = (
        "▶ in progress, · ready, ✗ blocked and by what, ◦ waits for its children, ✓ closed today."
        " b, Enter on a task or two clicks: the board."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "board", "The board", show=False, id="tasks.board")]
    title = query_one("#tasks-title", PaneTitle)
    task_list = query_one("#tasks-list", LineList)

    def compose(self) -> ComposeResult:
        yield PaneTitle("Tasks", id="tasks-title")
        yield LineList(draw_task, id="tasks-list", empty="no tasks: ask the agent for one, or /tasks and n")

    def on_mount(self) -> None:
        self._version = -1
        self._board: BoardScreen | None = None
        self.set_interval(POLL, self._look)

    def _look(self) -> None:
        app = cast("SaktiApp", self.app)  # pyright: ignore[reportUnknownMemberType]
        if self.display and self.parent is not None and self.is_on_screen and app.started and self.screen.is_current:
            app.go(self._reload, app, group="tasks-pane", exclusive=True)

    async def _reload(self, app: SaktiApp) -> None:
        version = await app.session.views.board_version()
        if version != self._version:
            self._version = version
            self.show(await app.session.views.board())

    @on(LineList.Opened)
    def _opened(self, event: LineList.Opened) -> None:
        event.stop()
        self.open_board()

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.task_list and not self.task_list.rows:
            self.open_board()

    def action_board(self) -> None:
        self.open_board()

    def open_board(self) -> None:
        """The columns, over the whole screen."""
        from sakti.tui.screens.board import BoardScreen

        self._board = BoardScreen()
        cast("SaktiApp", self.app).push_screen(self._board)  # pyright: ignore[reportUnknownMemberType]

    def show(self, board: Board) -> None:
        counts = board.counts or (len(board.ready), len(board.blocked), len(board.in_progress), len(board.closed_today))
        parts = [f"{n} {v}" for n, v in (("ready", counts[0]), ("blocked", counts[1]), ("done", counts[3])) if v]
        self.title.say("Tasks", *parts)
        self.task_list.set_rows(task_rows(board))
        if self._board is not None and self._board.is_open:
            self._board.look()
