"""The database: one file, one writer thread, one read-only connection.

Every write runs on the writer's thread in a BEGIN IMMEDIATE transaction (`Store.write`), every read of a pane
or a search on the reader's (`Store.read`); both are awaited, so the caller's event loop never waits for the
disk. The functions that are run take the open database as their first argument and live in the other modules
of this package; nothing outside `sakti.store` speaks SQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import apsw
import peewee
from playhouse.apsw_ext import APSWDatabase

from sakti.core.clock import Clock, SystemClock
from sakti.core.errors import StoreError
from sakti.core.ids import Ids, TimeIds
from sakti.store import migrate, search_index, unsaved
from sakti.store.connection import Database

P = ParamSpec("P")
R = TypeVar("R")

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
UPKEEP_EVERY = 32  # writes
UPKEEP_S = 0.005
LARGE_S = 0.1  # a write that took so long left much to do
log = logging.getLogger(__name__)

# 3.7.0 to 3.51.2 can corrupt a WAL that two connections write and checkpoint at once (sqlite.org/wal.html).
WAL_SAFE_FROM = (3, 51, 3)


class Store:
    """An open database. `path` is its file; `read_only_reason` says why nothing can be written, if so. `not_saved`: all
    that is written goes into a copy in memory, and with it.

    Make it with `await Store.open(path)` and close it with `await store.close()`.
    """

    def __init__(self, path: Path, db: APSWDatabase, clock: Clock, ids: Ids) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.read_only_reason: str | None = None
        self.not_saved = False
        self.notices: list[str] = []
        self._db = db
        self._writes = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sakti-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="sakti-reader")

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        synchronous: Synchronous = "FULL",
        keep: bool = True,
    ) -> Store:
        """Open or create the database at `path` (folder 0700, file 0600) and bring its schema up to date. Without
        `keep` a copy of it in memory is opened, and the file stays what it is.

        A database made by a newer sakti is opened read-only. Raises `StoreError` where it cannot be opened.
        """
        clock = clock or SystemClock()
        wal = tuple(int(n) for n in apsw.sqlite_lib_version().split(".")) >= WAL_SAFE_FROM
        name, flags = (str(path), _FLAGS) if keep else (unsaved.new_name(), unsaved.FLAGS)
        db = APSWDatabase(
            name,
            flags=flags,
            timeout=5,
            lock_type="IMMEDIATE",
            pragmas={
                "journal_mode": ("wal" if wal else "delete") if keep else "memory",
                "synchronous": synchronous,
                "foreign_keys": 1,
                "temp_store": "memory",
                "cache_size": -8000,
                "wal_autocheckpoint": 8000,  # pages; `_upkeep` comes first
            },
        )
        store = cls(path, db, clock, ids or TimeIds(clock))
        store.not_saved = not keep
        try:
            await asyncio.get_running_loop().run_in_executor(store._writer, store._open_writer)
        except BaseException:
            await store.close()
            raise
        return store

    async def write(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` in one IMMEDIATE transaction on the writer's thread; an exception rolls it back."""
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        result = await loop.run_in_executor(self._writer, lambda: self._in_transaction(fn, *args, **kwargs))
        took = time.perf_counter() - began
        self._writes += 1
        if self._writes % UPKEEP_EVERY == 0 or took > LARGE_S:  # nobody waits for it
            loop.run_in_executor(self._writer, self._upkeep, max(UPKEEP_S, took / 2))
        return result

    async def read(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` on the read-only connection; it sees everything that was committed before."""
        return await asyncio.get_running_loop().run_in_executor(
            self._reader, lambda: self._with_reader(fn, *args, **kwargs)
        )

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        for pool in (self._reader, self._writer):
            await loop.run_in_executor(pool, self._close_connection)
            pool.shutdown()

    # --- on the threads -----------------------------------------------------------------------------------

    def _open_writer(self) -> None:
        try:
            if self.not_saved:
                filled = unsaved.fill(str(self._db.database), self.path)
                try:
                    self._db.connect()
                finally:
                    filled.close()
            else:
                self._make_file()
                self._db.connect()
            version = migrate.current_version(self._db)
            if version > migrate.LATEST:
                self.read_only_reason = (
                    f"{self.path} was made by a newer sakti (schema {version}, this one knows {migrate.LATEST}): "
                    "it is open for reading only. Update sakti to write to it."
                )
                self._db.execute_sql("PRAGMA query_only = 1")
            elif version and self._db.connection().readonly("main"):
                self.read_only_reason = (
                    f"{self.path} may not be written: what was said before can be read and searched, nothing new "
                    "is saved. Make the file writable, or name another one with SAKTI_DB."
                )
            else:
                self.notices += migrate.upgrade(self._db, None if self.not_saved else self.path, self.clock)
        except (OSError, peewee.PeeweeException, apsw.Error) as e:
            raise StoreError(
                f"The database {self.path} cannot be opened: {e}. "
                "Run `sakti doctor`, or name another one with SAKTI_DB."
            ) from e

    def _make_file(self) -> None:
        created = not self.path.exists()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if created:
            # made by hand, so that the file (and its -wal, which copies the mode) is private from its birth
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _in_transaction(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self.read_only_reason:
            raise StoreError(self.read_only_reason, code="read_only")
        try:
            with self._db.atomic():
                return fn(self._db, *args, **kwargs)
        except (peewee.OperationalError, apsw.Error) as e:
            raise StoreError(
                f"Not saved: {e}. Nothing was lost; sakti tries again with the next change.", retryable=True
            ) from e

    def _upkeep(self, seconds: float) -> None:
        """What SQLite would do within some write, which then takes fifty times as long: merge the index's newest
        pieces, for about so many seconds, and copy the write-ahead log into the file."""
        end = time.perf_counter() + seconds
        try:
            while True:
                with self._db.atomic():
                    merged = search_index.merge(self._db)
                if not merged or time.perf_counter() > end:
                    break
            self._db.execute_sql("PRAGMA wal_checkpoint(PASSIVE)")
        except (peewee.OperationalError, apsw.Error) as e:
            log.warning("the upkeep of %s waits for the next time: %s", self.path, e)

    def _with_reader(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._db.is_closed():
            self._db.connect()
            self._db.execute_sql("PRAGMA query_only = 1")
        try:
            return fn(self._db, *args, **kwargs)
        except (peewee.DatabaseError, apsw.Error) as e:
            raise StoreError(f"{self.path} cannot be read: {e}. `sakti db check` says what is wrong with it.") from e

    def _close_connection(self) -> None:
        if not self._db.is_closed():
            self._db.close()
