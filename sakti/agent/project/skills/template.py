"""Put arguments into the text of a command, and run its `` !`command` `` parts.

Both are done once, on the text of the file only: what an argument or an output holds is never looked at again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence

from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_pattern

SECONDS = 10
LONGEST = 20_000  # characters of an output that are used
_PLACE = lazy_pattern(
    r"(?P<shell>!`(?P<command>[^`\n]+)`)|\$(?:ARGUMENTS(?:\[(?P<at>\d{1,4})\])?|(?P<number>[1-9](?!\d)))"
)
_NAMED = lazy_pattern(r"\$(?:ARGUMENTS(?:\[(\d{1,4})\])?|([1-9](?!\d)))")
_PLAIN = lazy_pattern(r"[\w%+=:,./@-]*")
_QUOTING = lazy_pattern(r"[\"'`\\]|\$[({'\"]|<<")  # where a quoted argument could end up inside other quotes

Shell = Callable[[str], Awaitable[str]]


def runs_commands(body: str) -> bool:
    """Return whether the text of a command names commands to run."""
    return any(m["shell"] for m in _PLACE.finditer(body))


def lacks(body: str, argument: str) -> bool:
    """Return whether the text has a place for an argument that is not given."""
    count = len(words(argument))
    places = (_at(m[1], m[2]) for m in _NAMED.finditer(body))
    return any(count <= (place or 0) for place in places)


async def fill_template(body: str, argument: str, shell: Shell) -> str:
    """Return the text with its arguments and the outputs of its commands; `shell` runs one.

    Arguments that it has no place for stand at its end. Raises `SaktiError` for an argument that a command cannot take,
    and what `shell` raises.
    """
    values = words(argument)
    out: list[str] = []
    end, placed = 0, False
    for match in _PLACE.finditer(body):
        out.append(body[end : match.start()])
        end = match.end()
        if match["shell"]:
            placed = placed or _NAMED.search(match["command"]) is not None
            out.append((await shell(_command(match["command"], argument, values)))[:LONGEST])
        else:
            placed = True
            out.append(_value(match["at"], match["number"], argument, values))
    out.append(body[end:])
    if argument and not placed:
        out.append(f"\n\nARGUMENTS: {argument}")
    return "".join(out)


def words(argument: str) -> list[str]:
    """Split arguments as a shell does; by blanks where a quote is not closed."""
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()


def _value(at: str | None, number: str | None, argument: str, values: Sequence[str]) -> str:
    """Return `$ARGUMENTS`, `$ARGUMENTS[n]` (from 0) or `$n` (from 1); empty for a missing one."""
    place = _at(at, number)
    if place is None:
        return argument
    return values[place] if place < len(values) else ""


def _at(at: str | None, number: str | None) -> int | None:
    """Return which argument is meant, counted from 0; None for all of them."""
    if at is not None:
        return int(at)
    return int(number) - 1 if number is not None else None


def _command(command: str, argument: str, values: Sequence[str]) -> str:
    """Return a command with its arguments as single words of a shell that nothing in them can leave."""
    quoting = _QUOTING.search(command) is not None

    def put(found: re.Match[str]) -> str:
        all_arguments = found[1] is None and found[2] is None
        inserted = list(values) if all_arguments else [_value(found[1], found[2], argument, values)]
        if all(_PLAIN.fullmatch(value) for value in inserted):
            return " ".join(inserted)
        if quoting:
            text = f"The command `{command}` cannot take the argument {' '.join(inserted)!r}: a shell would act on it."
            raise SaktiError(text, title="Not sent")
        return " ".join(shlex.quote(value) for value in inserted)

    return _NAMED.sub(put, command)
