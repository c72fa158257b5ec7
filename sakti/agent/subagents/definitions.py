"""Define what a child may be: a mode, or a custom agent; its prompt, tools and limits."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from typing import TypeAlias

from msgspec import Struct, field

from sakti.agent.judge.policy import ModeTools
from sakti.core.config import SessionMode
from sakti.core.resources import mode_names
from sakti.core.types import Effort
from sakti.memory import modes

NEVER = frozenset({"agent", "ask_user", "present_plan"})  # the depth is fixed, and nobody answers a child
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

    def narrowed(self, tools: Collection[str]) -> frozenset[str]:
        """Return the tools of `tools` that it gets."""
        return frozenset(t for t in tools if self.has_tool(t))


def of_mode(name: str) -> AgentSpec | None:
    """Return the agent that a mode makes; None if there is no such mode."""
    if name not in mode_names():
        return None
    tools = ModeTools(name, modes.numbers(name).tools)
    return AgentSpec(name, name, tools=tools, ceiling="plan" if tools.reads_only else "full")
