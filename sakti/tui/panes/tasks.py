"""Show the task board as a list: in progress, ready, blocked (and by what), closed today."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.getters import query_one
from textual.message import Message

from sakti.core.text import to_one_line
from sakti.tui.palette import Palette
from sakti.tui.panes.bars import PaneTitle
from sakti.tui.transcript.wrap import Line, join_lines, measure_line, shorten, wrap
from sakti.tui.widgets.lines import LineList

if TYPE_CHECKING:
    from sakti.tasks.queries import Board, BoardTask


BLOCKER_WIDTH = 60  # maximum characters of a blocking task's title


class BoardChanged(Message):
    """The user changed a task, so that views of the board must reload it."""


class TaskLine(Struct, frozen=True):
    """`state`: in_progress, ready, blocked, container, closed or more; `note`: the assignee or blockers."""

    state: str
    priority: str
    title: str
    note: str


_STATE_SYMBOLS = {"in_progress": "▶", "ready": "·", "blocked": "✗", "container": "◦", "closed": "✓", "more": " "}


def make_task_rows(board: Board) -> list[TaskLine]:
    """Return the tasks of the board as rows, those in progress first."""
    rows: list[TaskLine] = []
    ready, blocked, working, closed = board.counts or (0, 0, 0, 0)
    for state, tasks, count in (
        ("in_progress", board.in_progress, working),
        ("ready", board.ready, ready),
        ("blocked", board.blocked, blocked),
        ("container", board.containers, board.container_count),
        ("closed", board.closed_today, closed),
    ):
        for task in tasks:
            parts = (
                (name_worker(task), describe_blockers(task)) if state == "in_progress" else (describe_blockers(task),)
            )
            note = " ".join(p for p in parts if p) if state not in ("ready", "closed") else ""
            rows.append(TaskLine(state, _format_priority(task.priority), to_one_line(str(task.title), 200), note))
        if count > len(tasks):
            rows.append(TaskLine("more", "", f"and {count - len(tasks)} more", ""))
    return rows


def describe_blockers(task: BoardTask) -> str:
    """Return the blockers of a task, as in `← add refresh tokens +1`, or its open children."""
    blockers = [*(task.blocker_titles or task.blocked_by)]
    if blockers:
        more = f" +{len(blockers) - 1}" if len(blockers) > 1 else ""
        return f"← {to_one_line(blockers[0], BLOCKER_WIDTH)}{more}"
    count = task.waits_for_children
    return "" if not count else "waits for its child" if count == 1 else f"waits for its {count} children"


def name_worker(task: BoardTask) -> str:
    """Return the worker of a task: its assignee, the user of a shell or window, or a chat's title."""
    if task.assignee:
        return to_one_line(task.assignee, 24)
    return to_one_line((task.held_by or "").removeprefix("shell:").removeprefix("user:"), 24)


def _format_priority(value: object) -> str:
    text = to_one_line(str(value), 4)
    return text.upper() if text[:1].lower() == "p" else f"P{text}"


def draw_task(row: TaskLine, width: int, palette: Palette) -> list[Line]:
    """Draw a row of the pane: `▶ P1 fix login redirect   you`."""
    if row.state == "more":
        return [[Segment(shorten(f"  {row.title}", width), palette.faint)]]
    style = {"in_progress": palette.ok, "blocked": palette.bad, "closed": palette.faint}.get(row.state, palette.muted)
    text = {"in_progress": palette.bold, "ready": palette.text}.get(row.state, palette.muted)
    room, note_style = max(4, width - 5), palette.bad if row.state == "blocked" else palette.faint
    head: Line = [Segment(f"{_STATE_SYMBOLS[row.state]} ", style), Segment(f"{row.priority} ", palette.faint)]
    title, *more = wrap([(row.title, text)], room)
    note = to_one_line(row.note, 120)
    if not more and measure_line(title) + len(note) + 2 <= room:
        return [[*head, *title, *([Segment(f"  {note}", note_style)] if note else [])]]
    if len(more) > 1:  # show at most two lines of a title
        more = [[Segment(shorten(join_lines(more), room), text)]]
    under = [*more, *([[Segment(shorten(note, room), note_style)]] if note else [])]
    return [[*head, *title], *([Segment(" " * 5), *line] for line in under)]


class TasksPane(Vertical):
    """Title with counts, and the list."""

    HELP = (
        "▶ in progress, · ready, ✗ blocked and by what, ◦ waits for its children, ✓ closed today."
        " b, Enter on a task or a double click opens the board."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "board", "The board", show=False, id="tasks.board")]

    class BoardWanted(Message):
        """Requests the task board over the entire screen."""

    title = query_one("#tasks-title", PaneTitle)
    task_list = query_one("#tasks-list", LineList)

    def compose(self) -> ComposeResult:
        yield PaneTitle("Tasks", id="tasks-title")
        yield LineList(draw_task, id="tasks-list", empty="No tasks yet. Ask the agent for one, or press F4, then b.")

    def on_mount(self) -> None:
        self.task_list.focuses_on_click = False

    @on(LineList.Opened)
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.action_board()

    def action_board(self) -> None:
        self.post_message(self.BoardWanted())

    def show(self, board: Board) -> None:
        counts = board.counts or (len(board.ready), len(board.blocked), len(board.in_progress), len(board.closed_today))
        parts = [f"{n} {v}" for n, v in (("ready", counts[0]), ("blocked", counts[1]), ("done", counts[3])) if v]
        self.title.set_figures("Tasks", *parts)
        self.task_list.set_rows(make_task_rows(board))
