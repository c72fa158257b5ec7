"""Choose the hooks that an event starts. Pure.

A pattern of plain names matches whole names, any other is a regular expression that may match anywhere in the name, as
in claude-code; letters count as small ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from msgspec import Struct

from sakti.agent.project.hooks.settings import Hook
from sakti.core.config.fields import EVENTS, TOOL_EVENTS
from sakti.core.lazy import lazy_pattern

_PLAIN = lazy_pattern(r"[\w\s,|-]*")
_RULE = lazy_pattern(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ASSIGNMENT = lazy_pattern(r"(?:[A-Za-z_]\w*=\S*\s+)+")

# The names of a tool for patterns: ours, and what others call it.
NAMES = {
    "bash": ("Bash",),
    "bash_output": ("BashOutput",),
    "kill": ("KillShell", "KillBash"),
    "read": ("Read",),
    "write": ("Write",),
    "edit": ("Edit", "MultiEdit"),
    "apply_patch": ("Edit", "MultiEdit", "Write"),  # it does what they do
    "ls": ("LS",),
    "glob": ("Glob",),
    "grep": ("Grep",),
    "ask_user": ("AskUserQuestion",),
    "webfetch": ("WebFetch",),
    "websearch": ("WebSearch",),
}


class HookSubject(Struct, frozen=True):
    """What the pattern of a hook is compared with: names of a tool, or what an event says of itself.

    `command` is that of a call, `paths` the files in it, absolute and relative to the workspace.
    """

    names: tuple[str, ...] = ()
    command: str | None = None
    paths: tuple[str, ...] = ()


def names_of(tool: str) -> tuple[str, ...]:
    """Return the names of a tool, ours first."""
    return (tool, *NAMES.get(tool, ()))


def choose_hooks(
    hooks: Iterable[Hook], event: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]
) -> list[Hook]:
    """Return the hooks that an event starts, each command once.

    `commands` gives the single commands in a command line, None where it cannot be read.
    """
    out: dict[tuple[str, tuple[str, ...] | None], Hook] = {}
    for hook in hooks:
        if hook.event == event and not hook.why_not and _fits(hook, event, subject, commands):
            out.setdefault((hook.command, hook.args), hook)
    return list(out.values())


def _fits(hook: Hook, event: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]) -> bool:
    if EVENTS.get(event) and not matches(hook.match, subject.names):
        return False
    return not hook.condition or (event in TOOL_EVENTS and fulfils(hook.condition, subject, commands))


def matches(pattern: str, names: Collection[str]) -> bool:
    """Return whether a pattern fits one of the names; an empty one and `*` fit all."""
    pattern = pattern.strip()
    if pattern in ("", "*"):
        return True
    if _PLAIN.fullmatch(pattern):
        words = {word.strip().casefold() for word in re.split(r"[|,]", pattern)}
        return any(name.casefold() in words for name in names)
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return False
    return any(expression.search(name) for name in names)


def fulfils(rule: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]) -> bool:
    """Return whether a call fits `Tool`, `Tool(pattern)` or `Bash(words *)`; unparsed commands do."""
    match = _RULE.fullmatch(rule)
    if match is None or not matches(match[1], subject.names):
        return False
    pattern = match[2]
    if pattern is None or pattern in ("", "*"):
        return True
    if subject.command is not None:
        each = commands(subject.command)
        return each is None or any(_fits_words(pattern, _ASSIGNMENT.sub("", one, count=1)) for one in each)
    return any(fnmatchcase(path, pattern) or PurePath(path).match(pattern) for path in subject.paths)


def _fits_words(pattern: str, command: str) -> bool:
    if pattern.endswith(":*"):  # the words that a command begins with
        begin = pattern[:-2]
        return command == begin or command.startswith(f"{begin} ")
    return fnmatchcase(command, pattern) or (pattern.endswith(" *") and command == pattern[:-2])
