"""Own everything that belongs to one open thread: its row, memory, prompt, tools, and running turn."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sakti.agent import titles
from sakti.agent.repository import find_local_timezone
from sakti.agent.session.inbox import Inbox, PromptNews
from sakti.agent.session.running_turn import RunningTurn, StepEstimate
from sakti.agent.workspace import Workspace
from sakti.core.config import SessionMode
from sakti.core.errors import StoreError
from sakti.core.events import (
    Event,
    JobsChanged,
    MemoryStatus,
    MessageSaved,
    Notice,
    StepFinished,
    TasksChanged,
    ThreadChanged,
    assign_thread,
)
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count
from sakti.core.types import Block, Json, ModelInfo, Thread, Usage

if TYPE_CHECKING:
    from sakti.agent.checkpoints.recorder import TurnRecorder
    from sakti.agent.plans import ProposedPlan
    from sakti.agent.project.hooks.fire import Hooks
    from sakti.agent.subagents import ChildHost
    from sakti.agent.tools.context import ToolState
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.memory.engine import MemoryEngine
    from sakti.memory.state import MemoryOptions


with lazy_imports:
    from sakti.agent import file_list, limits, plans
    from sakti.agent.checkpoints import recorder as recording
    from sakti.agent.judge import policy as judge_modes
    from sakti.agent.processors import builtin
    from sakti.agent.project import instructions
    from sakti.agent.project import skills as skill_catalog
    from sakti.agent.project.hooks import guard as hook_guard
    from sakti.agent.session import prompt, recovery
    from sakti.agent.tools import approvals as tool_approvals
    from sakti.agent.tools import background, catalog, job_log
    from sakti.agent.tools import toolbox as tool_box
    from sakti.memory import engine as memory_engine
    from sakti.memory import modes as memory_modes
    from sakti.memory import pages as memory_pages
    from sakti.memory import state as memory_state
    from sakti.store import secrets
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import runs
    from sakti.store.threads import threads as stored_threads
    from sakti.tasks import service


class OpenThread:
    """The thread that a window, or a script, works in.

    `is_new`: not stored yet. `last_index`: the index of the newest message loaded into memory here. `hooks` are None if
    there are none.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.thread: Thread | None = None
        self.is_new = False
        self.last_index = -1
        self.inbox = Inbox()
        self.running = RunningTurn(StepEstimate(workspace.config.agent.tool_output_bytes))
        self.usage = Usage()
        self.status: MemoryStatus | None = None
        self.news = PromptNews()
        self.hooks: Hooks | None = None
        self._mode: str | None = None
        self._approval_mode: SessionMode | None = None
        self._engine: MemoryEngine | None = None
        self._toolbox: Toolbox | None = None
        self._system: tuple[Block, ...] = ()

    @cached_property
    def _loading(self) -> asyncio.Lock:
        """Return the lock of loads: each replaces the engine."""
        return asyncio.Lock()

    @cached_property
    def prefix(self) -> prompt.SentPrefix:
        return prompt.SentPrefix(self)

    # --- values -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the id of the thread; empty before one is open."""
        return self.thread.id if self.thread is not None else ""

    @property
    def busy(self) -> bool:
        task = self.running.task
        return task is not None and not task.done()

    @property
    def speaking(self) -> bool:
        """Return whether an answer streams that is not stored yet."""
        turn = self.running.turn
        return turn is not None and bool(turn.streamed or turn.thinking)

    @property
    def engine(self) -> MemoryEngine:
        """Return the thread's memory. Raises `StoreError`."""
        if self._engine is None:
            raise StoreError("The thread is not open yet.")
        return self._engine

    @property
    def mode(self) -> str:
        """Return the agent mode of this thread."""
        return self._mode or self.workspace.options.config.mode

    @property
    def mode_tools(self) -> judge_modes.ModeTools:
        """Return the tools that the agent mode allows."""
        return judge_modes.ModeTools(self.mode, memory_modes.read_numbers(self.mode).tools)

    @property
    def approval_mode(self) -> SessionMode:
        return "edits" if self.may_edit else self._approval_mode or self.workspace.approval_mode

    @property
    def may_edit(self) -> bool:
        """Return whether an answer allowed all edits in this thread, which otherwise asks about them."""
        return self._toolbox is not None and self._toolbox.may_edit

    def set_approval_mode(self, mode: SessionMode) -> None:
        """Change what runs without asking, also for open questions."""
        self._approval_mode = mode
        self._use_approval_mode(may_edit=False)

    def allow_edits(self) -> None:
        """Ask about no edits in this thread, as in the mode `edits`, until the mode is changed."""
        if self.approval_mode == "ask":
            self._use_approval_mode(may_edit=True)

    def _use_approval_mode(self, *, may_edit: bool) -> None:
        if self._toolbox is not None:
            self._toolbox.may_edit = may_edit
            self._toolbox.state.sandbox = self.workspace.sandbox
            self._toolbox.set_mode(self.approval_mode)
            self.children.enclose()

    @property
    def granted_rules(self) -> tuple[str, ...]:
        """Return the rules that were granted for this thread."""
        return self._toolbox.granted if self._toolbox is not None else ()

    @property
    def recorder(self) -> TurnRecorder | None:
        """Return the recorder of file changes; None if nothing is recorded."""
        if self._toolbox is None:
            return None
        recorder = self._toolbox.state.recorder
        return recorder if isinstance(recorder, recording.TurnRecorder) else None

    def emit(self, event: Event) -> None:
        """Record an event of this thread, and pass it, with the thread's id, to the listeners."""
        self.running.estimate.on_event(event)
        self.prefix.on_event(event)
        if isinstance(event, MemoryStatus):
            self.status = event
        elif isinstance(event, StepFinished):
            self.usage = self.usage + event.usage
        elif isinstance(event, MessageSaved):
            self.last_index = max(self.last_index, event.message.index)
        elif isinstance(event, ThreadChanged):
            near = self._nearby
            if near is not None and self.id != event.thread.id:
                near.forget()
            self.thread = event.thread
        self._send(assign_thread(event, self.id))

    def _send(self, event: Event) -> None:
        for listener in tuple(self.workspace.listeners):
            listener(event)

    # --- open and leave ---------------------------------------------------------------------------------------

    async def open_new(self, thread_id: str | None = None, metadata: Json | None = None) -> None:
        """Begin an empty thread. It is stored with its first message, so that empty ones leave no trace."""
        ws, now = self.workspace, self.workspace.clock.now()
        self.is_new = True
        await self.switch_to(
            Thread(
                thread_id or ws.store.ids.new(), ws.resource_id, "", now, now, mode=self.mode, metadata=metadata or {}
            )
        )

    async def open_stored(self, thread_id: str) -> None:
        """Continue a stored thread. Raises `StoreError` if it does not exist."""
        thread = await self.workspace.store.read(stored_threads.get, thread_id)
        if thread is None:
            raise StoreError("This thread was removed for good.", code="gone")
        self.is_new = False
        await self.switch_to(thread)

    async def switch_to(self, thread: Thread) -> None:
        """Make a thread the open one, without a queue, a failed prompt, or grants."""
        self.inbox = replace(self.inbox, queued=[])
        self.running.has_failed = False
        self.news.instructions, self.news.skills = {}, ""
        if self._toolbox is not None:
            self._toolbox.granted = ()
            self._toolbox.may_edit = self._toolbox.may_edit and thread.id == self.id
            self._toolbox.mode = self.approval_mode
        async with self._loading:
            await self._load(thread)

    async def open_again(self) -> None:
        """Open the same thread again, with the current model and settings."""
        if self.thread is not None:
            await self.switch_to(self.thread)

    async def set_mode(self, mode: str) -> None:
        """Change the agent mode: instructions, tools, the Observer's focus, thresholds."""
        memory_modes.read_numbers(mode)  # raises if its file is broken
        self._mode = mode
        if self.thread is not None:
            await self.workspace.store.write(stored_threads.set_mode, self.thread.id, mode)
            await self.switch_to(replace(self.thread, mode=mode))

    async def _load(self, thread: Thread) -> None:
        """Load the thread's memory from the database."""
        ws = self.workspace
        if self._engine is not None:
            await self._engine.close()
        self.thread, self._mode, self.status, self.running.past_jobs = thread, thread.mode, None, {}
        if self._toolbox is not None:
            self._toolbox.mode_tools = self.mode_tools
        self.running.estimate.reset()
        engine = self._engine = self._make_engine()
        if not self.is_new:
            await ws.warm_counter()  # the log of an older thread is counted when it is opened
            await self.recover(notify=False)
            if ws.owner and not ws.store.read_only_reason:
                await self.children.refresh()
                running = self._toolbox.state.background.values() if self._toolbox is not None else ()
                self.running.past_jobs = await job_log.JobLog(ws.store).find_past(thread.id, running)
                await recovery.take_back_claims(ws.store, thread, ws.owner)
        newest = await ws.store.read(stored_messages.list_page, thread.id, limit=1)
        self.usage = await ws.store.read(runs.load_total_usage, thread.id, "actor")
        await self.prefix.load()
        await engine.open(thread)
        self.last_index = newest[-1].index if newest else -1  # not earlier: a failed load is repeated
        await self._limit_memory()
        self.status = engine.status()
        self.emit(ThreadChanged(thread))
        self.emit(self.status)

    def _make_engine(self) -> MemoryEngine:
        ws = self.workspace
        observer, reflector = ws.make_observers()
        services = memory_state.MemoryServices(ws.store, ws.counter, self.emit)
        return memory_engine.MemoryEngine(services, self._build_memory_options(), observer, reflector)

    def _build_memory_options(self) -> MemoryOptions:
        ws = self.workspace
        return memory_state.MemoryOptions(
            settings=ws.config.memory,
            mode=self.mode,
            timezone=find_local_timezone(),
            owner=ws.owner,
            reason=ws.observer_reason(),
            page_of=ws.board_id,
        )

    async def catch_up(self) -> None:
        """Load messages that another window added to this thread since its last turn here; show a notice."""
        async with self._loading:
            thread = self.thread
            assert thread is not None
            if self.engine.is_unrecorded:
                await self.engine.open(thread)
            await self.recover()
            count = await self._load_newer(thread)
        if count:
            text = f"Added to this thread in another window: {format_count(count, 'message')}. The agent sees them."
            self.emit(Notice("information", "Another window", text))

    async def follow(self) -> bool:
        """Load changes by another window, unless a turn or memory job runs here; return whether it did."""
        async with self._loading:
            if (thread := self.thread) is None or self.status is None or self.busy:
                return False
            await self.reload_title()
            if self.engine.tasks():
                return False
            if await self.workspace.store.read(recovery.was_killed, thread.id):
                await self.recover()
            return bool(await self._load_newer(thread)) or await self.engine.refresh()

    async def recover(self, *, notify: bool = True) -> None:
        """Complete the last turn if its process was killed; `notify` if no added message shows it."""
        if self.is_new or self.thread is None:
            return
        done = await recovery.recover(self.workspace.store, self.thread, self.workspace.counter, self.workspace.owner)
        self.running.has_failed |= done.was_killed
        if notify and done.was_killed and not done.messages:
            self.emit(Notice("warning", "Interrupted", recovery.KILLED))

    async def _load_newer(self, thread: Thread) -> int:
        """Load the thread again if it has newer messages; return their number."""
        store = self.workspace.store
        newer = await store.read(stored_messages.list_after, thread.id, self.last_index)
        if newer:
            await self._load(await store.read(stored_threads.get, thread.id) or thread)
        return len(newer)

    async def close(self) -> None:
        """Stop children, background commands and memory's work; delete the outputs of an unsaved session."""
        await self.children.close()
        if self._toolbox is not None:
            state = self._toolbox.state
            if survivors := await background.stop_all(state):
                self.emit(Notice("warning", "Still running", f"Could not be ended: {', '.join(survivors)}."))
            if state.network is not None:
                await state.network.close()
            if not self.workspace.saved:
                await asyncio.to_thread(shutil.rmtree, state.output_folder, ignore_errors=True)
        if self._engine is not None:
            await self._engine.close()

    # --- the stored row ---------------------------------------------------------------------------------------

    async def store(self, first_text: str = "") -> None:
        """Store a new thread, titled by its first message until the Observer names it.

        A thread that a guardrail left without a title gets one, too.
        """
        assert self.thread is not None
        ws = self.workspace
        await self._refresh_skills()
        if not self.is_new:
            if ws.options.use_project_instructions:
                _ = self.toolbox  # it knows the content of its results
            await self._refresh_instructions()
            await self.name(first_text)
            return
        self.is_new = False
        thread = replace(
            self.thread,
            title=titles.make_first_title(secrets.mask_secrets(plans.find_title(self.thread.metadata) or first_text)),
            metadata={
                **self.thread.metadata,
                prompt.OVERVIEW: await file_list.describe_folder(ws.root, trusted=ws.options.trusted),
                **instructions.to_metadata(await ws.files.find_instructions()),
                **prompt.make_skill_metadata(self._list_skills()),
                **(ws.servers.to_metadata() if ws.has_servers else {}),
                **({} if ws.options.interactive else {titles.HEADLESS: True}),
            },
        )
        self.emit(ThreadChanged(await ws.store.write(stored_threads.create, thread)))

    async def _refresh_skills(self) -> None:
        """Read the skills again; a continued thread keeps its prompt, and a fact reports changes."""
        await self.workspace.files.reload_skills()
        before = prompt.get_initial_skills(self.thread)
        self.news.skills = skill_catalog.describe_changes(before, self._list_skills()) if before else ""

    def _list_skills(self) -> str:
        """Return the list of skills for a new thread."""
        ws, info = self.workspace, self.workspace.models.info
        return skill_catalog.block(ws.files.library, ws.counter, info.context_window if info is not None else None)

    async def _refresh_instructions(self) -> None:
        """Read the instructions again; a continued thread keeps its prompt, and facts report changes."""
        current = await self.workspace.files.find_instructions()
        self.news.instructions = instructions.describe_changes(instructions.find_initial(self.thread), current.sources)
        if self._nearby is not None:
            await self._nearby.refresh()

    async def name(self, text: str) -> None:
        """Title a stored thread by `text` if it has no title, or only a greeting or command."""
        ws, thread, title = self.workspace, self.thread, titles.make_first_title(secrets.mask_secrets(text))
        if thread is None or thread.title_pinned or not title:
            return
        if not thread.title or (titles.is_uninformative(thread.title) and not titles.is_uninformative(title)):
            renamed = await ws.store.write(stored_threads.rename, thread.id, title, ws.clock.now(), by_user=False)
            self.emit(ThreadChanged(renamed or thread))

    async def reload_title(self) -> None:
        """Read the stored title: a guardrail may have removed it, or another window changed it."""
        stored, thread = await self.workspace.store.read(stored_threads.get, self.id), self.thread
        if stored is not None and thread is not None and stored.title != thread.title:
            self.emit(ThreadChanged(replace(thread, title=stored.title, title_pinned=stored.title_pinned)))

    async def add_metadata(self, metadata: Json) -> None:
        """Store metadata with the thread, which is stored already."""
        assert self.thread is not None
        self.thread = replace(self.thread, metadata={**self.thread.metadata, **metadata})
        await self.workspace.store.write(stored_threads.update_metadata, self.thread.id, metadata)

    async def note_skills(self, names: Sequence[str]) -> None:
        """Store with the thread that skills were loaded."""
        before = prompt.list_loaded_skills(self.thread)
        now = list(dict.fromkeys((*before, *names)))
        if now != before:
            await self.add_metadata({prompt.LOADED: now})

    # --- plans ------------------------------------------------------------------------------------------------

    def task_actor(self) -> service.Actor:
        """Return this thread's agent as the author of task changes."""
        ws = self.workspace
        return service.Actor(ws.board_id, self.id, ws.clock.now(), self.id, owner=ws.owner or None)

    async def approve_plan(self, plan: ProposedPlan, message_id: str, mode: SessionMode, *, fresh: bool) -> None:
        """Create the tasks of a plan and store it in one transaction, then change the approval mode.

        `fresh`: a new thread carries it out after this turn.
        """
        ws = self.workspace
        mode = "edits" if mode == "auto" and ws.refused_auto() else mode
        approval: Json = {"before": self.approval_mode, "mode": mode}
        stored = await ws.store.write(plans.approve, self.task_actor(), plan, ws.store.ids, message_id, approval)
        if fresh:
            self.running.successor = plans.make_successor(stored, self.id)
            await self.add_metadata({stored_threads.PINNED_PLAN: None})
        else:
            await self.add_metadata({plans.KEY: stored, **plans.pin(stored)})
            self.set_approval_mode(mode)
        self.emit(TasksChanged())

    # --- the prompt -------------------------------------------------------------------------------------------

    def system(self) -> tuple[Block, ...]:
        """Return the system prompt of the last request while a cache may hold it, else the current one.

        The overview of the workspace is of the time when the thread began, and stored with it.
        """
        ws, info = self.workspace, self.workspace.models.info
        texts = self.prefix.texts() or [*prompt.list_texts(ws, self.thread), *self._list_more_texts()]
        stable = len(texts) - 1  # a prompt cache breaks behind all of them
        if ws.files.summary and info is not None and info.small:
            texts.append(("project", ws.files.summary))
        if [(b.kind, b.text) for b in self._system] != texts:
            self._system = tuple(
                Block(k, t, edge=i >= stable, tokens=ws.counter.count(t)) for i, (k, t) in enumerate(texts)
            )
        return self._system

    def _list_more_texts(self) -> list[tuple[str, str]]:
        return []

    def facts(self) -> dict[str, str]:
        """Return the facts that change from step to step, by name: the hour, the folder, git, news."""
        ws, tools = self.workspace, self.toolbox.state
        messages = self._engine.state.window.messages if self._engine is not None else ()
        near = self._nearby.texts() if self._nearby is not None else {}
        return {
            **prompt.collect_moving_facts(ws.files.git, tools.show(tools.cwd), ws.clock.now()),
            **prompt.collect_instruction_facts(messages, self.news.instructions, near, self.thread),
            **({"hooks": self.news.hooks} if self.news.hooks else {}),
            **prompt.collect_job_facts(messages, self.id, tools.background, self.running.past_jobs),
            **prompt.collect_mode_facts(messages, self.mode_tools, self.approval_mode),
            **prompt.collect_skill_facts(messages, self.news.skills, self.thread, ws.files.library),
            **prompt.collect_server_facts(messages, ws, self.thread),
            **self.children.facts(messages),
        }

    async def learn(self) -> ModelInfo:
        """Return the actor with all known facts; memory uses its window from then on."""
        ws = self.workspace
        models, before = ws.models, ws.models.info
        info = await models.learn()
        if info.brief and not info.small and models.noticed_window != info.context_window:
            models.noticed_window = info.context_window
            self.emit(
                Notice("information", "Small window", prompt.name_omissions(info, self.toolbox, ws.files.library))
            )
        if info is not before and self._engine is not None:
            self._engine.set_models(*ws.make_observers())
            await self._limit_memory()
            if self.status is not None:  # else the thread is being loaded
                self.emit(self._engine.status())
        return info

    async def _limit_memory(self) -> None:
        """Tell memory how many tokens the model's window leaves it, if the window is known."""
        ws, engine, info = self.workspace, self._engine, self.workspace.models.info
        if engine is None or info is None or info.context_window is None:
            return
        if info.small:
            await ws.files.load_summary()
        await self.warm_toolbox()
        tokens = await asyncio.to_thread(self._count_budget, info)
        if tokens is not None:
            engine.set_budget(tokens)

    def _count_budget(self, info: ModelInfo) -> int | None:
        counter, tools = self.workspace.counter, self.toolbox
        fixed = sum(b.tokens for b in self.system()) + tools.count(counter, tools.specs(info))
        return limits.measure_room(info, self.workspace.config.agent, fixed)[1]

    # --- tools ------------------------------------------------------------------------------------------------

    @property
    def toolbox(self) -> Toolbox:
        """Return the thread's tools, made on first use."""
        if self._toolbox is None:
            self._use_toolbox(self._make_toolbox())
        assert self._toolbox is not None
        return self._toolbox

    @property
    def existing_toolbox(self) -> Toolbox | None:
        """Return the thread's tools, if they were needed already."""
        return self._toolbox

    async def warm_toolbox(self) -> None:
        """Make the tools in a thread."""
        if self._toolbox is None:
            self._use_toolbox(await asyncio.to_thread(self._make_toolbox))

    def _use_toolbox(self, toolbox: Toolbox) -> None:
        if self._toolbox is None:  # another was made meanwhile
            self._toolbox = toolbox
            toolbox.mode, toolbox.mode_tools, toolbox.sent = self.approval_mode, self.mode_tools, self.prefix.tools

    async def load_rules(self) -> None:
        """Read the rules saved for the workspace, also those saved or revoked in another window."""
        self.toolbox.saved = await self.workspace.allowed_rules()

    def _offer_remote_tools(self, toolbox: Toolbox) -> None:
        """Offer the tools of MCP servers, and a search for tools if a processor or a server needs it."""
        ws = self.workspace
        always = next((p.always for p in ws.processors() if isinstance(p, builtin.ToolSearch)), None)
        if always is not None or ws.has_servers:
            toolbox.remote, toolbox.explain_missing = ws.servers.tools, ws.servers.explain_missing
            toolbox.offer_search(always, lambda: ws.config.tool_search.top_k, ws.servers.note_instructions)

    def _make_toolbox(self) -> Toolbox:
        """Create the tools, with their schemas prepared and counted."""
        ws, approval, state = self.workspace, self.workspace.config.approval, self._make_tool_state()
        tools = catalog.make_all_tools(
            ws.store,
            resource_id=ws.resource_id,
            owner=ws.owner or None,
            pages=memory_pages.Pages(ws.store, ws.counter, ws.config.memory, ws.board_id),
            emit=self.emit,
            in_window=lambda: self.engine.window_ids,
        )
        if ws.files.library.offered:
            loaded = prompt.LoadedSkills(lambda: prompt.list_loaded_skills(self.thread), self.note_skills)
            tools.append(catalog.make_skill_tool(lambda: ws.files.library, loaded))
        approvals = tool_approvals.Approvals(self.emit, interactive=ws.options.interactive)
        tools += tool_approvals.make_cards(approvals, self.approve_plan)
        tools += [background.make_wait(lambda: bool(self.inbox.queued)), *self.children.tools()]
        toolbox = tool_box.Toolbox(
            {t.name: t for t in tools if t.name not in state.missing_tools},
            state,
            approvals,
            self.approval_mode,
            judge_modes.Rules(approval.allow, approval.ask, approval.deny),
            ws.save_rule,
            lambda: ws.models.info.name if ws.models.info else "",
        )
        self._offer_remote_tools(toolbox)
        if ws.files.count or instructions.user_has_rules():
            near, trusts = prompt.make_nearby, ws.options.trusts
            toolbox.hooks = (near(ws.files, trusts, lambda: self.thread, self.add_metadata, toolbox.list_touched),)
        toolbox.guard = hook_guard.HookGuard(self.hooks, toolbox.state) if self.hooks is not None else None
        toolbox.withheld = frozenset(t.name for t in tools) - toolbox.tools.keys()
        toolbox.state.job_log = job_log.JobLog(ws.store)
        toolbox.state.jobs_changed = lambda: self.emit(JobsChanged())
        toolbox.state.spend = lambda usage: self.children.spend(usage)
        toolbox.count(ws.counter, toolbox.specs(ws.models.info))
        return toolbox

    @property
    def children(self) -> ChildHost:
        return self.running.children

    def _make_tool_state(self) -> ToolState:
        return self.workspace.make_tool_state(self.emit, enclosed=self.approval_mode != "full")

    @property
    def _nearby(self) -> instructions.Nearby | None:
        hooks = self._toolbox.hooks if self._toolbox is not None else ()
        return next((h for h in hooks if isinstance(h, instructions.Nearby)), None)
