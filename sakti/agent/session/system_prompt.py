"""Build the system prompt: the same bytes in every request of a thread, also when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sakti.agent.workspace import describe
from sakti.core import resources
from sakti.core.types import Thread

OVERVIEW = "overview"  # in a thread's metadata: what its workspace held when it began


def build(workspace: Path, thread: Thread | None, *, interactive: bool, brief: bool, added: Sequence[Path] = ()) -> str:
    """Build its text. `brief`: for a model with a small window; `added`: folders opened beside the workspace."""
    return "\n\n".join(_parts(workspace, added, thread, interactive, brief))


def _parts(
    workspace: Path, added: Sequence[Path], thread: Thread | None, interactive: bool, brief: bool
) -> Iterator[str]:
    yield resources.read_prompt("system#brief" if brief else "system")
    if not interactive:
        yield resources.read_prompt("system#headless")
    yield f"# Workspace\n\n{describe(workspace, added)}"
    found = str(thread.metadata.get(OVERVIEW) or "") if thread else ""
    if found and not brief:
        yield resources.fill_prompt("system#overview", overview=found)
