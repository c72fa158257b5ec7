"""A session: one user in one workspace, talking in one thread at a time. The TUI and the headless run both drive it.

Constructing one is cheap and imports neither the database nor an SDK; `start` opens what is needed. Whoever listens
gets every event, from turns and from memory's background work, on the event loop, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.agent.views import ContextBlock, Views
from sakti.agent.workspace import GitState, describe, git_state, local_timezone, moving_facts, scrubbed
from sakti.core import resources
from sakti.core.clock import Clock, SystemClock
from sakti.core.config import APPROVAL_MODES, ApprovalMode, Config
from sakti.core.errors import ConfigError, NoModelError, SaktiError, StoreError
from sakti.core.events import (
    ApprovalRequested,
    CompactionFinished,
    Event,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    Notice,
    QueueChanged,
    StepFinished,
    ThreadChanged,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from sakti.core.text import one_line
from sakti.core.tokens import Counter, O200k, count_parts, message_tokens
from sakti.core.types import Block, FilePart, Message, ModelInfo, Part, TextPart, Thread, ToolCallPart, Usage, plain_text

if TYPE_CHECKING:
    from sakti.agent.approvals import Approvals
    from sakti.agent.inbox import Inbox
    from sakti.agent.loop import Turn
    from sakti.agent.processors.base import Processor
    from sakti.agent.toolbox import Toolbox
    from sakti.agent.turn_lease import TurnLease
    from sakti.memory.engine import MemoryEngine
    from sakti.providers.protocol import Provider
    from sakti.store.database import Store

log = logging.getLogger(__name__)

TITLE_LENGTH = 60
MENTION = re.compile(r"(?<!\S)@((?:\\ |[^\s\\])+)")
MENTION_LIMIT = 200_000


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
        self, options: Options, *, clock: Clock | None = None, counter: Counter | None = None,
        provider: Provider | None = None, model: ModelInfo | None = None, store: Store | None = None,
        processors: Sequence[Processor] = (),
    ) -> None:
        self.options = options
        self.config = options.config
        self.env = options.env
        self.workspace = options.workspace.resolve()
        self.resource_id = str(self.workspace)
        self.clock: Clock = clock or SystemClock()
        self.counter: Counter = counter or O200k()
        self.provider = provider
        self.model_info = model
        self.model: ModelChanged | None = None
        self.thread: Thread | None = None
        self.mode = options.config.mode
        self.status: MemoryStatus | None = None
        self.usage = Usage()
        self.git: GitState | None = None
        self.views = Views(self)
        self.last_text = ""
        self._store = store
        self._own_store = store is None
        self._processors = tuple(processors)
        self._approval_mode: ApprovalMode = options.config.approval.mode
        self._listeners: list[Callable[[Event], None]] = []
        self._engine: MemoryEngine | None = None
        self._toolbox: Toolbox | None = None
        self._approvals: Approvals | None = None
        self._inbox: Inbox | None = None
        self._turn: Turn | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed: tuple[Part, ...] | None = None
        self._background_providers: dict[str, Provider] = {}
        self._model_learned = False
        self._system_blocks: tuple[Block, ...] = ()
        self._session_id = ""
        self._owner = ""  # this session's name in the leases
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
            self._use_toolbox(self._make_toolbox())
        assert self._toolbox is not None
        return self._toolbox

    def _use_toolbox(self, toolbox: Toolbox) -> None:
        self._toolbox, self._approvals = toolbox, toolbox.approvals
        toolbox.mode = self._approval_mode

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def queued(self) -> tuple[str, ...]:
        return self._inbox.texts() if self._inbox is not None else ()

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
                if message.role == "assistant" and message.text:
                    self.last_text = message.text
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(event)

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, the thread and the model. A missing model is a notice, not an error."""
        if self._store is None:
            from sakti.store.database import Store

            path = Path(self.config.store.path or resources.data_home() / "sakti.db").expanduser()
            self._store = await Store.open(path, clock=self.clock, synchronous=self.config.store.synchronous)
        from sakti.store import leases

        store = self.store
        self._session_id, self._owner = store.ids.new(), leases.new_owner()
        for warning in (*self.options.warnings, *store.notices, store.read_only_reason):
            if warning:
                self.emit(Notice("warning", "Start", warning))
        self.git = await git_state(self.workspace)
        if self.provider is None:
            await self._select_model()
        else:
            self._say_model("given")
        await self._open_first_thread()

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
            await self._learn_model()
        if self._store is not None and self._toolbox is None:
            made = await asyncio.to_thread(self._make_toolbox)
            if self._toolbox is None:
                self._use_toolbox(made)
        await asyncio.to_thread(self._system)

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
        if self._engine is not None:
            await self._engine.close()
        for provider in (self.provider, *self._background_providers.values()):
            if provider is not None:
                await provider.close()
        if self._own_store and self._store is not None:
            await self._store.close()
            self._store = None

    # --- model ----------------------------------------------------------------------------------------------

    async def _select_model(self) -> None:
        from sakti.providers import registry

        try:
            choice = await registry.select(
                flag=self.options.model_flag, config_model=self.config.model, env=self.env, settings=self.config.providers
            )
        except SaktiError as e:
            self.emit(Notice("error", e.title, e.message))
            choice = None
        if choice is None:
            self.model = ModelChanged(None, "no key, no local server, no installed model")
            self.emit(self.model)
            return
        await self._use_model(choice.model, choice.reason)

    async def _use_model(self, full_name: str, reason: str) -> None:
        from sakti.providers import registry

        provider = registry.create(full_name, self.config.providers, self.env)
        name, _, model = full_name.partition("/")
        settings = self.config.providers.get(name)
        known = {m.name: m for m in await provider.models()} if name in ("local", "scripted") else {}
        info = known.get(model) or ModelInfo(model, name, context_window=settings.context_window if settings else None)
        old, self.provider, self.model_info, self._model_learned = self.provider, provider, info, False
        if old is not None:
            await old.close()
        self._say_model(reason)

    def _say_model(self, reason: str) -> None:
        assert self.model_info is not None
        self.model = ModelChanged(self.model_info.full_name, reason, self.model_info.context_window)
        self.emit(self.model)

    async def _learn_model(self) -> ModelInfo:
        """The model's window and prices, looked up before the first request (the price list is slow to load)."""
        assert self.model_info is not None
        info = self.model_info
        if not self._model_learned and info.context_window is None and info.provider not in ("local", "scripted"):
            self._model_learned = True
            from sakti.providers import registry

            found = await asyncio.to_thread(registry.model_info, info.full_name, self.config.providers)
            if found.context_window != info.context_window:
                self.model_info = info = replace(found, small=info.small)
                self._say_model(self.model.reason if self.model else "")
        return info

    async def set_model(self, name: str) -> None:
        """Change the model for what follows. Raises `NoModelError` for a name that means nothing."""
        from sakti.providers import registry

        full = await registry.complete(name, self.env, self.config.providers)
        await self._use_model(full, "/model")
        if self.thread is not None:
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
                raise ConfigError(f"No thread of this workspace matches {self.options.resume!r}; `sakti threads list` shows them.")
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
            raise StoreError(f"There is no thread {thread_id}.")
        self._thread_is_new = False
        await self._open(thread)

    async def _open(self, thread: Thread) -> None:
        from sakti.agent.inbox import Inbox

        self._inbox, self._failed = Inbox(), None
        await self._load(thread)

    async def _load(self, thread: Thread) -> None:
        """The thread's memory as the database has it now."""
        from sakti.agent import resume
        from sakti.store import messages

        if self._engine is not None:
            await self._engine.close()
        self.thread, self.mode = thread, thread.mode
        self._engine = self._make_engine()
        if not self._thread_is_new:
            await self._warm_counter()  # the log of an older thread is counted when it is opened
            await resume.answer_open_calls(self.store, thread, self.counter, self._owner)
        newest = await self.store.read(messages.page, thread.id, limit=1)
        self._newest = newest[-1].index if newest else -1
        self.usage = await self.store.read(messages.usage_of, thread.id)
        await self._engine.open(thread)
        self.status = self._engine.status()
        self.emit(ThreadChanged(thread))
        self.emit(self.status)

    async def rename(self, title: str) -> None:
        from sakti.store import threads

        if self.thread is None or not title.strip():
            raise ConfigError("Write the new title behind /rename.")
        await self._store_thread()
        renamed = await self.store.write(
            threads.rename, self.thread.id, one_line(title, 200), self.clock.now(), by_user=True)
        if renamed is not None:
            self.emit(ThreadChanged(renamed))

    async def _store_thread(self, first_text: str = "") -> None:
        """Store a new thread; its title is the first line of its first message until the Observer names it."""
        from sakti.store import threads

        assert self.thread is not None
        if self._thread_is_new:
            self._thread_is_new = False
            thread = replace(self.thread, title=one_line(first_text.strip().split("\n")[0], TITLE_LENGTH))
            await self.store.write(threads.create, thread)
            self.emit(ThreadChanged(thread))

    def _make_engine(self) -> MemoryEngine:
        from sakti.memory import factory
        from sakti.memory.engine import MemoryEngine

        memory, info = self.config.memory, self.model_info
        observer_model = memory.model or memory.observation.model or self._small_model()
        reflector_model = memory.model or memory.reflection.model or observer_model
        provider, model_name = self._background(observer_model)
        reflector_provider, reflector_name = self._background(reflector_model)
        observer, reflector = factory.build_observers(
            memory, provider, model_name, fit=info is None or not info.small or bool(memory.model or memory.observation.model),
            counter=self.counter, clock=self.clock, reflector_provider=reflector_provider, reflector_model=reflector_name,
        )
        return MemoryEngine(
            store=self.store, settings=memory, mode=self.mode, counter=self.counter, clock=self.clock,
            ids=self.store.ids, observer=observer, reflector=reflector, emit=self.emit, timezone=local_timezone(),
        )

    def _small_model(self) -> str | None:
        """The model that observes by default: the provider's small one, the actor's where another server stands
        behind the provider's name."""
        from sakti.providers import registry

        if self.model_info is None:
            return None
        name = self.model_info.provider
        settings = self.config.providers.get(name)
        elsewhere = (settings and settings.base_url) or self.env.get(f"{name.upper()}_BASE_URL")
        return self.model_info.full_name if elsewhere else registry.small_model(self.model_info.full_name)

    def _background(self, full_name: str | None) -> tuple[Provider | None, str | None]:
        """The provider and the name of a model that works in the background; the actor's provider where it is the
        same, so that one connection serves both."""
        from sakti.providers import registry

        if full_name is None or full_name == "extractive":
            return None, None
        name, _, model = full_name.partition("/")
        if self.provider is not None and self.model_info is not None and self.model_info.provider == name:
            return self.provider, model
        if full_name not in self._background_providers:
            self._background_providers[full_name] = registry.create(full_name, self.config.providers, self.env)
        return self._background_providers[full_name], model

    def _make_toolbox(self) -> Toolbox:
        from sakti.agent.approvals import Approvals
        from sakti.agent.permissions import Rules
        from sakti.agent.toolbox import Toolbox
        from sakti.agent.tools import all_tools
        from sakti.agent.tools.base import Workbench
        from sakti.providers.presets import PRESETS

        keys = frozenset(k for p in PRESETS.values() for k in p.keys) | {
            s.key_env for s in self.config.providers.values() if s.key_env
        }
        bench = Workbench(
            self.workspace, self.workspace, resources.state_home() / "outputs", self.clock, self.store.ids,
            scrubbed(self.env, keys), self.config.agent.tool_output_bytes, self.config.agent.bash_timeout,
        )
        approval = self.config.approval
        approvals = Approvals(self.emit, interactive=self.options.interactive)
        tools = all_tools(
            self.store, resource_id=self.resource_id, session_id=self._session_id, counter=self.counter,
            settings=self.config.memory, emit=self.emit, in_window=lambda: self.engine.window_ids,
        )
        toolbox = Toolbox(
            {t.name: t for t in tools}, bench, approvals, self._approval_mode,
            Rules(approval.allow, approval.ask, approval.deny),
            (resources.data_home(), resources.config_home(), *_database_files(self.store.path)), self._save_rule,
        )
        toolbox.count(self.counter, toolbox.specs(small=bool(self.model_info and self.model_info.small)))
        return toolbox

    def _save_rule(self, rule: str) -> None:
        from sakti.store import user_state

        task = asyncio.ensure_future(
            self.store.write(user_state.save_rule, self.resource_id, rule, "allow", self.clock.now()))
        task.add_done_callback(lambda t: t.exception() and log.warning("rule not saved: %s", t.exception()))

    async def _load_rules(self) -> None:
        from sakti.store import user_state

        saved = await self.store.read(user_state.rules, self.resource_id)
        rules = self.toolbox.rules
        new = tuple(r for r, decision in saved if decision == "allow" and r not in rules.allow)
        self.toolbox.rules = replace(rules, allow=(*rules.allow, *new))

    # --- turns ----------------------------------------------------------------------------------------------

    async def submit(self, text: str) -> None:
        """Send a message: start a turn, or queue it for the running turn's next step. Files named as @path are
        attached. Raises `NoModelError` where there is nobody to answer, `SaktiError` (thread_busy) while another
        window has a turn under way in this thread."""
        if not text.strip():
            return
        if self.provider is None:
            raise NoModelError(
                "Set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again, run `sakti local install`, or name a local "
                "server with /model. Everything but the answers works without."
            )
        parts = await asyncio.to_thread(self._with_files, text)
        if self.busy:
            assert self._inbox is not None
            self._inbox.queued.append(parts)
            self.emit(QueueChanged(self._inbox.texts()))
            return
        await self._begin(parts)

    async def _begin(self, parts: tuple[Part, ...]) -> None:
        """Start a turn; returns when the thread is taken for it."""
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(parts, taken))
        await taken

    async def retry(self) -> None:
        """Ask again after a model call that failed: the conversation is sent as it stands. Raises as `submit`."""
        if self._failed is not None and not self.busy:
            await self._begin(())

    def unqueue(self, index: int) -> str | None:
        """Take back a queued message; returns its text."""
        if self._inbox is None or not 0 <= index < len(self._inbox.queued):
            return None
        text = self._inbox.texts()[index]
        del self._inbox.queued[index]
        self.emit(QueueChanged(self._inbox.texts()))
        return text

    async def interrupt(self) -> bool:
        """End the running turn, keeping what was streamed; false where nothing runs."""
        task = self._task
        if task is None or task.done():
            return False
        if self._turn is not None:
            self._turn.interrupt()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
        return True

    async def wait(self) -> None:
        """Until no turn runs."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _run(self, parts: tuple[Part, ...], taken: asyncio.Future[None]) -> None:
        """One turn, its events to all listeners. The worker's root: whatever fails becomes an event, but that the
        thread is in use elsewhere, which `taken` tells."""
        from sakti.agent import turn_lease

        assert self.thread is not None
        lease = turn_lease.TurnLease(self.store, self._owner, self.thread.id)
        error: SaktiError | None = None
        try:
            await lease.take()
            _settle(taken)
            self._failed = None
            await self._play(parts, lease)
            return
        except asyncio.CancelledError:
            pass
        except SaktiError as e:
            if e.code == turn_lease.BUSY:
                self._task = None
                _settle(taken, e)
                return
            log.exception("turn failed")
            error = e
        except Exception as e:
            log.exception("turn failed")
            error = SaktiError(f"{type(e).__name__}: {e}. The log file has the details.")
        finally:
            self._turn = None
        await lease.give_back()
        _settle(taken)
        self._finish_broken("interrupted" if error is None else "error", error)

    async def _play(self, parts: tuple[Part, ...], lease: TurnLease) -> None:
        from sakti.agent import loop

        await self._take_in()
        text = "\n".join(p.text for p in parts if isinstance(p, TextPart))
        await self._store_thread(text)
        await self._load_rules()
        turn = self._turn = await self._make_turn(lease)
        async with contextlib.aclosing(loop.run_turn(turn, parts)) as events:
            async for event in events:
                if isinstance(event, TurnFinished):
                    self._failed = turn.messages[0].parts if event.status == "error" and turn.messages else None
                    self.git = await git_state(self.workspace)
                    await lease.give_back()
                    self._task = None
                    self.emit(self.engine.status())
                self.emit(event)
        if self._failed is None and not turn.interrupted:
            await self._send_queued()

    async def _send_queued(self) -> None:
        """What was queued after the turn's last look into the inbox begins a turn of its own."""
        inbox = self._inbox
        if inbox is None or not inbox.queued or self.busy:
            return
        parts = inbox.queued.pop(0)
        self.emit(QueueChanged(inbox.texts()))
        try:
            await self._begin(parts)
        except SaktiError as e:
            inbox.queued.insert(0, parts)
            self.emit(QueueChanged(inbox.texts()))
            self.emit(Notice("warning", e.title, e.message))

    async def _take_in(self) -> None:
        """What another window wrote into this thread since its last turn here becomes known before the next one."""
        from sakti.agent import resume
        from sakti.store import messages, threads

        assert self.thread is not None
        if not self._thread_is_new:
            await resume.answer_open_calls(self.store, self.thread, self.counter, self._owner)
        newer = await self.store.read(messages.after, self.thread.id, self._newest)
        if not newer:
            return
        thread = await self.store.read(threads.get, self.thread.id)
        await self._load(thread or self.thread)
        self.emit(Notice(
            "information", "Another window", f"{len(newer)} messages were added to this thread in another window; "
            "the agent knows them. Open the thread again to see them."))

    def _finish_broken(self, status: str, error: SaktiError | None) -> None:
        self._task = None
        self.emit(TurnFinished(
            self.thread.id if self.thread else "", "interrupted" if status == "interrupted" else "error", "", 0, Usage(),
            error.message if error else None, error.title if error else None, error.code if error else None,
        ))

    async def _make_turn(self, lease: TurnLease) -> Turn:
        from sakti.agent import loop
        from sakti.agent.processors.builtin import MemoryProcessor, TokenLimiter

        assert self.thread is not None and self.provider is not None and self._inbox is not None
        info = await self._learn_model()
        git, bench = self.git, self.toolbox.bench
        before, after, guarded = loop.hooks(MemoryProcessor(self.engine), TokenLimiter(self.counter), self._processors)
        thread_id = self.thread.id
        return loop.Turn(
            store=self.store, counter=self.counter, provider=self.provider, model=info, engine=self.engine,
            toolbox=self.toolbox, thread_id=thread_id, resource_id=self.resource_id, system=self._system(),
            tail=lambda: (moving_facts(git, bench.cwd, self.clock.now()),), inbox=self._inbox,
            settings=self.config.agent, before=before, after=after, guarded=guarded,
            session_id=self._session_id, require=lease.require,
        )

    def _system(self) -> tuple[Block, ...]:
        """The system prompt, the same for the life of the session."""
        if not self._system_blocks:
            text = f"{resources.read_prompt('system')}\n\n# Place\n\n{describe(self.workspace)}"
            self._system_blocks = (Block("system", text, edge=True, tokens=self.counter.count(text)),)
        return self._system_blocks

    def _with_files(self, text: str) -> tuple[Part, ...]:
        """The prompt and the files that it mentions as @path, read now."""
        from sakti.agent.permissions import Place, secret_reason

        place = Place(self.workspace, self.workspace, (resources.data_home(), resources.config_home()))
        parts: list[Part] = [TextPart(text)]
        for name in dict.fromkeys(m.replace("\\ ", " ") for m in MENTION.findall(text)):
            path = place.resolve(name)
            if path.is_file() and path.stat().st_size <= MENTION_LIMIT and not secret_reason(path, place):
                data = path.read_bytes()
                if b"\0" not in data:
                    parts.append(FilePart(place.show(path), data.decode("utf-8", "replace")))
        return tuple(parts)

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
        from sakti.agent.tools.base import ToolRun
        from sakti.agent.tools.shell import bash
        from sakti.agent.turn_lease import TurnLease
        from sakti.core.types import ToolResultPart

        assert self.thread is not None
        if not self.busy:
            lease = TurnLease(self.store, self._owner, self.thread.id)
            await lease.take()
            await lease.give_back()  # not held for as long as a command may run: a turn may begin meanwhile
            await self._take_in()
        await self._store_thread(f"!{command}")
        call = ToolCallPart(self.store.ids.new(), "bash", {"command": command})
        self.emit(ToolStarted(call))
        started = self.clock.monotonic()
        bench = self.toolbox.bench
        run = ToolRun(bench, call.id, self.thread.id, "", lambda piece: self.emit(ToolOutput(call.id, piece)))
        outcome = bench.bounded(await bash(run, {"command": command}), call.id)
        duration = round((self.clock.monotonic() - started) * 1000)
        details = {**outcome.details, "duration_ms": duration}
        self.emit(ToolFinished(ToolResultPart(call.id, "bash", outcome.content, outcome.is_error, details), duration))
        text = f"I ran `{command}`:\n```\n{outcome.content}\n```"
        saved = await self._append_user((TextPart(text),), {"shell": command})
        self.emit(MessageSaved(saved))

    async def _append_user(self, parts: tuple[Part, ...], metadata: dict[str, object]) -> Message:
        from sakti.store import messages

        assert self.thread is not None
        counted = count_parts(self.counter, parts)
        message = Message(
            self.store.ids.new(), self.thread.id, self.resource_id, "user", parts, self.clock.now(),
            tokens=message_tokens(counted), part_tokens=counted, token_counter=self.counter.name, metadata=metadata,
        )
        saved = await self.store.write(messages.append, message)
        self.engine.add(saved)
        return saved

    async def note(self, text: str) -> None:
        """Add a line to the workspace's working memory."""
        from sakti.memory import working_memory

        await working_memory.add_note(self.store, self.counter, owner_id=self.resource_id, note=text, actor="user")
        self.emit(Notice("information", "Noted", one_line(text, 120)))

    # --- memory ---------------------------------------------------------------------------------------------

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe everything pending but the last exchange; the result is also an event."""
        return await self.engine.compact(focus)

    async def undo_compaction(self) -> bool:
        """Bring the messages of the last compaction back; false where there is none."""
        return await self.engine.undo_compaction() is not None

    def compact_preview(self) -> tuple[int, int, int]:
        """Messages that would be observed, tokens before, tokens after (an estimate)."""
        return self.engine.compact_preview()

    async def context_blocks(self) -> list[ContextBlock]:
        """The request as it would be sent now, in order."""
        from sakti.core.tokens import count_tools

        info = self.model_info
        tools = self.toolbox.specs(small=bool(info and info.small))
        prepared = self.engine.preview()
        out = [ContextBlock("tools", f"{len(tools)} tools", count_tools(self.counter, tools),
                            "\n\n".join(f"{t.name}: {t.description}" for t in tools), True)]
        for block in (*self._system(), *prepared.blocks):
            tokens = block.tokens or self.counter.count(block.text)
            out.append(ContextBlock(block.kind, block.kind.replace("_", " "), tokens, block.text, True))
        for message in prepared.messages:
            out.append(ContextBlock("message", message.role, message.tokens, plain_text(message.parts), False))
        tail = "\n\n".join((moving_facts(self.git, self.toolbox.bench.cwd, self.clock.now()), *prepared.tail))
        out.append(ContextBlock("tail", "what moves", self.counter.count(tail), tail, False))
        return out


def _settle(taken: asyncio.Future[None], error: SaktiError | None = None) -> None:
    if taken.done():
        return
    if error is None:
        taken.set_result(None)
    else:
        taken.set_exception(error)


def _database_files(path: Path) -> tuple[Path, ...]:
    """The database and what SQLite keeps beside it."""
    whole = path.resolve()
    return (whole, *(whole.with_name(whole.name + end) for end in ("-wal", "-shm", "-journal")))
