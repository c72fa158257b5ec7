"""Cut the part of a text that shows why it was found. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sakti.store.search.folding import lowered

SNIPPET = 160  # characters
BEFORE = 30  # of them before the word that it is cut around
READ, SPOTS = 100_000, 12  # characters of a text, and places of that word, that are looked at
LONG_WORD = 60  # characters of one that is shown from its beginning
MARKED = 64  # words that are marked in it


def snippet_of(
    text: str, words: Sequence[str], lower: str | None = None, held: Sequence[str] | None = None
) -> tuple[str, tuple[tuple[int, int], ...], int]:
    """Cut about 160 characters of `text` with most of `words`, the most telling first, on one line.

    Return it, the matches in it as (start, end), and its offset in `text`; `lower`: the text in lower case; `held`:
    those of the words that it has, in lower case, where that is known.
    """
    targets = _lower_all(tuple(words[:MARKED]))
    start = _best_place(lowered(text) if lower is None else lower, targets if held is None else held)
    cut = " ".join(text[start : start + SNIPPET].split())
    snippet = ("…" if start else "") + cut + ("…" if start + SNIPPET < len(text) else "")
    return snippet, _marks(snippet, targets), start


def _best_place(lower: str, words: Sequence[str]) -> int:
    """Return the offset of the 160 characters around the first known word that contain most of the others."""
    if len(lower) <= SNIPPET:  # it fits
        return 0
    word = next((w for w in words if 0 <= lower.find(w) < READ), None)
    if word is None:
        return 0
    best, most, at = 0, 0, -1
    for _ in range(SPOTS):
        at = lower.find(word, at + 1, READ)
        if at < 0:
            break
        start = _word_start(lower, max(0, at - BEFORE), at)
        window = lower[start : start + SNIPPET]
        held = len([w for w in words if w in window])
        if held > most:
            best, most = start, held
    return best


def _word_start(lower: str, start: int, at: int) -> int:
    """Return the first offset from `start` to `at` at which a word begins, or that of a longer word."""
    if not start:
        return 0
    places = range(start, at + 1)
    first = next((i for i in places if lower[i - 1].isspace()), 0)
    first = first or next((i for i in places if not lower[i - 1].isalnum()), 0)
    return first or next((i for i in range(start, max(0, start - LONG_WORD), -1) if not lower[i - 1].isalnum()), start)


def _marks(snippet: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the places of the words in a snippet, longer ones first, without overlaps."""
    lower = lowered(snippet)
    marks: list[tuple[int, int]] = []
    for word in sorted((w for w in words if w in lower), key=lambda w: (-len(w), w)):
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            if all(end <= a or b <= at for a, b in marks):
                marks.append((at, end))
            at = lower.find(word, end)
    return tuple(sorted(marks))


@lru_cache(maxsize=16)
def _lower_all(words: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(w.lower() for w in words if w.strip()))
