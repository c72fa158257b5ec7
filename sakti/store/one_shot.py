"""Answer one query in the calling thread, for commands that ask once and end.

They need neither an event loop nor peewee, which would be most of their run time; so the names that a shell completes
are raw SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from sakti.core.errors import SaktiError
from sakti.store import file_identity, migrate, opening
from sakti.store.connection import Connection, Snapshot, plain
from sakti.store.database_file import DatabaseFile

P = ParamSpec("P")
R = TypeVar("R")


class NotReady(Exception):
    """Error for a database that is missing, cannot be opened or has another schema.

    `Store.open` creates it, migrates it or explains the failure.
    """


def open_another(connection: apsw.Connection) -> apsw.Connection:
    """Open another read-only connection to the same file."""
    path = Path(connection.filename)
    database = opening.read_only(path) if connection.readonly("main") else DatabaseFile(str(path))
    second = database.connect()
    second.set_busy_timeout(5_000)
    second.execute("PRAGMA query_only = 1")
    return second


def ask(path: Path, fn: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the read-only `fn(db, …)`, in plain SQL, in one transaction on the database at `path`.

    Raises `NotReady`.
    """
    had_log = file_identity.has_log(path)
    try:
        # not READONLY: such a connection leaves the files behind that it needs beside a database in WAL mode
        connection = DatabaseFile(str(path)).connect()
    except apsw.Error as e:
        raise NotReady from e
    try:
        connection.set_busy_timeout(1_000)  # who waits longer does it in sight
        connection.execute("PRAGMA query_only = 1")
        db = plain(connection)
        with Snapshot(connection):
            if migrate.current_version(db) != migrate.LATEST or opening.was_interrupted(path):
                raise NotReady
            if not had_log and file_identity.lacks_log(db, path):
                raise NotReady
            return fn(db, *args, **kwargs)
    except (SaktiError, NotReady):
        raise
    except Exception as e:  # whatever it is, `Store.read` finds out whether the file is to blame
        raise NotReady from e
    finally:
        connection.close()


_HERE = "SELECT id, title FROM threads WHERE resource_id = ? AND deleted_at"


def newest_threads(db: Connection, resource_id: str, limit: int, deleted: bool) -> list[tuple[str, str]]:
    """Return ids and titles of a workspace's threads, the newest first, or of those that were deleted."""
    which = "IS NOT NULL ORDER BY deleted_at" if deleted else "IS NULL ORDER BY updated_at"
    return list(db.execute_sql(f"{_HERE} {which} DESC LIMIT ?", (resource_id, limit)))
