"""Complete the word at the cursor: slash commands, their arguments, files. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from sakti.actions import registry
from sakti.actions.spec import Action
from sakti.core.patterns import lazy_pattern
from sakti.core.text import count_k, sanitise
from sakti.core.types import ModelInfo

if TYPE_CHECKING:
    from sakti.agent.project.skills.library import Skill

MAX_SHOWN = 8
_FILE = lazy_pattern(r"(?:^|(?<=\s))@([^\s@]*)$")
_COMMAND = lazy_pattern(r"^/([\w:-]*)$")
_SKILL = lazy_pattern(r"(?:^|(?<=\s))\$([\w:-]*)$")
_ARGUMENT = lazy_pattern(r"^/([\w-]+) +(\S*)$")


class CompletionQuery(Struct, frozen=True):
    """Text being completed; `start` is its position before the cursor."""

    kind: Literal["command", "argument", "file", "skill"]
    text: str
    start: int
    command: str = ""


class Choice(Struct, frozen=True):
    """`insert` replaces the query's text, `label` and `hint` are shown."""

    insert: str
    label: str
    hint: str = ""


def query_at(before: str) -> CompletionQuery | None:
    """Return the query for the text before the cursor."""
    if match := _COMMAND.match(before):
        return CompletionQuery("command", match[1], 0)
    if (match := _ARGUMENT.match(before)) and match[1] in registry.chat():
        return CompletionQuery("argument", match[2], match.start(2), match[1])
    if match := _FILE.search(before):
        return CompletionQuery("file", match[1], match.start())
    if match := _SKILL.search(before):
        return CompletionQuery("skill", match[1], match.start())
    return None


def skill_choices(text: str, skills: Iterable[Skill], sign: str) -> list[Choice]:
    """Skills that begin with `text`, then those that hold it, written behind `sign`."""
    known = [s for s in skills if text in s.name]
    known.sort(key=lambda s: (not s.name.startswith(text), s.name))
    label = "{sign}{s.name} {s.hint}" if sign == "/" else "{sign}{s.name}"
    return [Choice(f"{sign}{s.name} ", label.format(sign=sign, s=s).strip(), s.description) for s in known]


def prompt_choices(text: str, prompts: Mapping[str, str]) -> list[Choice]:
    """Prompts of MCP servers that hold `text`, as `/server:prompt`, each with its arguments."""
    names = sorted(name for name in prompts if text in name and sanitise(name) == name)
    return [Choice(f"/{name} ", f"/{name} {sanitise(prompts[name])}".strip(), "MCP prompt") for name in names]


def command_choices(text: str, own: Iterable[Action] = ()) -> list[Choice]:
    """Return the command `text`, those that begin with it, then those that contain it.

    `own` are those that only this surface has.
    """
    known = (*registry.chat().values(), *own)
    first = sorted((c for c in known if c.chat.startswith(text)), key=lambda c: c.chat != text)
    rest = [c for c in known if c not in first and text and text in c.chat]
    return [
        Choice(f"/{c.chat}" + (" " if c.hint else ""), f"/{c.chat} {c.hint}".strip(), c.in_short)
        for c in (*first, *rest)
    ]


def argument_choices(command: str, text: str) -> list[Choice]:
    return [Choice(c, c) for c in registry.choices(command) if c.startswith(text) and c != text]


def model_choices(text: str, models: Iterable[ModelInfo]) -> list[Choice]:
    """Models by name, with their window; one that is written out is not offered."""
    known = {m.full_name: m for m in models if sanitise(m.full_name) == m.full_name}
    return [
        Choice(name, name, f"{count_k(known[name].context_window or 0)} window" if known[name].context_window else "")
        for name in fuzzy(text, known, MAX_SHOWN)
        if name != text
    ]


def file_choices(text: str, paths: Sequence[str]) -> list[Choice]:
    return [Choice(f"@{path} ", path) for path in fuzzy(text, paths, MAX_SHOWN)]


def fuzzy(text: str, candidates: Iterable[str], limit: int) -> list[str]:
    """Return the best `limit` of `candidates` that hold the characters of `text` in order.

    A match in the file name, at its start and in a short path comes first.
    """
    wanted = text.lower()
    if not wanted:
        return sorted(candidates, key=lambda c: (c.count("/"), c))[:limit]
    exact: list[tuple[int, int, str]] = []
    rest: list[str] = []
    for candidate in candidates:
        low = candidate.lower()
        at = low.rfind(wanted)
        if at < 0:
            rest.append(candidate)
            continue
        name = low.rfind("/") + 1
        exact.append((0 if at == name else 1 if at > name else 2, len(low), candidate))
    exact.sort()
    best = [c for _, _, c in exact[:limit]]
    if len(best) < limit:
        pattern = re.compile(".*?".join(map(re.escape, wanted)))
        loose: list[tuple[int, int, str]] = []
        for candidate in rest:
            if match := pattern.search(candidate.lower()):
                loose.append((match.end() - match.start(), len(candidate), candidate))
        loose.sort()
        best += [c for _, _, c in loose[: limit - len(best)]]
    return best
