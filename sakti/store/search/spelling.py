"""Find alternatives for words that occur in no text: corrections, and parts of words.

Parts of words are identifiers, scripts without spaces, and symbols. Raw SQL: the vocabulary of the word index.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.store.connection import Connection
from sakti.store.search import retrieve
from sakti.store.search.folding import fold_text, split_trigrams
from sakti.store.search.index import split_identifier
from sakti.store.search.query import (
    MAX_TERMS,
    STOP_WORDS,
    TOKEN,
    WORD,
    Query,
    is_cjk,
    is_identifier,
    split_cjk,
)
from sakti.store.search.retrieve import IndexLookup, find_known_phrases, is_part_of_text
from sakti.store.search.rows import Row, load_texts
from sakti.store.search.terms import make_phrase, make_typed_phrase, split_words, stem_words

CORRECTED = 3  # most words of a query that are corrected
VOCABULARY = 20_000  # most terms with the same beginning that are compared for a correction
LARGE = 50_000  # number of texts from which the first three letters must match, not two, and parts are not guessed
SHORT_WORD = 4  # letters of the shortest word that is corrected
NEAREST = 2  # most corrections of one word
LOOKED_AT = 20_000  # characters of a text that are searched
HALF = 0.5  # least share of common trigrams

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ",
    "αβγδεζηθικλμνξοπρστυφχψως",
)
_LETTERS = lazy_pattern(r"[^\W\d_]{4,40}")
_SEPARATORS = lazy_pattern(r"[/\\]")


def find_corrections(
    db: Connection, words: Sequence[str], text: str, newest: int, known: Collection[str]
) -> dict[str, list[str]]:
    """Return the nearest known words for each typed word in no text, for at most `CORRECTED` words.

    `known`: words that occur in the texts. Nearest is one letter away (one edit or transposition: 80 % of typing
    errors, Damerau 1964). The first two letters must match (three in large stores). An identifier of known pieces is
    not corrected.
    """
    unknown = [w for w in words if w not in known and _is_correctable(w)]
    if not unknown:
        return {}
    parts = [split_identifier(token) for token in TOKEN.findall(text)]
    identifiers = {"".join(p): p for p in parts if len(p) > 1}
    typed = {w.lower() for w in WORD.findall(text)}.union(identifiers, *parts)
    large = newest > LARGE

    def is_right(word: str) -> bool:
        inside = not large and is_part_of_text(db, word)
        return inside or (word in identifiers and all(p in known or is_right(p) for p in identifiers[word]))

    wrong = itertools.islice((w for w in unknown if w in typed and not is_right(w)), CORRECTED)
    return {word: terms for word in wrong if (terms := _find_nearest_words(db, word, 3 if large else 2))}


def _is_correctable(word: str) -> bool:
    return _LETTERS.fullmatch(word) is not None and not is_cjk(word)


def _find_nearest_words(db: Connection, word: str, right: int) -> list[str]:
    """Return the known words one letter away from a word, the most frequent first."""
    near = [n for form in split_words(fold_text(word)) for n in _find_near_words(db, form, right)]
    return [term for _, term in sorted(near, reverse=True)[:NEAREST]]


def is_known(db: Connection, word: str, *, parts: bool) -> bool:
    """Return whether a text has the word, or (`parts`) has it inside another word."""
    return bool(find_known_phrases(db, (make_phrase(word), make_typed_phrase(word)))) or (
        parts and is_part_of_text(db, word)
    )


def _find_near_words(db: Connection, word: str, right: int) -> list[tuple[int, str]]:
    """Return (texts, word) for words one letter away with the same `right` first letters.

    The index has stems, so each candidate is stemmed like an indexed word (`configuraiton`: configuration, configur).
    """
    meant: dict[str, str] = {}
    for candidate, stem in _pair_with_stems(list_one_edit_away(word, right)):
        if stem == candidate or len(word) > SHORT_WORD:  # the stem of a non-word is often another word's
            meant.setdefault(stem, candidate)
    sql = "SELECT doc, term FROM search_vocabulary WHERE term >= ? AND term < ? LIMIT ?"
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(sql, (word[:right], word[:right] + "\U0010ffff", VOCABULARY)).fetchall()
    return [(doc, meant[term]) for doc, term in rows if term in meant]


def _pair_with_stems(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Pair each word with its stem, all stemmed at once; empty unless each is one indexed word."""
    all_stems = stem_words(" ".join(words))
    return zip(words, all_stems, strict=True) if len(all_stems) == len(words) else ()


def find_written_form(word: str, texts: Iterable[str]) -> str:
    """Return the form of a word in some text (expire for expir), "" if none has it."""
    stem = stem_words(fold_text(word))
    begins = re.compile(rf"\b{re.escape(word[:2])}\w*", re.IGNORECASE)
    tokens = {token.lower() for text in texts for token in begins.findall(text[:LOOKED_AT])}
    return word if word in tokens else next((t for t in sorted(tokens) if stem_words(fold_text(t)) == stem), "")


def list_one_edit_away(word: str, right: int) -> list[str]:
    """Return the words one edit away from `word` after its first `right` letters, likeliest first.

    An edit swaps two letters, or removes, changes or inserts one. Letters are those of the word's script (Latin,
    Greek, Cyrillic), else those of the word.
    """
    letters = next((a for a in _ALPHABETS if not set(a).isdisjoint(word)), "".join(dict.fromkeys(word)))
    places = range(right, len(word))
    swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-1]]
    left_out = [word[:i] + word[i + 1 :] for i in places]
    changed = [word[:i] + c + word[i + 1 :] for i in places for c in letters]
    put_in = [word[:i] + c + word[i:] for i in range(right, len(word) + 1) for c in letters]
    return [w for w in dict.fromkeys([*swapped, *left_out, *put_in, *changed]) if w != word]


def is_one_edit(a: str, b: str) -> bool:
    """Return whether inserting, removing, changing or swapping one letter turns `a` into `b`."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    if len(a) == len(b):
        return rest_a[1:] == rest_b[1:] or (rest_a[:2] == rest_b[1::-1] and rest_a[2:] == rest_b[2:])
    return rest_a[1:] == rest_b if len(a) > len(b) else rest_a == rest_b[1:]


def find_similar_words(texts: Iterable[str], word: str) -> list[str]:
    """Return words of the texts that share at least half of `word`'s trigrams, best first.

    They begin with the same letter. Words one letter away come first, then Dice's coefficient decides: twice the
    shared trigrams divided by the trigrams of both. A part of a path counts as a word, unless the typed word is a
    path.
    """
    word_pieces = set(split_trigrams(word))
    typed = fold_text(word).lower()
    tokens = {t for text in texts for t in TOKEN.findall(text)}
    if not _SEPARATORS.search(word):
        tokens |= {part for t in tokens for part in _SEPARATORS.split(t)}
    ranks: dict[str, tuple[bool, float]] = {}
    for token in (t for t in tokens if abs(len(t) - len(word)) <= 3 and fold_text(t).lower()[:1] == typed[:1]):
        token_pieces = set(split_trigrams(token))
        if (
            token_pieces
            and (alike := 2 * len(word_pieces & token_pieces) / (len(word_pieces) + len(token_pieces))) >= HALF
        ):
            ranks[token] = (not is_one_edit(typed, fold_text(token).lower()), -alike)
    return sorted(ranks, key=lambda t: (*ranks[t], t))[:NEAREST]


SIMILAR = 30  # most texts that are read for a similar word


class PartMatches(Struct, frozen=True):
    """Texts with tokens of the query, the rarity of each token, and corrections; `more`: incomplete."""

    texts: dict[Row, str] = {}
    rarity: dict[str, float] = {}
    meant: dict[str, list[str]] = {}
    more: bool = False


def find_parts(look: IndexLookup, text: str, similar: Collection[str]) -> PartMatches:
    """Return the texts with parts of words; a part in no text is replaced by a similar one.

    `similar`: words that already have a correction.
    """
    tokens = _split_tokens(text)
    matches = _find_containing(look, list(filter(_is_part, tokens)))
    if matches.texts or not is_identifier(text):
        return matches
    meant = {t: words for t in tokens if len(t) >= 4 and t not in similar and (words := _find_words_like(look, t))}
    lower = [fold_text(w).lower() for words in meant.values() for w in words]
    return replace(_find_containing(look, lower), meant=meant)


def _find_words_like(look: IndexLookup, token: str) -> list[str]:
    """Return words of the texts similar to a token, unless its pieces are known words."""
    if _has_known_pieces(look, token):
        return []
    near = retrieve.find_similar_parts(look, token)[:SIMILAR]
    return find_similar_words(load_texts(look.db, [r.pk for r in near]).values(), token)


def _split_tokens(text: str) -> list[str]:
    """Return the parts of words to search, folded: tokens, or symbols without letters (`=>`)."""
    if not WORD.search(text) and len(text.split()) == 1:
        return [fold_text(text).lower()]
    typed = [fold_text(t).lower() for t in dict.fromkeys(TOKEN.findall(text)) if t.lower() not in STOP_WORDS]
    return list(dict.fromkeys(chain.from_iterable(split_cjk(t) or [t] for t in typed[:MAX_TERMS])))


def _find_containing(look: IndexLookup, parts: Sequence[str]) -> PartMatches:
    """Return the texts that contain one of `parts`, and the rarity of each part."""
    rows, rarity, more = retrieve.find_by_parts(look, parts)
    texts = load_texts(look.db, [r.pk for r in rows])
    lower = {r: fold_text(texts[r.pk]).lower() for r in rows if r.pk in texts}
    matching = {r: texts[r.pk] for r, text in lower.items() if any(part in text for part in rarity)}
    held = {p: value for p, value in rarity.items() if any(p in lower[r] for r in matching)}
    return PartMatches(matching, held, more=more)


def _has_known_pieces(look: IndexLookup, token: str) -> bool:
    small = look.newest <= LARGE
    parts = split_identifier(token)
    return bool(parts) and all(is_known(look.db, p, parts=small) for p in parts)


def is_in_trigrams(query: Query) -> bool:
    """Return whether the trigrams have already answered this, because parts were searched."""
    return any(map(_is_part, _split_tokens(query.text)))


def _is_part(token: str) -> bool:
    """Return whether the trigram index can find a token: three or more characters, or `C#`, `=>`, 日志."""
    return len(token) >= 3 or is_cjk(token) or (not token.isalnum() and (len(token) == 2 or not token.isascii()))
