"""Cut the excerpt of a hit, and explain the match if no typed word is visible. Pure.

A page has more hits than the user views, so each excerpt is cut on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import compress

from msgspec import Struct

from sakti.core.text import to_one_line
from sakti.store.search.features import Pattern
from sakti.store.search.folding import fold_text, lower_keeping_length, remove_accents
from sakti.store.search.index import split_identifier
from sakti.store.search.query import TOKEN
from sakti.store.search.rank import Ranked
from sakti.store.search.terms import Term, stem_words

SNIPPET = 160  # characters
BEFORE = 30  # characters of it before the best word
READ, SPOTS = 100_000, 12  # characters of a text to search, and occurrences of the word to try
LONG_WORD = 60  # longer words are shown from their beginning
MARKED = 64  # most words marked in a snippet


def cut_snippet(
    text: str, words: Sequence[str], lower: str | None = None, held: Sequence[str] | None = None
) -> tuple[str, tuple[tuple[int, int], ...], int]:
    """Cut about 160 characters around most of `words`, the most specific first, on one line.

    Return the snippet, its matches as (start, end), and its offset in `text`. `lower` is the text in lower case;
    `held`: those of the words that it contains, in lower case, if known.
    """
    targets = _lower_all(tuple(words[:MARKED]))
    start = _find_best_offset(lower_keeping_length(text) if lower is None else lower, targets if held is None else held)
    cut = " ".join(text[start : start + SNIPPET].split())
    snippet = ("…" if start else "") + cut + ("…" if start + SNIPPET < len(text) else "")
    return snippet, _find_marks(snippet, targets), start


def _find_best_offset(lower: str, words: Sequence[str]) -> int:
    """Return the offset of the 160 characters around the first known word with most of the other words."""
    if len(lower) <= SNIPPET:  # short texts are shown in full
        return 0
    word = next((w for w in words if 0 <= lower.find(w) < READ), None)
    if word is None:
        return 0
    best, most, at = 0, 0, -1
    for _ in range(SPOTS):
        at = lower.find(word, at + 1, READ)
        if at < 0:
            break
        start = _find_word_start(lower, max(0, at - BEFORE), at)
        window = lower[start : start + SNIPPET]
        held = len([w for w in words if w in window])
        if held > most:
            best, most = start, held
    return best


def _find_word_start(lower: str, start: int, at: int) -> int:
    """Return the first offset from `start` to `at` at which a word, or a longer word around it, begins."""
    if not start:
        return 0
    places = range(start, at + 1)
    first = next((i for i in places if lower[i - 1].isspace()), 0)
    first = first or next((i for i in places if not lower[i - 1].isalnum()), 0)
    return first or next((i for i in range(start, max(0, start - LONG_WORD), -1) if not lower[i - 1].isalnum()), start)


def _find_marks(snippet: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the places of the words in a snippet, longer ones first, without overlaps."""
    lower = lower_keeping_length(snippet)
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


_HOW = {"similar": "similar", "irregular": "form of the word", "short": "short form", "code": "in code"}
QUOTED = 60  # characters shown of the previous message


class Excerpt(Struct, frozen=True):
    """Excerpt of a hit; `marks` are (start, end) in `snippet`, which begins at `start` of `text`."""

    text: str
    snippet: str
    marks: tuple[tuple[int, int], ...] = ()
    start: int = 0
    reason: str = ""


class SoughtWords(Struct, frozen=True, dict=True):
    """Searched words: as typed and as parsed."""

    typed: tuple[str, ...]
    pattern: Pattern

    @cached_property
    def words(self) -> list[tuple[str, int]]:
        """Return the parts and the terms, the rarest first, each with its number."""
        terms, parts = self.pattern.terms, self.pattern.parts
        by_rarity = sorted(range(len(terms)), key=lambda i: -terms[i].rarity)
        return [(p, len(terms) + i) for i, (p, _) in enumerate(parts)] + [(terms[i].text, i) for i in by_rarity]

    @cached_property
    def marked(self) -> tuple[str, ...]:
        """Return the words to mark in a text."""
        return (self.typed[0][:SNIPPET], *self.typed[1:], *(w for w, _ in self.words))


def cut_excerpt(text: str, before: str | None, ranked: Ranked, sought: SoughtWords) -> Excerpt:
    """Cut the excerpt of `text`; the match may be in `before`, the text of the previous message."""
    lower = lower_keeping_length(text)
    reason, shown = explain_match(text, lower, before, ranked, sought.pattern)
    held = None
    if has_term := ranked.features.own:
        typed = (w.lower() for w in sought.typed if w.strip())
        held = [*(w.lower() for w in shown), *typed, *(w for w, i in sought.words if has_term[i])]
    snippet, marks, start = cut_snippet(text, (*shown, *sought.marked), lower, held)
    return Excerpt(text, snippet, marks, start, reason)


def explain_match(
    text: str, lower: str, before: str | None, ranked: Ranked, pattern: Pattern
) -> tuple[str, Sequence[str]]:
    """Return why a text is listed ("" if visible), and the words to mark besides the typed ones."""
    features = ranked.features
    if not features.own:
        return "", []
    if not features.has_words:
        question = (before or "").strip() if ranked.answers else ""
        return f"answer to “{to_one_line(question, QUOTED)}”" if question else "next to a match", []
    matched = list(compress(pattern.terms, features.own))
    parts = [p for p, _ in compress(pattern.parts, features.own[len(pattern.terms) :])]
    typed = [p for p in parts if p not in pattern.meant]
    if any(p in lower for p in (*typed, *(t.text for t in matched))):
        return "", []
    if parts:
        return _explain_part(text, typed, parts[0])
    reasons = filter(None, (_explain_by_tokens(text, matched), _explain_by_form(text, lower, matched)))
    return next(reasons, ("in its summary" if matched else "", []))


def _explain_part(text: str, typed: Sequence[str], meant: str) -> tuple[str, Sequence[str]]:
    """Return the token with a typed part in another spelling (strasse for Straße), else the correction."""
    if typed:
        return "", [t for t in TOKEN.findall(text) if any(p in fold_text(t).lower() for p in typed)][:1]
    return f"similar: {meant}", [meant]


def _explain_by_tokens(text: str, matched: Sequence[Term]) -> tuple[str, Sequence[str]] | None:
    """Return the first token that matches a term in another spelling, or by its stem."""
    matched_stems = {stem for t in matched for stem in t.stem}
    joined = {t.text for t in matched}
    accents = set() if text.isascii() else {remove_accents(t.text) for t in matched}
    for token in TOKEN.findall(text):
        if "".join(split_identifier(token)) in joined:  # get_user_id for getuserid
            return "", [token]
        if accents and remove_accents(token) in accents:  # счёт for счет
            return "", [token]
        if not matched_stems.isdisjoint(stem_words(fold_text(token))):
            return f"same stem: {token}", [token]
    return None


def _explain_by_form(text: str, lower: str, matched: Sequence[Term]) -> tuple[str, Sequence[str]] | None:
    """Return the first form of a term, other than its own words, that occurs in the text."""
    for form in (f for term in matched for f in term.forms if f.how != "word"):
        word = form.phrase.strip('"')
        if word in lower:
            return f"{_HOW[form.how]}: {word}", [word]
        if token := next((t for t in TOKEN.findall(text) if set(stem_words(word)) & set(stem_words(t))), ""):
            return f"similar: {token}", [token]
    return None
