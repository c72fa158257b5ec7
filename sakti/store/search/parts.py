"""Find texts by parts of words (identifiers, scripts without spaces, signs) and similar words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.connection import Connection
from sakti.store.search import retrieve, spelling
from sakti.store.search.filters import Place
from sakti.store.search.folding import folded
from sakti.store.search.index import pieces
from sakti.store.search.query import (
    MAX_TERMS,
    STOP_WORDS,
    TOKEN,
    WORD,
    Query,
    cjk_pieces,
    is_cjk,
    looks_like_identifier,
)
from sakti.store.search.retrieve import Budget
from sakti.store.search.rows import Row, texts_of

SIMILAR = 30  # texts in which a word that was meant is looked for


class PartMatches(Struct, frozen=True):
    """Texts with tokens of the query, the rarity of each, what unknown ones may mean; `more`: not all."""

    texts: dict[Row, str] = {}
    rarity: dict[str, float] = {}
    meant: dict[str, list[str]] = {}
    more: bool = False


def find_parts(
    db: Connection, text: str, similar: Collection[str], place: Place, newest: int, budget: Budget
) -> PartMatches:
    """Return the texts with parts of words; for a part that no text has those with one like it.

    `similar`: words that are corrected already, and not guessed.
    """
    tokens = _tokens(text)
    matches = _containing(db, list(filter(_is_part, tokens)), place, newest, budget)
    if matches.texts or not looks_like_identifier(text):
        return matches
    meant: dict[str, list[str]] = {}
    for token in (t for t in tokens if len(t) >= 4 and t not in similar and not _has_known_pieces(db, t, newest)):
        near = retrieve.similar_parts(db, token, place, newest, budget)[:SIMILAR]
        if words := spelling.similar_words(texts_of(db, [r.pk for r in near]).values(), token):
            meant[token] = words
    lower = [folded(w).lower() for words in meant.values() for w in words]
    return replace(_containing(db, lower, place, newest, budget), meant=meant)


def _tokens(text: str) -> list[str]:
    """Return the parts of words to look for, folded: tokens, or signs without any letter (`=>`)."""
    if not WORD.search(text) and len(text.split()) == 1:
        return [folded(text).lower()]
    typed = [folded(t).lower() for t in dict.fromkeys(TOKEN.findall(text)) if t.lower() not in STOP_WORDS]
    return list(dict.fromkeys(chain.from_iterable(cjk_pieces(t) or [t] for t in typed[:MAX_TERMS])))


def _containing(db: Connection, parts: Sequence[str], place: Place, newest: int, budget: Budget) -> PartMatches:
    """Return the texts with one of `parts` in them, and the rarity of each."""
    rows, rarity, more = retrieve.by_parts(db, parts, place, newest, budget)
    texts = texts_of(db, [r.pk for r in rows])
    lower = {r: folded(texts[r.pk]).lower() for r in rows if r.pk in texts}
    matching = {r: texts[r.pk] for r, text in lower.items() if any(part in text for part in rarity)}
    held = {p: value for p, value in rarity.items() if any(p in lower[r] for r in matching)}
    return PartMatches(matching, held, more=more)


def _has_known_pieces(db: Connection, token: str, newest: int) -> bool:
    small = newest <= spelling.LARGE
    parts = pieces(token)
    return bool(parts) and all(spelling.is_known(db, p, parts=small) for p in parts)


def is_in_trigrams(query: Query) -> bool:
    """Return whether the trigrams have answered already, where parts were looked for."""
    return any(map(_is_part, _tokens(query.text)))


def _is_part(token: str) -> bool:
    """Return whether the index of trigrams may hold a token: three characters or more, or `C#`, `=>`, 日志."""
    return len(token) >= 3 or is_cjk(token) or (not token.isalnum() and (len(token) == 2 or not token.isascii()))
