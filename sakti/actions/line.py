"""Read a line of the chat: a command, a `!` shell line, a `#` note or a message; complete its words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from sakti.actions import registry, spec
from sakti.actions.spec import Action
from sakti.actions.values import Refused, Value
from sakti.core.lazy import lazy_pattern
from sakti.core.text import count_k, sanitize_text, to_one_line
from sakti.core.types import ModelInfo

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.project.skills import Skill


class Typed(Struct, frozen=True):
    """A parsed line of the prompt. `name` is that of a command, which may be unknown."""

    kind: Literal["command", "unknown", "shell", "note", "message"]
    name: str = ""
    argument: str = ""
    suggestions: Sequence[str] = ()


def parse(text: str, own: Iterable[str] = (), skills: Container[str] = ()) -> Typed:
    """Parse a prompt; `own` are this surface's commands, `skills` are sent to the model.

    A first line such as `/usr/bin/env` is a message: command names contain no slash.
    """
    stripped = text.strip()
    if stripped.startswith("!") and len(stripped) > 1:
        return Typed("shell", argument=stripped[1:].strip())
    if stripped.startswith("#") and not stripped.startswith("##") and len(stripped) > 1 and "\n" not in stripped:
        return Typed("note", argument=stripped[1:].strip())
    command = (
        _parse_command(stripped[1:], (*registry.chat_commands(), *own), skills) if stripped.startswith("/") else None
    )
    return command or Typed("message", argument=text)


def _parse_command(line: str, commands: Sequence[str], skills: Container[str]) -> Typed | None:
    """Parse a line after its slash; None for text to send to the model."""
    name, _, argument = line.partition(" ")
    if name in commands:
        return Typed("command", name, argument.strip())
    if (words := line.split(maxsplit=1)) and words[0] in skills:
        return None
    if name and all(c.isalnum() or c in "-_:" for c in name):
        near = difflib.get_close_matches(name, commands, 3) or [c for c in commands if c.startswith(name)]
        return Typed("unknown", name, argument.strip(), near)
    return None


async def run(scope: Scope, typed: Typed, own: Mapping[str, Action] | None = None) -> Value | None:
    """Run a typed command; `own` are the commands of this surface only.

    Raises `SaktiError`; a `Refused` without a title gets the command's title.
    """
    try:
        action, arguments = resolve_call(
            (own or {}).get(typed.name) or registry.chat_commands()[typed.name], typed.argument, own
        )
        if action.after_turn and scope.session.busy:
            raise Refused(f"The agent is working: wait, or stop it with Esc, then {action.after_turn}.")
        return await action.run(scope, **arguments)
    except Refused as e:
        e.title = e.title or f"/{typed.name}"
        raise


def resolve_call(
    action: Action, argument: str, own: Mapping[str, Action] | None = None
) -> tuple[Action, dict[str, Any]]:
    """Resolve a command with `argument` to an action (itself or a subcommand) and its arguments.

    In `/tasks close! T text`, ! stands for --force; `own` are a surface's own commands. Raises `Refused` with the
    correct form.
    """
    word, _, rest = argument.partition(" ")
    forced = word.endswith("!")
    under = registry.find_subcommands(action.chat, own or {})
    subcommand = under.get(word.removesuffix("!"))
    if subcommand is not None and not _is_meant(subcommand, rest, forced):
        subcommand = None
    try:
        if subcommand is None:
            return action, spec.read_chat(action, argument)
        arguments = spec.read_chat(subcommand, rest)
    except spec.UsageError as e:
        usage = f"Write /{action.chat} alone or with {describe_forms(under)}."
        raise Refused(usage if subcommand is None and under else str(e)) from e
    return subcommand, arguments | {"force": True} if forced else arguments


def _is_meant(action: Action, rest: str, forced: bool) -> bool:
    """Return whether a word names this action; actions without arguments allow no further words."""
    force = any(a.name == "force" for a in action.args)
    return (force or not forced) and (bool(spec.list_chat_args(action)) or not rest.strip())


def describe_forms(under: Mapping[str, Action]) -> str:
    """Describe a command's arguments: `claim TASK, close TASK SUMMARY, undo`."""
    return ", ".join(" ".join((word, *map(spec.format_argument, spec.list_chat_args(a)))) for word, a in under.items())


def make_unknown_command_error(typed: Typed) -> Refused:
    """Make the error for a command that does not exist."""
    near = [f"/{s}" for s in typed.suggestions]
    hint = f"Did you mean {', '.join(near)}?" if near else "/help lists all commands."
    return Refused(f"/{to_one_line(typed.name, 40)} does not exist. {hint}", title="Unknown command")


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
    if (match := _ARGUMENT.match(before)) and match[1] in registry.chat_commands():
        return CompletionQuery("argument", match[2], match.start(2), match[1])
    if match := _FILE.search(before):
        return CompletionQuery("file", match[1], match.start())
    if match := _SKILL.search(before):
        return CompletionQuery("skill", match[1], match.start())
    return None


def list_skill_choices(text: str, skills: Iterable[Skill], sign: str) -> list[Choice]:
    """List skills that begin with `text`, then those that contain it, each after the prefix `sign`."""
    matches = [s for s in skills if text in s.name]
    matches.sort(key=lambda s: (not s.name.startswith(text), s.name))
    label = "{sign}{s.name} {s.hint}" if sign == "/" else "{sign}{s.name}"
    return [Choice(f"{sign}{s.name} ", label.format(sign=sign, s=s).strip(), s.description) for s in matches]


def prompt_choices(text: str, prompts: Mapping[str, str]) -> list[Choice]:
    """List prompts of MCP servers that contain `text`, as `/server:prompt`, each with its arguments."""
    names = sorted(name for name in prompts if text in name and sanitize_text(name) == name)
    return [Choice(f"/{name} ", f"/{name} {sanitize_text(prompts[name])}".strip(), "MCP prompt") for name in names]


def list_command_choices(text: str, own: Iterable[Action] = ()) -> list[Choice]:
    """Return the command `text`, then commands that begin with it, then those that contain it.

    `own` are the commands of this surface only.
    """
    commands = (*registry.chat_commands().values(), *own)
    first = sorted((c for c in commands if c.chat.startswith(text)), key=lambda c: c.chat != text)
    rest = [c for c in commands if c not in first and text and text in c.chat]
    return [
        Choice(f"/{c.chat}" + (" " if c.hint else ""), f"/{c.chat} {c.hint}".strip(), c.in_short)
        for c in (*first, *rest)
    ]


def list_argument_choices(command: str, text: str) -> list[Choice]:
    return [Choice(c, c) for c in registry.list_choices(command) if c.startswith(text) and c != text]


def list_model_choices(text: str, models: Iterable[ModelInfo]) -> list[Choice]:
    """List models by name with their window; a completely typed name is not offered."""
    windows = {m.full_name: m.context_window for m in models if sanitize_text(m.full_name) == m.full_name}
    return [
        Choice(name, name, f"{count_k(window)} window" if (window := windows[name]) else "")
        for name in match_fuzzy(text, windows, MAX_SHOWN)
        if name != text
    ]


def list_file_choices(text: str, paths: Sequence[str]) -> list[Choice]:
    return [Choice(f"@{path} ", path) for path in match_fuzzy(text, paths, MAX_SHOWN)]


def match_fuzzy(text: str, candidates: Iterable[str], limit: int) -> list[str]:
    """Return the best `limit` of `candidates` that contain the characters of `text` in order.

    A match in the file name, at its start and in a short path comes first.
    """
    query = text.lower()
    if not query:
        return sorted(candidates, key=lambda c: (c.count("/"), c))[:limit]
    exact: list[tuple[int, int, str]] = []
    rest: list[str] = []
    for candidate in candidates:
        low = candidate.lower()
        at = low.rfind(query)
        if at < 0:
            rest.append(candidate)
            continue
        name = low.rfind("/") + 1
        exact.append((0 if at == name else 1 if at > name else 2, len(low), candidate))
    exact.sort()
    best = [c for _, _, c in exact[:limit]]
    return best if len(best) == limit else best + _match_loosely(query, rest)[: limit - len(best)]


def _match_loosely(query: str, candidates: Iterable[str]) -> list[str]:
    """Return the `candidates` that contain the characters in order, closest together first."""
    pattern = re.compile(".*?".join(map(re.escape, query)))
    loose = [(m.end() - m.start(), len(c), c) for c in candidates if (m := pattern.search(c.lower()))]
    return [c for _, _, c in sorted(loose)]
