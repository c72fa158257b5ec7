"""Format lines of the log with secrets masked."""

from __future__ import annotations

import logging

from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.store import secrets


class _Masking(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return secrets.masked(super().format(record))


def masking(pattern: str) -> logging.Formatter:
    """Return a formatter that masks secrets in the whole line, its traceback too."""
    return _Masking(pattern)
