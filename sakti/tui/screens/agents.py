"""Screens of child threads: their list, and one that follows a child live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.getters import query_one
from textual.widgets import Input

from sakti.core.events import (
    Event,
    MemoryActivation,
    MemoryOperation,
    MemoryStatus,
    MessageSaved,
    StepDiscarded,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from sakti.core.text import one_line
from sakti.tui.host import Host
from sakti.tui.keys import is_text
from sakti.tui.palette import Palette
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.build import message_blocks
from sakti.tui.transcript.live import LiveTurn
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.line_list import LineList
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.subagents.child import Child
    from sakti.core.types import Message
    from sakti.store.threads.child_runs import ChildRun

LOOK = 0.5  # seconds between looks at the running children while their list is open


class AgentsScreen(Panel[None]):
    """Child threads of the open thread, each with its state and its last call."""

    HELP = "The child threads of this thread. Enter follows one, x stops it; its partial report is delivered."
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop the child", show=False, id="agents.stop")]
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter follow", ""), ("x stop", "stop"), BACK)
    result_list = query_one("#panel-list", LineList)

    def __init__(self, runs: Sequence[ChildRun]) -> None:
        super().__init__(f"Child threads  {len(runs)}")
        self._runs = runs

    def body(self) -> ComposeResult:
        yield LineList(self._draw, empty="This thread has no child threads.", id="panel-list")

    def on_mount(self) -> None:
        self.result_list.set_rows(list(self._runs))
        self.set_interval(LOOK, self.result_list.refresh)

    def _draw(self, row: ChildRun, width: int, palette: Palette) -> list[Line]:
        child: Child | None = self.host.session.children.all.get(row.child_id)
        marks = str((row.report or {}).get("marks", "")) or row.state
        below = marks if child is None else f"step {child.step} · {child.activity}"
        sign = "✓ " if child is None else "▸ "
        name = one_line(f"{row.agent or row.mode}  {row.goal}", 300)
        return [
            [Segment(sign, palette.ok), Segment(shorten(name, width - 4))],
            [Segment("  "), Segment(shorten(one_line(below, 200), width - 4), palette.muted)],
        ]

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self.host.go(follow, self.host, event.row.child_id, group="agents")

    def action_stop(self) -> None:
        row: ChildRun | None = self.result_list.current
        if row is not None:
            self.host.go(stop, self.host, row.child_id, group="agents")


class ChildScreen(Panel[None]):
    """Second transcript with the messages of a child, live while it runs, beside the panes of its memory."""

    HELP = "A child thread and its memory. x stops it, Esc goes back. Typing goes to the main thread."
    AUTO_FOCUS = "Transcript"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop the child", show=False, id="agent.stop")]
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), ("tab prompt", "app.focus_next"), ("x stop", "stop"), BACK)
    memory = query_one(MemoryPane)
    observations = query_one(ObservationsPane)
    prompt = query_one("#child-prompt", Input)

    def __init__(self, run: ChildRun, messages: Sequence[Message], child: Child | None) -> None:
        super().__init__(one_line(f"{run.agent or run.mode} › {run.goal}", 120))
        self._run, self._messages, self._child = run, messages, child

    def body(self) -> ComposeResult:
        with Horizontal(id="child-body"):
            yield Transcript()
            with Vertical(id="child-side"):
                yield MemoryPane()
                yield ObservationsPane()
        thread = self.host.session.thread
        title = one_line(thread.title, 60) if thread is not None else ""
        yield SafeInput(
            placeholder=f"message to the main thread: {title}", id="child-prompt", compact=True, select_on_focus=False
        )

    async def on_mount(self) -> None:
        await self.observations.mount_hidden()
        self.memory.can_focus = False  # their keys act on the main thread's memory
        self.observations.can_focus_children = False
        self._load_memory()
        reader = self.query_one(Transcript)
        reader.document.append(*message_blocks(self._messages))
        reader.live.seen.update(m.id for m in self._messages)
        if self._child is not None:
            self._child.listeners.append(self._hear)
        self.call_after_refresh(reader.scroll_end_now)

    def on_unmount(self) -> None:
        if self._child is not None and self._hear in self._child.listeners:
            self._child.listeners.remove(self._hear)

    def _hear(self, event: Event) -> None:
        if not self.is_open:
            return
        if isinstance(event, MemoryStatus):
            self.memory.status = event
        elif isinstance(event, MemoryActivation) or (isinstance(event, MemoryOperation) and event.kind == "end"):
            self._load_memory()
        show(self.query_one(Transcript).live, event)

    def _load_memory(self) -> None:
        self.host.go(self._show_memory, group="child-memory", exclusive=True)

    async def _show_memory(self) -> None:
        memory = await self.host.session.views.child_memory(self._run.child_id)
        if memory is None or not self.is_open:
            return
        if self._child is not None:
            self.memory.status = self._child.thread.status
        self.memory.figures, self.memory.events, self.memory.spent = memory.figures, memory.events, memory.spent
        self.observations.show(memory.lines, (), memory.waiting)

    def on_key(self, event: events.Key) -> None:
        if is_text(event) and event.key not in self.active_bindings and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert_text_at_cursor(event.character or "")

    @on(Input.Submitted, "#child-prompt")
    def _send(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self.host.send(event.value)
            self.prompt.value = ""
            self.prompt.placeholder = "sent to the main thread"
            self.query_one(Transcript).focus()

    def action_stop(self) -> None:
        self.host.go(stop, self.host, self._run.child_id, group="agents")


def show(live: LiveTurn, event: Event) -> None:
    """Show an event of a child in its transcript."""
    if isinstance(event, TextDelta):
        live.add_text(event.text)
    elif isinstance(event, ThinkingDelta):
        live.add_thinking(event.text)
    elif isinstance(event, ToolStarted):
        live.start_tool(event.call)
    elif isinstance(event, ToolOutput):
        live.add_output(event.call_id, event.text, event.progress)
    elif isinstance(event, ToolFinished):
        live.finish_tool(event.result, event.duration_ms)
    elif isinstance(event, MessageSaved):
        live.claim(event.message)
    elif isinstance(event, StepStarted):
        live.begin_step()
    elif isinstance(event, StepDiscarded):
        live.discard_step(event.reason)
    elif isinstance(event, TurnFinished):
        live.end_turn()


async def follow(host: Host, child_id: str) -> None:
    """Open the transcript of a child of the open thread, live while it runs."""
    children = host.session.children
    run = next((r for r in await children.stored() if r.child_id == child_id), None)
    if run is not None:
        messages = await host.session.views.transcript(child_id)
        host.push(ChildScreen(run, messages, children.all.get(child_id)))


async def stop(host: Host, child_id: str) -> None:
    """Stop a child, or say that it does not run."""
    if not await host.session.children.stop(child_id):
        host.note("This child thread is not running.", 3)


async def open_list(host: Host) -> None:
    host.push(AgentsScreen(await host.session.children.stored()))
