"""The system prompt: the same bytes in every request of a thread, also when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sakti.agent.workspace import describe
from sakti.core import resources
from sakti.core.types import Thread

OVERVIEW = "overview"  # in a thread's metadata: what its workspace held when it began


def build(workspace: Path, thread: Thread | None, *, interactive: bool, small: bool) -> str:
    """Its text. `small`: for a model that reads slowly, without the overview."""
    return "\n\n".join(_parts(workspace, thread, interactive, small))


def _parts(workspace: Path, thread: Thread | None, interactive: bool, small: bool) -> Iterator[str]:
    yield resources.read_prompt("system")
    if not interactive:
        yield resources.read_prompt("headless")
    yield f"# Workspace\n\n{describe(workspace)}"
    found = str(thread.metadata.get(OVERVIEW) or "") if thread else ""
    if found and not small:
        yield resources.fill_prompt("overview", overview=found)
