"""Build the system prompt, which stays the same for the life of a thread, and the facts that move."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.repository import GitState
from sakti.core import resources
from sakti.core.text import counted
from sakti.core.types import Thread

OVERVIEW = "overview"  # in a thread's metadata: what its workspace held when it began


class PromptNews(Struct):
    """News for the next requests: changed instructions by file, changed skill list, texts of hooks."""

    instructions: dict[str, str] = field(default_factory=dict[str, str])
    skills: str = ""
    hooks: str = ""


def build(workspace: Path, thread: Thread | None, *, interactive: bool, brief: bool, added: Sequence[Path] = ()) -> str:
    """Build its text.

    `brief`: for a model with a small window; `added`: folders opened beside the workspace.
    """
    return "\n\n".join(_parts(workspace, added, thread, interactive, brief))


def _parts(
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
    """Return the unmoving facts of the system prompt: where the agent works, and on what."""
    import platform

    more = "".join(f"\nAlso open to your tools: {folder}" for folder in added)
    return f"Workspace: {root}{more}\nSystem: {platform.system()} {platform.release()}, {platform.machine()}"


def moving_facts(git: GitState | None, folder: str, now_ms: int) -> dict[str, str]:
    """Return what changes from step to step, by name; `folder` as people write it in the workspace."""
    day = time.strftime("%A, %d %B %Y, %H:%M", time.localtime(now_ms / 1000))
    facts = {"now": f"Now: {day}", "folder": f"Current folder: {folder}"}
    if git is not None:
        state = counted(git.changed, "changed path") if git.changed else "clean"
        facts["git"] = f"Git: on {git.branch}, {state}"
    return facts
