"""Call what stands before and after each tool call: the one place where others take part in running tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sakti.agent.tools.base import Outcome
from sakti.core.types import ToolCallPart


class CallHook(Protocol):
    """Takes part in every tool call of a session."""

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call to run, perhaps with other arguments: they are judged by permissions as the model's are.

        Raises `ToolError` to refuse it; the model reads the message.
        """
        ...

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Return the outcome that the model sees, of a failed call too; it is masked and cut to size afterwards."""
        ...


async def before(hooks: Sequence[CallHook], call: ToolCallPart) -> ToolCallPart:
    """Return the call as all hooks leave it, in order."""
    for hook in hooks:
        call = await hook.before(call)
    return call


async def after(hooks: Sequence[CallHook], call: ToolCallPart, outcome: Outcome) -> Outcome:
    """Return the outcome as all hooks leave it, the last hook first."""
    for hook in reversed(hooks):
        outcome = await hook.after(call, outcome)
    return outcome
