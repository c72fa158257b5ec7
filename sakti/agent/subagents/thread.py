"""Adapt thread and turn for a child: the parent's permissions apply, and a report ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import structs

from sakti.agent.judge.policy import ModeTools, Rules
from sakti.agent.open_thread import OpenThread
from sakti.agent.project.hooks.answers import HookText
from sakti.agent.project.hooks.fire import FACT, make_hold_message
from sakti.agent.session import prompt
from sakti.agent.session.turn import Stop, Turn
from sakti.agent.session.turns import Turns
from sakti.agent.subagents import NoChildren, files
from sakti.agent.subagents.files import AgentSpec, NamedTools
from sakti.core.config import SessionMode
from sakti.core.errors import SaktiError
from sakti.core.events import Event
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.text import to_one_line
from sakti.core.types import BY_AGENT, Json, Message, ModelInfo, Part, TextPart, Usage
from sakti.memory import modes

if TYPE_CHECKING:
    from sakti.agent.checkpoints.recorder import TurnRecorder
    from sakti.agent.session.turn_lease import TurnLease
    from sakti.agent.tools.base import Tool
    from sakti.agent.tools.context import ToolState
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.memory.state import MemoryOptions
    from sakti.providers.protocol import Provider


REMINDERS = 2  # requests for a report that a child did not write


class _ReportOnly(NoChildren):
    """Host of a child: it has no children, and reports."""

    def __init__(self, report: Callable[[], Tool]) -> None:
        super().__init__()
        self._report = report

    def tools(self) -> list[Tool]:
        return [self._report()]


class ChildThread(OpenThread):
    """Thread of a child in its parent's workspace; its events go to `sink`."""

    def __init__(
        self,
        parent: OpenThread,
        spec: AgentSpec,
        goal: str,
        tools: NamedTools | None,
        sink: Callable[[Event], None],
        report: Callable[[], Tool],
    ) -> None:
        super().__init__(parent.workspace)
        self.parent, self.spec, self._goal = parent, spec, goal
        self.answering: tuple[Provider, ModelInfo] | None = None  # another model than the parent's
        self._named, self._sink = tools, sink
        self.running.children = _ReportOnly(report)

    @property
    def approval_mode(self) -> SessionMode:
        """Return the widest mode that it works in; a narrower one of the parent applies."""
        return self.spec.ceiling

    @property
    def mode_tools(self) -> ModeTools:
        return ModeTools()  # it has no other tools, and its system prompt has the words of its mode

    @property
    def recorder(self) -> TurnRecorder | None:
        return None  # its changes belong to the parent's turn, which has begun

    def _send(self, event: Event) -> None:
        self._sink(event)

    def _build_memory_options(self) -> MemoryOptions:
        settings = structs.replace(self.workspace.config.memory, scope="thread", carry_over=0)
        return structs.replace(super()._build_memory_options(), settings=settings, goal=self._goal)

    def _list_more_texts(self) -> list[tuple[str, str]]:
        task = self.spec.prompt or modes.prompt(self.spec.mode, "task").strip()
        return [("agent", fill_prompt("subagents#child", task=task))]

    def facts(self) -> dict[str, str]:
        return {name: text for name, text in super().facts().items() if name != prompt.PLAN}

    def _make_tool_state(self) -> ToolState:
        parent = self.parent.toolbox.state
        enclosed = parent.sandbox is not None
        return self.workspace.make_tool_state(self.emit, enclosed=enclosed, recorder=parent.recorder)

    def _spend(self, usage: Usage) -> None:
        """Count the usage of a tool's own request for the child and for its parent."""
        self.children.spend(usage)
        self.parent.children.spend(usage)

    def _make_toolbox(self) -> Toolbox:
        toolbox, parent = super()._make_toolbox(), self.parent.toolbox
        tools = (t for t in self.spec.select_tools(toolbox.tools) if self.parent.mode_tools.allows(t))
        offered = {"report", *filter(self._is_named, tools)}
        toolbox.tools = {n: t for n, t in toolbox.tools.items() if n in offered}
        toolbox.remote, toolbox.explain_missing = self._select_remote_tools, self._explain_missing
        toolbox.parent, toolbox.approvals, toolbox.agent = parent, parent.approvals, self.spec.name
        toolbox.asker = f"{self.spec.name} › {to_one_line(self._goal, 60)}"
        toolbox.state.spend = self._spend
        toolbox.only = tuple(
            {t: Rules(allow=rules) for t, rules in named.items() if rules}
            for named in (self.spec.rules, self._named or {})
        )
        toolbox.forget_specs()
        return toolbox

    def _explain_missing(self, name: str) -> str:
        servers = self.workspace.servers
        if name in servers.tools():
            return f"{name} is not a tool of the agent {self.spec.name}."
        return servers.explain_missing(name)

    def _select_remote_tools(self) -> dict[str, Tool]:
        """Return the tools of servers that it may call, never more than its parent."""
        return {name: tool for name, tool in self.workspace.servers.tools().items() if self._may_call(name, tool)}

    def _may_call(self, name: str, tool: Tool) -> bool:
        reads = tool.remote is not None and tool.remote.reads_only
        if not (self.spec.has_tool(name, reads=reads) and self.parent.mode_tools.allows(name, reads=reads)):
            return False
        return self._is_named(name)

    def _is_named(self, tool: str) -> bool:
        """Return whether its call leaves it a tool that it may have."""
        return self._named is None or files.is_named(self._named, tool)


class ChildTurns(Turns):
    """Turns of a child, with its limits, its report, and the author of its prompts.

    `has_reported` and `limit` are asked after each step whether it is done, and for the limit that it has reached.
    `hold` returns the texts of hooks that continue a child without a report.
    """

    def __init__(
        self,
        thread: ChildThread,
        has_reported: Callable[[], bool],
        limit: Callable[[Usage], str],
        hold: Callable[[str], Awaitable[tuple[HookText, ...]]],
    ) -> None:
        super().__init__(thread)
        self._child, self._has_reported, self._limit, self._hold = thread, has_reported, limit, hold

    async def ask(self, text: str) -> None:
        """Play a turn for a prompt of the parent. Raises `SaktiError` if it cannot begin."""
        await self._begin((TextPart(text),))
        await self.wait()

    async def _make_turn(self, lease: TurnLease, model: str, emit: Callable[[Event], None]) -> Turn:
        turn = await super()._make_turn(lease, model, emit)
        if self._child.answering is not None:
            turn.provider, turn.model = self._child.answering
        settings, spec = self._child.workspace.config, self._child.spec
        limits = settings.subagents
        agent = settings.agent
        turn.settings = structs.replace(
            agent,
            max_steps=min(agent.max_steps, limits.max_steps, spec.max_steps or limits.max_steps),
            max_usd=limits.max_usd if agent.max_usd is None else min(agent.max_usd, limits.max_usd),
            max_tokens=None,  # of a child, those that a cache served do not count
            effort=spec.effort or agent.effort,
        )
        turn.parent_id = self._child.parent.id
        turn.accept, turn.may_end = self._sign, self._remind
        turn.is_over = lambda: self._is_over(turn)
        return turn

    def _is_over(self, turn: Turn) -> bool:
        if self._has_reported():
            return True
        if reached := self._limit(turn.usage):
            raise Stop("limit", SaktiError(reached, title="Limit reached", code="child_limit"))
        return False

    async def _sign(self, typed: Message, message: Message) -> Message:
        return structs.replace(message, metadata={**message.metadata, **BY_AGENT})

    async def _remind(self, answer: str, held: int) -> tuple[tuple[Part, ...], Json]:
        if held < REMINDERS:
            return (TextPart(read_prompt("subagents#remind")),), BY_AGENT
        texts = await self._hold(answer)
        return (make_hold_message("SubagentStop", texts), {FACT: "SubagentStop"}) if texts else ((), {})
