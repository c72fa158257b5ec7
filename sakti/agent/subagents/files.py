"""Define the agents of children (modes and custom agents), and load custom agents from `agents/*.md`.

The files have the fields of claude-code. Nothing in one is fatal: unused and unknown fields, unmapped tools and models
are named in a note.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge.policy import ModeTools
from sakti.agent.project import files, skills
from sakti.agent.project.files import Trusts
from sakti.agent.tools import arguments as forms
from sakti.core.config import SessionMode
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import fill_prompt, list_modes
from sakti.core.text import quote, to_one_line
from sakti.core.types import PREFIX, Effort, make_tool_pattern
from sakti.memory import modes

NEVER = frozenset({"agent", "ask_user", "present_plan"})  # the depth is fixed, and no user answers a child
NamedTools: TypeAlias = dict[str, tuple[str, ...]]  # names or patterns, each with the rules its calls must follow


class AgentSpec(Struct, frozen=True):
    """A mode or a custom agent.

    `tools`: those that it gets; `without`: those that it does not, by names or patterns. `ceiling`: the widest
    approval mode that it works in. `rules` allow calls of a tool that is only partly its own, by tool.
    """

    name: str
    mode: str = "default"
    description: str = ""
    prompt: str = ""
    tools: ModeTools = ModeTools()
    without: frozenset[str] = NEVER
    ceiling: SessionMode = "full"
    model: str = ""
    effort: Effort | None = None
    max_steps: int | None = None
    background: bool = False
    skills: tuple[str, ...] = ()
    rules: NamedTools = field(default_factory=dict[str, tuple[str, ...]])
    source: str = ""

    @property
    def is_read_only(self) -> bool:
        return self.ceiling == "plan"

    def has_tool(self, tool: str, *, reads: bool = False) -> bool:
        """Return whether it gets a tool; `reads`: of a server, and known to read only."""
        forbids = any(fnmatch.fnmatchcase(tool, name) for name in self.without)
        return not forbids and self.tools.allows(tool, reads=reads)

    def select_tools(self, tools: Collection[str]) -> frozenset[str]:
        """Return the tools of `tools` that it gets."""
        return frozenset(t for t in tools if self.has_tool(t))


def make_mode_agent(name: str) -> AgentSpec | None:
    """Return the agent that a mode makes; None if there is no such mode."""
    if name not in list_modes():
        return None
    tools = ModeTools(name, modes.read_numbers(name).tools)
    return AgentSpec(name, name, tools=tools, ceiling="plan" if tools.reads_only else "full")


MOST = 200  # agents of a project
LONGEST_DESCRIPTION = 1_024
_NAME = lazy_pattern(r"[\w-]{1,64}")
_PARTIAL = lazy_pattern(r"([\w-]+)\((.*)\)")
_USED = frozenset(
    "name description tools disallowedTools model permissionMode maxTurns skills background effort mode".split()
)
_UNUSED = frozenset("mcpServers hooks memory isolation color".split())
_MODES: Mapping[str, SessionMode] = {
    "plan": "plan", "default": "ask", "ask": "ask", "acceptEdits": "edits", "edits": "edits", "auto": "auto",
    "bypassPermissions": "full",
}  # fmt: skip
_EFFORTS: Mapping[str, Effort] = {"off": "off", "low": "low", "medium": "medium", "high": "high", "max": "high"}
_TOOLS = {"todowrite": "task-mutate", "todoread": "task-query", "skill": "skill"}
_OURS = frozenset("memory-search task-query task-mutate skill wait".split())
_SAME = ("sonnet", "opus", "inherit", "")  # models that mean the one that answers


class CustomAgents(Struct, frozen=True):
    """Custom agents, sentences on unused parts of their files, and on broken files."""

    agents: tuple[AgentSpec, ...] = ()
    notes: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def get(self, name: str) -> AgentSpec | None:
        return next((a for a in self.agents if a.name == name), None)


def _list_trusted(workspace: Path, trusts: Trusts) -> Iterator[tuple[Path, Path]]:
    """Yield the project's agent files that are trusted, each with the folder that it must be in."""
    bound = workspace.resolve()
    for file in files.list_files(workspace, "agent", most=MOST):
        if trusts(file.path.relative_to(workspace).as_posix()):
            yield file.path, bound


def load(workspace: Path, *, project: bool, trusts: Trusts = files.trusts_all) -> CustomAgents:
    """Load all custom agents, the first of each name; `project`: also its trusted ones."""
    notes: list[str] = []
    broken: list[str] = []
    agents: dict[str, AgentSpec] = {}
    trusted = _list_trusted(workspace, trusts) if project else ()
    for path, root in (*trusted, *((f.path, None) for f in files.list_user_files("agent"))):
        before = len(broken)
        read = skills.read_file(path, root, broken)
        if read is None or len(broken) > before:  # without its front matter its limits are unknown
            continue
        table, body, source = read
        name = str(table.get("name") or path.stem)
        if problem := _refuse_name(name) or _refuse_mode(table) or ("" if table or body else "it is empty"):
            broken.append(f"{source}: left out, {problem}.")
        else:
            agents.setdefault(name, _read_agent(name, table, body, source, notes))
    return CustomAgents(tuple(sorted(agents.values(), key=lambda a: a.name)), tuple(notes), tuple(broken))


def _refuse_name(name: str) -> str:
    """Return why an agent cannot have a name; "" if it can."""
    if name in list_modes():
        return f"{name} is the name of a mode"
    if _NAME.fullmatch(name):
        return ""
    return f"{quote(name, 40)} is not a name: it takes up to 64 letters, digits, - and _"


def _refuse_mode(table: Mapping[str, Any]) -> str:
    """Return why its mode, with its tools and limits, is unknown; "" if it is known or does not exist."""
    mode = str(table.get("mode") or modes.DEFAULT)
    return modes.find_problem(mode).removesuffix(".") if mode in list_modes() else ""


def _read_agent(name: str, table: Mapping[str, Any], body: str, source: str, notes: list[str]) -> AgentSpec:
    problems = [f"{field} is not used" for field in table if field in _UNUSED]
    problems += [
        f"the field {to_one_line(str(field), 40)} is unknown" for field in table if field not in _USED | _UNUSED
    ]
    mode = str(table.get("mode") or modes.DEFAULT)
    if mode not in list_modes():
        problems.append(f"there is no mode {to_one_line(mode, 40)}")
        mode = modes.DEFAULT
    agent = AgentSpec(
        name,
        mode,
        description=to_one_line(str(table.get("description") or ""), LONGEST_DESCRIPTION),
        prompt=_prompt(body, _read_words(table.get("skills"))),
        ceiling=_choose_value(table, "permissionMode", _MODES, "full", problems),
        model=_read_model(table, problems),
        effort=_choose_value(table, "effort", _EFFORTS, None, problems),
        max_steps=_read_steps(table, problems),
        background=table.get("background") in (True, "true"),
        source=source,
    )
    agent = _with_tools(agent, table, problems)
    if problems:
        notes.append(f"{source}: {'; '.join(problems)}.")
    return agent


def _prompt(body: str, skills: list[str]) -> str:
    return fill_prompt("subagents#skills", prompt=body, skills=", ".join(skills)) if skills else body


def _choose_value(
    table: Mapping[str, Any], field: str, values: Mapping[str, Any], usual: Any, problems: list[str]
) -> Any:
    """Return the value for the word of a field."""
    word = str(table.get(field) or "")
    if word and word not in values:
        problems.append(f"{field} {to_one_line(word, 40)} is unknown")
    return values.get(word, usual)


def _read_model(table: Mapping[str, Any], problems: list[str]) -> str:
    name = str(table.get("model") or "")
    if name.lower() in _SAME:
        return ""
    if name.lower() != "haiku" and "/" not in name:
        problems.append(f"the model {to_one_line(name, 40)} is not mapped, so the one that answers is used")
        return ""
    return name


def _read_steps(table: Mapping[str, Any], problems: list[str]) -> int | None:
    value = table.get("maxTurns")
    if value is None or (isinstance(value, int) and value > 0):
        return value
    problems.append(f"maxTurns {to_one_line(str(value), 20)} is not a number of steps")
    return None


# --- tools ------------------------------------------------------------------------------------------------------------


def _with_tools(agent: AgentSpec, table: Mapping[str, Any], problems: list[str]) -> AgentSpec:
    """Return the agent with the tools that its file allows, or forbids."""
    named = _merge_rules(pair for word in _read_words(table.get("tools")) for pair in _read_tool(word, problems))
    rules = {tool: patterns for tool, patterns in named.items() if patterns}
    without = {t for word in _read_words(table.get("disallowedTools")) for t, _ in _read_tool(word, problems)}
    of_mode = tools = ModeTools(agent.mode, modes.read_numbers(agent.mode).tools)
    if "tools" in table:
        chosen = (n for n in named if n.startswith(("*", PREFIX)) or tools.allows(n))
        tools = ModeTools(agent.name, tuple(sorted(chosen)))
    ceiling: SessionMode = "plan" if of_mode.reads_only else agent.ceiling
    return replace(agent, tools=tools, without=NEVER | without, rules=rules, ceiling=ceiling)


def choose_tools(agent: AgentSpec, words: Iterable[str], offered: Collection[str]) -> NamedTools:
    """Return the tools that a call names, of those that are `offered` to the agent, each with its rules.

    Raises `ToolError` for names that are none of them.
    """
    read = {word: [(word, "")] if word in offered else list(_read_tool(word, [])) for word in words}
    read.pop("report", None)  # every child has it
    unknown = [w for w, pairs in read.items() if not any(t in offered or t.startswith(("*", PREFIX)) for t, _ in pairs)]
    if unknown:
        raise ToolError(
            f"No child was started: {agent.name} has no tool {to_one_line(', '.join(unknown), 200)}. Leave out tools"
            f" for all of its tools, or name some of {', '.join(sorted(offered))}."
        )
    return _merge_rules(pair for pairs in read.values() for pair in pairs)


def is_named(tools: NamedTools, name: str) -> bool:
    """Return whether a tool is one of those that a call names."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in tools)


def _merge_rules(pairs: Iterable[tuple[str, str]]) -> NamedTools:
    """Return the rules of each tool or pattern, () for those without."""
    out: NamedTools = {}
    for tool, rule in pairs:
        out[tool] = (*out.get(tool, ()), *([rule] if rule else []))
    return out


def _read_tool(word: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield our tools of a name of claude-code, each with the rule that calls of it must follow, if any."""
    partial = _PARTIAL.fullmatch(word)
    name, pattern = (partial[1], partial[2].strip()) if partial else (word, "")
    if name == "*" or name.startswith(PREFIX):
        yield make_tool_pattern(name), ""
        return
    tool = _TOOLS.get(forms.normalize(name)) or (name if name in _OURS else forms.translate_name(name))
    if not forms.is_translated(tool) and tool not in _OURS:
        problems.append(f"the tool {to_one_line(word, 40)} is not mapped")
        return
    yield tool, _format_rule(tool, pattern)
    if tool == "edit":  # models that write patches have that in its place
        yield "apply_patch", _format_rule("apply_patch", pattern)


def _format_rule(tool: str, pattern: str) -> str:
    if not pattern or pattern == "*":
        return ""
    if tool == "bash":
        words = pattern.removesuffix("*").removesuffix(":").strip()
        return f"bash: {words}" if words else ""
    if tool == "webfetch" and pattern.startswith("domain:"):
        return f"reach: {pattern.removeprefix('domain:').strip()}"
    return f"{tool}({pattern})"


def _read_words(value: Any) -> list[str]:
    """Return the entries of a list, or of a text with commas outside of parentheses."""
    if isinstance(value, list):
        return [str(v).strip() for v in cast("list[Any]", value) if str(v).strip()]
    out, depth = [""], 0
    for sign in str(value or ""):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            out.append("")
        else:
            out[-1] += sign
    return [word.strip() for word in out if word.strip()]
