"""Stem words as the word index does: lower case, without accents (SQLite's `porter unicode61`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import apsw

_local = threading.local()  # a connection serves one thread at a time


def stems(text: str) -> Sequence[str]:
    """Return the words of `text` in order, each stemmed."""
    return _tokenizer()(
        text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False,
        include_colocated=False,
    )  # fmt: skip


def _tokenizer() -> Any:
    if not hasattr(_local, "tokenizer"):
        connection = apsw.Connection(":memory:")
        _local.tokenizer = connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    return _local.tokenizer
