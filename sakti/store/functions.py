"""Register the SQL functions that views, triggers and filters call, on every connection.

What a search index holds of a message is computed by them, when it is put in and again when it is taken out. So a
change of what one of them returns for a text that is indexed already needs a migration that rebuilds the index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sakti.store import secrets
from sakti.store.search.folding import folded
from sakti.store.search.index import identifiers, touched
from sakti.store.threads import codec

if TYPE_CHECKING:
    import apsw

# A text that is put into an index is asked for them by several expressions.
_identifiers = lru_cache(maxsize=8)(identifiers)


def register(connection: apsw.Connection) -> None:
    """Register the functions with a connection."""
    functions: dict[str, tuple[Callable[..., Any], int]] = {
        "sakti_text": (codec.text_of, 2),  # (raw_content, parts) of a message: its text
        "sakti_unpacked": (codec.readable, 1),  # a packed column: its text, '' where it cannot be read
        "sakti_folded": (_of_texts(folded), 1),
        "sakti_identifiers": (_of_texts(_identifiers), 1),
        "sakti_masked": (_of_texts(secrets.masked), 1),
        "sakti_touched": (_of_texts(touched), 2),
    }
    for name, (function, arguments) in functions.items():
        connection.create_scalar_function(name, function, arguments, deterministic=True)


def _of_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of texts for SQL: NULL if an argument is NULL, numbers and bytes as text.

    A column, or a value in JSON, may have any type. An exception here would end the whole statement, and a migration
    with it.
    """

    def call(*values: Any) -> Any:
        if None in values:
            return None
        return function(*(value if isinstance(value, str) else _as_text(value) for value in values))

    return call


def _as_text(value: float | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
