"""Define the host of child threads, which do parts of the work and report.

`children.Children` answers for a thread of a session; a child has no children itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sakti.core.types import Message, Usage

if TYPE_CHECKING:
    from sakti.agent.tools.base import Tool


class ChildHost(Protocol):
    """Children of an open thread; `spent` is the usage of their steps, and of searches of the web."""

    spent: list[Usage]

    def spend(self, usage: Usage) -> None:
        """Add usage that counts for the turn but is of none of its steps."""
        ...

    def tools(self) -> list[Tool]:
        """Return the tools that start children."""
        ...

    def facts(self, messages: Sequence[Message]) -> dict[str, str]:
        """Return the facts about children for the next request, by name."""
        ...

    async def refresh(self) -> None:
        """Read the thread's children from the database: any window may have changed them."""
        ...

    def enclose(self) -> None:
        """Let running children work in the sandbox from now on, as the thread does."""
        ...

    async def wait_background(self) -> bool:
        """Wait for the children in the background; return whether there is something to report."""
        ...

    async def close(self) -> None:
        """Stop all children."""
        ...


class NoChildren:
    """Host of a thread that may have no children."""

    def __init__(self) -> None:
        self.spent: list[Usage] = []

    def spend(self, usage: Usage) -> None:
        self.spent.append(usage)

    def tools(self) -> list[Tool]:
        return []

    def facts(self, messages: Sequence[Message]) -> dict[str, str]:
        return {}

    async def refresh(self) -> None:
        return None

    def enclose(self) -> None:
        return None

    async def wait_background(self) -> bool:
        return False

    async def close(self) -> None:
        return None
