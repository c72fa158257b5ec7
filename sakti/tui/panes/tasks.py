"""The task board as a list: in progress, ready, blocked (and by what), closed today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.getters import query_one
from textual.widgets import Static

from sakti.core.text import one_line
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.tasks.service import Board


@dataclass(frozen=True, slots=True)
class TaskRow:
    """`state` is one of in_progress, ready, blocked, closed; `note` says by whom or by what."""

    state: str
    priority: str
    title: str
    note: str


_SIGNS = {"in_progress": "▶", "ready": "·", "blocked": "✗", "closed": "✓"}


def task_rows(board: Board) -> list[TaskRow]:
    """The board's tasks, what is worked on first."""
    rows: list[TaskRow] = []
    for state in ("in_progress", "ready", "blocked"):
        for task in getattr(board, state):
            blockers = ", ".join(one_line(str(b), 30) for b in task.blocked_by)
            note = f"← {blockers}" if state == "blocked" and blockers else ""
            if state == "in_progress" and task.assignee:
                note = one_line(str(task.assignee), 24)
            rows.append(TaskRow(state, _priority(task.priority), one_line(str(task.title), 200), note))
    rows += [TaskRow("closed", _priority(t.priority), one_line(str(t.title), 200), "") for t in board.closed_today]
    return rows


def _priority(value: object) -> str:
    text = one_line(str(value), 4)
    return text.upper() if text[:1].lower() == "p" else f"P{text}"


def draw_task(row: TaskRow, width: int, palette: Palette) -> list[Line]:
    """`▶ P1 fix login redirect   you`"""
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

    HELP = "The task board: ▶ in progress, · ready, ✗ blocked and by what, ✓ closed today."
    title = query_one("#tasks-title", Static)
    task_list = query_one("#tasks-list", LineList)

    def compose(self) -> ComposeResult:
        yield Static("Tasks", id="tasks-title", classes="pane-title", markup=False)
        yield LineList(draw_task, id="tasks-list", empty="no tasks")

    def show(self, board: Board) -> None:
        parts = [
            f"{name} {len(values)}"
            for name, values in (("ready", board.ready), ("blocked", board.blocked), ("done", board.closed_today))
            if values
        ]
        self.title.update(f"Tasks  {' · '.join(parts)}".rstrip())
        self.task_list.set_rows(task_rows(board))
