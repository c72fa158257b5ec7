"""Drive a session: one user in one workspace, one thread at a time, for the TUI and headless runs.

Constructing one is cheap and imports neither database nor HTTP client; `start` opens the rest. Listeners get every
event of turns and of memory's background work, in order, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

from sakti.agent.open_thread import OpenThread
from sakti.agent.options import Options
from sakti.agent.session.queries import Views
from sakti.agent.workspace import Workspace, preload_store
from sakti.core.clock import Clock
from sakti.core.config import APPROVAL_MODES, Config, SessionMode, refuse_mode
from sakti.core.errors import ConfigError, SaktiError
from sakti.core.events import (
    ApprovalAnswer,
    ApprovalRequested,
    CompactionFinished,
    Event,
    Grant,
    Notice,
    TasksChanged,
    ThreadChanged,
)
from sakti.core.lazy import lazy_imports, load
from sakti.core.text import format_count, quote, to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import Block, Json, ModelInfo, Request, Thread

if TYPE_CHECKING:
    from sakti.agent.processors.base import Processor, StepHook
    from sakti.agent.project.skills import Skill
    from sakti.agent.subagents.children import Children
    from sakti.agent.tools.context import ToolState
    from sakti.agent.tools.processes import Running
    from sakti.providers.protocol import Provider
    from sakti.store.database import Store
    from sakti.store.log.corrections import Action
    from sakti.store.threads.fork import CarriedLine
    from sakti.store.threads.runs import StoredJob


with lazy_imports:
    from sakti.agent import moved_folder, plans
    from sakti.agent.session import initial_thread, session_hooks, turn_lease, user_calls
    from sakti.agent.session import turns as session_turns
    from sakti.agent.subagents import children as subagents
    from sakti.agent.tools import background
    from sakti.memory import compaction
    from sakti.memory import pages as memory_pages
    from sakti.providers import protocol
    from sakti.store.threads import threads as stored_threads

__all__ = ["Options", "Session"]

LEAVING_S = 3.0  # how long a write then waits for another process


def preload() -> None:
    """Execute the modules that starting a session needs.

    Run it in a thread, so that the screen responds meanwhile.
    """
    preload_store()
    load(subagents)


class Session:
    """Conversation: a workspace, its open thread with turns, and the queries of the screen."""

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        counter: Counter | None = None,
        provider: Provider | None = None,
        model: ModelInfo | None = None,
        store: Store | None = None,
        processors: Sequence[Processor | StepHook] = (),
    ) -> None:
        self.workspace = Workspace(options, clock=clock, counter=counter, store=store, processors=processors)
        if provider is not None:
            self.workspace.models.provider, self.workspace.models.info = provider, model
        self.current = OpenThread(self.workspace)
        self.views = Views(self.current)
        self.undone_to = ""  # the thread in which an undo made here goes on

    # --- values -----------------------------------------------------------------------------------------------

    @cached_property
    def turns(self) -> session_turns.Turns:
        return session_turns.Turns(self.current, self._begin_successor)

    @cached_property
    def children(self) -> Children:
        """Child threads of the open thread."""
        return subagents.Children(self.current)

    @property
    def thread(self) -> Thread | None:
        """Return the open thread."""
        return self.current.thread

    @property
    def busy(self) -> bool:
        """Return whether a turn runs."""
        return self.current.busy

    @property
    def queued(self) -> tuple[str, ...]:
        return self.current.inbox.texts()

    @property
    def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the open questions."""
        toolbox = self.current.existing_toolbox
        return toolbox.approvals.pending if toolbox is not None else ()

    @property
    def refused_calls(self) -> int:
        """Return how many calls were refused approval so far."""
        toolbox = self.current.existing_toolbox
        return toolbox.approvals.refused if toolbox is not None else 0

    @property
    def goal_status(self) -> str:
        """Return turns and price of the thread's open goal; "" if none is open."""
        return self.turns.goals.short

    def typed_skills(self) -> dict[str, Skill]:
        """Return the skills typed as `/name`, besides sakti's own commands."""
        return {s.name: s for s in self.workspace.files.library.typed}

    def typed_names(self) -> frozenset[str]:
        """Return the names that are sent when they are typed as `/name`: skills, and prompts of servers."""
        return frozenset((*self.typed_skills(), *self.prompts()))

    def prompts(self) -> dict[str, str]:
        """Return the prompts of MCP servers, as `server:prompt`, with their arguments in words."""
        return self.workspace.servers.prompts() if self.workspace.has_servers else {}

    def resources(self) -> list[str]:
        """Return the resources of MCP servers, as `server:uri`."""
        return self.workspace.servers.resources() if self.workspace.has_servers else []

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns the function that ends it."""
        return self.workspace.subscribe(listener)

    def emit(self, event: Event) -> None:
        """Pass an event of the open thread to all listeners."""
        self.current.emit(event)

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, the thread and the model. A missing model is a notice, not an error."""
        self.current.running.children = self.children
        await self.workspace.open()
        if self.workspace.files.may_have_hooks():
            self.turns.hooks = session_hooks.begin(self.current)
        await self._settle_approval()
        await self.workspace.prepare()
        await initial_thread.open_initial(self.current)
        for earlier in self.workspace.files.earlier:
            self.emit(Notice("warning", "Moved folder", moved_folder.offer(earlier)))
        self._begin_hooks()
        if self.workspace.has_servers:
            self.workspace.servers.begin(lambda: self.current.toolbox.approvals)

    def _begin_hooks(self) -> None:
        """Run the hooks of a session that begins with the open thread, or goes on with it."""
        if self.turns.hooks is not None:
            self.turns.hooks.start("startup" if self.current.is_new else "resume")

    async def _end_hooks(self, reason: str) -> None:
        if self.turns.hooks is not None and self.thread is not None:
            await self.turns.hooks.end(reason)

    async def _settle_approval(self) -> None:
        """Begin in `edits` if `auto` was requested and there is no complete sandbox."""
        if self.current.approval_mode != "auto":
            return
        if refused := await asyncio.to_thread(self.workspace.refused_auto):
            self.set_approval_mode("edits")
            self.emit(Notice("warning", "Approval", f"Approval is edits: {refused}"))

    def hurry(self) -> None:
        """Shorten all waits for other writing processes, because the user is leaving."""
        self.workspace.hurry(LEAVING_S)

    async def warm(self) -> None:
        """Load the requirements of the first answer, in threads: SDK, tokenizer, tools."""
        ws = self.workspace
        await ws.warm_counter()
        if ws.models.provider is not None:
            await ws.models.warm()
            await self.current.learn()
        if ws.is_open:
            await self.current.warm_toolbox()
        await asyncio.to_thread(ws.try_sandbox)
        system = await asyncio.to_thread(self.current.system)
        await self._prepare(system)

    async def _prepare(self, system: tuple[Block, ...]) -> None:
        """Let a local model evaluate the common prefix of all requests before the first question."""
        models = self.workspace.models
        if models.info is not None and not self.busy and isinstance(models.provider, protocol.Prepares):
            tools = self.current.toolbox.specs(models.info)
            await models.provider.prepare(Request(models.info.name, system, tools=tools))

    async def close(self) -> None:
        """Stop all activities and keep streamed text.

        The next start continues the unfinished work of memory.
        """
        await self.turns.close()
        if self.turns.hooks is not None:
            await self.turns.hooks.close()
        await self.current.close()
        await self.workspace.close()

    # --- model and settings -----------------------------------------------------------------------------------

    async def set_model(self, name: str) -> None:
        """Change the model for the next requests. Raises `NoModelError` for a name that means nothing."""
        self._must_rest("model")
        await self.workspace.models.change(name)
        await self.current.open_again()

    def _must_rest(self, what: str) -> None:
        if self.busy:
            raise ConfigError(f"The agent is working: wait, or stop it with Esc, then change the {what}.")

    async def use_config(self, config: Config, *, memory: bool = False) -> None:
        """Continue with changed settings; `memory`: they include memory's, so that it is opened again."""
        self._must_rest("settings")
        self.workspace.config = config
        if memory:
            await self.current.open_again()

    def next_approval_mode(self) -> str:
        """Return the mode after the one in force, from strict to free and round, of those that are available."""
        if self.current.may_edit:
            return "ask"  # takes back the grants of answers
        modes, current = APPROVAL_MODES, self.current.approval_mode
        modes = [m for m in modes if m != "auto" or not self.workspace.refused_auto()]
        return modes[(modes.index(current) + 1) % len(modes)] if current in modes else modes[0]

    def set_approval_mode(self, mode: str) -> None:
        """Change the approval mode. Raises `ConfigError` for a mode unavailable here."""
        if mode not in APPROVAL_MODES:
            raise ConfigError(f"There is no approval mode {quote(mode)}: it is one of {', '.join(APPROVAL_MODES)}.")
        if mode == "auto" and (refused := self.workspace.refused_auto()):
            raise ConfigError(f"{refused[0].upper()}{refused[1:]}")
        self.current.set_approval_mode(cast("SessionMode", mode))

    async def set_mode(self, mode: str) -> None:
        """Change the agent mode. Raises `ConfigError` for an unknown mode."""
        self._must_rest("mode")
        if reason := refuse_mode(mode):
            raise ConfigError(f"{reason[0].upper()}{reason[1:]}")
        await self.current.set_mode(mode)

    # --- threads --------------------------------------------------------------------------------------------

    async def new_thread(self, *, metadata: Json | None = None) -> None:
        """Begin an empty thread. It is stored with its first message, so that empty ones leave no trace."""
        await self.interrupt()
        await self._end_hooks("clear")
        await self.current.open_new(metadata=metadata)
        self._begin_hooks()

    async def _begin_successor(self, metadata: Json) -> None:
        """Open the thread that carries out a plan, and begin."""
        await self.new_thread(metadata=metadata)
        self.current.set_approval_mode(metadata[plans.KEY]["mode"])
        await self.submit(plans.BEGIN)

    @staticmethod
    def describe_plan(stored: Json) -> str:
        """Return a stored plan as Markdown."""
        return plans.to_markdown(plans.read_plan(stored))

    @staticmethod
    def renumber_plan(edited: str, before: str) -> str:
        """Return a plan edited as Markdown with its steps numbered again. Raises `ToolError` if it is invalid."""
        return plans.to_markdown(plans.from_markdown(edited, plans.from_markdown(before)))

    def use_plan_change(self, change: plans.PlanChange) -> None:
        """Show the effect of an undo or redo on a plan, and apply the resulting approval mode."""
        self.current.set_approval_mode(change.mode)
        self.emit(TasksChanged())

    async def open_thread(self, thread_id: str) -> None:
        """Continue a thread. Raises `StoreError` if it does not exist."""
        await self.interrupt()
        await self._end_hooks("resume")
        await self.current.open_stored(thread_id)
        self._begin_hooks()

    async def follow_undo(self) -> Literal["", "undone", "redone"]:
        """Open the thread in which this one goes on since another window undid turns of it, or redid them.

        Return the effect; "" if nothing.
        """
        before, store = self.thread, self.workspace.store
        if before is None:
            return ""
        now, origin = (
            await store.read(stored_threads.get, before.id),
            await store.read(stored_threads.find_redone_origin, before),
        )
        if self.busy or self.thread is not before:
            return ""
        if origin:
            await self.open_thread(origin)
            return "redone"
        went_to = stored_threads.find_successor(now) if now is not None else ""
        if now is None or went_to in ("", stored_threads.find_successor(before), self.undone_to):
            return ""
        if await store.read(stored_threads.get, went_to) is not None:
            await self.open_thread(went_to)
        else:
            await self.current.open_new(went_to, plans.make_undo_metadata(now))
        return "undone"

    async def rename(self, title: str) -> None:
        if self.thread is None or not title.strip():
            raise ConfigError("Write the new title after /rename.")
        await self.current.store()
        ws = self.workspace
        renamed = await ws.store.write(
            stored_threads.rename, self.thread.id, to_one_line(title, 200), ws.clock.now(), by_user=True
        )
        if renamed is None:
            await self.require_thread()
        else:
            self.emit(ThreadChanged(renamed))

    # --- turns ----------------------------------------------------------------------------------------------

    def note_pasted_blocks(self, blocks: Iterable[str]) -> None:
        """Remember blocks that were pasted into the prompt that is sent next: lists fold them."""
        self.current.inbox.pasted += blocks

    async def submit(self, text: str) -> None:
        """Send a message: start a turn, or queue it for the running turn's next step.

        Files named as @path are attached. Raises `NoModelError` without a model, `SaktiError` (thread_busy) while
        another window has a turn under way in this thread.
        """
        await self.turns.submit(text)

    async def send_program_text(self, kind: str, text: str, label: str) -> None:
        """Start a turn with a text that the user did not write, shown as `label`. Raises as `submit`."""
        await self.turns.send_program_text(kind, text, label)

    async def retry(self) -> None:
        """Send the unchanged conversation again after a failed model call. Raises as `submit`."""
        await self.turns.retry()

    async def send_queued(self) -> None:
        """Begin a turn with messages that an ended turn left queued, oldest first. Raises as `submit`."""
        await self.turns.send_queued()

    def unqueue(self, index: int) -> str | None:
        """Take back a queued message; returns its text."""
        return self.turns.unqueue(index)

    async def interrupt(self) -> bool:
        """End the running turn and keep its streamed text; return False if no turn runs."""
        return await self.turns.interrupt()

    async def wait(self) -> None:
        """Wait until no turn runs."""
        await self.turns.wait()

    async def follow(self) -> None:
        """Load changes by other windows to this thread and its memory, unless a turn is running."""
        if self.thread is not None and not self.busy:
            await self.current.catch_up()
            await self.current.engine.refresh()

    def resolve(
        self, approval_id: str, approved: bool, *, grant: Grant = "once", note: str = "", edited: str | None = None
    ) -> None:
        """Answer an approval; `edited` replaces the command that was asked about."""
        self.answer(approval_id, ApprovalAnswer(approved, grant, note, edited))

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> None:
        """Answer an approval or a card."""
        toolbox = self.current.existing_toolbox
        if toolbox is not None:
            if answer.approved and answer.grant == "edits":
                self.current.allow_edits()
            toolbox.approvals.resolve(approval_id, answer)

    async def shell(self, command: str) -> None:
        """Run the user's `!command`; its output becomes part of the conversation.

        Raises `SaktiError` (thread_busy) while another window has a turn under way in this thread.
        """
        assert self.thread is not None
        if not self.busy:
            ws = self.workspace
            lease = turn_lease.TurnLease(ws.store, ws.owner, self.thread.id, stored=not self.current.is_new)
            await self.current.recover()
            await lease.take()
            await lease.give_back()  # not held while the command runs, so that a turn may begin meanwhile
            await self.current.catch_up()
        await self.current.store(f"!{command}")
        await user_calls.run(self.current, command, during=self.current.speaking)

    @property
    def _tool_state(self) -> ToolState | None:
        toolbox = self.current.existing_toolbox
        return toolbox.state if toolbox is not None else None

    def stop_command(self, call_id: str = "") -> bool:
        """Stop a `!command` of the user, the newest by default; false if it does not run."""
        state = self._tool_state
        return state is not None and background.stop_own_command(state, call_id)

    def background_commands(self) -> dict[str, Running]:
        """Return the commands of the agent and its children that run in the background, by number."""
        owners = self._job_owners.items()
        return {place + n: job for place, state in owners for n, job in background.list_running(state).items()}

    def list_jobs(self) -> dict[str, Running | StoredJob]:
        """Return the background commands of the agent and its children by number, also ended and lost ones."""
        jobs = {place + n: job for place, state in self._job_owners.items() for n, job in state.background.items()}
        return {**self.current.running.past_jobs, **jobs}

    @property
    def _job_owners(self) -> dict[str, ToolState]:
        """Return the owners of background commands, by the prefix of their numbers: of a child, its id."""
        owners = {f"{child}:": state for child, state in self.children.tool_states().items()}
        return owners if self._tool_state is None else {"": self._tool_state, **owners}

    def describe_job(self, job: Running | StoredJob) -> str:
        """Return the command, the state and the newest line of a job."""
        newest = to_one_line(background.read_last_lines(job, 1), 200)
        state = background.describe_state(job)
        return f"{to_one_line(job.command, 200)}: {state}{f'; {newest}' if newest else ''}"

    async def end_background(self, number: str) -> list[str]:
        """End a background command and all that it started; return the names of survivors."""
        if number in self.current.running.past_jobs:
            raise SaktiError("It ended with an earlier sakti process.", title="Jobs")
        child, colon, own_number = number.rpartition(":")
        state = self._job_owners.get(child + colon)
        return await background.stop_command(state, own_number) if state is not None else []

    def pages(self) -> memory_pages.Pages:
        """Return the pages of working memory that may be written here."""
        ws = self.workspace
        return memory_pages.Pages(ws.store, ws.counter, ws.config.memory, ws.board_id)

    async def note(self, text: str) -> None:
        """Add a line to working memory: to the workspace's page or the thread's own, as the settings say.

        Raises `MemoryFailure` (off, read_only).
        """
        assert self.thread is not None
        pages = self.pages()
        pages.must_write()
        await self.require_thread()
        if self.workspace.config.memory.working_memory.scope == "thread":
            await self.current.store(text)
        await pages.add_note(self.thread.id, text)
        self.emit(Notice("information", "Noted", to_one_line(text, 120)))

    # --- memory ---------------------------------------------------------------------------------------------

    async def require_thread(self) -> None:
        """Raise `SaktiError` (thread_removed) if another process removed the open thread for good."""
        if self.thread is not None and not self.current.is_new:
            await turn_lease.require_thread(self.workspace.store, self.thread.id)

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe everything pending but the last exchange; the result is also an event."""
        await self.require_thread()
        if self.turns.hooks is None:
            return await self.current.engine.compact(focus)
        async with self.turns.hooks.compaction(focus):
            return await self.current.engine.compact(focus)

    async def undo_compaction(self) -> bool:
        """Bring the messages of the last compaction back; return False if there are none."""
        await self.require_thread()
        return await self.current.engine.undo_compaction() is not None

    async def pause_memory(self, *, pause: bool) -> None:
        """Stop observing in the background, or go on with it. Raises `MemoryFailure` (off)."""
        await self.require_thread()
        if pause:
            await self.current.engine.pause()
            self.emit(Notice("information", "Memory is paused", "Nothing is observed until it is resumed."))
        else:
            await self.current.engine.resume()
            self.emit(Notice("information", "Memory resumed", "Pending messages are observed in the background."))

    async def undo_reflection(self) -> None:
        """Take the newest reflection back. Raises `MemoryFailure` (not_found) without one."""
        await self.require_thread()
        done = await self.current.engine.undo_reflection()
        tokens = self.current.engine.status().observations.tokens
        groups = format_count(done.groups, "group")
        self.emit(Notice("information", "Reflection undone", f"The log has {groups} with {tokens:,} tokens again."))

    async def correct(self, action: str, line_id: str = "", text: str = "") -> None:
        """Change a line of the log: pin, unpin, edit to `text`, forget; "undo" takes the last change back.

        Raises `MemoryFailure` if there is no such line or nothing to take back.
        """
        await self.require_thread()
        if action == "undo":
            done = await self.current.engine.undo_correction()
        else:
            done = await self.current.engine.correct(line_id, cast("Action", action), text)
        what = {"pin": "Pinned", "unpin": "No longer pinned", "edit": "Changed", "forget": "Forgotten"}
        title = "Undone" if action == "undo" else what[action]
        self.emit(Notice("information", title, to_one_line(done.after or done.before, 120)))
        self.emit(self.current.engine.status())

    async def remove_carried(self, line: CarriedLine, *, removed: bool = True) -> None:
        """Remove a line that this thread took over from earlier ones, or restore it."""
        await self.require_thread()
        await self.current.engine.remove_carried(line, removed=removed)

    def compact_preview(self) -> tuple[int, int, int]:
        """Messages that would be observed, tokens before, tokens after (an estimate)."""
        engine = self.current.engine
        return compaction.preview(engine.state) if engine.record_id else (0, 0, 0)  # else a thread is just being opened
