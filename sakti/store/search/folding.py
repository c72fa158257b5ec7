"""Fold texts for the indexes: ß and ss, full width and ASCII, ligatures and letters are the same. Pure."""

from __future__ import annotations

import unicodedata


def folded(text: str) -> str:
    """Return `text` as it is indexed and looked up: NFKC, case-folded. ASCII stays as it is."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
