"""Read lines: words of a shell or a line of the chat, by the declarations of `spec`. Pure.

Of our own because it is read before everything else: argparse costs 10 ms of import, click 45, typer 90, a whole
`sakti tasks ready` about 120.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sakti.actions.spec import Action, Arg

HELP = ("-h", "--help")


class UsageError(Exception):
    """A line that means nothing; the text says what to write instead."""


class HelpWanted(Exception):
    """`--help` stands in the line."""


def read(args: Sequence[Arg], words: Sequence[str], program: str) -> dict[str, Any]:
    """Return the values of `args` by name, from the words behind `program` (which errors name).

    Options and positional arguments may stand in any order; behind `--` nothing is an option. Raises `UsageError`,
    `HelpWanted`.
    """
    found: dict[str, Any] = {}
    plain: list[str] = []
    i = 0
    while i < len(words):
        word = words[i]
        if word == "--":
            plain += words[i + 1 :]
            break
        if word in HELP:
            raise HelpWanted
        if not word.startswith("-") or word == "-":
            plain.append(word)
            i += 1
            continue
        i += take(args, words, i, found, program)
    _positional([a for a in args if not a.flags], plain, found, program)
    for a in args:
        if a.name not in found:
            if a.required:
                raise UsageError(f"{'/'.join(a.flags) or a.label} is missing. {_see(program)}")
            found[a.name] = [] if a.many and a.default is None else a.default
    return found


def take(args: Sequence[Arg], words: Sequence[str], at: int, found: dict[str, Any], program: str) -> int:
    """Put the option `words[at]` into `found`; returns how many words it took. Raises `UsageError`."""
    word = words[at]
    name, sign, value = word.partition("=")
    if not word.startswith("--") and len(word) > 2 and not sign:  # -p1
        name, sign, value = word[:2], "=", word[2:]
    option = next((a for a in args if word in a.flags), None)
    if option is not None:
        name, sign = word, ""
    else:
        option = next((a for a in args if name in a.flags), None)
    if option is None:
        words_too = any(a.many and not a.flags for a in args)
        hint = f" Words that begin with a dash go behind `{program} --`." if words_too else ""
        raise UsageError(f"There is no option {word.partition('=')[0]}. `{program} --help` shows them.{hint}")
    following = words[at + 1 : at + 2]
    if option.kind == "flag":
        if sign:
            raise UsageError(f"{name} takes no value.")
        found[option.name] = True
        return 1
    if not sign and option.optional and (not following or following[0].startswith("-")):
        found[option.name] = ""
        return 1
    if not sign and not following:
        raise UsageError(f"{name} needs a value.")
    read_value = convert(option, value if sign else following[0], name)
    if option.many:
        found.setdefault(option.name, []).append(read_value)
    else:
        found[option.name] = read_value
    return 1 if sign else 2


def _positional(args: Sequence[Arg], words: Sequence[str], found: dict[str, Any], program: str) -> None:
    left = list(words)
    for a in args:
        if a.many and left:
            found[a.name], left = [convert(a, w, a.label) for w in left], []
        elif left:
            found[a.name] = convert(a, left.pop(0), a.label)
    if left:
        raise UsageError(f"{left[0]!r} is not expected: too many arguments. {_see(program)}")


def read_chat(action: Action, line: str) -> dict[str, Any]:
    """Return the values of an action's arguments from a line of the chat; the last takes all that is left.

    Raises `UsageError`.
    """
    found: dict[str, Any] = {a.name: [] if a.many and a.default is None else a.default for a in action.args}
    wanted = chat_args(action)
    left = line.strip()
    for n, a in enumerate(wanted):
        text, _, left = (left, "", "") if n == len(wanted) - 1 else left.partition(" ")
        left = left.strip()
        if text:
            found[a.name] = [convert(a, w, a.label) for w in text.split()] if a.many else convert(a, text, a.label)
        elif a.required:
            raise UsageError(f"Write /{action.chat} {' '.join(map(shown, wanted))}.")
    if left:
        raise UsageError(f"/{action.chat} takes no arguments.")
    return found


def chat_args(action: Action) -> list[Arg]:
    """Return the arguments that a line of the chat may have: positional ones and those that are `said`."""
    return [a for a in action.args if not a.flags or a.said]


def shown(a: Arg) -> str:
    """Format a positional argument as usage lines do: `TASK`, `[N]`, `[PATH…]`."""
    name = f"{a.label}…" if a.many else a.label
    return name if a.required else f"[{name}]"


def convert(a: Arg, text: str, name: str) -> Any:
    """Convert `text` to a value of `a`. Raises `UsageError`."""
    if a.choices and text not in a.choices:
        raise UsageError(f"{name}: {text!r} is not one of {', '.join(a.choices)}.")
    match a.kind:
        case "whole" | "number":
            value = _number(text, whole=a.kind == "whole")
            if value is None or (a.low is not None and value < a.low) or (a.high is not None and value > a.high):
                what = "a whole number" if a.kind == "whole" else "a number"
                raise UsageError(f"{name}: {text!r} is not {what}{_bounds(a)}.")
            return value
        case "path":
            return Path(text)
        case "pair":
            key, sign, value = text.partition("=")
            if not sign or not key.strip():
                raise UsageError(f"{name}: {text!r} is not KEY=VALUE.")
            return key.strip(), value
        case _:
            return text


def _number(text: str, *, whole: bool) -> float | None:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        return None
    return value if value == value else None  # nan is no number to compare with  # noqa: PLR0124


def _bounds(a: Arg) -> str:
    if a.low is not None and a.high is not None:
        return f", {a.low:g} to {a.high:g}"
    return "" if a.low is None else f", {a.low:g} or more"


def _see(program: str) -> str:
    return f"`{program} --help` shows how it is written."
