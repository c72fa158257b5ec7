"""Show what a task waits for and what waits for it, as a tree; Enter goes on to another task's."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.getters import query_one

from sakti.actions.tasks import changes
from sakti.core.errors import TaskError
from sakti.core.text import one_line
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.tasks.queries import Branch


class TreeScreen(Panel[None]):
    """The tree of the task with this id."""

    HELP = "▶ in progress, · ready, ✗ blocked, ✓ closed. Enter, or two clicks: that task's tree."
    AUTO_FOCUS = "#tree-list"
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter its tree", "open"), BACK)
    branches = query_one("#tree-list", LineList)

    def __init__(self, task_id: str) -> None:
        super().__init__("Dependencies")
        self._task_id = task_id

    def body(self) -> ComposeResult:
        yield LineList(draw_branch, id="tree-list")

    def on_mount(self) -> None:
        self._load(self._task_id)

    @on(LineList.Opened)
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self._load(event.row.task.id)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

    def action_open(self) -> None:
        self.branches.action_open()

    def _load(self, task_id: str) -> None:
        self.host.go(self._show, task_id, group="task-tree", exclusive=True)

    async def _show(self, task_id: str) -> None:
        try:
            rows = await changes.tree(self.host.session, task_id)
        except TaskError as e:  # deleted meanwhile
            self.set_title(e.message)
            return
        if self.is_open:
            self.set_title(f"Dependencies of {rows[0].task.handle} {rows[0].task.title}")
            self.branches.set_rows(rows, cursor=0)


def draw_branch(branch: Branch, width: int, palette: Palette) -> list[Line]:
    """Draw a row of the tree: `waits for ✗ t4k2 P1 refresh tokens`."""
    task = branch.task
    closed = task.status == "closed"
    sign, style = ("✓", palette.faint) if closed else ("✗", palette.bad) if branch.held else ("·", palette.muted)
    if task.status == "in_progress":
        sign, style = "▶", palette.ok
    relation = f"{'  ' * branch.depth}{branch.relation} " if branch.relation else ""
    handle = f"{one_line(task.handle, 40)} P{task.priority} "
    title = one_line(task.title, 300) + ("  (see above)" if branch.again else "")
    return [
        [
            Segment(relation, palette.faint),
            Segment(f"{sign} ", style),
            Segment(handle, palette.muted),
            Segment(
                shorten(title, max(4, width - len(relation) - len(handle) - 2)),
                palette.faint if closed or branch.again else palette.text,
            ),
        ]
    ]
