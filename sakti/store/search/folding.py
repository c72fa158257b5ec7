"""Fold texts for the indexes: ß and ss, full width and ASCII, ligatures and letters are the same; lower case. Pure."""

from __future__ import annotations

import unicodedata


def folded(text: str) -> str:
    """Return `text` as it is indexed and looked up: NFKC, case-folded. ASCII stays as it is."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def lowered(text: str) -> str:
    """Return `text` in lower case, as long as it was: a letter that has two there (İ) stays."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
