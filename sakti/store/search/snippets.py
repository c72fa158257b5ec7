"""Cut the part of a text that shows why it was found. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

SNIPPET = 160  # characters
READ, SPOTS = 100_000, 20  # characters of a text, and places of each word, that are looked at for it
MARKED = 64  # words that are marked in it


def snippet_of(text: str, words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...], int]:
    """Cut about 160 characters of `text` with most of `words`, on one line.

    Return it, the matches in it as (start, end), and its offset in `text`.
    """
    start = _best_place(text, words)
    cut = " ".join(text[start : start + SNIPPET].split())
    snippet = ("…" if start else "") + cut + ("…" if start + SNIPPET < len(text) else "")
    pattern = _marker(tuple(words))
    return snippet, tuple((m.start(), m.end()) for m in pattern.finditer(snippet)) if pattern else (), start


def _best_place(text: str, words: Sequence[str]) -> int:
    """Return the offset of the 160 characters that contain most of `words`."""
    start, most, first = 0, 0, 0
    spots = _spots(text[:READ].lower(), words)
    for last, spot in enumerate(spots):
        while spot - spots[first] >= SNIPPET:
            first += 1
        if last - first + 1 > most:
            start, most = max(0, spots[first] - 30), last - first + 1
    return start


def _spots(text: str, words: Sequence[str]) -> list[int]:
    """Return the offsets of the words in a lower-case text, a limited number of each."""
    out: list[int] = []
    for word in {w.lower() for w in words[:MARKED] if w.strip()}:
        at = -1
        for _ in range(SPOTS):
            at = text.find(word, at + 1)
            if at < 0:
                break
            out.append(at)
    return sorted(out)


@lru_cache(maxsize=4)
def _marker(words: tuple[str, ...]) -> re.Pattern[str] | None:
    wanted = sorted({w.lower() for w in words[:MARKED] if w.strip()}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, wanted)), re.IGNORECASE) if wanted else None
