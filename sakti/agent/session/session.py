"""Drive a session: one user in one workspace, one thread at a time. The TUI and the headless run both use it.

Constructing one is cheap and imports neither database nor HTTP client; `start` opens what is needed. Whoever listens
gets every event, from turns and from memory's background work, on the event loop, in order.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from sakti.agent.session import build, current_thread
from sakti.agent.session.queries import Views
from sakti.agent.session.state import Options, State
from sakti.agent.session.turns import Turns
from sakti.agent.threads.reindexing import Indexing
from sakti.core.clock import Clock
from sakti.core.config import APPROVAL_MODES, Config, refuse_mode
from sakti.core.errors import ConfigError
from sakti.core.events import ApprovalRequested, CompactionFinished, Grant, Notice, StoreWaiting, ThreadChanged
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line
from sakti.core.tokens import Counter
from sakti.core.types import Block, ModelInfo, Request

if TYPE_CHECKING:
    from sakti.agent.processors.base import Processor
    from sakti.agent.processors.compose import StepHook
    from sakti.agent.skills.load import Library, Skill
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.providers.protocol import Provider
    from sakti.store.database import Store
    from sakti.store.log.corrections import Action

with lazy_imports:
    from sakti.agent import user_shell
    from sakti.agent.session import hooking, skills, turn_lease
    from sakti.agent.tools import approvals as tool_approvals
    from sakti.agent.tools import background
    from sakti.memory.working import pages as memory_pages
    from sakti.providers import protocol
    from sakti.store import leases
    from sakti.store.threads import threads as stored_threads

__all__ = ["Options", "Session"]

LEAVING_S = 3.0  # how long a write waits then for another process


class Session(State):
    """What a user can do with a session; what it holds is `State`, which its parts are handed."""

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
        super().__init__(options, clock=clock, counter=counter, provider=provider, model=model, processors=processors)
        self.opened_store, self._own_store = store, store is None
        self.views = Views(self)
        self.indexing = Indexing()
        self._turns = Turns(self)
        self._hooking: hooking.SessionHooks | None = None

    # --- what the screen reads ----------------------------------------------------------------------------

    @property
    def toolbox(self) -> Toolbox:
        return build.toolbox(self)

    @property
    def busy(self) -> bool:
        return self._turns.busy

    @property
    def queued(self) -> tuple[str, ...]:
        return self.inbox.texts()

    @property
    def approvals(self) -> tuple[ApprovalRequested, ...]:
        return self.made_toolbox.approvals.pending if self.made_toolbox is not None else ()

    @property
    def refused_calls(self) -> int:
        """Return how many calls were refused approval so far."""
        return self.made_toolbox.approvals.refused if self.made_toolbox is not None else 0

    @property
    def library(self) -> Library:
        """Return the skills and commands that are to be had here."""
        return skills.library(self)

    def typed_skills(self) -> dict[str, Skill]:
        """Return what is typed as `/name` besides sakti's own commands."""
        return {s.name: s for s in self.library.typed}

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, the thread and the model. A missing model is a notice, not an error."""
        given = self.opened_store
        store = self.opened_store = await build.open_store(self, given)
        self._own_store = self._own_store or store is not given
        store.on_wait = lambda seconds: self.emit(StoreWaiting(seconds))
        store.on_damage = lambda reason: self.emit(Notice("error", "Not saved", reason))
        self.owner = leases.new_owner()
        for warning in (*self.options.warnings, *store.notices, store.not_saved):
            if warning:
                self.emit(Notice("warning", "Start", warning))
        if self.options.told:
            self.emit(Notice("information", "Project", self.options.told))
        if build.may_have_hooks(self):
            self._hooking = self._turns.hooking = hooking.begin(self)
        await self._settle_approval()
        build.processors(self)
        self.indexing.begin(store)
        await self.look_at_git()
        await self.models.select(self.options.model_flag)
        await current_thread.first(self)
        self._begin_hooks()

    def _begin_hooks(self) -> None:
        """Run the hooks of a session that begins with the open thread, or goes on with it."""
        if self._hooking is not None:
            self._hooking.start("startup" if self.thread_is_new else "resume")

    async def _end_hooks(self, reason: str) -> None:
        if self._hooking is not None and self.thread is not None:
            await self._hooking.end(reason)

    async def _settle_approval(self) -> None:
        """Begin in `edits` where `auto` was asked for and no sandbox holds."""
        if self.approval_mode == "auto" and (refused := await asyncio.to_thread(build.refused_auto, self)):
            self.set_approval_mode("edits")
            self.emit(Notice("warning", "Approval", f"Approval is edits: {refused}"))

    @property
    def not_saved(self) -> str:
        """Return why nothing that happens here is kept; empty where it is."""
        return (self.opened_store.not_saved or "") if self.opened_store is not None else ""

    def hurry(self) -> None:
        """Shorten all waits for other processes that write: the user leaves."""
        if self.opened_store is not None:
            self.opened_store.wait = min(self.opened_store.wait, LEAVING_S)

    async def look(self) -> None:
        """Open the thread that the options name, only to read: no model, nothing written. None is no error."""
        await current_thread.look(self)

    async def warm(self) -> None:
        """Load what the first answer needs, in threads: SDK, tokenizer, tools."""
        await current_thread.warm_counter(self)
        if self.provider is not None:
            await self.models.warm()
            await self.learn()
        if self.opened_store is not None and self.made_toolbox is None:
            build.use_toolbox(self, await asyncio.to_thread(build.make_toolbox, self))
        await asyncio.to_thread(build.level, self)
        system = await asyncio.to_thread(self.system)
        await self._prepare(system)

    async def _prepare(self, system: tuple[Block, ...]) -> None:
        """Have a model on this machine read what every request here begins with, before the first question."""
        if self.model_info is not None and not self.busy and isinstance(self.provider, protocol.Prepares):
            tools = self.toolbox.specs(self.model_info)
            await self.provider.prepare(Request(self.model_info.name, system, tools=tools))

    async def close(self) -> None:
        """Stop what runs, keeping what was streamed; memory's unfinished work is simply left."""
        await self._turns.close()
        if self._hooking is not None:
            await self._hooking.close()
        if self.own_commands:
            self.stop_command()
            await asyncio.wait(list(self.own_commands))
        if self.made_toolbox is not None:
            if survivors := await background.stop_all(self.made_toolbox.bench):
                self.emit(Notice("warning", "Still running", f"Could not be ended: {', '.join(survivors)}."))
            if self.made_toolbox.bench.network is not None:
                await self.made_toolbox.bench.network.close()
            if not self.saved:
                await asyncio.to_thread(shutil.rmtree, self.made_toolbox.bench.output_folder, ignore_errors=True)
        if self.opened_engine is not None:
            await self.opened_engine.close()
        await self.models.close()
        await self.indexing.end()
        if self._own_store and self.opened_store is not None:
            await self.opened_store.close()
            self.opened_store = None

    # --- model ----------------------------------------------------------------------------------------------

    async def learn(self) -> ModelInfo:
        """Return the actor with all that is known of it; memory goes by its window from then on."""
        return await build.learn(self)

    async def set_model(self, name: str) -> None:
        """Change the model for what follows. Raises `NoModelError` for a name that means nothing."""
        self._must_rest("model")
        await self.models.change(name)
        if self.thread is not None:
            await current_thread.use(self, self.thread)

    def _must_rest(self, what: str) -> None:
        if self.busy:
            raise ConfigError(f"The agent is working: wait, or stop it with Esc, then change the {what}.")

    async def use_config(self, config: Config, *, memory: bool = False) -> None:
        """Go on with changed settings; `memory`: its numbers are among them, so that it is opened anew."""
        self._must_rest("settings")
        self.config = config
        if memory and self.thread is not None:
            await current_thread.use(self, self.thread)

    def refused_auto(self) -> str:
        """Return why the mode `auto` is not to be had here; empty where it is. Tries the sandbox when asked first."""
        return build.refused_auto(self)

    def next_approval_mode(self) -> str:
        """Return the mode after the one in force, from strict to free and round, of those that are to be had here."""
        modes = [m for m in APPROVAL_MODES if m != "auto" or not build.refused_auto(self)]
        return modes[(modes.index(self.approval_mode) + 1) % len(modes)] if self.approval_mode in modes else modes[0]

    def set_approval_mode(self, mode: str) -> None:
        """Change what runs without asking. Raises `ConfigError` for a mode that is not to be had here."""
        if mode not in APPROVAL_MODES:
            raise ConfigError(f"There is no approval mode {mode!r}: it is one of {', '.join(APPROVAL_MODES)}.")
        if mode == "auto" and (refused := build.refused_auto(self)):
            raise ConfigError(f"{refused[0].upper()}{refused[1:]}")
        self.approval_mode = mode
        if self.made_toolbox is not None:
            self.made_toolbox.mode = mode
            self.made_toolbox.bench.sandbox = build.sandbox(self)

    async def set_mode(self, mode: str) -> None:
        """Change what the Observer looks for. Raises `ConfigError` for an unknown mode."""
        self._must_rest("mode")
        if reason := refuse_mode(mode):
            raise ConfigError(f"{reason[0].upper()}{reason[1:]}")
        self.mode = mode
        if self.thread is not None:
            await self.store.write(stored_threads.set_mode, self.thread.id, mode)
            await current_thread.use(self, replace(self.thread, mode=mode))

    # --- threads --------------------------------------------------------------------------------------------

    async def new_thread(self) -> None:
        """Begin an empty thread. It is stored with its first message, so that empty ones leave no trace."""
        await self.interrupt()
        await self._end_hooks("clear")
        await current_thread.new(self)
        self._begin_hooks()

    async def open_thread(self, thread_id: str) -> None:
        """Go on with a thread. Raises `StoreError` where it does not exist."""
        await self.interrupt()
        await self._end_hooks("resume")
        await current_thread.known(self, thread_id)
        self._begin_hooks()

    async def rename(self, title: str) -> None:
        if self.thread is None or not title.strip():
            raise ConfigError("Write the new title after /rename.")
        await current_thread.store(self)
        renamed = await self.store.write(
            stored_threads.rename, self.thread.id, one_line(title, 200), self.clock.now(), by_user=True
        )
        if renamed is None:
            await self.require_thread()
        else:
            self.emit(ThreadChanged(renamed))

    # --- turns ----------------------------------------------------------------------------------------------

    async def submit(self, text: str) -> None:
        """Send a message: start a turn, or queue it for the running turn's next step.

        Files named as @path are attached. Raises `NoModelError` where there is nobody to answer, `SaktiError`
        (thread_busy) while another window has a turn under way in this thread.
        """
        await self._turns.submit(text)

    async def retry(self) -> None:
        """Ask again after a model call that failed: the conversation is sent as it stands. Raises as `submit`."""
        await self._turns.retry()

    async def send_queued(self) -> None:
        """Begin a turn with what a turn that has ended left in the queue, oldest first. Raises as `submit`."""
        await self._turns.send_queued()

    def unqueue(self, index: int) -> str | None:
        """Take back a queued message; returns its text."""
        return self._turns.unqueue(index)

    async def interrupt(self) -> bool:
        """End the running turn, keeping what was streamed; false where nothing runs."""
        return await self._turns.interrupt()

    async def wait(self) -> None:
        """Wait until no turn runs."""
        await self._turns.wait()

    async def follow(self) -> None:
        """Take in what other windows said in this thread and did to its memory, unless a turn is under way."""
        if self.thread is not None and not self.busy:
            await current_thread.catch_up(self)
            await self.engine.refresh()

    def system(self) -> tuple[Block, ...]:
        """Return the system prompt of the open thread."""
        return build.system(self)

    def resolve(
        self, approval_id: str, approved: bool, *, grant: Grant = "once", note: str = "", edited: str | None = None
    ) -> None:
        """Answer an approval; `edited` replaces the command that was asked about."""
        if self.made_toolbox is not None:
            self.made_toolbox.approvals.resolve(approval_id, tool_approvals.Answer(approved, grant, note, edited))

    @property
    def granted_rules(self) -> tuple[str, ...]:
        """Return the rules that were granted for the open thread."""
        return self.made_toolbox.granted if self.made_toolbox is not None else ()

    async def shell(self, command: str) -> None:
        """Run the user's own `!command`; what it printed becomes part of the conversation.

        Raises `SaktiError` (thread_busy) while another window has a turn under way in this thread.
        """
        assert self.thread is not None
        if not self.busy:
            lease = turn_lease.TurnLease(self.store, self.owner, self.thread.id, stored=not self.thread_is_new)
            await lease.take()
            await lease.give_back()  # not held for as long as a command may run: a turn may begin meanwhile
            await current_thread.catch_up(self)
        await current_thread.store(self, f"!{command}")
        await user_shell.run(self, command, during=self._turns.speaking)

    def stop_command(self) -> bool:
        """Stop the newest `!command` of the user that runs; false if none does."""
        return bool(self.own_commands) and user_shell.stop(self)

    def pages(self) -> memory_pages.Pages:
        """Return the pages of working memory that may be written here."""
        return memory_pages.Pages(self.store, self.counter, self.config.memory, self.resource_id)

    async def note(self, text: str) -> None:
        """Add a line to working memory: to the workspace's page or the thread's own, as the settings say.

        Raises `MemoryFailure` (off, read_only).
        """
        assert self.thread is not None
        pages = self.pages()
        pages.must_write()
        await self.require_thread()
        if self.config.memory.working_memory.scope == "thread":
            await current_thread.store(self, text)
        await pages.add_note(self.thread.id, text)
        self.emit(Notice("information", "Noted", one_line(text, 120)))

    # --- memory ---------------------------------------------------------------------------------------------

    async def require_thread(self) -> None:
        """Raise `SaktiError` (thread_removed) where another process removed the open thread for good."""
        if self.thread is not None and not self.thread_is_new:
            await turn_lease.require_thread(self.store, self.thread.id)

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe everything pending but the last exchange; the result is also an event."""
        await self.require_thread()
        if self._hooking is None:
            return await self.engine.compact(focus)
        async with self._hooking.compaction(focus):
            return await self.engine.compact(focus)

    async def undo_compaction(self) -> bool:
        """Bring the messages of the last compaction back; false where there is none."""
        await self.require_thread()
        return await self.engine.undo_compaction() is not None

    async def pause_memory(self, *, pause: bool) -> None:
        """Stop observing in the background, or go on with it. Raises `MemoryFailure` (off)."""
        await self.require_thread()
        if pause:
            await self.engine.pause()
            self.emit(Notice("information", "Memory is paused", "Nothing is observed until it is resumed."))
        else:
            await self.engine.resume()
            self.emit(Notice("information", "Memory resumed", "Pending messages are observed in the background."))

    async def undo_reflection(self) -> None:
        """Take the newest reflection back. Raises `MemoryFailure` (not_found) where there is none."""
        await self.require_thread()
        done = await self.engine.undo_reflection()
        tokens = self.engine.status().observations.tokens
        groups = f"{done.groups} group{'s' * (done.groups != 1)}"
        self.emit(Notice("information", "Reflection undone", f"The log has {groups} with {tokens:,} tokens again."))

    async def correct(self, action: str, line_id: str = "", text: str = "") -> None:
        """Change a line of the log: pin, unpin, edit to `text`, forget; "undo" takes the last change back.

        Raises `MemoryFailure` where there is no such line or nothing to take back.
        """
        await self.require_thread()
        if action == "undo":
            done = await self.engine.undo_correction()
        else:
            done = await self.engine.correct(line_id, cast("Action", action), text)
        what = {"pin": "Pinned", "unpin": "No longer pinned", "edit": "Changed", "forget": "Forgotten"}
        title = "Undone" if action == "undo" else what[action]
        self.emit(Notice("information", title, one_line(done.after or done.before, 120)))
        self.emit(self.engine.status())

    def compact_preview(self) -> tuple[int, int, int]:
        """Messages that would be observed, tokens before, tokens after (an estimate)."""
        return self.engine.compact_preview()
