"""Build the system prompt, keep it while a cache may hold it, and state the facts that change."""

from __future__ import annotations

import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace

from sakti.agent.judge.policy import ModeTools
from sakti.agent.project import instructions, skills
from sakti.agent.project.skills import Library, Skill
from sakti.agent.repository import GitState
from sakti.agent.tools import background
from sakti.agent.tools.processes import Running
from sakti.core import resources
from sakti.core.events import Event, MemoryActivation, StepFinished
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count, to_one_line
from sakti.core.types import (
    Block,
    ContextPart,
    FilePart,
    Json,
    Message,
    ModelInfo,
    Thread,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from sakti.memory import modes, policy
from sakti.memory.engine import DEFAULT_CACHE_TTL
from sakti.store.threads import messages, runs
from sakti.store.threads.messages import LastRequest
from sakti.store.threads.runs import StoredJob

if TYPE_CHECKING:
    from sakti.agent.session.running_turn import RunningTurn
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.agent.workspace import Workspace, WorkspaceFiles


OVERVIEW = "overview"  # in a thread's metadata: contents of its workspace when it began


def list_texts(workspace: Workspace, thread: Thread | None) -> list[tuple[str, str]]:
    """Return kind and text of the parts of the system prompt, as of now."""
    info, options = workspace.models.info, workspace.options
    brief = bool(info and info.brief)
    interactive, added = options.interactive, options.added
    text = build(workspace.root, thread, interactive=interactive, brief=brief, added=added)
    limit = instructions.LIMIT_BRIEF if brief else instructions.LIMIT
    sources = instructions.cut_to_limit(instructions.find_initial(thread), (), limit).sources
    texts = [("system", text), *(("instructions", instructions.block(s)) for s in sources)]
    if info is None or info.has_memory_tools:
        lists = {"skills": get_initial_skills, "mcp": get_initial_servers}
        texts += [(kind, listed) for kind, of in lists.items() if (listed := of(thread))]
    return texts


def build(workspace: Path, thread: Thread | None, *, interactive: bool, brief: bool, added: Sequence[Path] = ()) -> str:
    """Build its text.

    `brief`: for a model with a small window; `added`: folders opened beside the workspace.
    """
    return "\n\n".join(_iter_parts(workspace, added, thread, interactive, brief))


def _iter_parts(
    workspace: Path, added: Sequence[Path], thread: Thread | None, interactive: bool, brief: bool
) -> Iterator[str]:
    yield resources.read_prompt("system#brief" if brief else "system")
    if not interactive:
        yield resources.read_prompt("system#headless")
    yield f"# Workspace\n\n{describe(workspace, added)}"
    overview = str(thread.metadata.get(OVERVIEW) or "") if thread else ""
    if overview and not brief:
        yield resources.fill_prompt("system#overview", overview=overview)


def describe(root: Path, added: Sequence[Path] = ()) -> str:
    """Return the constant facts of the system prompt: the agent's environment and project."""
    more = "".join(f"\nAlso open to your tools: {folder}" for folder in added)
    return f"Workspace: {root}{more}\nSystem: {platform.system()} {platform.release()}, {platform.machine()}"


def collect_moving_facts(git: GitState | None, folder: str, now_ms: int) -> dict[str, str]:
    """Return the facts that change from step to step, by name; `folder` is the one shown to people."""
    day = time.strftime("%A, %d %B %Y, %H:%M", time.localtime(now_ms / 1000))
    facts = {"now": f"Now: {day}", "folder": f"Current folder: {folder}"}
    if git is not None:
        state = format_count(git.changed, "changed path") if git.changed else "clean"
        facts["git"] = f"Git: on {git.branch}, {state}"
    return facts


KINDS = frozenset(("system", "instructions", "skills", "mcp", "agent"))  # the other blocks are those of memory


class PrefixOwner(Protocol):
    """Open thread, as far as its prefix depends on it."""

    workspace: Workspace
    running: RunningTurn

    @property
    def id(self) -> str: ...

    @property
    def existing_toolbox(self) -> Toolbox | None: ...

    def system(self) -> tuple[Block, ...]: ...


class SentPrefix:
    """Beginning of the last request of an open thread, as long as it applies."""

    def __init__(self, thread: PrefixOwner) -> None:
        self._open = thread
        self._last: LastRequest | None = None

    async def load(self) -> None:
        """Read the last request from the store."""
        self._last = await self._open.workspace.store.read(messages.read_last_request, self._open.id)

    def on_event(self, event: Event) -> None:
        """Follow the thread: a request warms the cache, an activation ends the prefix."""
        if self._last is None:
            return
        if isinstance(event, StepFinished):
            self._last = replace(self._last, sent_at=self._open.workspace.clock.now())
        elif isinstance(event, MemoryActivation):
            before, self._last = self._open.system(), None
            turn = self._open.running.turn
            if turn is not None and turn.system == before:
                turn.system = self._open.system()

    def texts(self) -> list[tuple[str, str]]:
        """Return the texts of the system prompt with their kinds; empty if the current ones apply."""
        last = self._get_current()
        return [block for block in last.blocks if block[0] in KINDS] if last is not None else []

    def tools(self, model: ModelInfo) -> tuple[ToolSpec, ...]:
        """Return the tools for a model; empty if the current ones apply."""
        last = self._get_current()
        return last.tools if last is not None and last.model == model.full_name else ()

    def _get_current(self) -> LastRequest | None:
        """Return the last request if it applies, and forget it otherwise."""
        info = self._open.workspace.models.info
        if self._last is not None and info is not None and not self._applies(self._last, info):
            self._last = None
        return self._last

    def _applies(self, last: LastRequest, info: ModelInfo) -> bool:
        ws, toolbox = self._open.workspace, self._open.existing_toolbox
        setting = ws.config.memory.activate_after_idle
        ttl = policy.parse_activation_ttl(setting, "memory.activate_after_idle")
        if ttl is None or ttl == "auto":
            ttl = DEFAULT_CACHE_TTL if info.cache_ttl is None else info.cache_ttl
        is_warm = last.model == info.full_name and ws.clock.now() - last.sent_at < ttl
        if not (is_warm and ws.options.trusted) or (
            toolbox is not None and _offers_forbidden_tools(toolbox, last.tools)
        ):
            return False
        place = describe(ws.root, ws.options.added)  # the thread may go on in another folder
        return any(place in text for _, text in last.blocks)


def _offers_forbidden_tools(toolbox: Toolbox, tools: tuple[ToolSpec, ...]) -> bool:
    """Return whether a tool is among `tools` that sakti has, but that this thread must not use now."""
    missing = {tool.name for tool in tools} - toolbox.tools.keys()
    return bool(missing if toolbox.parent is not None else missing & toolbox.withheld)


CATALOG, LOADED = "skills", "loaded_skills"  # in a thread's metadata: its first list, names of those loaded
SERVER = "mcp"  # in a thread's metadata, and first word of the facts about a server
MODE, PLAN = "mode", "plan"  # names of the facts with the words of a mode
INSTRUCTIONS, SKILL = "instructions", "skill"  # first words of the facts with the text of a file, or a skill
_NAMED = lazy_pattern(r'<skill name="([^"]+)">')

# --- instructions -----------------------------------------------------------------------------------------


def list_nearby_names(thread: Thread | None) -> list[str]:
    """Return the names of instructions shown when a tool touched their part of the project."""
    names: Any = thread.metadata.get(instructions.NEARBY_KEY) if thread is not None else None
    return [str(name) for name in cast("list[Any]", names)] if isinstance(names, list) else []


def make_nearby(
    files: WorkspaceFiles,
    trusts: Callable[[str], bool],
    thread: Callable[[], Thread | None],
    add_metadata: Callable[[Json], Awaitable[None]],
    touched: Callable[[ToolCallPart], list[str]],
) -> instructions.Nearby:
    """Make the call hook that shows instructions near the files that a thread's tools touch."""

    async def keep(names: Sequence[str]) -> None:
        await add_metadata({instructions.NEARBY_KEY: list(dict.fromkeys((*list_nearby_names(thread()), *names)))})

    begun_with, near = (lambda: instructions.find_initial(thread())), (lambda: list_nearby_names(thread()))
    return instructions.Nearby(files.root, trusts if files.count else None, begun_with, touched, near, keep)


def name_omissions(info: ModelInfo, toolbox: Toolbox, library: Library) -> str:
    """Return the sentence that names everything a small window has no room for."""
    missing = {t.name for t in toolbox.specs()} - {t.name for t in toolbox.specs(info)}
    names = [*sorted(missing), *(["the list of skills"] if library.offered and not info.has_memory_tools else [])]
    text = ", ".join([*names, "the overview of the workspace"])
    return f"{info.name} has {info.context_window:,} tokens: it is not offered {text}, and its prompt is shorter."


def collect_instruction_facts(
    messages: Sequence[Message], changed: Mapping[str, str], nearby_texts: Mapping[str, str], thread: Thread | None
) -> dict[str, str]:
    """Return instruction facts by file.

    These are changed files, those that apply near a used file, and changes that were reversed.
    """
    before = list_facts(messages, INSTRUCTIONS)
    out = {f"{INSTRUCTIONS} {name}": text for name, text in changed.items()}
    for name, text in nearby_texts.items():
        if text:
            out[f"{INSTRUCTIONS} {name}"] = f'<instructions from="{name}">\n{text}\n</instructions>'
        elif f"{INSTRUCTIONS} {name}" in before:
            out[f"{INSTRUCTIONS} {name}"] = f"{name} was removed: its instructions no longer apply."
    names_kept = {s.name for s in instructions.find_initial(thread)}
    near = set(list_nearby_names(thread))
    for fact in before:
        name = fact.partition(" ")[2]
        if name and name not in near and fact not in out:
            again = f"{name} has its original text again."
            out[fact] = again if name in names_kept else f"{name} was removed: its instructions no longer apply."
    return out


def list_facts(messages: Iterable[Message], word: str) -> dict[str, None]:
    """Return the names of the facts in `messages` that begin with a word, in order."""
    parts = (p for m in messages for p in m.parts if isinstance(p, ContextPart))
    return {name: None for p in parts for name in p.facts if name.partition(" ")[0] == word}


# --- skills -----------------------------------------------------------------------------------------------


def make_skill_metadata(text: str) -> Json:
    """Return the metadata of a thread that begins with this list of skills; nothing for an empty one."""
    return {CATALOG: text} if text else {}


def get_initial_skills(thread: Thread | None) -> str:
    """Return the list of skills that a thread began with."""
    return str(thread.metadata.get(CATALOG) or "") if thread is not None else ""


class LoadedSkills:
    """Skills whose text the open thread has; kept with it, so that memory does not take them away."""

    def __init__(self, names: Callable[[], Sequence[str]], add: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._names, self._add = names, add

    def __contains__(self, name: object, /) -> bool:
        return name in self._names()

    async def add(self, skill: Skill) -> None:
        """Note that a skill was loaded."""
        await self._add((skill.name,))


def list_loaded_skills(thread: Thread | None) -> list[str]:
    """Return the names of the skills that a thread has loaded."""
    names: Any = thread.metadata.get(LOADED) if thread is not None else None
    return [str(name) for name in cast("list[Any]", names)] if isinstance(names, list) else []


def list_sent_skills(parts: Sequence[object]) -> tuple[str, ...]:
    """Return the names of the skills that go with a message of the user."""
    return tuple(m[1] for p in parts if isinstance(p, FilePart) and (m := _NAMED.match(p.text)))


def collect_skill_facts(
    messages: Sequence[Message], changed: str, thread: Thread | None, library: Library
) -> dict[str, str]:
    """Return the texts of loaded skills missing from `messages`, and the changes of the skill list."""
    out = {"skills": changed} if changed else {}
    if not out and CATALOG in list_facts(messages, CATALOG):
        out[CATALOG] = "The skills are again the ones from the start of this thread."
    if names := list_loaded_skills(thread):
        seen = {name for m in messages for name in _list_shown_names(m)}
        missing = {s.name: s for s in library.skills if s.name not in seen}
        out |= {f"{SKILL} {n}": skills.format_skill(missing[n], missing[n].body) for n in names if n in missing}
    return out


def _list_shown_names(message: Message) -> list[str]:
    texts = [p.text for p in message.parts if isinstance(p, FilePart)]
    texts += [p.content for p in message.parts if isinstance(p, ToolResultPart) and p.name == "skill"]
    return [m[1] for t in texts if (m := _NAMED.match(t))]


# --- servers ----------------------------------------------------------------------------------------------


def get_initial_servers(thread: Thread | None) -> str:
    """Return the lines about MCP servers in a thread's system prompt; "" without any."""
    lines = _get_server_table(thread, "lines")
    if not lines:
        return ""
    text = "\n".join(f"- {name}: {line}" for name, line in sorted(lines.items()))
    return f"MCP servers and their tools; search_tools finds one, call_tool runs it:\n{text}"


def collect_server_facts(messages: Sequence[Message], workspace: Workspace, thread: Thread | None) -> dict[str, str]:
    """Return the news of MCP servers since a thread began, each once."""
    if not workspace.has_servers:
        return {}
    news = workspace.servers.facts(_get_server_table(thread, "tools"))
    before = list_facts(messages, SERVER)
    again = {name: f"The MCP server {name.partition(' ')[2]} is again as it was at first." for name in before}
    return {**again, **{f"{SERVER} {name}": text for name, text in news.items()}}


def _get_server_table(thread: Thread | None, name: str) -> Mapping[str, str]:
    stored: Any = thread.metadata.get(SERVER) if thread is not None else None
    table: Any = cast("Json", stored).get(name) if isinstance(stored, dict) else None
    return cast("dict[str, str]", table) if isinstance(table, dict) else {}


# --- modes ------------------------------------------------------------------------------------------------


def collect_mode_facts(messages: Sequence[Message], mode: ModeTools, approval_mode: str) -> dict[str, str]:
    """Return the words of the agent mode and of the approval mode `plan`, and that one of them has ended."""
    out: dict[str, str] = {}
    if mode.mode != modes.DEFAULT:
        parts = (modes.prompt(mode.mode, "task"), modes.prompt(mode.mode, "context"))
        tools = resources.read_prompt("system#mode-reads") if mode.reads_only else ""
        words = "\n".join(t for t in (*parts, tools) if t)
        out[MODE] = resources.fill_prompt("system#mode", mode=mode.mode, words=words)
    elif MODE in list_facts(messages, MODE):
        out[MODE] = resources.read_prompt("system#mode-ended")
    if approval_mode == PLAN:
        out[PLAN] = resources.read_prompt("system#plan")
    elif PLAN in list_facts(messages, PLAN):
        out[PLAN] = resources.read_prompt("system#plan-ended")
    return out


# --- jobs -------------------------------------------------------------------------------------------------


def collect_job_facts(
    messages: Sequence[Message], thread_id: str, running: Mapping[str, Running], past: dict[str, StoredJob]
) -> dict[str, str]:
    """Return the ends of background commands of a thread that the model has not been told of, each once.

    `past` are those of an earlier process, which are noted as reported once a message has them.
    """
    due = _find_unreported_jobs(thread_id, running, past)
    sent = list_facts(messages, runs.JOB_FACT) if due else {}
    out: dict[str, str] = {}
    for number, job in due.items():
        name = f"{runs.JOB_FACT} {number}"
        if name not in sent:
            if background.has_ended(job):
                out[name] = _describe_end(number, job)
        elif isinstance(job, StoredJob):
            past[number] = replace(job, reported_at=job.ended_at or job.started_at)
        else:
            job.is_reported = True
    return out


def _find_unreported_jobs(
    thread_id: str, running: Mapping[str, Running], past: Mapping[str, StoredJob]
) -> dict[str, Running | StoredJob]:
    mine = {n: job for n, job in running.items() if job.job is None or job.job[0] == thread_id}
    due: dict[str, Running | StoredJob] = {n: job for n, job in past.items() if job.reported_at is None}
    return due | {n: job for n, job in mine.items() if not job.is_reported}


def _describe_end(number: str, job: Running | StoredJob) -> str:
    state, lines = background.describe_state(job), background.read_last_lines(job) or "no output"
    return f"Background command {number} (`{to_one_line(job.command, 200)}`) {state}. Its last lines:\n{lines}"
