"""Type of the open database in this package: peewee's, or one that only executes SQL."""

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
    """Open database as most functions here need it.

    peewee's `Database`, on which queries run as `query.execute(db)`, or the bare connection of a short command. A
    function that takes this uses plain SQL only.
    """

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute one statement and return its cursor (`fetchone`, `fetchall`, iteration)."""
        ...

    def connection(self) -> Any:
        """Return apsw's connection."""
        ...


class _Plain:
    """apsw connection with the methods of `Database` that functions using plain SQL need."""

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
    """Read transaction around several queries, so that their answers fit together.

    A commit of another process between two of them is not seen. (A class: a generator would cost a tenth of a small
    read.)
    """

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
    """Wrap an apsw connection for functions that use plain SQL, without loading peewee."""
    return cast("Database", _Plain(connection))
