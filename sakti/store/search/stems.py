"""Stem words as the word index does: lower case, without accents (SQLite's `porter unicode61`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import apsw

_local = threading.local()  # a connection serves one thread at a time


def stems(text: str) -> Sequence[str]:
    """Return the words of `text` in order, each stemmed."""
    return _words(text, "porter", "unicode61", "remove_diacritics", "2")


def unstemmed(text: str) -> Sequence[str]:
    """Return the words of `text` in order, in lower case and without accents."""
    return _words(text, "unicode61", "remove_diacritics", "2")


def _words(text: str, name: str, *options: str) -> Sequence[str]:
    tokenizers: dict[str, Any] = _local.__dict__
    if name not in tokenizers:
        tokenizers[name] = apsw.Connection(":memory:").fts5_tokenizer(name, list(options))
    encoded = text.encode("utf-8", "replace")
    return tokenizers[name](encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
