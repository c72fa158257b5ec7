"""Read a line of the chat: a command with its arguments, a `!` shell line, a `#` note, or a message."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from sakti.actions import reader, registry
from sakti.actions.spec import Action
from sakti.actions.values import Refused, Value
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


class Typed(Struct, frozen=True):
    """What a line of the prompt is. `name` is a command's, known or not."""

    kind: Literal["command", "unknown", "shell", "note", "message"]
    name: str = ""
    argument: str = ""
    suggestions: Sequence[str] = ()


def parse(text: str, own: Iterable[str] = (), skills: Container[str] = ()) -> Typed:
    """Parse a prompt; `own` are this surface's commands, `skills` are sent to the model.

    A first line such as `/usr/bin/env` is a message: command names hold no slash.
    """
    stripped = text.strip()
    if stripped.startswith("!") and len(stripped) > 1:
        return Typed("shell", argument=stripped[1:].strip())
    if stripped.startswith("#") and not stripped.startswith("##") and len(stripped) > 1 and "\n" not in stripped:
        return Typed("note", argument=stripped[1:].strip())
    command = _parse_command(stripped[1:], (*registry.chat(), *own), skills) if stripped.startswith("/") else None
    return command or Typed("message", argument=text)


def _parse_command(line: str, known: Sequence[str], skills: Container[str]) -> Typed | None:
    """Parse a line behind its slash; None for a text to send to the model."""
    name, _, argument = line.partition(" ")
    if name in known:
        return Typed("command", name, argument.strip())
    if (words := line.split(maxsplit=1)) and words[0] in skills:
        return None
    if name and all(c.isalnum() or c in "-_:" for c in name):
        near = difflib.get_close_matches(name, known, 3) or [c for c in known if c.startswith(name)]
        return Typed("unknown", name, argument.strip(), near)
    return None


async def run(scope: Scope, typed: Typed, own: Mapping[str, Action] | None = None) -> Value | None:
    """Run the command that was typed; `own` are those that only this surface has.

    Raises `SaktiError`, a `Refused` without a title of its own under the command's.
    """
    try:
        action, given = call((own or {}).get(typed.name) or registry.chat()[typed.name], typed.argument, own)
        return await action.run(scope, **given)
    except Refused as e:
        e.title = e.title or f"/{typed.name}"
        raise


def call(action: Action, argument: str, own: Mapping[str, Action] | None = None) -> tuple[Action, dict[str, Any]]:
    """Resolve a command with `argument` to its action, itself or one under it, and its arguments.

    In `/tasks close! T text`, ! stands for --force; `own` are a surface's own commands. Raises `Refused` with what to
    write instead.
    """
    word, _, rest = argument.partition(" ")
    forced = word.endswith("!")
    under = registry.under(action.chat, own or {})
    found = under.get(word.removesuffix("!"))
    if found is not None and not _fits(found, rest, forced):
        found = None
    try:
        if found is None:
            return action, reader.read_chat(action, argument)
        given = reader.read_chat(found, rest)
    except reader.UsageError as e:
        usage = f"Write /{action.chat} alone or with {forms(under)}."
        raise Refused(usage if found is None and under else str(e)) from e
    return found, given | {"force": True} if forced else given


def _fits(action: Action, rest: str, forced: bool) -> bool:
    """Return whether a word names this action; actions without arguments allow no more words."""
    force = any(a.name == "force" for a in action.args)
    return (force or not forced) and (bool(reader.chat_args(action)) or not rest.strip())


def forms(under: Mapping[str, Action]) -> str:
    """Describe a command's arguments: `claim TASK, close TASK SUMMARY, undo`."""
    return ", ".join(" ".join((word, *map(reader.shown, reader.chat_args(a)))) for word, a in under.items())


def unknown(typed: Typed) -> Refused:
    """Make the error for a command that does not exist."""
    near = [f"/{s}" for s in typed.suggestions]
    hint = f"Did you mean {', '.join(near)}?" if near else "/help lists all commands."
    return Refused(f"/{one_line(typed.name, 40)} does not exist. {hint}", title="Unknown command")
