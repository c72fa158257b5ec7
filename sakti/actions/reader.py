"""Read values that were typed, by the declarations of `spec`. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sakti.actions.spec import Action, Arg


class UsageError(Exception):
    """A line that cannot be read; the message says how to write it."""


def read_chat(action: Action, line: str) -> dict[str, Any]:
    """Read the arguments of an action from a line of the chat; the last takes the rest of the line.

    Raises `UsageError`.
    """
    values: dict[str, Any] = {a.name: [] if a.many and a.default is None else a.default for a in action.args}
    wanted = chat_args(action)
    rest = line.strip()
    for n, a in enumerate(wanted):
        text, _, rest = (rest, "", "") if n == len(wanted) - 1 else rest.partition(" ")
        rest = rest.strip()
        if text:
            values[a.name] = [convert(a, w, a.label) for w in text.split()] if a.many else convert(a, text, a.label)
        elif a.required:
            raise UsageError(f"Write /{action.chat} {' '.join(map(shown, wanted))}.")
    if rest:
        raise UsageError(f"/{action.chat} takes no arguments.")
    return values


def chat_args(action: Action) -> list[Arg]:
    """Return the arguments that a line of the chat may have: positional ones and those that are `said`."""
    return [a for a in action.args if not a.flags or a.said]


def shown(a: Arg) -> str:
    """Format a positional argument as usage lines do: `TASK`, `[N]`, `[PATH…]`."""
    name = f"{a.label}…" if a.many else a.label
    return name if a.required else f"[{name}]"


def convert(a: Arg, text: str, name: str) -> Any:
    """Convert `text` to a value of `a`; `name` is what errors call it. Raises `UsageError`."""
    if a.optional and not text:
        return text
    if a.choices and text not in a.choices:
        raise UsageError(f"{name}: {text!r} is not one of {', '.join(a.choices)}.")
    match a.kind:
        case "whole" | "number":
            value = _read_number(text, whole=a.kind == "whole")
            if value is None or (a.low is not None and value < a.low) or (a.high is not None and value > a.high):
                kind = "a whole number" if a.kind == "whole" else "a number"
                raise UsageError(f"{name}: {text!r} is not {kind}{_bounds(a)}.")
            return value
        case "path":
            return Path(text)
        case _:
            return text


def _read_number(text: str, *, whole: bool) -> float | None:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        return None
    return value if value == value else None  # nan is no number to compare with  # noqa: PLR0124


def _bounds(a: Arg) -> str:
    if a.low is not None and a.high is not None:
        return f", {a.low:g} to {a.high:g}"
    return "" if a.low is None else f", {a.low:g} or more"
