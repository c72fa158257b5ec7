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

from sakti.agent.subagents.children import ListedChild
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
from sakti.core.text import format_count, to_one_line
from sakti.core.types import RUNS_ELSEWHERE, STATE_SYMBOLS, ChildState
from sakti.tui.host import Host
from sakti.tui.keys import is_text
from sakti.tui.palette import Palette
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.live_turn import LiveTurn
from sakti.tui.transcript.tool import get_child_style
from sakti.tui.transcript.wrap import Line, shorten
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.subagents.child import Child
    from sakti.agent.subagents.files import AgentSpec
    from sakti.core.types import Message
    from sakti.store.threads.runs import ChildRun

REFRESH_S = 0.5  # seconds between updates of the open list


class AgentsScreen(Panel[None]):
    """Child threads of the open thread, each with its state, then the custom agents."""

    HELP = (
        "The child threads of this thread, and the custom agents. Enter follows a child, x stops it; its partial "
        "report is delivered. @agent-NAME in a prompt calls a custom agent."
    )
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop the child", show=False, id="agents.stop")]
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter follow", ""), ("x stop", "stop"), BACK)
    result_list = query_one("#panel-list", LineList)

    def __init__(self, children: Sequence[ListedChild], custom: Sequence[AgentSpec]) -> None:
        super().__init__(_make_title(children, custom))
        self._rows: list[ListedChild | AgentSpec] = [*children, *custom]

    def compose_body(self) -> ComposeResult:
        yield LineList(self._draw, empty="No child threads, and no custom agents.", id="panel-list")

    def on_mount(self) -> None:
        self.result_list.set_rows(self._rows)
        self.set_interval(REFRESH_S, self._poll)

    def _poll(self) -> None:
        self.host.start_worker(self._refresh, group="agents-list", exclusive=True)

    async def _refresh(self) -> None:
        children, custom = await self.host.session.children.list_all(), self.host.session.children.custom
        if self.is_open:
            self.set_title(_make_title(children, custom))
            self.result_list.set_rows([*children, *custom])

    def _draw(self, row: ListedChild | AgentSpec, width: int, palette: Palette) -> list[Line]:
        if isinstance(row, ListedChild):
            sign, style = STATE_SYMBOLS[row.state], get_child_style(row.state, palette)
            name, below = f"{row.run.name}  {row.run.goal}", row.in_words
        else:
            sign, style = "@", palette.faint
            name, below = f"agent-{row.name}  {row.description}", row.source
        return [
            [Segment(f"{sign} ", style), Segment(shorten(to_one_line(name, 300), width - 4))],
            [Segment("  "), Segment(shorten(to_one_line(below, 200), width - 4), palette.muted)],
        ]

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        if isinstance(event.row, ListedChild):
            self.host.start_worker(open_child, self.host, event.row.run.child_id, group="agents")
        else:
            self.host.set_hint(f"@agent-{event.row.name} in a prompt calls this agent.", 4)

    def action_stop(self) -> None:
        row: ListedChild | AgentSpec | None = self.result_list.current
        if isinstance(row, ListedChild):
            self.host.start_worker(stop_child, self.host, row.run.child_id, group="agents")


def _make_title(children: Sequence[ListedChild], custom: Sequence[AgentSpec]) -> str:
    running = sum(c.state in ("waiting", "running") for c in children)
    parts = [f"Child threads {len(children)}", f"{running} running" if running else ""]
    return " · ".join(p for p in (*parts, format_count(len(custom), "custom agent") if custom else "") if p)


class ChildScreen(Panel[None]):
    """Transcript of a child thread, live while it runs, beside the panes of its memory."""

    HELP = "A child thread and its memory. x stops it, Esc goes back. Typing goes to the main thread."
    AUTO_FOCUS = "Transcript"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop the child", show=False, id="agent.stop")]
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), ("tab prompt", "app.focus_next"), ("x stop", "stop"), BACK)
    memory = query_one(MemoryPane)
    observations = query_one(ObservationsPane)
    prompt = query_one("#child-prompt", Input)

    def __init__(self, listed: ListedChild, messages: Sequence[Message], child: Child | None) -> None:
        super().__init__(_make_child_title(listed.run, listed.state, listed.in_words))
        self._run, self._messages, self._child = listed.run, messages, child

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="child-body"):
            yield Transcript()
            with Vertical(id="child-side"):
                yield MemoryPane()
                yield ObservationsPane()
        thread = self.host.session.thread
        title = to_one_line(thread.title, 60) if thread is not None else ""
        yield SafeInput(
            placeholder=f"message to the main thread: {title}", id="child-prompt", compact=True, select_on_focus=False
        )

    async def on_mount(self) -> None:
        await self.observations.mount_rest()
        self.memory.can_focus = False  # their keys act on the main thread's memory
        self.observations.can_focus_children = False
        self._load_memory()
        reader = self.query_one(Transcript)
        reader.document.append(*make_message_blocks(self._messages))
        reader.live.seen.update(m.id for m in self._messages)
        if self._child is not None and self._child.is_running:
            await self._catch_up(self._child, reader)
        self.call_after_refresh(reader.scroll_end_now)

    async def _catch_up(self, child: Child, reader: Transcript) -> None:
        """Show messages that the child stored or streamed since the load, then follow it."""
        while (newest := self._messages[-1].index if self._messages else -1) < child.thread.last_index:
            self._messages = await self.host.session.views.transcript(self._run.child_id)
            if not self._messages or self._messages[-1].index == newest:
                break
        reader.load(self._messages, more=False)
        turn = child.thread.running.turn
        if turn is not None:
            reader.live.resume("".join(turn.thinking), "".join(turn.streamed))
        child.listeners.append(self._handle_event)

    def on_unmount(self) -> None:
        if self._child is not None and self._handle_event in self._child.listeners:
            self._child.listeners.remove(self._handle_event)

    def _handle_event(self, event: Event) -> None:
        if not self.is_open:
            return
        if isinstance(event, MemoryStatus):
            self.memory.status = event
        elif isinstance(event, MemoryActivation) or (isinstance(event, MemoryOperation) and event.kind == "end"):
            self._load_memory()
        show_child_event(self.query_one(Transcript).live, event)
        if self._child is not None:
            self.set_title(_make_child_title(self._run, self._child.state, self._child.in_words))

    def _load_memory(self) -> None:
        self.host.start_worker(self._show_memory, group="child-memory", exclusive=True)

    async def _show_memory(self) -> None:
        memory = await self.host.session.views.child_memory(self._run.child_id)
        if memory is None or not self.is_open:
            return
        live = self._child.thread.status if self._child is not None else None
        self.memory.status = live or memory.status
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
        self.host.start_worker(stop_child, self.host, self._run.child_id, group="agents")


def show_child_event(live: LiveTurn, event: Event) -> None:
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
        live.attach(event.message)
    elif isinstance(event, StepStarted):
        live.begin_step()
    elif isinstance(event, StepDiscarded):
        live.discard_step(event.reason)
    elif isinstance(event, TurnFinished):
        live.end_turn()


def _make_child_title(run: ChildRun, state: ChildState, words: str) -> str:
    return to_one_line(f"{STATE_SYMBOLS[state]} {run.name} › {to_one_line(run.goal, 100)} · {words}", 200)


async def open_child(host: Host, child_id: str) -> None:
    """Open the transcript of a child of the open thread, live while it runs."""
    children = host.session.children
    listed = next((c for c in await children.list_all() if c.run.child_id == child_id), None)
    if listed is not None:
        messages = await host.session.views.transcript(child_id)
        host.push(ChildScreen(listed, messages, children.all.get(child_id)))


async def stop_child(host: Host, child_id: str) -> None:
    """Stop a child, or say why it cannot be stopped here."""
    children = host.session.children
    if not await children.stop(child_id):
        elsewhere = await children.is_elsewhere(child_id)
        host.set_hint(RUNS_ELSEWHERE if elsewhere else "This child thread is not running.", 3)


async def open_agents(host: Host) -> None:
    children = host.session.children
    host.push(AgentsScreen(await children.list_all(), children.custom))
