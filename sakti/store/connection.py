"""The open database as the functions of this package are given it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Database(Protocol):
    """A peewee database that is open on this thread. Queries are run as `query.execute(db)` or in SQL."""

    def execute_sql(self, sql: str, params: Sequence[Any] | None = None) -> Any:
        """Run one statement with `?` parameters; returns a cursor."""
        ...

    def atomic(self) -> Any: ...

    def connection(self) -> Any: ...
