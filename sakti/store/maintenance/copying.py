"""Copy the database while it is in use: a consistent, checked copy, named only once it is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from sakti.core.errors import StoreError
from sakti.store import database_file, failures, files
from sakti.store.connection import Snapshot, plain
from sakti.store.database_file import DatabaseFile

if TYPE_CHECKING:
    from sakti.store.connection import Database

PAGES = 2_000  # that are copied between two looks at anything else


def copy(
    db: Database, target: Path, *, replace: bool = False, wanted: Callable[[Database], bool] | None = None
) -> None:
    """Copy the database as of now into the new file `target` (mode 0600), by SQLite's online backup.

    Concurrent writers are neither delayed nor seen. A copy that is not `wanted` gets no name. Raises `StoreError`
    (exists, unless `replace`; damaged, full, io): then there is no `target`, or the previous one.
    """
    if target.exists() and not replace:
        raise StoreError(f"{target} already exists; name another file.", code="exists")
    part = files.own(target, "part")
    try:
        files.sweep(target)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _pages(db.connection(), part)
        if fault := failures.find(DatabaseFile(str(part))):
            raise _damage_error(fault)
        if wanted is None or _is(wanted, part):
            _give_name(part, target, replace=replace)
    except OSError as e:
        raise StoreError(f"{target} cannot be written: {e.strerror}.", code="io") from e
    except apsw.Error as e:
        if failures.code_of(e) == "damaged":  # only the source can be: the copy is new
            raise _damage_error(str(e)) from e
        raise failures.to_store_error(e, target, saving=False) from e
    finally:
        for file in files.all_of(part):
            file.unlink(missing_ok=True)


def _damage_error(words: str) -> StoreError:
    return StoreError(f"Nothing was copied: the database is damaged ({words}). {failures.RECOVER}", code="damaged")


def _pages(source: apsw.Connection, part: Path) -> None:
    destination = apsw.Connection(str(part))
    try:
        # without a transaction, it would restart with every commit of another process
        with contextlib.nullcontext() if source.in_transaction else Snapshot(source):
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with destination.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES)
        version = int(str(destination.execute("PRAGMA user_version").get))
        if version & database_file.PENDING:  # the copy has everything
            destination.execute(f"PRAGMA user_version = {version & ~database_file.PENDING}")
    finally:
        destination.close()


def _is(wanted: Callable[[Database], bool], part: Path) -> bool:
    connection = apsw.Connection(str(part))
    try:
        return wanted(plain(connection))
    finally:
        connection.close()


def _give_name(part: Path, target: Path, *, replace: bool) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if replace:
        part.replace(target)
        return
    try:
        os.link(part, target)
    except FileExistsError as e:
        raise StoreError(f"{target} already exists; name another file.", code="exists") from e
    except OSError:  # a file system without links
        part.rename(target)
