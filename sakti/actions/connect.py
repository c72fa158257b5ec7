"""Declare `sakti connect`: register sakti's memory with another agent."""

from __future__ import annotations

import difflib
import importlib
import shutil
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from sakti.actions.scope import Scope, confirm_change
from sakti.actions.spec import MEMORY, action, arg, flag
from sakti.actions.values import Done, Text, Value

PROGRAMS = ("claude-code", "codex", "opencode", "vibe")


@action(
    arg("program", "claude-code, codex, opencode or vibe.", choices=PROGRAMS),
    flag("--remove", help="Take the entry back."),
    flag("--yes", help="Do not ask for confirmation."),
    shell="connect",
    panel=MEMORY,
)
async def connect(scope: Scope, program: str, remove: bool, yes: bool) -> Value:
    """Let another agent search your memory: add `sakti mcp` to its configuration.

    The change is shown first; everything else in the file stays as it is.
    """
    change = _plan(program, remove)
    described = {"program": program, "path": str(change.path), "changed": change.after != change.before}
    if change.after == change.before:
        state = "not connected" if remove else "connected already"
        return Done(f"{program} is {state}; {change.path} was not changed.", json=described)
    diff = tuple(_diff(change))
    if not yes:
        confirm_change(scope, change.path, diff)
    _connections().write(change.path, change.after)
    done = f"{program} {'no longer uses' if remove else 'uses'} sakti's memory from its next start on."
    return Text((*(diff if yes else ()), done), json=described)


class ConfigurationEdit(NamedTuple):
    """Texts of a configuration before and after an edit; None: no file."""

    path: Path
    before: str | None
    after: str | None


def _connections() -> ModuleType:
    return importlib.import_module("sakti.agent.connections")  # not for lists of commands


def _plan(program: str, remove: bool) -> ConfigurationEdit:
    """Return the edit of a program's configuration. Raises ConnectError."""
    module = _connections()
    chosen = module.PROGRAMS[program]
    path = Path.home() / chosen.path
    before = module.read(path)
    change = module.disconnect if remove else module.connect
    return ConfigurationEdit(path, before, change(chosen, before, shutil.which("sakti") or "sakti"))


def _diff(change: ConfigurationEdit) -> list[str]:
    before, after, name = (change.before or "").splitlines(), (change.after or "").splitlines(), str(change.path)
    return list(difflib.unified_diff(before, after, name, name, lineterm="", n=2))
