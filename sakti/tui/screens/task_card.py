"""Show all details of a task, and the tree of its dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one

from sakti.actions.tasks import changes
from sakti.core.errors import TaskError
from sakti.core.text import to_one_line
from sakti.core.types import Json, Message
from sakti.tui.palette import Palette
from sakti.tui.panes.tasks import BoardChanged
from sakti.tui.screens.panel import BACK, KeyLine, Keys, Panel
from sakti.tui.transcript.blocks import Block, CardBlock, NoticeBlock, TextBlock
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.session.queries import UnfinishedCall
    from sakti.tasks.queries import Branch

KEYS = {
    "open": (("c claim", "do('claim')"),),
    "in_progress": (("r release", "do('release')"),),
    "closed": (("o reopen", "do('reopen')"),),
}
REQUIRED_STATUS = {"claim": "open", "release": "in_progress", "reopen": "closed"}


class TaskCardScreen(Panel[None]):
    """All details of one task."""

    HELP = "All details of a task. c claims it, r releases it, o reopens it, t shows its dependencies."
    AUTO_FOCUS = "Transcript"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "do('claim')", "Claim", show=False, priority=True, id="card.claim"),
        Binding("r", "do('release')", "Release", show=False, priority=True, id="card.release"),
        Binding("o", "do('reopen')", "Reopen", show=False, priority=True, id="card.reopen"),
        Binding("t", "tree", "Dependency tree", show=False, priority=True, id="card.tree"),
    ]

    def __init__(self, task_id: str) -> None:
        super().__init__("Task")
        self._task_id = task_id
        self._status = ""

    def compose_body(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.host.start_worker(self._show, group="task-card", exclusive=True)

    async def _show(self, said: str = "") -> None:
        try:
            views = self.host.session.views
            task, messages = await views.task(self._task_id), await views.task_messages(self._task_id)
            unfinished = await views.unfinished_calls(messages)
        except TaskError as e:  # deleted meanwhile
            self.set_title(e.message)
            return
        if not self.is_open:
            return
        self._status = str(task["task"]["status"])
        self.set_title("  ".join(p for p in (f"{task['task']['handle']} {task['task']['title']}", said) if p))
        keys: Keys = (*KEYS.get(self._status, ()), ("t tree", "tree"), BACK)
        self.query_one("#panel-keys", KeyLine).show(keys)
        reader = self.query_one(Transcript)
        reader.document.clear()
        reader.document.append(*make_card_blocks(task, messages, unfinished))
        reader.show_top()

    def action_do(self, name: str) -> None:
        if REQUIRED_STATUS[name] == self._status:
            self.host.start_worker(self._do, name, group="task-card", exclusive=True)

    async def _do(self, name: str) -> None:
        try:
            message = await changes.change_task(self.host.session, name, self._task_id)
        except TaskError as e:
            message = e.message
        self.post_message(BoardChanged())
        await self._show(message)

    def action_tree(self) -> None:
        self.host.push(TreeScreen(self._task_id))


def _describe_blocker(task: Json) -> str:
    return f"{task['handle']} {task['title']}" + (f" (via {task['via']})" if "via" in task else "")


def _list_facts(shown: Json) -> list[tuple[str, Any]]:
    """List the names and values of a task's fields; values may be empty."""
    task: Json = shown["task"]
    edges = [_describe_edge(edge, task["handle"]) for edge in shown["dependencies"]]
    history = [
        f"{datetime.fromtimestamp(h['time'] / 1000):%Y-%m-%d %H:%M} {h['action']} by {h['actor'].rpartition(':')[2]}"
        for h in shown["history"]
    ]
    status = str(task["status"]).replace("_", " ")
    ended = f", {task['close_reason']}" if task.get("close_reason") else ""
    return [
        ("status", f"{status}{ended}"),
        ("kind", f"P{task['priority']} {task['type']}"),
        ("labels", ", ".join(task.get("labels", ()))),
        ("for", task.get("assignee", "")),
        ("held by", f"{task.get('claimedBy', '')}{', claim ended' if task.get('claimEnded') else ''}"),
        ("blocked", ", ".join(_describe_blocker(t) for t in shown["blockingTasks"])),
        ("waits for", _count_children(task.get("waitsForChildren", 0))),
        *(("relation", edge) for edge in edges),
        *((str(k), v) for k, v in task.get("metadata", {}).items()),
        *(("history", line) for line in history),
    ]


def _describe_edge(edge: Json, handle: str) -> str:
    """Return a dependency as seen from the task `handle`."""
    if edge["task"] == handle:
        return f"waits for {edge['dependsOn']} ({edge['type']}, {edge['status']})"
    return f"{edge['task']} waits for it ({edge['type']})"


def _count_children(count: int) -> str:
    if count > 1:
        return f"{count} open children"
    return "its child" if count else ""


def make_card_blocks(shown: Json, said: Sequence[Message], unfinished: Mapping[str, UnfinishedCall]) -> list[Block]:
    task: Json = shown["task"]
    rows = tuple((k, to_one_line(str(v), 300)) for k, v in _list_facts(shown) if v)
    blocks: list[Block] = [CardBlock(title=to_one_line(str(task["title"]), 300), rows=rows)]
    for name in ("description", "summary"):
        if task.get(name):
            blocks += [NoticeBlock(title=name), TextBlock(text=str(task[name]), open=True, gap=True)]
    if not said:
        why = "Messages sent while the task is claimed appear here."
        blocks.append(NoticeBlock(title="No messages yet", text=why))
    return [*blocks, *make_message_blocks(said, unfinished)]


class TreeScreen(Panel[None]):
    """Dependency tree of a task."""

    HELP = "▶ in progress, · ready, ✗ blocked, ✓ closed. Enter or a double click shows that task's tree."
    AUTO_FOCUS = "#tree-list"
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter its tree", "open"), BACK)
    branches = query_one("#tree-list", LineList)

    def __init__(self, task_id: str) -> None:
        super().__init__("Dependencies")
        self._task_id = task_id

    def compose_body(self) -> ComposeResult:
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
        self.host.start_worker(self._show, task_id, group="task-tree", exclusive=True)

    async def _show(self, task_id: str) -> None:
        try:
            rows = await changes.read_tree(self.host.session, task_id)
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
    handle = f"{to_one_line(task.handle, 40)} P{task.priority} "
    title = to_one_line(task.title, 300) + ("  (see above)" if branch.again else "")
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
