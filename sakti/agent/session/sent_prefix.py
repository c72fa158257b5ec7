"""Keep the system prompt and the tools of a thread's last request while a prompt cache may hold them.

A thread may be opened again by another version, with other settings or other agents. Its requests go on with what
they began with until an activation, a change of the model, or a cold cache; then they take what is current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from sakti.agent.session import system_prompt
from sakti.core.events import Event, MemoryActivation, StepFinished
from sakti.core.types import Block, ModelInfo, ToolSpec
from sakti.memory import policy
from sakti.memory.engine import DEFAULT_CACHE_TTL
from sakti.store.threads import messages
from sakti.store.threads.messages import LastRequest

if TYPE_CHECKING:
    from sakti.agent.session.running_turn import RunningTurn
    from sakti.agent.tools.toolbox import Toolbox
    from sakti.agent.workspace import Workspace

KINDS = frozenset(("system", "instructions", "skills", "mcp", "agent"))  # the other blocks are those of memory


class PrefixOwner(Protocol):
    """Open thread, as far as its prefix depends on it."""

    workspace: Workspace
    running: RunningTurn

    @property
    def id(self) -> str: ...

    @property
    def made_toolbox(self) -> Toolbox | None: ...

    def system(self) -> tuple[Block, ...]: ...


class SentPrefix:
    """Beginning of the last request of an open thread, as long as it applies."""

    def __init__(self, thread: PrefixOwner) -> None:
        self._open = thread
        self._last: LastRequest | None = None

    async def load(self) -> None:
        """Read the last request from the store."""
        self._last = await self._open.workspace.store.read(messages.read_last_request, self._open.id)

    def hear(self, event: Event) -> None:
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
        last = self._current()
        return [block for block in last.blocks if block[0] in KINDS] if last is not None else []

    def tools(self, model: ModelInfo) -> tuple[ToolSpec, ...]:
        """Return the tools for a model; empty if the current ones apply."""
        last = self._current()
        return last.tools if last is not None and last.model == model.full_name else ()

    def _current(self) -> LastRequest | None:
        """Return the last request if it applies, and forget it otherwise."""
        info = self._open.workspace.models.info
        if self._last is not None and info is not None and not self._applies(self._last, info):
            self._last = None
        return self._last

    def _applies(self, last: LastRequest, info: ModelInfo) -> bool:
        ws, toolbox = self._open.workspace, self._open.made_toolbox
        setting = ws.config.memory.activate_after_idle
        ttl = policy.parse_activation_ttl(setting, "memory.activate_after_idle")
        if ttl is None or ttl == "auto":
            ttl = DEFAULT_CACHE_TTL if info.cache_ttl is None else info.cache_ttl
        is_warm = last.model == info.full_name and ws.clock.now() - last.sent_at < ttl
        if not (is_warm and ws.options.trusted) or (toolbox is not None and _offers_forbidden(toolbox, last.tools)):
            return False
        place = system_prompt.describe(ws.root, ws.options.added)  # the thread may go on in another folder
        return any(place in text for _, text in last.blocks)


def _offers_forbidden(toolbox: Toolbox, tools: tuple[ToolSpec, ...]) -> bool:
    """Return whether a tool is among `tools` that sakti has, but that this thread must not use now."""
    missing = {tool.name for tool in tools} - toolbox.tools.keys()
    return bool(missing if toolbox.parent is not None else missing & toolbox.withheld)
