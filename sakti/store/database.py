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
import threading
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
from sakti.store import failures, index_upkeep, migrate, reading, search_index
from sakti.store.connection import Database
from sakti.store.waiting import Waiting

P = ParamSpec("P")
R = TypeVar("R")

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

UPKEEP_EVERY = 32  # writes
UPKEEP_S = 0.005
UPKEEP_PIECE_S = 0.03  # as long the writer merges at a time, and then rests
LARGE_S = 0.1  # a write that took so long left much to do
WAIT_S = 90.0  # for another process that writes
AGAIN_S, BRIEFLY_S = 10.0, 1.0  # who gave up waiting so lately waits no longer than this
log = logging.getLogger(__name__)

# 3.7.0 to 3.51.2 can corrupt a WAL that two connections write and checkpoint at once (sqlite.org/wal.html).
WAL_SAFE_FROM = (3, 51, 3)


class Store:
    """An open database. `path` is its file; `read_only_reason` says why nothing can be written, if so. A write waits
    `wait` seconds at most for another process that writes; `on_wait` hears, on the event loop, how many seconds it has
    waited so far, and None when it is over. `written` counts the writes that were committed.

    Make it with `await Store.open(path)` and close it with `await store.close()`.
    """

    def __init__(self, path: Path, db: APSWDatabase, clock: Clock, ids: Ids) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.read_only_reason: str | None = None
        self.notices: list[str] = []
        self.wait = WAIT_S
        self.on_wait: Callable[[float | None], None] | None = None
        self.written = 0
        self._db = db
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting(WAIT_S, self._told)
        self._gave_up = float("-inf")
        self._closed = False
        self._took = 0.0  # seconds in the newest transaction
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
        wait: float = WAIT_S,
        on_wait: Callable[[float | None], None] | None = None,
    ) -> Store:
        """Open or create the database at `path` (folder 0700, file 0600) and bring its schema up to date.

        A database made by a newer sakti is opened read-only. Raises `StoreError` where it cannot be opened.
        """
        clock = clock or SystemClock()
        wal = tuple(int(n) for n in apsw.sqlite_lib_version().split(".")) >= WAL_SAFE_FROM
        db = APSWDatabase(
            str(path),
            timeout=5,
            lock_type="IMMEDIATE",
            pragmas={
                "journal_mode": "wal" if wal else "delete",
                "synchronous": synchronous,
                "foreign_keys": 1,
                "temp_store": "memory",
                "cache_size": -8000,
                "wal_autocheckpoint": 8000,  # pages; `_upkeep` comes first
            },
        )
        store = cls(path, db, clock, ids or TimeIds(clock))
        store.wait, store.on_wait = wait, on_wait
        try:
            await asyncio.get_running_loop().run_in_executor(store._writer, store._open_writer)
        except BaseException:
            await store.close()
            raise
        return store

    async def write(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` in one IMMEDIATE transaction on the writer's thread; an exception rolls it back. Who is
        cancelled while it still waits for another process gives up: then it does not run at all.

        Raises `StoreError` (busy, full, damaged, read_only, io) where nothing was written.
        """
        loop = asyncio.get_running_loop()
        gone = threading.Event()
        work = loop.run_in_executor(self._writer, lambda: self._unless(gone, fn, *args, **kwargs))
        try:
            result = await work
        except asyncio.CancelledError:
            gone.set()
            raise
        self.written += 1
        if self.written % UPKEEP_EVERY == 0 or self._took > LARGE_S:  # nobody waits for it
            self._tend(max(UPKEEP_S, self._took / 2))
        return result

    async def read(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` on the read-only connection, in one transaction: all its queries see the database as it was
        at the first of them, with everything that was committed before."""
        return await asyncio.get_running_loop().run_in_executor(
            self._reader, lambda: self._with_reader(fn, *args, **kwargs)
        )

    async def close(self) -> None:
        self._closed = True
        loop = asyncio.get_running_loop()
        for pool in (self._reader, self._writer):
            await loop.run_in_executor(pool, self._close_connection)
            pool.shutdown()

    # --- on the threads -----------------------------------------------------------------------------------

    def _open_writer(self) -> None:
        try:
            created = not self.path.exists()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if created:
                # made by hand, so that the file (and its -wal, which copies the mode) is private from its birth
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._waiting.limit = self.wait
            self._db.connect()
            self._db.connection().set_busy_handler(self._waiting)
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
                self.notices += migrate.upgrade(self._db, self.path, self.clock)
        except (OSError, peewee.PeeweeException, apsw.Error) as e:
            raise StoreError(
                f"The database {self.path} cannot be opened: {e}. "
                "Run `sakti doctor`, or name another one with SAKTI_DB."
            ) from e

    def _unless(
        self, gone: threading.Event, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        def work(db: Database, *args: P.args, **kwargs: P.kwargs) -> R:
            if gone.is_set():
                raise asyncio.CancelledError
            return fn(db, *args, **kwargs)

        self._waiting.given_up = gone.is_set
        return self._in_transaction(work, *args, **kwargs)

    def _in_transaction(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self.read_only_reason:
            raise StoreError(self.read_only_reason, code="read_only")
        lately = time.monotonic() - self._gave_up < AGAIN_S
        self._waiting.limit = min(self.wait, BRIEFLY_S) if lately else self.wait
        try:
            with self._db.atomic():
                began = time.perf_counter()
                result = fn(self._db, *args, **kwargs)
            self._took = time.perf_counter() - began
            return result
        except (peewee.PeeweeException, apsw.Error) as e:
            error = failures.explained(e, self.path, saving=True, waited=self._waiting.waited)
            if error.code == "busy":
                self._gave_up = time.monotonic()
            raise error from e
        finally:
            self._waiting.over()

    def _told(self, seconds: float | None) -> None:
        """On the writer's thread: `on_wait` hears it on the event loop."""

        def tell() -> None:
            if self.on_wait is not None:
                self.on_wait(seconds)

        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(tell)

    def _tend(self, seconds: float) -> None:
        """On the event loop: let the writer do `seconds` of upkeep, a piece at a time, so that what is to be written
        meanwhile, here or by another process, comes in between."""
        if self._closed:
            return
        work = self._loop.run_in_executor(self._writer, self._upkeep, min(seconds, UPKEEP_PIECE_S))

        def go_on(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and done.exception() is None and done.result() and seconds > UPKEEP_PIECE_S:
                self._loop.call_later(UPKEEP_PIECE_S, self._tend, seconds - UPKEEP_PIECE_S)

        work.add_done_callback(go_on)

    def _upkeep(self, seconds: float) -> bool:
        """What SQLite would do within some write, which then takes fifty times as long: merge the index's newest
        pieces, for about so many seconds, and copy the write-ahead log into the file. Whether there is more to do."""
        end = time.perf_counter() + seconds
        self._waiting.limit = 0  # who writes now does not wait for this either
        try:
            more = True
            while more and time.perf_counter() < end:
                with self._db.atomic():
                    left = [index_upkeep.merge_some(self._db, table) for table in search_index.TABLES]
                more = any(left)
            self._db.execute_sql("PRAGMA wal_checkpoint(PASSIVE)")
        except (peewee.PeeweeException, apsw.Error) as e:
            log.warning("the upkeep of %s waits for the next time: %s", self.path, e)
            return False
        return more

    def _with_reader(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._db.is_closed():
            self._db.connect()
            self._db.execute_sql("PRAGMA query_only = 1")
        connection = self._db.connection()
        try:
            with reading.snapshot(connection):
                return fn(self._db, *args, **kwargs)
        except (peewee.PeeweeException, apsw.Error) as e:
            raise failures.explained(e, self.path, saving=False) from e

    def _close_connection(self) -> None:
        if not self._db.is_closed():
            self._db.close()
