"""Fold texts for the indexes, and cut them into trigrams. Pure.

Folded texts are in lower case, with ß and ss, full width and ASCII, and ligatures alike. The trigrams of a part of a
word are joined by AND, so a row may have all of them in other places: callers check the text.
"""

from __future__ import annotations

import re
import unicodedata

from sakti.core.lazy import lazy_pattern


def fold_text(text: str) -> str:
    """Return `text` as it is indexed and looked up: NFKC, case-folded. ASCII stays as it is."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def lower_keeping_length(text: str) -> str:
    """Return `text` in lower case, as long as it was: a letter that has two there (İ) stays."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def remove_accents(text: str) -> str:
    """Return `text` folded, without accents, in one spelling.

    `Straße` is `STRASSE`, `счёт` is `счет`, `ώρα` is `ΩΡΑ`.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", fold_text(text))))


def list_accent_variants(word: str) -> list[str]:
    """Return other spellings of a Russian or Greek word: ё for е and back, one accent or none.

    The index tells these apart; Latin accents it does not.
    """
    plain = remove_accents(word)
    spelled = [plain[:i] + accented + plain[i + 1 :] for i, c in enumerate(plain) if (accented := _ACCENTED.get(c))]
    return [w for w in (plain, *spelled) if w != fold_text(word)] if spelled else []


_ACCENTS = lazy_pattern("[\u0300-\u0305\u0307-\u036f]")  # the breve of й makes another letter
_ACCENTED = dict(zip("еαεηιουω", "ёάέήίόύώ", strict=True))


SIZE = 3  # characters of a piece
LONGEST = 40  # characters of a part that are looked up
FEW = 6  # pieces that are all looked up


def split_trigrams(part: str) -> list[str]:
    """Return the pieces of three characters of `part`, folded and in lower case, each once."""
    return cut(fold_text(part).lower())


def cut(lower: str) -> list[str]:
    """Cut a folded text into pieces: to fold twice is not always to fold once (ΐ)."""
    sought = lower[:LONGEST]
    return list(dict.fromkeys(sought[i : i + SIZE] for i in range(len(sought) - SIZE + 1)))


def select_covering(pieces: list[str]) -> list[str]:
    """Return every second one of many pieces, and the last.

    They have all characters of the part, at half the cost.
    """
    return pieces if len(pieces) <= FEW else [*pieces[:-1:2], pieces[-1]]


def match_any(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with one of `pieces`."""
    return " OR ".join(map(quote_phrase, pieces))


def match_all(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with all of `pieces`."""
    return " AND ".join(map(quote_phrase, pieces))


def quote_phrase(phrase: str) -> str:
    """Return a phrase for FTS5."""
    return '"' + phrase.replace('"', '""') + '"'


def escape_like(text: str) -> str:
    """Escape a text for LIKE with `ESCAPE '\\'`."""
    return re.sub(r"([\\%_])", r"\\\1", text)
