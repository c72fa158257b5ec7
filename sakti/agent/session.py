"""A session: one user in one workspace, talking in one thread at a time. The TUI and the headless run both drive it.

Constructing one is cheap and imports neither the database nor an SDK; `start` opens what is needed. Whoever listens
gets every event, from turns and from memory's background work, on the event loop, in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sakti.agent import assembly, file_list, system_prompt
from sakti.agent.indexing import Indexing
from sakti.agent.models import Models
from sakti.agent.turns import Turns
from sakti.agent.views import Views
from sakti.agent.workspace import GitState, git_state, moving_facts
from sakti.core import resources
from sakti.core.clock import Clock, SystemClock
from sakti.core.config import APPROVAL_MODES, ApprovalMode, Config
from sakti.core.errors import ConfigError, StoreError
from sakti.core.events import (
    ApprovalRequested,
    CompactionFinished,
    Event,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    Notice,
    StepFinished,
    StoreWaiting,
    ThreadChanged,
)
from sakti.core.text import one_line
from sakti.core.tokens import Counter, O200k
from sakti.core.types import (
    Block,
    ModelInfo,
    Thread,
    Usage,
)

if TYPE_CHECKING:
    from sakti.agent.approvals import Approvals
    from sakti.agent.processors.base import Processor
    from sakti.agent.toolbox import Toolbox
    from sakti.memory.engine import MemoryEngine
    from sakti.memory.pages import Pages
    from sakti.providers.protocol import Provider
    from sakti.store.database import Store
    from sakti.store.memory_corrections import Action

log = logging.getLogger(__name__)

TITLE_LENGTH = 60
LEAVING_S = 3.0  # how long a write waits then for another process


@dataclass(frozen=True, slots=True)
class Options:
    """What a session starts with. `resume` is a thread's id or part of its title, `continue_last` the newest one.
    `interactive` tells whether somebody is there to approve. `processors` are the user's own."""

    workspace: Path
    config: Config = field(default_factory=Config)
    model_flag: str | None = None
    resume: str | None = None
    continue_last: bool = False
    interactive: bool = True
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    warnings: tuple[str, ...] = ()


class Session:
    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        counter: Counter | None = None,
        provider: Provider | None = None,
        model: ModelInfo | None = None,
        store: Store | None = None,
        processors: Sequence[Processor] = (),
    ) -> None:
        self.options = options
        self.config = options.config
        self.env = options.env
        self.workspace = options.workspace.resolve()
        self.resource_id = str(self.workspace)
        self.clock: Clock = clock or SystemClock()
        self.counter: Counter = counter or O200k()
        self.models = Models(options.config, options.env, self.emit, provider, model)
        self.thread: Thread | None = None
        self.mode = options.config.mode
        self.status: MemoryStatus | None = None
        self.usage = Usage()
        self.git: GitState | None = None
        self.views = Views(self)
        self.indexing = Indexing()
        self._store = store
        self._own_store = store is None
        self.saved = not options.config.memory.read_only  # whether anything of this is kept
        self.processors = tuple(processors)
        self._approval_mode: ApprovalMode = options.config.approval.mode
        self._listeners: list[Callable[[Event], None]] = []
        self._engine: MemoryEngine | None = None
        self._toolbox: Toolbox | None = None
        self._approvals: Approvals | None = None
        self._turns = Turns(self)
        self._system_blocks: tuple[Block, ...] = ()
        self.owner = ""  # this session's name in leases and claims
        self._newest = -1  # index of the newest message of the thread that memory here knows
        self._thread_is_new = False

    # --- what the screen reads ----------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        if self._store is None:
            raise StoreError("The database is not open yet.")
        return self._store

    @property
    def engine(self) -> MemoryEngine:
        if self._engine is None:
            raise StoreError("The thread is not open yet.")
        return self._engine

    @property
    def toolbox(self) -> Toolbox:
        if self._toolbox is None:
            self._use_toolbox(assembly.make_toolbox(self))
        assert self._toolbox is not None
        return self._toolbox

    def _use_toolbox(self, toolbox: Toolbox) -> None:
        self._toolbox, self._approvals = toolbox, toolbox.approvals
        toolbox.mode = self._approval_mode

    @property
    def busy(self) -> bool:
        return self._turns.busy

    @property
    def queued(self) -> tuple[str, ...]:
        return self._turns.inbox.texts()

    @property
    def approvals(self) -> tuple[ApprovalRequested, ...]:
        return self._approvals.pending if self._approvals is not None else ()

    @property
    def refused_calls(self) -> int:
        """How many calls were refused approval so far."""
        return self._approvals.refused if self._approvals is not None else 0

    @property
    def approval_mode(self) -> ApprovalMode:
        return self._approval_mode

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Hear every event from now on; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, event: Event) -> None:
        match event:
            case MemoryStatus():
                self.status = event
            case StepFinished(usage=usage):
                self.usage = self.usage + usage
            case ThreadChanged(thread):
                self.thread = thread
            case MessageSaved(message):
                self._newest = max(self._newest, message.index)
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(event)

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, the thread and the model. A missing model is a notice, not an error."""
        from sakti.store import leases

        opened = await assembly.open_store(self, self._store)
        self._store, self._own_store = opened, self._own_store or opened is not self._store

        store = self.store
        store.on_wait, store.on_damage = self.store_waits, self._store_is_damaged
        self.owner = leases.new_owner()
        for warning in (*self.options.warnings, *store.notices, store.not_saved):
            if warning:
                self.emit(Notice("warning", "Start", warning))
        self.indexing.begin(store)
        self.git = await git_state(self.workspace)
        await self.models.select(self.options.model_flag)
        await self._open_first_thread()

    def store_waits(self, seconds: float | None) -> None:
        self.emit(StoreWaiting(seconds))

    def _store_is_damaged(self, reason: str) -> None:
        self.emit(Notice("error", "Not saved", reason))

    @property
    def not_saved(self) -> str:
        """Why nothing that happens here is kept; empty where it is."""
        return (self._store.not_saved or "") if self._store is not None else ""

    def hurry(self) -> None:
        """The user leaves: from now on nothing waits long for another process that writes."""
        if self._store is not None:
            self._store.wait = min(self._store.wait, LEAVING_S)

    async def look(self) -> None:
        """Open the thread that the options name, only to read: no model, nothing written. None is no error."""
        from sakti.store import threads

        if self.options.resume:
            found = await self.store.read(threads.find, self.resource_id, self.options.resume)
        else:
            found = await self.store.read(threads.recent, self.resource_id, 1)
        if found:
            self._thread_is_new = True  # nothing is to be mended or stored
            await self._open(found[0])

    async def warm(self) -> None:
        """Load what the first answer needs, in threads: SDK, tokenizer, tools."""
        await self._warm_counter()
        if self.provider is not None:
            await self.provider.warm()
            await self.learn()
        if self._store is not None and self._toolbox is None:
            made = await asyncio.to_thread(assembly.make_toolbox, self)
            if self._toolbox is None:
                self._use_toolbox(made)
        await asyncio.to_thread(self.system)

    async def _warm_counter(self) -> None:
        warm = getattr(self.counter, "warm", None)
        if warm is not None:
            await asyncio.to_thread(warm)

    async def close(self) -> None:
        """Stop what runs, keeping what was streamed; memory's unfinished work is simply left."""
        await self.interrupt()
        if self._toolbox is not None:
            from sakti.agent.tools import shell

            await shell.stop_all(self._toolbox.bench)
            if not self.saved:
                await asyncio.to_thread(shutil.rmtree, self._toolbox.bench.output_folder, ignore_errors=True)
        if self._engine is not None:
            await self._engine.close()
        await self.models.close()
        await self.indexing.end()
        if self._own_store and self._store is not None:
            await self._store.close()
            self._store = None

    # --- model ----------------------------------------------------------------------------------------------

    @property
    def provider(self) -> Provider | None:
        return self.models.provider

    @property
    def model_info(self) -> ModelInfo | None:
        return self.models.info

    @property
    def model(self) -> ModelChanged | None:
        """Which model answers, and why."""
        return self.models.said

    async def learn(self) -> ModelInfo:
        """The actor with all that is known of it; memory goes by its window from then on."""
        before = self.models.info
        info = await self.models.learn()
        if info is not before and self._engine is not None:
            self._engine.observe_with(*assembly.make_observers(self))
        return info

    async def set_model(self, name: str) -> None:
        """Change the model for what follows. Raises `NoModelError` for a name that means nothing."""
        self._must_rest("model")
        await self.models.change(name)
        if self.thread is not None:
            await self._open(self.thread)

    def _must_rest(self, what: str) -> None:
        if self.busy:
            raise ConfigError(f"The agent is at work: wait, or stop it with Esc, then change the {what}.")

    async def use_config(self, config: Config, *, memory: bool = False) -> None:
        """Go on with changed settings; `memory`: its numbers are among them, so that it is opened anew."""
        self._must_rest("settings")
        self.config = config
        if memory and self.thread is not None:
            await self._open(self.thread)

    def set_approval_mode(self, mode: str) -> None:
        if mode not in APPROVAL_MODES:
            raise ConfigError(f"There is no approval mode {mode!r}: it is one of {', '.join(APPROVAL_MODES)}.")
        self._approval_mode = mode
        if self._toolbox is not None:
            self._toolbox.mode = mode

    async def set_mode(self, mode: str) -> None:
        """Change what the Observer looks for. Raises `ConfigError` for an unknown mode."""
        from sakti.memory import modes

        self._must_rest("mode")
        if mode not in modes.names():
            raise ConfigError(f"There is no mode {mode!r}: it is one of {', '.join(modes.names())}.")
        self.mode = mode
        if self.thread is not None:
            from sakti.store import threads

            await self.store.write(threads.set_mode, self.thread.id, mode)
            await self._open(replace(self.thread, mode=mode))

    # --- threads --------------------------------------------------------------------------------------------

    async def _open_first_thread(self) -> None:
        from sakti.store import threads

        found: list[Thread] = []
        if self.options.resume:
            found = await self.store.read(threads.find, self.resource_id, self.options.resume)
            if not found:
                raise ConfigError(
                    f"No thread of this workspace matches {self.options.resume!r}; `sakti threads list` shows them."
                )
        elif self.options.continue_last:
            found = await self.store.read(threads.recent, self.resource_id, 1)
        if found:
            await self._open(found[0])
        else:
            await self.new_thread()

    async def new_thread(self) -> None:
        """Begin an empty thread. It is stored with its first message, so that empty ones leave no trace."""
        await self.interrupt()
        now = self.clock.now()
        thread = Thread(self.store.ids.new(), self.resource_id, "", now, now, mode=self.mode)
        self._thread_is_new = True
        await self._open(thread)

    async def open_thread(self, thread_id: str) -> None:
        """Go on with a thread. Raises `StoreError` where it does not exist."""
        from sakti.store import threads

        await self.interrupt()
        thread = await self.store.read(threads.get, thread_id)
        if thread is None:
            raise StoreError("There is no such thread: it was removed for good.", code="gone")
        self._thread_is_new = False
        await self._open(thread)

    async def _open(self, thread: Thread) -> None:

        self._turns.begin_thread()
        await self._load(thread)

    async def _load(self, thread: Thread) -> None:
        """The thread's memory as the database has it now."""
        from sakti.agent import resume
        from sakti.store import messages

        if self._engine is not None:
            await self._engine.close()
        self.thread, self.mode = thread, thread.mode
        self._engine = assembly.make_engine(self)
        if not self._thread_is_new:
            await self._warm_counter()  # the log of an older thread is counted when it is opened
            await resume.answer_open_calls(self.store, thread, self.counter, self.owner)
            if self.owner and not self.store.read_only_reason:
                await resume.take_back_claims(self.store, thread, self.owner)
        newest = await self.store.read(messages.page, thread.id, limit=1)
        self._newest = newest[-1].index if newest else -1
        self.usage = await self.store.read(messages.usage_of, thread.id, purpose="actor")
        await self._engine.open(thread)
        if self.model_info is not None and self.model_info.small:
            self._engine.expect(await asyncio.to_thread(assembly.small_budget, self))
        self.status = self._engine.status()
        self.emit(ThreadChanged(thread))
        self.emit(self.status)

    async def rename(self, title: str) -> None:
        from sakti.store import threads

        if self.thread is None or not title.strip():
            raise ConfigError("Write the new title behind /rename.")
        await self.store_thread()
        renamed = await self.store.write(
            threads.rename, self.thread.id, one_line(title, 200), self.clock.now(), by_user=True
        )
        if renamed is None:
            await self.require_thread()
        else:
            self.emit(ThreadChanged(renamed))

    @property
    def thread_is_stored(self) -> bool:
        """Whether the open thread has been written to the database; another process may have removed it since."""
        return not self._thread_is_new

    async def store_thread(self, first_text: str = "") -> None:
        """Store a new thread; its title is the first line of its first message until the Observer names it."""
        from sakti.store import threads

        assert self.thread is not None
        if self._thread_is_new:
            self._thread_is_new = False
            thread = replace(
                self.thread,
                title=one_line(first_text.strip().split("\n")[0], TITLE_LENGTH),
                metadata={**self.thread.metadata, system_prompt.OVERVIEW: await file_list.overview_of(self.workspace)},
            )
            self.emit(ThreadChanged(await self.store.write(threads.create, thread)))

    # --- turns ----------------------------------------------------------------------------------------------

    async def submit(self, text: str) -> None:
        """Send a message: start a turn, or queue it for the running turn's next step. Files named as @path are
        attached. Raises `NoModelError` where there is nobody to answer, `SaktiError` (thread_busy) while another
        window has a turn under way in this thread."""
        await self._turns.submit(text)

    async def retry(self) -> None:
        """Ask again after a model call that failed: the conversation is sent as it stands. Raises as `submit`."""
        await self._turns.retry()

    def unqueue(self, index: int) -> str | None:
        """Take back a queued message; returns its text."""
        return self._turns.unqueue(index)

    async def interrupt(self) -> bool:
        """End the running turn, keeping what was streamed; false where nothing runs."""
        return await self._turns.interrupt()

    async def wait(self) -> None:
        """Until no turn runs."""
        await self._turns.wait()

    async def take_in(self) -> None:
        """What another window wrote into this thread since its last turn here becomes known before the next one."""
        from sakti.agent import resume
        from sakti.store import messages, threads

        assert self.thread is not None
        if not self._thread_is_new:
            await resume.answer_open_calls(self.store, self.thread, self.counter, self.owner)
        newer = await self.store.read(messages.after, self.thread.id, self._newest)
        if not newer:
            return
        thread = await self.store.read(threads.get, self.thread.id)
        await self._load(thread or self.thread)
        self.emit(
            Notice(
                "information",
                "Another window",
                f"{len(newer)} messages were added to this thread in another window; the agent knows them.",
            )
        )

    async def follow(self) -> None:
        """What other windows said in this thread and did to its memory becomes known, unless a turn is under way."""
        if self.thread is not None and not self.busy:
            await self.take_in()
            await self.engine.refresh()

    def system(self) -> tuple[Block, ...]:
        """The system prompt, the same for the life of the thread: what the workspace held when it began is stored with
        it."""
        brief = bool(self.model_info and self.model_info.brief)
        text = system_prompt.build(self.workspace, self.thread, interactive=self.options.interactive, brief=brief)
        if not self._system_blocks or self._system_blocks[0].text != text:
            self._system_blocks = (Block("system", text, edge=True, tokens=self.counter.count(text)),)
        return self._system_blocks

    def facts(self) -> dict[str, str]:
        """What changes from step to step, by name: the hour, the folder, git."""
        bench = self.toolbox.bench
        return moving_facts(self.git, bench.show(bench.cwd), self.clock.now())

    def own_paths(self) -> tuple[Path, ...]:
        """What belongs to sakti itself and no tool may touch: its folders, the database and what SQLite keeps by it."""
        database = self.store.path.resolve()
        beside = (database.with_name(database.name + end) for end in ("", "-wal", "-shm", "-journal"))
        return (resources.data_home(), resources.config_home(), *beside)

    def resolve(
        self, approval_id: str, approved: bool, *, always: bool = False, note: str = "", edited: str | None = None
    ) -> None:
        """Answer an approval; `edited` replaces the command that was asked about."""
        from sakti.agent.approvals import Answer

        if self._approvals is not None:
            self._approvals.resolve(approval_id, Answer(approved, always, note, edited))

    async def shell(self, command: str) -> None:
        """Run the user's own `!command`; what it printed becomes part of the conversation. Raises `SaktiError`
        (thread_busy) while another window has a turn under way in this thread."""
        from sakti.agent import user_shell
        from sakti.agent.turn_lease import TurnLease

        assert self.thread is not None
        if not self.busy:
            lease = TurnLease(self.store, self.owner, self.thread.id, stored=self.thread_is_stored)
            await lease.take()
            await lease.give_back()  # not held for as long as a command may run: a turn may begin meanwhile
            await self.take_in()
        await self.store_thread(f"!{command}")
        await user_shell.run(self, command)

    def pages(self) -> Pages:
        """The pages of working memory that may be written here."""
        from sakti.memory.pages import Pages

        return Pages(self.store, self.counter, self.config.memory, self.resource_id)

    async def note(self, text: str) -> None:
        """Add a line to working memory: to the workspace's page or the thread's own, as the settings say. Raises
        `MemoryFailure` (off, read_only)."""
        assert self.thread is not None
        pages = self.pages()
        pages.must_write()
        await self.require_thread()
        if self.config.memory.working_memory.scope == "thread":
            await self.store_thread(text)
        await pages.add_note(self.thread.id, text)
        self.emit(Notice("information", "Noted", one_line(text, 120)))

    # --- memory ---------------------------------------------------------------------------------------------

    async def require_thread(self) -> None:
        """Raises `SaktiError` (thread_removed) where another process removed the open thread for good."""
        from sakti.agent import turn_lease

        if self.thread is not None and self.thread_is_stored:
            await turn_lease.require_thread(self.store, self.thread.id)

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe everything pending but the last exchange; the result is also an event."""
        await self.require_thread()
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
            self.emit(Notice("information", "Memory goes on", "What is pending is observed in the background."))

    async def undo_reflection(self) -> None:
        """Take the newest reflection back. Raises `MemoryFailure` (not_found) where there is none."""
        await self.require_thread()
        done = await self.engine.undo_reflection()
        tokens = self.engine.status().observations.tokens
        groups = f"{done.groups} group{'s' * (done.groups != 1)}"
        self.emit(Notice("information", "Reflection undone", f"{groups}, {tokens:,} tokens, are the log again."))

    async def correct(self, action: str, line_id: str = "", text: str = "") -> None:
        """Change a line of the log: pin, unpin, edit to `text`, forget; "undo" takes the last change back. Raises
        `MemoryFailure` where there is no such line or nothing to take back."""
        await self.require_thread()
        if action == "undo":
            done = await self.engine.undo_correction()
        else:
            done = await self.engine.correct(line_id, cast("Action", action), text)
        what = {"pin": "Pinned", "unpin": "No longer pinned", "edit": "Changed", "forget": "Forgotten"}
        title = "Taken back" if action == "undo" else what[action]
        self.emit(Notice("information", title, one_line(done.after or done.before, 120)))
        self.emit(self.engine.status())

    def compact_preview(self) -> tuple[int, int, int]:
        """Messages that would be observed, tokens before, tokens after (an estimate)."""
        return self.engine.compact_preview()
