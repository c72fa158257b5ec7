"""What functions of this package are given as the open database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from peewee import Database
else:
    Database = object  # a name for annotations: a program that only asks does without peewee (see `reading`)

__all__ = ["Connection", "Database"]


class Connection(Protocol):
    """Something that executes SQL: peewee's `Database`, on which queries run as `query.execute(db)`; or the bare
    connection of a program that asks one question and ends. A function that takes this needs no more than SQL."""

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute one statement and return its cursor (`fetchone`, `fetchall`, iteration)."""
        ...

    def connection(self) -> Any:
        """Return apsw's connection."""
        ...
