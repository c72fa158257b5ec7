"""Results of actions for the TUI, the plain chat, the shell and programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from sakti.core.errors import SaktiError

T = TypeVar("T")
USAGE = "usage"  # the code of a `Refused` for a wrong command line


class Refused(SaktiError):
    """A request that cannot be carried out; the message says why and what to do."""

    title = ""
    code = "refused"


class Value(Struct, frozen=True, eq=False, kw_only=True):
    """`json` is the object that `--json` prints; `exit` the shell's exit code."""

    json: Any = None
    exit: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """Return what a shell prints."""
        return ()

    def as_json(self) -> Any:
        return self.json


class Text(Value, frozen=True, eq=False):
    """Unformatted lines.

    `kind`: "diff"; "findings" (lines that begin with ✓, ! or ✗); "markdown" (one document as one text); or "document"
    (a file, always UTF-8).
    """

    text: tuple[str, ...]
    title: str = ""
    kind: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        return self.text


class Done(Value, frozen=True, eq=False):
    """A result in one sentence; a shell prints `shell` instead."""

    sentence: str
    title: str = ""
    shell: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return self.shell or (self.sentence,)


class Card(Value, frozen=True, eq=False):
    """A card of (name, text) rows."""

    title: str
    rows: tuple[tuple[str, str], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        width = max((len(name) for name, _ in self.rows), default=0)
        return tuple(f"{name:<{width}}  {text}" for name, text in self.rows)


class Rows(Value, frozen=True, eq=False):
    """List with a `head` above and a `tail` below, or `empty` if it has no lines.

    `items` are the objects behind the lines, of the given `kind`, for surfaces that format them differently. `pick`
    runs when an item is chosen by its number (from 1); `what` describes its effect.
    """

    text: tuple[str, ...]
    kind: str = ""
    items: tuple[Any, ...] = ()
    empty: str = ""
    head: str = ""
    tail: str = ""
    what: str = ""
    pick: Callable[[int], Awaitable[Value | None]] | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        parts = (self.head, *(self.text or (self.empty,)), self.tail)
        return tuple(x for x in parts if x)


class Open(Value, frozen=True, eq=False):
    """Result with a view on some surfaces: `view` names it, `data` is its content.

    Any other surface shows what `fallback` returns, or refuses with the sentence `missing`.
    """

    view: str
    data: Any = None
    fallback: Callable[[], Awaitable[Value | None]] | None = None
    missing: str = ""


def pick_numbered(items: Sequence[T], number: int) -> T:
    """Return the item with that number, from 1. Raises `Refused`."""
    if not 0 < number <= len(items):
        raise Refused(f"There are {len(items)} to choose from.", title=f"Number {number}")
    return items[number - 1]
