"""Fold texts for the indexes, and cut them into trigrams. Pure.

Folding makes texts lower case, and makes ß and ss, full width and ASCII, and ligatures equal. The trigrams of a part
of a word are joined by AND, so a row may have them in separate places: callers check the text.
"""

from __future__ import annotations

import re
import unicodedata

from sakti.core.lazy import lazy_pattern


def fold_text(text: str) -> str:
    """Return `text` in its indexed form: NFKC, case-folded.

    ASCII stays as it is.
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def lower_keeping_length(text: str) -> str:
    """Return `text` in lower case without changing its length: letters that would become two (İ) stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def remove_accents(text: str) -> str:
    """Return `text` folded and without accents.

    `Straße` and `STRASSE`, `счёт` and `счет`, `ώρα` and `ΩΡΑ` become equal.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", fold_text(text))))


def list_accent_variants(word: str) -> list[str]:
    """Return other spellings of a Russian or Greek word: ё for е and back, one accent or none.

    The index distinguishes these accents, but not Latin ones.
    """
    plain = remove_accents(word)
    spelled = [plain[:i] + accented + plain[i + 1 :] for i, c in enumerate(plain) if (accented := _ACCENTED.get(c))]
    return [w for w in (plain, *spelled) if w != fold_text(word)] if spelled else []


_ACCENTS = lazy_pattern("[\u0300-\u0305\u0307-\u036f]")  # й keeps its breve: it is a separate letter
_ACCENTED = dict(zip("еαεηιουω", "ёάέήίόύώ", strict=True))


SIZE = 3  # characters of a piece
LONGEST = 40  # characters of a part that are looked up
FEW = 6  # up to this many trigrams, all are looked up


def split_trigrams(part: str) -> list[str]:
    """Return the distinct trigrams of `part`, folded and in lower case."""
    return cut(fold_text(part).lower())


def cut(lower: str) -> list[str]:
    """Cut a folded text into trigrams; folding twice can differ from folding once (ΐ)."""
    sought = lower[:LONGEST]
    return list(dict.fromkeys(sought[i : i + SIZE] for i in range(len(sought) - SIZE + 1)))


def select_covering(pieces: list[str]) -> list[str]:
    """Return every second trigram, and the last.

    They cover all characters of the part at half the cost.
    """
    return pieces if len(pieces) <= FEW else [*pieces[:-1:2], pieces[-1]]


def match_any(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with any of `pieces`."""
    return " OR ".join(map(quote_phrase, pieces))


def match_all(pieces: list[str]) -> str:
    """Return the FTS5 query for rows with all of `pieces`."""
    return " AND ".join(map(quote_phrase, pieces))


def quote_phrase(phrase: str) -> str:
    """Quote a phrase for FTS5."""
    return '"' + phrase.replace('"', '""') + '"'


def escape_like(text: str) -> str:
    """Escape a text for LIKE with `ESCAPE '\\'`."""
    return re.sub(r"([\\%_])", r"\\\1", text)
