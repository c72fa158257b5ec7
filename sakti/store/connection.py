"""What functions of this package are given as the open database: peewee's, or one that executes SQL and no more."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import apsw
    from peewee import Database
else:
    Database = object  # a name for annotations: a program that only asks does without peewee (see `reading`)

__all__ = ["Connection", "Database", "Snapshot", "plain"]


class Connection(Protocol):
    """Something that executes SQL: peewee's `Database`, on which queries run as `query.execute(db)`; or the bare
    connection of a program that asks one question and ends. A function that takes this needs no more than SQL."""

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute one statement and return its cursor (`fetchone`, `fetchall`, iteration)."""
        ...

    def connection(self) -> Any:
        """Return apsw's connection."""
        ...


class _Plain:
    """A connection with what functions that speak SQL use of a `Database`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute_sql(self, sql: str, params: Any = None) -> apsw.Cursor:
        return self._connection.execute(sql, params)

    def connection(self) -> apsw.Connection:
        return self._connection

    @contextmanager
    def atomic(self) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


class Snapshot:
    """One read transaction round several queries: what another process commits between two of them is not seen by the
    second, so that what they answer fits together. (A class: a generator would cost a tenth of a small read.)"""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:  # some errors end it
            self._connection.execute("ROLLBACK")


def plain(connection: apsw.Connection) -> Database:
    """A connection for functions that speak SQL: peewee is not loaded for it."""
    return cast("Database", _Plain(connection))
