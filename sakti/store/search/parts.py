"""Find texts by parts of words (identifiers, scripts without spaces, signs) and similar words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.search import retrieve, spelling
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
from sakti.store.search.retrieve import IndexLookup
from sakti.store.search.rows import Row, texts_of

SIMILAR = 30  # texts in which a word that was meant is looked for


class PartMatches(Struct, frozen=True):
    """Texts with tokens of the query, the rarity of each, what unknown ones may mean; `more`: not all."""

    texts: dict[Row, str] = {}
    rarity: dict[str, float] = {}
    meant: dict[str, list[str]] = {}
    more: bool = False


def find_parts(look: IndexLookup, text: str, similar: Collection[str]) -> PartMatches:
    """Return the texts with parts of words; for a part that no text has those with one like it.

    `similar`: words that are corrected already, and not guessed.
    """
    tokens = _tokens(text)
    matches = _containing(look, list(filter(_is_part, tokens)))
    if matches.texts or not looks_like_identifier(text):
        return matches
    meant = {t: words for t in tokens if len(t) >= 4 and t not in similar and (words := _words_like(look, t))}
    lower = [folded(w).lower() for words in meant.values() for w in words]
    return replace(_containing(look, lower), meant=meant)


def _words_like(look: IndexLookup, token: str) -> list[str]:
    """Return words of the texts like a token, unless its pieces are words of theirs."""
    if _has_known_pieces(look, token):
        return []
    near = retrieve.similar_parts(look, token)[:SIMILAR]
    return spelling.similar_words(texts_of(look.db, [r.pk for r in near]).values(), token)


def _tokens(text: str) -> list[str]:
    """Return the parts of words to look for, folded: tokens, or signs without any letter (`=>`)."""
    if not WORD.search(text) and len(text.split()) == 1:
        return [folded(text).lower()]
    typed = [folded(t).lower() for t in dict.fromkeys(TOKEN.findall(text)) if t.lower() not in STOP_WORDS]
    return list(dict.fromkeys(chain.from_iterable(cjk_pieces(t) or [t] for t in typed[:MAX_TERMS])))


def _containing(look: IndexLookup, parts: Sequence[str]) -> PartMatches:
    """Return the texts with one of `parts` in them, and the rarity of each."""
    rows, rarity, more = retrieve.by_parts(look, parts)
    texts = texts_of(look.db, [r.pk for r in rows])
    lower = {r: folded(texts[r.pk]).lower() for r in rows if r.pk in texts}
    matching = {r: texts[r.pk] for r, text in lower.items() if any(part in text for part in rarity)}
    held = {p: value for p, value in rarity.items() if any(p in lower[r] for r in matching)}
    return PartMatches(matching, held, more=more)


def _has_known_pieces(look: IndexLookup, token: str) -> bool:
    small = look.newest <= spelling.LARGE
    parts = pieces(token)
    return bool(parts) and all(spelling.is_known(look.db, p, parts=small) for p in parts)


def is_in_trigrams(query: Query) -> bool:
    """Return whether the trigrams have answered already, where parts were looked for."""
    return any(map(_is_part, _tokens(query.text)))


def _is_part(token: str) -> bool:
    """Return whether the index of trigrams may hold a token: three characters or more, or `C#`, `=>`, 日志."""
    return len(token) >= 3 or is_cjk(token) or (not token.isalnum() and (len(token) == 2 or not token.isascii()))
