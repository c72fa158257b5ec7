"""Hold what a session is made of: its settings, the open thread, the parts that work for it.

Functions that serve a session are handed this; who may change what stands at each field.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent import project_settings, trust
from sakti.agent.session.inbox import Inbox
from sakti.agent.session.models import Models
from sakti.agent.workspace import GitState, find_root, git_state
from sakti.core.clock import Clock, SystemClock
from sakti.core.config import Config, SessionMode
from sakti.core.errors import StoreError
from sakti.core.events import (
    Event,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    StepFinished,
    ThreadChanged,
)
from sakti.core.lazy import lazy_imports
from sakti.core.tokens import Counter, O200k
from sakti.core.types import Block, ModelInfo, Part, Thread, Usage

if TYPE_CHECKING:
    from asyncio import Task

    from sakti.agent.checkpoints.recorder import Recorder
    from sakti.agent.hooks.fire import Hooks
    from sakti.agent.instructions.nearby import Nearby
    from sakti.agent.processors.base import Processor
    from sakti.agent.processors.compose import StepHook
    from sakti.agent.sandbox.boundary import Level
    from sakti.agent.sandbox.sandbox import Sandbox
    from sakti.agent.skills.load import Library
    from sakti.agent.tools.base import Outcome
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.memory.engine import MemoryEngine
    from sakti.providers.protocol import Provider
    from sakti.store.database import Store


with lazy_imports:
    from sakti.agent.processors import compose


class Options(Struct, frozen=True):
    """What a session starts with.

    `resume` is a thread's id or part of its title, `fork` the same of one to copy, `continue_last` the newest one;
    `thread_id` names a thread that is made where there is none. `resource_id` is what threads, tasks and rules belong
    to, the workspace's path by default. `interactive` tells whether somebody is there to approve. `closed` are paths
    that no tool may touch, beside sakti's own; `added` are resolved folders that count as parts of the workspace for
    tools and commands. `told` is one line on what the project's settings changed. `unasked`:
    these settings are the user's only; whether the project's may have an effect is still to be asked, `overrides` are
    loaded again then.
    `trusted`: nothing of the workspace is held back, and git is asked about it.
    `full`: the mode that asks nothing, for containers. `instructed`: the project's own instructions are read.
    `files` are the project's files that have an effect, as they were looked at. `own_commands` names the commands of
    the chat, which no file may take.
    """

    workspace: Path
    config: Config = field(default_factory=Config)
    model_flag: str | None = None
    resume: str | None = None
    fork: str | None = None
    continue_last: bool = False
    interactive: bool = True
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    warnings: tuple[str, ...] = ()
    resource_id: str | None = None
    thread_id: str | None = None
    closed: tuple[Path, ...] = ()
    added: tuple[Path, ...] = ()
    told: str = ""
    unasked: bool = False
    trusted: bool = True
    full: bool = False
    instructed: bool = False
    overrides: tuple[str, ...] = ()
    files: tuple[trust.File, ...] = ()
    own_commands: Callable[[], Container[str]] = frozenset

    @classmethod
    def load(
        cls, workspace: Path | None = None, *, overrides: Sequence[str] = (), trusted: bool = False, **given: Any
    ) -> Options:
        """Make options with the user's settings, those of a trusted project, environment and `overrides`.

        `overrides` ("name=value") are on top; the workspace is the current folder's by default. `trusted`: the project
        is trusted this time, without being asked about. Raises `ConfigError`.
        """
        bare = cls.load_unasked(workspace, overrides=overrides, **given)
        found = trust.look(bare.workspace)
        return bare.with_project(found, use=trusted or not found.asks)

    @classmethod
    def load_unasked(cls, workspace: Path | None = None, *, overrides: Sequence[str] = (), **given: Any) -> Options:
        """Make options without looking at the project's settings; `with_project` adds them. Raises `ConfigError`."""
        folder = find_root(workspace or Path.cwd())
        loaded = project_settings.user_settings(overrides)
        return cls(folder, loaded.config, unasked=True, overrides=tuple(overrides), **given)

    def with_project(self, found: trust.Look, *, use: bool) -> Options:
        """Return these options with the project's settings where `use` says so, else with a warning that names them.

        Raises `ConfigError`.
        """
        loaded = project_settings.settings(found, use=use, overrides=self.overrides)
        left_out = "" if use else found.left_out
        warnings = (*loaded.warnings, *(w for w in (found.problem, left_out) if w))
        return replace(
            self,
            config=loaded.config,
            warnings=warnings,
            told=project_settings.told(loaded),
            unasked=False,
            trusted=use,
            instructed=use and bool(found.files),
            files=tuple(f for f in found.files if not trust.says_only(f.name)) if use else (),
        )


class State:
    """The values of a session.

    `thread_is_new`: not stored yet. `newest`: index of the newest message that memory here knows. `failed`: what the
    last turn was asked where its model call failed. `owner`: this session's name in leases and claims. `saved`:
    whether anything of it is kept.
    """

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        counter: Counter | None = None,
        provider: Provider | None = None,
        model: ModelInfo | None = None,
        processors: Sequence[Processor | StepHook] = (),
    ) -> None:
        self._take_options(options)
        self.env = options.env
        self.workspace = options.workspace.resolve()
        self.resource_id = options.resource_id or str(self.workspace)
        self.clock: Clock = clock or SystemClock()
        self.counter: Counter = counter or O200k()
        self.processors = tuple(compose.as_processor(p) for p in processors)
        self.named_processors: tuple[Processor, ...] | None = None  # those of the settings, None: not loaded yet
        self.models = Models(options.config, options.env, self.emit, provider, model)
        self.nearby: Nearby | None = None
        self.changed_instructions: dict[str, str] = {}  # since the thread began, by file
        self.skills: Library | None = None  # None: not read yet
        self.changed_skills = ""  # since the thread began
        self.told_notes = set[str]()  # on instructions: once a session
        self.hooks: Hooks | None = None  # None: there are none
        self.hook_context = ""  # what those of the session's start tell the model
        self.inbox = Inbox()
        self.failed: tuple[Part, ...] | None = None
        self.window = ""  # the name that what was not sent is kept under
        self.sent_as: dict[str, str] = {}  # prompts that a processor changed, as they were typed
        self.thread: Thread | None = None
        self.thread_is_new = False
        self.newest = -1
        self.owner = ""
        self.status: MemoryStatus | None = None
        self.usage = Usage()
        self.git: GitState | None = None
        self.system_blocks: tuple[Block, ...] = ()
        self.told_window: int | None = None  # whose notice about what is left out was shown
        self.project: str | None = None  # what a small model is told of the workspace, None: not looked at yet
        self.opened_store: Store | None = None
        self.opened_engine: MemoryEngine | None = None
        self.made_toolbox: Toolbox | None = None
        self.own_commands: list[Task[Outcome]] = []  # commands of the user that run
        self.recorder: Recorder | None = None  # of what calls do to files; None: nothing of it is kept
        self.made_sandbox: Sandbox | None = None
        self.level: Level | None = None  # what holds commands; None: not tried yet
        self._listeners: list[Callable[[Event], None]] = []

    def _take_options(self, options: Options) -> None:
        self.options = options
        self.config = options.config
        self.saved = not options.config.memory.read_only
        self.mode = options.config.mode
        self.approval_mode: SessionMode = "full" if options.full else options.config.approval.mode

    def settle_trust(self, found: trust.Look, *, use: bool) -> None:
        """Go on with the project's settings where `use` says so, or without; before the session is started.

        Raises `ConfigError`.
        """
        self._take_options(self.options.with_project(found, use=use))

    async def look_at_git(self) -> None:
        """Read branch and changes; where the workspace is not trusted git is not asked."""
        self.git = await git_state(self.workspace) if self.options.trusted else None

    @property
    def store(self) -> Store:
        if self.opened_store is None:
            raise StoreError("The database is not open yet.")
        return self.opened_store

    @property
    def engine(self) -> MemoryEngine:
        if self.opened_engine is None:
            raise StoreError("The thread is not open yet.")
        return self.opened_engine

    @property
    def provider(self) -> Provider | None:
        return self.models.provider

    @property
    def model_info(self) -> ModelInfo | None:
        return self.models.info

    @property
    def model(self) -> ModelChanged | None:
        """Return which model answers, and why."""
        return self.models.said

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Hear every event from now on; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, event: Event) -> None:
        """Take in what an event says of the session, and tell all listeners, in order."""
        match event:
            case MemoryStatus():
                self.status = event
            case StepFinished(usage=usage):
                self.usage = self.usage + usage
            case ThreadChanged(thread):
                if self.nearby is not None and (self.thread is None or self.thread.id != thread.id):
                    self.nearby.forget()
                self.thread = thread
            case MessageSaved(message):
                self.newest = max(self.newest, message.index)
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(event)
