"""Make the terms of a query: what counts as a match of each word, and how much a match tells. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from sakti.store.search.folding import folded, other_accents, quoted
from sakti.store.search.query import LANGUAGES, NO_QUERY, STOP_WORDS, Query
from sakti.store.search.stems import in_code, irregular_forms, stems

How = Literal["word", "similar", "irregular", "short", "code"]

SETTING = 0.3  # of the rarity of a language's name: it says where, not what (cosqa: R@10 and MRR +1.3)
SHORTENED = 0.3  # what a short form counts in code: `dict` for dictionary (mixed: MRR +2.1, functions by file +1.3)
JOINED = 2.5  # what `getuserid` counts where `get user id` was typed (ident: R@5 +0.7)
MANY = 16  # more words than that are a text: their short forms are not looked for
IN_CODE = 0.3  # what a word counts in code that says the same there (cosqa: R@10 +1.2, MRR +0.9)
SHORTEST = 3  # letters of a short form
CACHED = 2_000  # words of which is kept how they are looked up: the next key of a query has most of them again


class Form(Struct, frozen=True):
    """FTS5 phrase that matches a term, the weight of an occurrence, and its number of texts."""

    phrase: str
    weight: float = 1.0
    how: How = "word"
    documents: int = 0

    @property
    def only_ranks(self) -> bool:
        """Return whether it is looked for in documents only, and none is found by it."""
        return self.how in ("short", "code")


class Term(Struct, frozen=True):
    """Word of a query.

    `text` as typed in lower case, the stems of its tokens, its forms, the number of texts that have it, and its inverse
    document frequency `rarity`.
    """

    text: str
    stem: tuple[str, ...]
    forms: tuple[Form, ...]
    documents: int
    rarity: float

    @property
    def phrases(self) -> list[str]:
        """Return the phrases to look up texts by; those of code only rank texts."""
        return [f.phrase for f in self.forms if not f.only_ranks]


def phrase_of(word: str, *, prefix: bool = False) -> str:
    """Return the FTS5 phrase of a word."""
    return quoted(folded(word)) + ("*" if prefix else "")


def phrase_as_typed(word: str) -> str:
    """Return the phrase of a word as rows have it that are not packed yet: not folded."""
    return quoted(word)


@lru_cache(CACHED)
def spellings(word: str, *, prefix: bool = False) -> tuple[str, ...]:
    """Return the phrases of a word: as indexed, with other accents, and as in rows not yet packed."""
    if word.isascii():
        return (phrase_of(word, prefix=prefix),)
    current = [phrase_of(w, prefix=prefix) for w in (word, *other_accents(word))]
    return tuple(dict.fromkeys([*current, phrase_as_typed(word) + "*" * prefix]))


@lru_cache(CACHED)
def stem_of(word: str) -> tuple[str, ...]:
    """Return the stems of the tokens of a typed word."""
    return tuple(stems(folded(word)))


@lru_cache(CACHED)
def irregular_phrases(word: str) -> tuple[str, ...]:
    """Return the phrases of the irregular forms of a word."""
    stem = stem_of(word)
    return tuple(map(phrase_of, irregular_forms(stem[0]))) if len(stem) == 1 else ()


def inverse_frequency(documents: int, total: int) -> float:
    """Return the weight (above 0) of a term that is in `documents` of `total` texts.

    It is the inverse document frequency.
    """
    return math.log(1 + max(0.0, total - documents + 0.5) / (documents + 0.5))


def make_terms(
    words: Sequence[str],
    similar: Mapping[str, Sequence[str]],
    documents: Mapping[str, int],
    total: int,
    *,
    joined: Collection[str] = (),
    query: Query = NO_QUERY,
) -> list[Term]:
    """Return the terms that some text has: words, and the prefixes and phrases of a query.

    `documents` by phrase, of other forms only where they are looked for; `similar`: known words for unknown ones.
    """
    out: dict[tuple[str, ...], Term] = {}
    plain, begun = [(w, False) for w in (*words, *query.phrases)], [(p, True) for p in query.prefixes]
    for word, prefix in (*plain, *begun):
        stem = stem_of(word)
        forms = _existing(spellings(word, prefix=prefix), documents, JOINED if word in joined else 1.0, "word")
        forms += _existing(map(phrase_of, similar.get(word, ())), documents, 1.0, "similar")
        forms += _existing(irregular_phrases(word), documents, 1.0, "irregular")
        if not stem or stem in out or not forms:
            continue
        count = max(f.documents for f in forms)
        rarity = inverse_frequency(count, total) * (SETTING if word in LANGUAGES and len(words) > 1 else 1.0)
        code = () if prefix or word in joined or len(words) > MANY else forms_of_code(stem)
        out[stem] = Term(word.lower(), stem, (*forms, *code), count, rarity)
    return list(out.values())


def _existing(phrases: Iterable[str], documents: Mapping[str, int], weight: float, how: How) -> list[Form]:
    """Return the forms of those phrases that some text has."""
    return [Form(p, weight, how, documents[p]) for p in phrases if documents.get(p)]


@lru_cache(CACHED)
def forms_of_code(stem: tuple[str, ...]) -> Sequence[Form]:
    """Return forms of a word in code: its beginnings, and words with that meaning in code."""
    if len(stem) != 1:
        return []
    beginnings = (stem[0][:end] for end in range(SHORTEST, len(stem[0])))
    shorts = [Form(quoted(b), SHORTENED, "short") for b in beginnings if b not in STOP_WORDS]
    return shorts + [Form(quoted(w), IN_CODE, "code") for w in in_code(stem[0])]
