"""Vacuum the file: it shrinks to its content, and its free space holds nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from sakti.core.errors import StoreError
from sakti.store import database_file, failures, files, migrate, opening
from sakti.store.connection import plain
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import archive_care
from sakti.store.search import index as search_index


def is_clean(path: Path) -> bool:
    """Return whether the free space of a database never held removed text.

    Raises `StoreError` where it cannot be opened.
    """
    try:
        connection = DatabaseFile(str(path)).connect()
        try:
            return bool(int(str(connection.execute("PRAGMA user_version").get)) & database_file.CLEAN)
        finally:
            connection.close()
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e


def vacuum(path: Path) -> tuple[int, int]:
    """Vacuum the database at `path`; return its bytes before and after.

    Takes as long, and meanwhile as much room, as a copy of it. Raises `StoreError`: busy where it is open elsewhere,
    full, damaged, read_only, missing.
    """
    if not path.exists():
        raise StoreError(f"{path} is not there.", code="missing")
    opening.refuse_unusable(path)
    if not files.writable(path):
        raise StoreError(f"{path} or its folder is not writable.", code="read_only")
    if not opening.is_alone(path):
        raise StoreError(
            f"{path} is open in another window: close it first. Nothing was changed.", code="busy", retryable=True
        )
    before = _bytes(path)
    if shutil.disk_usage(path.parent).free < before * 2:
        raise StoreError(f"Not enough disk space to rewrite {path}: it needs {2 * before:,} bytes.", code="full")
    try:
        connection = DatabaseFile(str(path)).connect()
        try:
            opening.refuse_foreign(connection, path)
            if migrate.current_version(plain(connection)) != migrate.LATEST:
                raise StoreError(f"{path} is of another version of sakti: open it once, then run this.", code="schema")
            for index in (*search_index.TABLES, search_index.TASKS):  # they keep removed entries until they are merged
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
            connection.execute(f"PRAGMA user_version = {database_file.CLEAN}")
            connection.execute("VACUUM").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            archive_care.vacuum(path)
        finally:
            connection.close()
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e
    return before, _bytes(path)


def _bytes(path: Path) -> int:
    return sum(p.stat().st_size for p in files.all_of(path))
