"""The keys of everything on the screen: what is declared, by its id, and how a key is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from textual.binding import Binding
from textual.keys import key_to_character

SHORT = {"escape": "esc", "shift+tab": "⇧⇥"}  # else as pressed: `^P`, `F3`, `[`, `shift+enter`
SIGNS = {"slash": "/", "plus": "+", "minus": "-"}  # names that Textual itself does not translate back


def bindings_of(owner: type[Any]) -> Iterator[Binding]:
    """Yield the bindings that a class itself declares."""
    yield from (b for b in owner.__dict__.get("BINDINGS", ()) if isinstance(b, Binding))


def as_pressed(key: str) -> str:
    """Write a key as it stands on the keyboard: `[` for left_square_bracket."""
    sign = SIGNS.get(key.strip()) or key_to_character(key.strip())
    return sign if sign is not None and sign.isprintable() and not sign.isspace() else key.strip()


def in_short(keys: str) -> str:
    """Write the first of `keys` for a narrow line: `^P`, `F3`, `esc`."""
    first = keys.partition(",")[0].strip()
    if first in SHORT:
        return SHORT[first]
    sign = as_pressed(first)
    if sign.startswith("ctrl+") and len(sign) == len("ctrl+x"):
        return f"^{sign[-1].upper()}"
    return sign.upper() if sign[:1] == "f" and sign[1:].isdecimal() else sign


def in_words(keys: Iterable[str]) -> str:
    """Write several keys: `shift+enter, ctrl+j`."""
    return ", ".join(as_pressed(k) for k in keys)
