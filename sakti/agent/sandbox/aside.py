"""Set aside what a command left under a name that is protected: it would run, or speak to the agent, later."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sakti.agent.sandbox.boundary import PROTECTED

NAMES = (".git", *PROTECTED)
MOST = 100  # names that are tried for what is set aside

# Of each name that is protected: None where nothing is there, what a link names, "" for anything else.
Seen: TypeAlias = Mapping[str, str | None]


@dataclass(slots=True)
class Watch:
    """What is under the protected names of a workspace while commands run there.

    A command in the background may leave something at any time, so what was seen before it holds until it has ended.
    """

    workspace: Path
    _before: Seen | None = None
    _job: bool = False

    def begin(self, *, running: bool) -> list[tuple[str, str]]:
        """Look before a command; `running`: another one still does. Returns what was set aside, old and new names."""
        moved = self.look() if self._job else []
        if self._before is None or not running:
            self._before = seen(self.workspace)
        self._job = running
        return moved

    def look(self) -> list[tuple[str, str]]:
        """Set aside what appeared since `begin`; return old and new names."""
        return set_aside(self.workspace, self._before) if self._before is not None else []

    def job(self) -> None:
        """Note that the command goes on in the background."""
        self._job = True


def told(moved: Sequence[tuple[str, str]]) -> str:
    """Tell the model what was set aside; empty where nothing was."""
    if not moved:
        return ""
    names = ", ".join(f"{old} is now {new}" if new else f"{old} could not be moved" for old, new in moved)
    return (
        f"[set aside, as it runs code or gives instructions later: {names}."
        " Write it with the write tool, or run the command outside of the sandbox: the user is asked.]"
    )


def seen(workspace: Path) -> Seen:
    """Return what is under the protected names now."""
    return {name: _seen(workspace / name) for name in NAMES}


def set_aside(workspace: Path, before: Seen) -> list[tuple[str, str]]:
    """Rename what was not there before a command, or was a link to something else; return old and new names.

    Raises nothing: what cannot be renamed is named with "".
    """
    moved: list[tuple[str, str]] = []
    for name in NAMES:
        path = workspace / name
        now = _seen(path)
        if now is None or now == before.get(name) or any(name.startswith(f"{m}/") for m, _ in moved):
            continue
        moved.append((name, _moved(path, name)))
    return moved


def _seen(path: Path) -> str | None:
    try:
        mode = path.lstat().st_mode
        # a link on the way leads out of the protected names: what is behind it was not drawn
        return os.readlink(path) if stat.S_ISLNK(mode) else ""  # noqa: PTH115 - as it is written
    except OSError:
        return None


def _moved(path: Path, name: str) -> str:
    for number in range(1, MOST):
        end = f".set-aside-{number}"
        target = path.with_name(path.name + end)
        if not os.path.lexists(target):
            with contextlib.suppress(OSError):
                path.rename(target)
                return name + end
    return ""
