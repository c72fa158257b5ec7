"""Make the condition for parts of words in the index of trigrams. Pure.

The pieces are joined by AND, so a row may have all of them in other places: who asks looks at the text.
"""

from __future__ import annotations

import re

from sakti.store.search.folding import folded

SIZE = 3  # characters of a piece
LONGEST = 40  # characters of a part that are looked up
FEW = 6  # pieces that are all looked up


def trigrams(part: str) -> list[str]:
    """Return the pieces of three characters of `part`, folded and in lower case, each once."""
    return cut(folded(part).lower())


def cut(lower: str) -> list[str]:
    """Cut a folded text into pieces: to fold twice is not always to fold once (ΐ)."""
    sought = lower[:LONGEST]
    return list(dict.fromkeys(sought[i : i + SIZE] for i in range(len(sought) - SIZE + 1)))


def covering(pieces: list[str]) -> list[str]:
    """Return every second one of many pieces, and the last.

    They have all characters of the part, at half the cost.
    """
    return pieces if len(pieces) <= FEW else [*pieces[:-1:2], pieces[-1]]


def any_of(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with one of `pieces`."""
    return " OR ".join(map(quoted, pieces))


def all_of(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with all of `pieces`."""
    return " AND ".join(map(quoted, pieces))


def quoted(phrase: str) -> str:
    """Return a phrase for FTS5."""
    return '"' + phrase.replace('"', '""') + '"'


def for_like(text: str) -> str:
    """Escape a text for LIKE with `ESCAPE '\\'`."""
    return re.sub(r"([\\%_])", r"\\\1", text)
