"""Build the parts of a session: store, memory, tools, system prompt."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.agent.judge.rules import Rules
from sakti.agent.project import files as project_files
from sakti.agent.project import trust
from sakti.agent.session import system_prompt
from sakti.agent.tools.approvals import Approvals
from sakti.agent.workspace import local_timezone, moving_facts, scrubbed
from sakti.core import resources
from sakti.core.config import model_choices
from sakti.core.events import Notice, StoreWaiting
from sakti.core.lazy import lazy_imports, load
from sakti.core.types import Block, ModelInfo

if TYPE_CHECKING:
    from sakti.agent.processors.base import Processor
    from sakti.agent.sandbox.boundary import Level
    from sakti.agent.sandbox.sandbox import Sandbox
    from sakti.agent.session.state import State
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.memory.protocol import Observer, Reflector

with lazy_imports:
    from sakti.agent import budget
    from sakti.agent.checkpoints import recorder as recording
    from sakti.agent.checkpoints import shadow as checkpoints
    from sakti.agent.processors import base as processing
    from sakti.agent.processors import builtin, registry
    from sakti.agent.project.hooks import guard as hook_guard
    from sakti.agent.project.instructions import find as instructions
    from sakti.agent.project.instructions import nearby
    from sakti.agent.sandbox import environment, proxy, undumpable
    from sakti.agent.sandbox import sandbox as sandboxes
    from sakti.agent.session import instructed, skills
    from sakti.agent.tools import base as tool_base
    from sakti.agent.tools import catalog
    from sakti.agent.tools import skill as skill_tool
    from sakti.agent.tools import toolbox as tool_box
    from sakti.memory import engine as memory_engine
    from sakti.memory import factory as memory_factory
    from sakti.providers import presets
    from sakti.store import database as store_database
    from sakti.store import user_state

log = logging.getLogger(__name__)

NOT_KEPT = "Nothing of this run was saved."


def preload() -> None:
    """Execute the modules that opening a session needs. For a thread: a screen goes on answering meanwhile."""
    for module in (store_database, memory_engine, memory_factory):
        load(module)


async def open_store(state: State, given: store_database.Store | None) -> store_database.Store:
    """Open the database of a session: the one that it was given, else the configured one.

    With `memory.read_only` a copy of it in memory.
    """
    if given is not None and (state.saved or given.not_saved):
        return given
    settings = state.config.store
    path = given.path if given else Path(settings.path or resources.data_home() / "sakti.db").expanduser()
    ids = given.ids if given else None
    return await store_database.Store.open(
        path,
        clock=state.clock,
        ids=ids,
        synchronous=settings.synchronous,
        wait=settings.wait,
        on_wait=lambda seconds: state.emit(StoreWaiting(seconds)),
        scratch=True,
        keep=state.saved,
    )


def output_folder(state: State) -> Path:
    """Return where outputs of tools are kept whole; unsaved sessions have a private folder that goes with them."""
    if not state.saved:
        return Path(tempfile.mkdtemp(prefix=f"sakti-{os.getpid()}-"))
    return resources.state_home() / "outputs"


def make_observers(state: State) -> tuple[Observer, Reflector]:
    """Make the Observer and the Reflector that settings and model allow: a model that nobody named has to be fit."""
    memory, models = state.config.memory, state.models
    usual = models.observing()
    own = ((usual, None),) if usual and models.fit(usual) else ()

    def candidates(names: Iterable[tuple[str, int | None]]) -> list[memory_factory.Candidate]:
        info = models.info
        out: list[memory_factory.Candidate] = []
        for name, up_to in names:
            window = info.context_window if info is not None and name == info.full_name else None
            out.append(memory_factory.Candidate(*models.background(name), up_to, window))
        return out

    observing = model_choices(memory.model or memory.observation.model) or own
    reflecting = model_choices(memory.model or memory.reflection.model) or observing
    return memory_factory.build(
        memory,
        candidates(observing),
        candidates((name, None) for name, _ in reflecting) if reflecting is observing else candidates(reflecting),
        counter=state.counter,
        clock=state.clock,
    )


def processors(state: State) -> tuple[Processor, ...]:
    """Return the session's own processors: those of the settings, then those it was given. Raises `ConfigError`."""
    if state.named_processors is None:
        names = state.config.processors
        state.named_processors = registry.load(names) if names else ()
    return (*state.named_processors, *state.processors)


def make_engine(state: State) -> memory_engine.MemoryEngine:
    """Make the memory of the open thread."""
    observer, reflector = make_observers(state)
    return memory_engine.MemoryEngine(
        store=state.store,
        settings=state.config.memory,
        mode=state.mode,
        counter=state.counter,
        clock=state.clock,
        ids=state.store.ids,
        observer=observer,
        reflector=reflector,
        emit=state.emit,
        owner=state.owner or None,
        timezone=local_timezone(),
        reason=why_observer(state),
    )


def why_observer(state: State) -> str:
    """Describe why the model that observes was chosen, or why none was."""
    memory, models = state.config.memory, state.models
    if memory.model or memory.observation.model:
        return "set by memory.model" if memory.model else "set by memory.observation.model"
    if models.info is None:
        return "verbatim excerpts; no model is available"
    if not models.fit(models.observing()):
        return f"{models.info.name} is too small to observe"
    if models.observing() == models.info.full_name:
        return "the model that answers"
    return f"the small model of {models.info.provider}"


def make_toolbox(state: State) -> tool_box.Toolbox:
    """Make the tools, with what they share; their schemas are ready and counted."""
    sandboxed, env = sandbox(state), own_environment(state)
    bench = tool_base.Workbench(
        state.workspace,
        state.workspace,
        output_folder(state),
        state.clock,
        state.store.ids,
        environment.given(env, state.config.sandbox.env),
        state.config.agent.tool_output_bytes,
        state.config.agent.bash_timeout,
        own_paths(state),
        sandbox=None if state.approval_mode == "full" else sandboxed,
        own_env=env,
        readable=skills.library(state).folders,
        added=state.options.added,
        network=proxy.Network(state.config.sandbox.hosts),
    )
    if state.saved and state.config.agent.checkpoints:
        shadow = checkpoints.open_shadow(state.workspace, state.clock, state.store.ids)
        try:
            shadow.recover()
        except OSError as e:  # the next undo says it
            log.warning("unfinished undo: %s", e)
        bench.recorder = state.recorder = recording.Recorder(
            shadow, lambda why: state.emit(Notice("warning", "Checkpoints", why))
        )
    approval = state.config.approval
    approvals = Approvals(state.emit, interactive=state.options.interactive)
    tools = catalog.all_tools(
        state.store,
        resource_id=state.resource_id,
        owner=state.owner or None,
        counter=state.counter,
        settings=state.config.memory,
        emit=state.emit,
        in_window=lambda: state.engine.window_ids,
    )
    if skills.library(state).offered:
        tools.append(skill_tool.make(lambda: skills.library(state), skills.LoadedSkills(state)))
    made = tool_box.Toolbox(
        {t.name: t for t in tools},
        bench,
        approvals,
        state.approval_mode,
        Rules(approval.allow, approval.ask, approval.deny),
        lambda rule: _save_rule(state, rule),
        lambda: state.models.info.name if state.models.info else "",
    )
    for processor in processors(state):
        if isinstance(processor, builtin.ToolSearch):
            made.search(processor.always)
    trusted = state.options.instructed and not state.options.unasked
    if trusted or instructions.user_has_rules():
        state.nearby = nearby.Nearby(
            state.workspace,
            state.trusts if trusted else None,
            lambda: instructions.kept(state.thread),
            made.touched,
            lambda: instructed.names_near(state.thread),
            lambda names: instructed.keep_near(state, names),
        )
        made.hooks = (state.nearby,)
    if state.hooks is not None:
        made.guard = hook_guard.HookGuard(state.hooks, bench)
    made.count(state.counter, made.specs(state.model_info))
    return made


def changes_prompts(state: State) -> bool:
    """Return whether a processor may change a prompt: what is derived from it then waits for the result."""
    return any(processing.overrides(p, "process_input") for p in processors(state))


def own_environment(state: State) -> dict[str, str]:
    """Return the user's environment without the keys of models."""
    keys = frozenset(k for p in presets.PRESETS.values() for k in p.keys) | {
        s.key_env for s in state.config.providers.values() if s.key_env
    }
    return scrubbed(state.env, keys)


def sandbox(state: State) -> Sandbox:
    """Return what encloses the commands of a session, made when it is asked for first."""
    if state.made_sandbox is None:
        state.made_sandbox = make_sandbox(state)
    return state.made_sandbox


def make_sandbox(state: State) -> Sandbox:
    """Make the sandbox of this machine; from here on no other process of this user may look into this one."""
    undumpable.become()
    settings, home = state.config.sandbox, Path(state.env.get("HOME") or Path.home()).resolve()
    return sandboxes.LinuxSandbox(
        state.workspace,
        own=(*_own_folders(state), *state.options.closed),
        write=sandboxes.given_folders(settings.write, home),
        added=state.options.added,
        shown=tuple(f for f in skills.library(state).folders if not f.is_relative_to(state.workspace)),
        home=home,
        off="switched off by sandbox.enabled" if settings.enabled == "off" else "",
        loading=environment.loading(own_environment(state), settings.env),
    )


def level(state: State) -> Level:
    """Try what holds commands here, once; takes some 60 ms after the machine was started, else none."""
    if state.level is None:
        state.level = sandbox(state).level
    return state.level


def refused_auto(state: State) -> str:
    """Return why the mode `auto` is not to be had here; empty where it is."""
    found = level(state)
    if found.holds:
        return ""
    mend = f" {found.mend}" if found.mend else ""
    return f"auto needs a sandbox, and this is {found.text}.{mend} edits still edits files freely."


def toolbox(state: State) -> Toolbox:
    """Return the tools of a session, made when they are asked for first."""
    if state.made_toolbox is None:
        use_toolbox(state, make_toolbox(state))
    assert state.made_toolbox is not None
    return state.made_toolbox


def use_toolbox(state: State, made: Toolbox) -> None:
    """Take tools into use, unless others are already."""
    if state.made_toolbox is None:
        state.made_toolbox = made
        made.mode = state.approval_mode


def own_paths(state: State) -> tuple[Path, ...]:
    """Return what belongs to sakti itself and no tool may touch.

    Its folders, the database and what SQLite keeps by it.
    """
    database = state.store.path.resolve()
    beside = (database.with_name(database.name + end) for end in ("", "-wal", "-shm", "-journal"))
    kept = resources.state_home() / "checkpoints"
    return (resources.data_home(), resources.config_home(), trust.folder(), kept, *beside, *state.options.closed)


def _own_folders(state: State) -> tuple[Path, ...]:
    """Return the folders and files of sakti that no command sees."""
    folders = (resources.data_home(), resources.config_home(), resources.state_home(), trust.folder())
    named = state.config.store.path
    database = Path(named).expanduser().resolve() if named else None
    ends = ("", "-wal", "-shm", "-journal")
    return (*folders, *((database.with_name(database.name + end) for end in ends) if database else ()))


def system(state: State) -> tuple[Block, ...]:
    """Return the system prompt, the same for the life of the thread.

    What the workspace held when it began is stored with it.
    """
    brief = bool(state.model_info and state.model_info.brief)
    text = system_prompt.build(
        state.workspace,
        state.thread,
        interactive=state.options.interactive,
        brief=brief,
        added=state.options.added,
    )
    limit = instructions.LIMIT_BRIEF if brief else instructions.LIMIT
    sources = instructions.limited(instructions.kept(state.thread), (), limit).sources
    told = [("system", text), *(("instructions", instructions.block(s)) for s in sources)]
    if (state.model_info is None or state.model_info.has_memory_tools) and (listed := skills.kept(state.thread)):
        told.append(("skills", listed))
    stable = len(told) - 1  # a prompt cache breaks behind all of them
    if state.project and state.model_info is not None and state.model_info.small:
        told.append(("project", state.project))
    if [(b.kind, b.text) for b in state.system_blocks] != told:
        state.system_blocks = tuple(
            Block(k, t, edge=i >= stable, tokens=state.counter.count(t)) for i, (k, t) in enumerate(told)
        )
    return state.system_blocks


def facts(state: State) -> dict[str, str]:
    """Return what changes from step to step, by name: the hour, the folder, git."""
    bench = toolbox(state).bench
    moving = moving_facts(state.git, bench.show(bench.cwd), state.clock.now())
    hooked = {"hooks": state.hook_context} if state.hook_context else {}
    return {**moving, **instructed.facts(state), **hooked, **skills.facts(state)}


def may_have_hooks(state: State) -> bool:
    """Return whether a session may have hooks; nothing of them is loaded where it has none."""
    brought = bool(project_files.hook_files(state.options.files))
    return bool(state.config.hooks) or brought or (Path.home() / ".claude" / "settings.json").is_file()


async def learn(state: State) -> ModelInfo:
    """Return the actor with all that is known of it; memory goes by its window from then on."""
    before = state.models.info
    info = await state.models.learn()
    if info.brief and not info.small and state.told_window != info.context_window:
        state.told_window = info.context_window
        state.emit(Notice("information", "Small window", _left_out(state, info)))
    if info is not before and state.opened_engine is not None:
        state.opened_engine.set_models(*make_observers(state))
    return info


def _left_out(state: State, info: ModelInfo) -> str:
    """Return the sentence that names everything a small window has no room for."""
    tools, offered = toolbox(state), skills.library(state).offered
    missing = {t.name for t in tools.specs()} - {t.name for t in tools.specs(info)}
    names = [*sorted(missing), *(["the list of skills"] if offered and not info.has_memory_tools else [])]
    left_out = ", ".join([*names, "the overview of the workspace"])
    return f"{info.name} has {info.context_window:,} tokens: it is not offered {left_out}, and its prompt is shorter."


def small_budget(state: State) -> int:
    """Tokens that a small model's window leaves for memory and messages: its gauges show them from the start."""
    assert state.model_info is not None
    counter, tools = state.counter, toolbox(state)
    fixed = sum(b.tokens for b in system(state)) + tools.count(counter, tools.specs(state.model_info))
    return budget.room(state.model_info, state.config.agent, fixed)[1] or 0


def _save_rule(state: State, rule: str) -> None:
    task = asyncio.ensure_future(
        state.store.write(user_state.save_rule, state.resource_id, rule, "allow", state.clock.now())
    )
    task.add_done_callback(lambda t: t.exception() and log.warning("rule not saved: %s", t.exception()))


async def load_rules(state: State) -> None:
    """Take in the rules that are saved for this workspace, also those saved or revoked in another window."""
    saved = await state.store.read(user_state.rules, state.resource_id)
    toolbox(state).saved = tuple(rule for rule, decision in saved if decision == "allow")
