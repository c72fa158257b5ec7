"""Start the children of an open thread for its calls; limit, stop, resume and deliver them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent import limits, titles
from sakti.agent.session import prompt
from sakti.agent.subagents import files
from sakti.agent.subagents.child import Child
from sakti.agent.subagents.files import AgentSpec, NamedTools
from sakti.agent.subagents.report import AgentTask, make_agent
from sakti.agent.tools.context import Outcome, ToolContext, ToolState
from sakti.core.clock import shorten_id
from sakti.core.config import refuse_mode
from sakti.core.errors import SaktiError, ToolError
from sakti.core.events import AgentStarted, Notice
from sakti.core.resources import read_prompt
from sakti.core.text import cut_middle, quote, to_one_line
from sakti.core.types import PREFIX, ChildState, ContextPart, Message, Thread, Usage
from sakti.providers import facts
from sakti.store.secrets import mask_secrets
from sakti.store.threads import runs as run_store
from sakti.store.threads.runs import REPORT_FACT, ChildRun

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.tools.base import Tool


SHARE = 0.01  # of the model's window, for the list of custom agents
RUNNING = "children"  # the fact that names running children
_SHARED = (prompt.OVERVIEW, prompt.CATALOG, "instructions")  # parts of its parent's prompt in a child's


class ListedChild(Struct, frozen=True):
    """A child as lists show it: its run, and its state by now in one word and in a few."""

    run: ChildRun
    state: ChildState
    in_words: str


class Children:
    """Children of an open thread: those that run in this process, and the stored runs of all."""

    def __init__(self, parent: OpenThread) -> None:
        self._parent = parent
        self.all: dict[str, Child] = {}
        self.spent: list[Usage] = []  # of each step of a child
        self._rows: tuple[ChildRun, ...] = ()  # the stored runs, as they were read last
        self._refused: set[tuple[str, str]] = set()  # repeated goals that were refused once

    @cached_property
    def _places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._parent.workspace.config.subagents.max_threads)

    @property
    def running(self) -> list[Child]:
        return [c for c in self.all.values() if c.is_running]

    def tool_states(self) -> dict[str, ToolState]:
        """Return the state of each running child's tools by the child's short id."""
        toolboxes = {shorten_id(child.id): child.thread.existing_toolbox for child in self.running}
        return {name: toolbox.state for name, toolbox in toolboxes.items() if toolbox is not None}

    def tools(self) -> list[Tool]:
        """Return the tool `agent`, unless children are off."""
        use = self._parent.workspace.config.subagents.use
        return [make_agent(self.call, use, self._list_agents())] if use != "off" else []

    def _list_agents(self) -> str:
        """Return names and descriptions of custom agents, as many as a share of the model's window takes."""
        ws = self._parent.workspace
        info = ws.models.info
        room = int(SHARE * ((info.context_window if info is not None else None) or facts.ASSUMED_WINDOW))
        lines = [read_prompt("subagents#custom")]
        for agent in ws.files.agents.agents:
            line = f"- {agent.name}: {agent.description}"
            if ws.counter.count("\n".join([*lines, line])) > room:
                break
            lines.append(line)
        return "\n".join(lines) if len(lines) > 1 else ""

    # --- a call -----------------------------------------------------------------------------------------------

    async def call(self, run: ToolContext, task: AgentTask) -> Outcome:
        """Start or resume a child and return its report; at once if it works in the background."""
        spec = self._find(task.mode)
        task = replace(task, goal=mask_secrets(task.goal), background=task.background or spec.background)
        tools = self._choose_tools(spec, task)
        if task.background and (asking := self._list_asking_tools(spec, tools)):
            raise ToolError(
                f"{spec.name} cannot work in the background: calls of {', '.join(asking)} may need approvals. Name"
                " fewer tools, or start it without background."
            )
        await self._check_model(task.model)
        if task.resume:
            child = await self._resume(run, spec, task, tools)
        elif repeated := await self._find_repetition(spec, task.goal):
            return Outcome(repeated)
        else:
            child = await self._start(run, spec, task, tools)
        text = f"{task.goal}\n\n# Context\n\n{task.context}" if task.context.strip() else task.goal
        model = task.model or spec.model or self._parent.workspace.config.subagents.model
        self.all[child.id] = child
        child.task = asyncio.create_task(child.play(text, self._places, model))
        self._parent.emit(AgentStarted(child.id, run.call_id, spec.name, task.goal, task.background))
        child.show()
        if not task.background:
            return await self._wait(child)
        child.task.add_done_callback(lambda _task: self._report_ended(child))
        return Outcome(
            f"The child thread {shorten_id(child.id)} works in the background; its report comes with a later step.",
            details={run_store.IN_BACKGROUND: child.id},
        )

    def _find(self, name: str) -> AgentSpec:
        name = name.strip().removeprefix("@").removeprefix("agent-")
        spec = self._parent.workspace.files.agents.get(name) or files.make_mode_agent(name)
        if spec is None:
            raise ToolError(f"{refuse_mode(name)[:1].upper()}{refuse_mode(name)[1:]}")
        return spec

    def _choose_tools(self, spec: AgentSpec, task: AgentTask) -> NamedTools | None:
        """Return the tools that a call names; None for all. Raises `ToolError` for others."""
        if task.tools is None:
            return None
        parent = self._parent
        offered = {t for t in spec.select_tools(parent.toolbox.tools) if parent.mode_tools.allows(t)}
        return files.choose_tools(spec, task.tools, offered)

    def _list_asking_tools(self, spec: AgentSpec, tools: NamedTools | None) -> list[str]:
        """Return the tools of a child whose calls may need approvals; none for read-only modes."""
        if spec.is_read_only:
            return []
        parent = self._parent
        offered = spec.select_tools(parent.toolbox.tools)
        asking = [n for n, t in parent.toolbox.tools.items() if n in offered and t.effect not in ("read", "own")]
        named = spec.tools.names if tools is None else tuple(tools)
        servers = [n for n in named or () if n.startswith(("*", PREFIX))]
        if named is None and parent.workspace.has_servers:
            servers = [f"{PREFIX}*"]
        return [*(n for n in asking if tools is None or files.is_named(tools, n)), *servers]

    async def _check_model(self, name: str) -> None:
        """Raise `ToolError` if a call names a model that is not available: no other may answer unnoticed."""
        try:
            await self._parent.workspace.models.find_named(name)
        except SaktiError as e:
            raise ToolError(
                f"No child was started: the model {to_one_line(name, 60)} is not available ({e.message.rstrip('.')}). "
                "Leave out model for the one that answers here."
            ) from e

    async def _wait(self, child: Child) -> Outcome:
        """Wait for a child; a cancelled wait stops it, and its partial report is the result."""
        assert child.task is not None
        try:
            await asyncio.shield(child.task)
        except asyncio.CancelledError:
            await child.stop("stopped with the turn")
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        self.all.pop(child.id, None)
        assert child.outcome is not None
        return child.outcome

    async def _start(self, run: ToolContext, spec: AgentSpec, task: AgentTask, tools: NamedTools | None) -> Child:
        parent, ws = self._parent, self._parent.workspace
        assert parent.thread is not None
        now, metadata = ws.clock.now(), parent.thread.metadata
        thread = Thread(
            ws.store.ids.new(),
            ws.resource_id,
            titles.make_first_title(task.goal) or spec.name,
            now,
            now,
            title_pinned=True,
            parent_id=parent.id,
            mode=spec.mode,
            metadata={key: metadata[key] for key in _SHARED if key in metadata},
        )
        row = ChildRun(
            thread.id, parent.id, run.call_id, spec.mode, task.goal, now, agent=spec.name, background=task.background
        )
        child = self._make(spec, row, tools)
        await self._begin(child, run_store.start, thread, row)
        return child

    async def _begin(self, child: Child, write: Callable[..., None], *args: object, **options: object) -> None:
        """Store a child's run, its lease first: other windows mark a run without one as interrupted."""
        await child.lease.take()
        try:
            await self._parent.workspace.store.write(write, *args, **options)
        except BaseException:
            await child.lease.give_back()
            raise

    async def _resume(self, run: ToolContext, spec: AgentSpec, task: AgentTask, tools: NamedTools | None) -> Child:
        """Return a stored child that starts again with another goal."""
        await self.refresh()
        row = await self._parent.workspace.store.read(run_store.find, self._parent.id, task.resume)
        if row is None:
            raise ToolError(f"This thread has no child {quote(task.resume, 40)}.")
        if row.state == "running":
            raise ToolError(f"The child {shorten_id(row.child_id)} is still running.")
        now = self._parent.workspace.clock.now()
        changed = replace(row, call_id=run.call_id, state="running", started_at=now, background=task.background)
        child = self._make(self._find_stored(row) or spec, changed, tools)
        await self._begin(child, run_store.restart, child.id, run.call_id, now, background=task.background)
        return child

    def _find_stored(self, row: ChildRun) -> AgentSpec | None:
        return self._parent.workspace.files.agents.get(row.agent) or files.make_mode_agent(row.agent or row.mode)

    def _make(self, spec: AgentSpec, row: ChildRun, tools: NamedTools | None) -> Child:
        started = len(self.spent)

        def find_reached() -> str:
            turn = self._parent.running.turn
            if turn is None or row.background:
                return ""
            used = turn.usage + sum(self.spent[started:], Usage())
            limit = limits.find_reached_limit(turn.settings, used, turn.seconds())
            return limit.message if limit is not None else ""

        return Child(self._parent, spec, row, tools, self.spend, find_reached)

    def spend(self, usage: Usage) -> None:
        self.spent.append(usage)
        self._parent.usage = self._parent.usage + usage

    async def _find_repetition(self, spec: AgentSpec, goal: str) -> str:
        """Return the answer to a goal that an earlier child had; the second such call runs."""
        key = (spec.name, " ".join(goal.split()).casefold())
        for row in await self._parent.workspace.store.read(run_store.list_children, self._parent.id):
            if (row.name, " ".join(row.goal.split()).casefold()) != key or key in self._refused:
                continue
            self._refused.add(key)
            what = "still runs" if row.state == "running" else f"ended: {(row.report or {}).get('marks', row.state)}"
            return (
                f"Nothing was started: the child {shorten_id(row.child_id)} already had this goal and {what}. "
                "Name it in resume to ask it more; call again to start another one."
            )
        return ""

    # --- delivery in the background ---------------------------------------------------------------------------

    def _report_ended(self, child: Child) -> None:
        self.all.pop(child.id, None)
        if child.outcome is not None and child.is_here:
            text = f"{child.spec.name}: {to_one_line(child.run.goal, 80)}. Its report is delivered with the next step."
            self._parent.emit(Notice("information", "Child thread ended", text))

    def facts(self, messages: Sequence[Message]) -> dict[str, str]:
        """Return the facts for the next request: the running children, and reports that were not delivered."""
        sent = _merge_facts(messages)
        running = [r for r in self._rows if r.background and r.state == "running"]
        lines = [f"- {shorten_id(r.child_id)} {r.name}: {to_one_line(r.goal, 200)}" for r in running]
        out = self._list_undelivered_reports(sent)
        if lines:
            out[RUNNING] = "\n".join(["Child threads that are running; do not start them again:", *lines])
        elif sent.get(RUNNING):
            out[RUNNING] = "No child thread is running."
        return out

    def _list_undelivered_reports(self, sent: Mapping[str, str]) -> dict[str, str]:
        """Return the reports of background children that no message brought, as facts."""
        limit = self._parent.workspace.config.agent.tool_output_bytes
        reports = {
            f"{REPORT_FACT} {r.child_id}": mask_secrets(cut_middle(r.report["block"], limit)[0])
            for r in self._rows
            if r.background and r.report and r.delivered_at is None and r.state != "running"
        }
        return {name: text for name, text in reports.items() if sent.get(name) != text}

    # --- the life of the thread -------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the thread's children from the database, and mark those that a crash left as interrupted."""
        ws, parent = self._parent.workspace, self._parent
        search = parent.id, ws.clock.now(), {c.id for c in self.running}
        may_write = ws.owner and not ws.store.read_only_reason
        if may_write and await ws.store.read(run_store.find_orphans, *search):
            for row in await ws.store.write(run_store.interrupt_orphans, *search):
                text = f"{row.name}: {to_one_line(row.goal, 80)} was interrupted; the agent can resume it."
                parent.emit(Notice("warning", "Child thread", text))
        self._rows = tuple(await ws.store.read(run_store.list_children, parent.id))

    def enclose(self) -> None:
        """Let running children work in the sandbox from now on, as the parent does."""
        for child in self.running:
            if (toolbox := child.thread.existing_toolbox) is not None:
                toolbox.state.sandbox = self._parent.toolbox.state.sandbox

    async def stop(self, child_id: str) -> bool:
        """Stop a running child; its partial report is delivered. False if it does not run."""
        child = self.all.get(child_id)
        if child is None or not child.is_running:
            return False
        await child.stop("stopped by the user")
        return True

    async def is_elsewhere(self, child_id: str) -> bool:
        """Return whether a child runs in another window."""
        await self.refresh()
        runs = [r for r in self._rows if r.child_id == child_id and r.state == "running"]
        return bool(runs) and child_id not in {c.id for c in self.running}

    async def stop_deleted(self, thread_id: str) -> None:
        """Stop the children of a thread that was deleted, or the child that was."""
        gone = [c for c in self.running if thread_id in (c.id, c.run.parent_id)]
        await asyncio.gather(*(c.stop("its thread was deleted") for c in gone))

    async def list_all(self) -> list[ListedChild]:
        """Return the thread's children, oldest first."""
        await self.refresh()
        return [self._list_child(row) for row in self._rows]

    def _list_child(self, row: ChildRun) -> ListedChild:
        child = self.all.get(row.child_id)
        return ListedChild(row, *((child.state, child.in_words) if child is not None else (row.state, row.in_words)))

    @property
    def custom(self) -> tuple[AgentSpec, ...]:
        """Return the custom agents."""
        return self._parent.workspace.files.agents.agents

    async def wait_background(self) -> bool:
        """Wait for the children in the background here; return whether there are reports to deliver."""
        tasks = [c.task for c in self.running if c.run.background and c.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self.refresh()
        return bool(self._list_undelivered_reports(_merge_facts(self._parent.engine.state.window.messages)))

    async def close(self) -> None:
        """Stop all children: the program ends, or another thread is opened."""
        await asyncio.gather(*(c.stop("sakti ended") for c in self.running))


def _merge_facts(messages: Sequence[Message]) -> dict[str, str]:
    """Return the facts that messages brought, the newest of each name."""
    merged: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ContextPart):
                merged |= part.facts
    return merged
