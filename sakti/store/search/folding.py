"""Fold texts for the indexes: lower case; ß and ss, full width and ASCII, ligatures alike. Pure."""

from __future__ import annotations

import unicodedata

from sakti.core.patterns import lazy_pattern


def folded(text: str) -> str:
    """Return `text` as it is indexed and looked up: NFKC, case-folded. ASCII stays as it is."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def lowered(text: str) -> str:
    """Return `text` in lower case, as long as it was: a letter that has two there (İ) stays."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def without_accents(text: str) -> str:
    """Return `text` folded, without accents, in one spelling.

    `Straße` is `STRASSE`, `счёт` is `счет`, `ώρα` is `ΩΡΑ`.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded(text))))


def other_accents(word: str) -> list[str]:
    """Return other spellings of a Russian or Greek word: ё for е and back, one accent or none.

    The index tells these apart; Latin accents it does not.
    """
    plain = without_accents(word)
    spelled = [plain[:i] + accented + plain[i + 1 :] for i, c in enumerate(plain) if (accented := _ACCENTED.get(c))]
    return [w for w in (plain, *spelled) if w != folded(word)] if spelled else []


_ACCENTS = lazy_pattern("[\u0300-\u0305\u0307-\u036f]")  # the breve of й makes another letter
_ACCENTED = dict(zip("еαεηιουω", "ёάέήίόύώ", strict=True))
