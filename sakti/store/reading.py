"""One question to the database, answered in this thread: for programs that ask once and end.

Neither an event loop nor peewee is needed for that; they are most of such a program's time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from sakti.store import migrate
from sakti.store.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")


class NotReady(Exception):
    """The database is not there, cannot be opened or has another schema: `Store.open` makes it, mends it or says why
    it cannot be."""


class _Reader:
    """A read-only connection, with what functions use of a `Database` to read."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute_sql(self, sql: str, params: Any = None) -> apsw.Cursor:
        return self._connection.execute(sql, params)

    def connection(self) -> apsw.Connection:
        return self._connection


def ask(path: Path, fn: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `fn(db, …)`, which only reads and in SQL, on the database at `path`. Raises `NotReady`."""
    try:
        # not READONLY: such a connection leaves the files behind that it needs beside a database in WAL mode
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as e:
        raise NotReady from e
    try:
        connection.set_busy_timeout(5_000)
        connection.execute("PRAGMA query_only = 1")
        db = _Reader(connection)
        if migrate.current_version(db) != migrate.LATEST:
            raise NotReady
        return fn(db, *args, **kwargs)
    except apsw.Error as e:
        raise NotReady from e
    finally:
        connection.close()
