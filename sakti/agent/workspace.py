"""Shared resources of a workspace's threads: settings, store, models, sandbox, project files."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sakti.agent import repository
from sakti.agent.options import Options
from sakti.agent.project import files as project_files
from sakti.agent.project import trust
from sakti.agent.repository import GitState, read_git_state, scrub_env
from sakti.core import resources
from sakti.core.clock import Clock, SystemClock
from sakti.core.config import SessionMode, parse_model_choices
from sakti.core.errors import SaktiError, StoreError
from sakti.core.events import Event, Notice, StoreWaiting
from sakti.core.lazy import lazy_imports, load
from sakti.core.tokens import Counter, O200k

if TYPE_CHECKING:
    from sakti.agent.processors.base import Processor, StepHook
    from sakti.agent.project.skills import Library
    from sakti.agent.sandbox.boundary import Level
    from sakti.agent.sandbox.sandbox import Sandbox
    from sakti.agent.tools.context import Recorder, ToolState
    from sakti.memory.protocol import Observer, Reflector
    from sakti.store.user_state import Holdings


with lazy_imports:
    from sakti.agent import file_list, moved_folder, web
    from sakti.agent.checkpoints import recorder as recording
    from sakti.agent.checkpoints import shadow as checkpoints
    from sakti.agent.mcp import clients as mcp_clients
    from sakti.agent.mcp import config as mcp_config
    from sakti.agent.mcp import lifecycle as mcp_lifecycle
    from sakti.agent.processors import base as processing
    from sakti.agent.processors import registry
    from sakti.agent.project import instructions as instructions
    from sakti.agent.project import skills as skill_library
    from sakti.agent.project.hooks import settings as hook_settings
    from sakti.agent.sandbox import environment, proxy
    from sakti.agent.sandbox import sandbox as sandboxes
    from sakti.agent.session import models as session_models
    from sakti.agent.subagents import files as agent_files
    from sakti.agent.threads import reindexing
    from sakti.agent.tools import context as tool_context
    from sakti.agent.tools import web as web_tools
    from sakti.memory import engine as memory_engine
    from sakti.memory import factory as memory_factory
    from sakti.providers import presets
    from sakti.store import database as store_database
    from sakti.store import leases, user_state

log = logging.getLogger(__name__)

NOT_KEPT = "Nothing of this run was saved."


def preload_store() -> None:
    """Execute the modules of store and memory."""
    for module in (store_database, memory_engine, memory_factory):
        load(module)


class WorkspaceFiles:
    """What the files of a workspace contribute: skills, hooks, instructions, the state of git.

    Those of the project count only if the user trusts it, as `options` say.
    """

    def __init__(self, options: Options, emit: Callable[[Event], None]) -> None:
        self._options, self._emit = options, emit
        self.root = options.workspace.resolve()
        self._library: Library | None = None
        self._agents: agent_files.CustomAgents | None = None
        self.summary: str | None = None  # of the workspace, for a small model; None: not read yet
        self._notes = set[str]()  # on instructions: shown once
        self.git: GitState | None = None
        self.earlier: list[Holdings] = []  # workspaces that this folder was before it was moved

    def use(self, options: Options) -> None:
        """Go on with options that trust more texts; skills are read again."""
        self._options, self._library, self._agents = options, None, None

    @property
    def count(self) -> bool:
        """Return whether instructions and skills of the project count."""
        return self._options.use_project_instructions and not self._options.trust_pending

    @property
    def library(self) -> Library:
        """Return the skills and commands, read on first use."""
        if self._library is None:
            self._library = skill_library.load(self.root, project=self.count, trusts=self._options.trusts)
        return self._library

    @property
    def agents(self) -> agent_files.CustomAgents:
        """Return the custom agents, read on first use."""
        if self._agents is None:
            self._agents = agent_files.load(self.root, project=self.count, trusts=self._options.trusts)
        return self._agents

    async def reload_skills(self) -> Library:
        """Read the skills and commands again."""
        trusts = self._options.trusts
        self._library = await asyncio.to_thread(skill_library.load, self.root, project=self.count, trusts=trusts)
        return self._library

    async def find_instructions(self) -> instructions.Instructions:
        """Return the instructions in force; omissions are shown as a notice."""
        folder = Path.cwd()
        at = folder if folder.is_relative_to(self.root) else self.root
        trusts = self._options.trusts
        now = await asyncio.to_thread(instructions.find, self.root, at, project=self.count, trusts=trusts)
        for note in now.notes:
            if note not in self._notes:
                self._notes.add(note)
                self._emit(Notice("warning", "Instructions", note))
        return now

    def may_have_hooks(self) -> bool:
        """Return whether there may be hooks; nothing of them is loaded if not."""
        options = self._options
        files = bool(project_files.select_hook_files(options.files))
        return bool(options.config.hooks) or files or (Path.home() / ".claude" / "settings.json").is_file()

    def load_hooks(self) -> hook_settings.HookList:
        """Return the hooks in force."""
        return hook_settings.load_hooks(
            self._options.config.hooks, project_files.select_hook_files(self._options.files)
        )

    def may_have_servers(self) -> bool:
        """Return whether MCP servers are configured; nothing of them is loaded if not."""
        return bool(self._options.config.mcp or project_files.select_server_files(self._options.files))

    def load_servers(self) -> mcp_config.ServerList:
        """Return the MCP servers in force, those that do not start included."""
        context = mcp_config.ServerContext(self.root, self._options.env, trust.read_answers(self.root))
        return mcp_config.collect(
            self._options.config.mcp, project_files.select_server_files(self._options.files), context
        )

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of the project's files as they were trusted, by name."""
        return {f.name: f.sha256 for f in self._options.files}

    async def look_at_git(self) -> None:
        """Read branch and changes; git does not run in an untrusted workspace."""
        self.git = await read_git_state(self.root) if self._options.trusted else None

    async def load_summary(self) -> None:
        """Read the summary, once."""
        if self.summary is None:
            self.summary = await file_list.describe_project(self.root, trusted=self._options.trusted)


class Workspace:
    """A folder to work in, with what all its open threads share.

    `owner` is the name of this process in leases and claims. `level` tells how commands are enclosed; None: not tested
    yet.
    """

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        counter: Counter | None = None,
        store: store_database.Store | None = None,
        processors: Sequence[Processor | StepHook] = (),
    ) -> None:
        self.listeners: list[Callable[[Event], None]] = []
        self._use_options(options)
        self.clock: Clock = clock or SystemClock()
        self.counter: Counter = counter or O200k()
        self.owner = ""
        self.level: Level | None = None
        self._sandbox: Sandbox | None = None
        self._store, self._owns_store = store, store is None
        self._processors = tuple(processing.make_processor(p) for p in processors)
        self._named_processors: tuple[Processor, ...] | None = None  # None: not loaded yet

    def _use_options(self, options: Options) -> None:
        self.options = options
        self.config = options.config
        self.files = WorkspaceFiles(options, self.emit)

    def settle_trust(self, review: trust.TrustReview, *, use: bool) -> None:
        """Apply the project's settings or not, as `use` says; call it before `open`. Raises `ConfigError`."""
        self._use_options(self.options.with_project(review, use=use))

    def note_reviewed_files(self, names: Iterable[str]) -> None:
        """Stop asking about files whose names the user has seen."""
        self.options = replace(self.options, reviewed=self.options.reviewed.union(names))

    def trust_texts(self, names: Iterable[str]) -> None:
        """Let texts that the user trusted after the start have an effect on later threads."""
        self.options = self.options.with_trusted(names)
        self.files.use(self.options)

    def take_moved(self) -> list[tuple[str, str]]:
        """Return old and new names of the paths set aside since the last call."""
        watch = self._sandbox.watch if self._sandbox is not None else None
        moved = list(watch.moved) if watch is not None else []
        if watch is not None:
            watch.moved.clear()
        return moved

    # --- values -----------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        return self.files.root

    @property
    def resource_id(self) -> str:
        """Return the id that threads, tasks, and rules of this workspace are stored under."""
        return self.options.resource_id or str(self.root)

    @cached_property
    def board_id(self) -> str:
        """Return the id that tasks and the page of this workspace are stored under."""
        shared = self.config.store.share_worktrees
        return self.options.resource_id or str(repository.find_board_root(self.root, shared=shared))

    @property
    def env(self) -> Mapping[str, str]:
        return self.options.env

    @cached_property
    def models(self) -> session_models.Models:
        return session_models.Models(self.config, self.env, self.emit)

    @cached_property
    def indexing(self) -> reindexing.Indexing:
        return reindexing.Indexing()

    @cached_property
    def file_list(self) -> file_list.FileList:
        """Return the paths of the workspace, for completing `@path`."""
        return file_list.FileList(self.root, trusted=lambda: self.options.trusted)

    @cached_property
    def pages(self) -> web.WebPages:
        """Return what opens web pages; its cache is shared by all threads."""
        return web.WebPages(self.counter, self.clock)

    @cached_property
    def search(self) -> web.SessionSearch:
        """Return what searches the web."""
        return web.SessionSearch(self.env, self.models, self.store)

    @property
    def saved(self) -> bool:
        """Return whether anything is stored."""
        return not self.options.config.memory.read_only

    @property
    def approval_mode(self) -> SessionMode:
        """Return the approval mode that threads start with."""
        return "full" if self.options.full else self.options.config.approval.mode

    @property
    def store(self) -> store_database.Store:
        """Return the open store. Raises `StoreError`."""
        if self._store is None:
            raise StoreError("The database is not open yet.")
        return self._store

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def not_saved(self) -> str:
        """Return why nothing is saved here; empty if it is."""
        return (self._store.not_saved or "") if self._store is not None else ""

    # --- events -----------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns the function that ends it."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, event: Event) -> None:
        """Pass an event to all listeners, in order."""
        for listener in tuple(self.listeners):
            listener(event)

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store. Raises `SaktiError`."""
        injected = self._store
        store = self._store = await self._open_store(injected)
        self._owns_store = self._owns_store or store is not injected
        store.on_wait = lambda seconds: self.emit(StoreWaiting(seconds))
        store.on_damage = lambda reason: self.emit(Notice("error", "Not saved", reason))
        self.owner = leases.make_owner()
        for warning in (*self.options.warnings, *store.notices, store.not_saved):
            if warning:
                self.emit(Notice("warning", "Start", warning))
        if self.options.project_notice:
            self.emit(Notice("information", "Project", self.options.project_notice))

    async def _open_store(self, given: store_database.Store | None) -> store_database.Store:
        """Open the database: the given one, else the configured one; with `memory.read_only` a copy in memory."""
        if given is not None and (self.saved or given.not_saved):
            return given
        settings = self.config.store
        path = given.path if given else Path(settings.path or resources.data_home() / "sakti.db").expanduser()
        return await store_database.Store.open(
            path,
            clock=self.clock,
            ids=given.ids if given else None,
            synchronous=settings.synchronous,
            wait=settings.wait,
            on_wait=lambda seconds: self.emit(StoreWaiting(seconds)),
            scratch=True,
            keep=self.saved,
        )

    async def prepare(self) -> None:
        """Load the processors, begin indexing, look at git, choose the model. Raises `ConfigError`."""
        self.processors()
        self.indexing.begin(self.store)
        await self.files.look_at_git()
        if self.options.resource_id is None:
            self.files.earlier = await moved_folder.find_earlier(
                self.store,
                self.root,
                trusted=self.options.trusted,
                saved=self.saved,
                interactive=self.options.interactive,
            )
        await self.models.select(self.options.model_flag)

    def hurry(self, seconds: float) -> None:
        """Shorten all waits for other processes that write."""
        if self._store is not None:
            self._store.wait = min(self._store.wait, seconds)

    async def close(self) -> None:
        """Close the sandbox, models, indexing and the store, if it is this workspace's."""
        if "servers" in self.__dict__:
            await self.servers.close()
        if self._sandbox is not None:
            self._sandbox.close()
        await self.models.close()
        await self.indexing.end()
        if self._owns_store and self._store is not None:
            await self._store.close()
            self._store = None

    async def warm_counter(self) -> None:
        """Load the token counter, in a thread."""
        warm = getattr(self.counter, "warm", None)
        if warm is not None:
            await asyncio.to_thread(warm)

    # --- models and memory ------------------------------------------------------------------------------------

    def processors(self) -> tuple[Processor, ...]:
        """Return the custom processors: those of the settings, then the given ones. Raises `ConfigError`."""
        if self._named_processors is None:
            names = self.config.processors
            self._named_processors = registry.load(names) if names else ()
        return (*self._named_processors, *self._processors)

    @property
    def changes_prompts(self) -> bool:
        """Return whether a processor may change a prompt.

        Everything derived from the prompt then waits for the result.
        """
        return any(processing.overrides(p, "process_input") for p in self.processors())

    def make_observers(self) -> tuple[Observer, Reflector]:
        """Make the Observer and the Reflector that settings and model allow; an unnamed model has to be fit."""
        memory, models = self.config.memory, self.models
        usual = models.choose_observer()
        default = ((usual, None),) if usual and models.can_observe(usual) else ()
        observing = parse_model_choices(memory.model or memory.observation.model) or default
        reflecting = parse_model_choices(memory.model or memory.reflection.model) or observing
        return memory_factory.build(
            memory,
            self._list_candidates(observing),
            self._list_candidates((name, None) for name, _ in reflecting)
            if reflecting is observing
            else self._list_candidates(reflecting),
            counter=self.counter,
            clock=self.clock,
        )

    def _list_candidates(self, names: Iterable[tuple[str, int | None]]) -> list[memory_factory.ModelCandidate]:
        info = self.models.info
        out: list[memory_factory.ModelCandidate] = []
        for name, up_to in names:
            window = info.context_window if info is not None and name == info.full_name else None
            out.append(memory_factory.ModelCandidate(*self.models.background(name), up_to, window))
        return out

    def observer_reason(self) -> str:
        """Describe why the model that observes was chosen, or why none was."""
        memory, models = self.config.memory, self.models
        if memory.model or memory.observation.model:
            return "set by memory.model" if memory.model else "set by memory.observation.model"
        if models.info is None:
            return "verbatim excerpts; no model is available"
        if not models.can_observe(models.choose_observer()):
            return f"{models.info.name} is too small to observe"
        if models.choose_observer() == models.info.full_name:
            return "the model that answers"
        return f"the small model of {models.info.provider}"

    # --- tools and sandbox ------------------------------------------------------------------------------------

    def make_tool_state(
        self, emit: Callable[[Event], None], *, enclosed: bool, recorder: Recorder | None = None
    ) -> ToolState:
        """Make the tool state of a thread.

        `enclosed`: its commands run in the sandbox; `recorder`: another thread's, which records its changes, too.
        """
        sandbox, env, settings = self.sandbox, self.command_environment(), self.config
        search = web_tools.SearchChoice(settings.web.search, self.env, self.models, lambda: self.search)
        state = tool_context.ToolState(
            self.root,
            self.root,
            self._get_output_folder(),
            self.clock,
            self.store.ids,
            environment.choose_variables(env, settings.sandbox.env),
            settings.agent.tool_output_bytes,
            settings.agent.bash_timeout,
            self.forbidden_paths(),
            sandbox=sandbox if enclosed else None,
            own_env=env,
            readable=self.files.library.folders,
            added=self.options.added,
            network=proxy.Network(settings.sandbox.hosts),
            web=(lambda: self.pages) if settings.web.fetch else None,
            search=search if search.service else None,
        )
        if recorder is not None:
            state.recorder = recorder
        elif self.saved and settings.agent.checkpoints:
            shadow = checkpoints.open_shadow(self.root, self.clock, self.store.ids)
            try:
                if (recovery := shadow.recover()) is not None:
                    emit(Notice("information", "Undo", recovery.in_words()))
            except (OSError, SaktiError) as e:  # the next undo says it
                log.warning("unfinished undo or call: %s", e)
            state.recorder = recording.TurnRecorder(shadow, lambda why: emit(Notice("warning", "Checkpoints", why)))
        return state

    def _get_output_folder(self) -> Path:
        """Return where long outputs are kept; an unsaved session has a private folder, deleted when it closes."""
        if not self.saved:
            return Path(tempfile.mkdtemp(prefix=f"sakti-{os.getpid()}-"))
        return resources.state_home() / "outputs"

    def command_environment(self) -> dict[str, str]:
        """Return the user's environment without the keys of models."""
        keys = frozenset(k for p in presets.PRESETS.values() for k in p.keys) | {
            *(s.key_env for s in self.config.providers.values() if s.key_env),
            *(variable for _, variable in web_tools.KEYED.values()),
        }
        return scrub_env(self.env, keys)

    @property
    def sandbox(self) -> Sandbox:
        """Return the sandbox of this machine, made on first use."""
        if self._sandbox is None:
            self._sandbox = make_sandbox(self)
        return self._sandbox

    @property
    def home(self) -> Path:
        return Path(self.env.get("HOME") or Path.home()).resolve()

    def hidden_paths(self) -> tuple[Path, ...]:
        """Return the folders and files of sakti, and the closed ones, that no command sees."""
        folders = (resources.data_home(), resources.config_home(), resources.state_home(), trust.get_trust_folder())
        named = self.config.store.path
        database = _list_database_files(Path(named).expanduser().resolve()) if named else ()
        return (*folders, *database, *self.options.closed)

    def try_sandbox(self) -> Level:
        """Test the sandbox, once; takes some 60 ms after a restart of the machine, else no time."""
        if self.level is None:
            self.level = self.sandbox.level
        return self.level

    def refused_auto(self) -> str:
        """Return why the approval mode `auto` is not available here; empty if it is. Tries the sandbox first."""
        level = self.try_sandbox()
        if level.holds:
            return ""
        remedy = f" {level.remedy}" if level.remedy else ""
        return f"auto needs a sandbox, and this is {level.text}.{remedy} edits still edits files freely."

    def forbidden_paths(self) -> tuple[Path, ...]:
        """Return sakti's folders, the database with SQLite's files beside it, and the closed paths: no tool's."""
        checkpoints_folder = resources.state_home() / "checkpoints"
        folders = (resources.data_home(), resources.config_home(), trust.get_trust_folder(), checkpoints_folder)
        return (*folders, *_list_database_files(self.store.path.resolve()), *self.options.closed)

    # --- servers ----------------------------------------------------------------------------------------------

    @cached_property
    def servers(self) -> mcp_lifecycle.SessionServers:
        """Return the MCP servers of the session."""
        return mcp_lifecycle.SessionServers(self, lambda servers: mcp_clients.McpClients(self, servers))

    @property
    def has_servers(self) -> bool:
        """Return whether MCP servers are configured."""
        return self.files.may_have_servers()

    def load_servers(self) -> mcp_config.ServerList:
        """Return the MCP servers in force, those that do not start included."""
        return self.files.load_servers()

    @property
    def is_interactive(self) -> bool:
        return self.options.interactive

    @property
    def is_full(self) -> bool:
        """Return whether the session began without questions and without a sandbox."""
        return self.options.full

    @property
    def takes_images(self) -> bool:
        """Return whether the model takes images, as far as it is known."""
        return self.models.info is None or self.models.info.images

    def new_id(self) -> str:
        return self.store.ids.new()

    # --- rules ------------------------------------------------------------------------------------------------

    def save_rule(self, rule: str) -> None:
        """Save that calls of a rule are allowed in this workspace, in the background."""
        task = asyncio.ensure_future(
            self.store.write(user_state.save_rule, self.resource_id, rule, "allow", self.clock.now())
        )
        task.add_done_callback(lambda t: t.exception() and log.warning("rule not saved: %s", t.exception()))

    async def allowed_rules(self) -> tuple[str, ...]:
        """Return the rules saved for this workspace, also by other windows; none without a store."""
        if not self.is_open:
            return ()
        rules = await self.store.read(user_state.list_rules, self.resource_id)
        return tuple(rule for rule, decision in rules if decision == "allow")


def make_sandbox(workspace: Workspace) -> Sandbox:
    """Make the sandbox of this machine; from then on no other process of this user may look into this one."""
    environment.disable_ptrace()
    settings, root = workspace.config.sandbox, workspace.root
    return sandboxes.SystemSandbox(
        root,
        own=workspace.hidden_paths(),
        write=sandboxes.resolve_folders(settings.write, workspace.home),
        added=workspace.options.added,
        shown=tuple(f for f in workspace.files.library.folders if not f.is_relative_to(root)),
        home=workspace.home,
        off="switched off by sandbox.enabled" if settings.enabled == "off" else "",
        loading=environment.choose_loaders(workspace.command_environment(), settings.env),
    )


def _list_database_files(path: Path) -> tuple[Path, ...]:
    return tuple(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal"))
