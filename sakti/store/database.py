"""Open the database: a file, a writer thread, a connection for panes and one for searches.

Every write runs on the writer's thread in a BEGIN IMMEDIATE transaction (`Store.write`), every read of a pane on the
reader's (`Store.read`), every search on the searcher's (`Store.search`). All are awaited, so the caller's event loop
never waits for the disk. The called functions take the open database as their first argument and are defined in other
modules of this package; nothing outside `sakti.store` uses SQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import apsw
import peewee
from playhouse.apsw_ext import APSWDatabase

from sakti.core.clock import Clock, Ids, SystemClock, TimeIds
from sakti.core.errors import SaktiError, StoreError
from sakti.store import archive_file, copies, database_file, failures, files, migrate, opening, user_state
from sakti.store.connection import BusyHandler, Connection, Database, Snapshot
from sakti.store.database_file import DatabaseFile, FileIdentity, FileLoss, set_log_aside
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.searcher import Searcher

P = ParamSpec("P")
R = TypeVar("R")

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

FLUSH_S = 5.0  # seconds for other readers to finish
UPKEEP_EVERY = 32  # writes between two upkeeps
UPKEEP_S = 0.005
UPKEEP_PIECE_S = 0.03  # seconds of merging, followed by an equal pause
IDLE_S = 2.0  # seconds without a write, after which the indexes are merged completely
IDLE_UPKEEP_S = 30.0
LARGE_S = 0.1  # a write that took longer leaves many segments to merge
UNSAVED = (
    "Nothing is saved in this run: messages, tasks and observations are gone when it ends. Earlier threads can be "
    "read and searched."
)
IN_MEMORY = (
    "Saving has stopped: this window continues in memory until it is closed. In a chat, `/backup FILE` writes"
    " everything that can still be read, and newer messages, to a new file."
)
LOST = "Saving has stopped. Restore a backup, or close all windows and run `sakti db recover`."
WAIT_S = 90.0  # seconds to wait for another writing process
SHORT_WAIT_S, SHORT_WAITS_FOR_S = 1.0, 10.0  # after a timeout the next waits are shorter, for some seconds
log = logging.getLogger(__name__)

MARK_S = 0.05  # seconds between marking a file and the checkpoint that writes the mark into it
RECHECK_S = 60.0  # seconds between two checks for damage after unexpected errors
CHECKED_FIRST = 32 << 20  # bytes: after a crash, databases up to this size are checked before use


class Connections(APSWDatabase):
    """peewee database that opens its connections like `database`; `waiting` is their busy handler."""

    def __init__(self, database: DatabaseFile, pragmas: dict[str, str | int], waiting: BusyHandler) -> None:
        super().__init__(database.filename, lock_type="IMMEDIATE", pragmas=pragmas)
        self._file, self.waiting = database, waiting

    def _connect(self) -> apsw.Connection:
        connection = self._file.connect()
        try:
            connection.set_busy_handler(self.waiting)
            self._add_conn_hooks(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _leave_file(connections: Connections, *, close: bool) -> None:
    """Close the connection of this thread, now or later, without a checkpoint into a foreign file."""
    if not connections.is_closed():
        connections.connection().config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if close:
            connections.close()


class Store:
    """Open database.

    `path` is its file. `read_only_reason` says why nothing can be written, None if writing works. `not_saved` says why
    nothing is saved: the database is read-only, or a temporary copy. A write waits at most `wait` seconds for another
    writing process; `on_wait` is called on the event loop with the seconds waited so far, and with None when the wait
    is over. `written` counts the committed writes. `on_damage` is called on the event loop when damage is found after
    opening.

    Open it with `await Store.open(path)` and close it with `await store.close()`.
    """

    def __init__(self, path: Path, clock: Clock, ids: Ids) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.read_only_reason: str | None = None
        self.not_saved: str | None = None
        self.notices: list[str] = []
        self.wait = WAIT_S
        self.on_wait: Callable[[float | None], None] | None = None
        self.on_damage: Callable[[str], None] | None = None
        self.written = 0
        self._loop = asyncio.get_running_loop()
        self._waiting = BusyHandler(WAIT_S, self._report_wait)
        self._timed_out_at = float("-inf")
        self._closed = False
        self._last_write_s = 0.0  # seconds of the last transaction
        self._marked = False  # the file was marked, but only in its log (`log_mark`)
        self._idle_timer: asyncio.TimerHandle | None = None  # upkeep after a while without writes
        self._checked_at = float("-inf")  # time of the last check for damage
        self._is_lost = False  # the file was lost, and the open one is not completely readable
        self.is_newer = False
        self._file: DatabaseFile | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sakti-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="sakti-reader")
        self._searcher = Searcher()
        self._damage_check: asyncio.Future[str | None] | None = None
        self._is_unsaved = False  # nothing was meant to be saved from the beginning
        self._identity: FileIdentity | None = None  # identity of the file in use

    _db: Connections  # the writer's connection, once open
    _read_db: Connections  # the reader's
    _search_db: Connections  # the searcher's

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
        scratch: bool = False,
        keep: bool = True,
    ) -> Store:
        """Open or create the database at `path` (folder 0700, file 0600) and migrate its schema.

        Without `keep` a copy in memory is opened, and the file stays unchanged.

        A database of a newer sakti, a damaged one and one without write permission is opened read-only; with
        `scratch` the last of these is opened as a writable temporary copy. Raises `StoreError` if it cannot be opened.
        """
        clock = clock or SystemClock()
        store = cls(path, clock, ids or TimeIds(clock))
        store.wait, store.on_wait = wait, on_wait
        try:
            await store._loop.run_in_executor(store._writer, store._open, synchronous, scratch, keep)
        except BaseException:
            await store.close()
            raise
        if store._was_interrupted():
            store._damage_check = store._loop.run_in_executor(None, store._check_for_damage)
        return store

    async def write(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` in one IMMEDIATE transaction on the writer's thread; an exception rolls it back.

        If the caller is cancelled while the write waits for another process, `fn` does not run.

        Raises `StoreError` (busy, full, damaged, read_only, io): then nothing was written.
        """
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()
        work = loop.run_in_executor(self._writer, lambda: self._write_unless_cancelled(cancelled, fn, *args, **kwargs))
        try:
            result = await work
        except asyncio.CancelledError:
            cancelled.set()
            raise
        self.written += 1
        if self.written % UPKEEP_EVERY == 0 or self._last_write_s > LARGE_S:  # it runs in the background
            self._schedule_upkeep(max(UPKEEP_S, self._last_write_s / 2))
        elif self._marked:
            self._marked = False
            loop.call_later(MARK_S, self._schedule_upkeep, UPKEEP_S)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = loop.call_later(IDLE_S, self._schedule_upkeep, IDLE_UPKEEP_S, self.written)
        return result

    async def read(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn(db, …)` on the read-only connection, in one transaction.

        All its queries see the same state: everything committed before the first of them.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._reader, lambda: self._with_reader("_read_db", fn, *args, **kwargs)
        )

    async def search(self, fn: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a search `fn(db, …)` like `read`, on a separate connection, so that reads never wait for it.

        If the caller is cancelled, the search stops at once and the next one begins.
        """

        def work(cancelled: threading.Event) -> R:
            return self._with_reader("_search_db", self._searcher.stoppable(cancelled, fn), *args, **kwargs)

        return await self._searcher.run(work)

    async def flush(self) -> bool:
        """Copy the write-ahead log into the file and empty it; False while another process reads it."""
        return await self._loop.run_in_executor(self._writer, self._truncate_log)

    async def close(self) -> None:
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._damage_check is not None:
            await self._damage_check
        for pool, name in (
            (self._searcher.pool, "_search_db"), (self._reader, "_read_db"), (self._writer, "_db"),
        ):  # fmt: skip
            await self._loop.run_in_executor(pool, self._close_connection, name)
            pool.shutdown()
        archive_file.close_archive(self.path)
        if self._file is not None:
            self._file.remove()

    # --- on the threads -----------------------------------------------------------------------------------

    def _open(self, synchronous: Synchronous, scratch: bool, keep: bool) -> None:
        self._waiting.limit = self.wait
        try:
            opening.refuse_unusable(self.path)
            had_log = database_file.has_log(self.path)
            self._file = database = self._choose_file(scratch) if keep else self._copy_to_memory()
            try:
                self._connect(database, synchronous)
            except peewee.PeeweeException as e:
                if not database.writes or not keep or failures.classify_error_at(e, self.path) != "full":
                    raise
                reason = f"The disk is full: no space left for {self.path}. Nothing new is saved."
                self._file = database = self._open_unwritable(reason, scratch)
                self._connect(database, synchronous)
            if keep or self.path.exists():
                opening.refuse_foreign(self._db.connection(), self.path)
            self._check_version()
            if not had_log:
                self._check_log()
            user_state.use_mark_key(self._db)
            self._prepare(database, keep)
        except (OSError, peewee.PeeweeException, apsw.Error) as e:
            raise self._to_opening_error(e) from e
        finally:
            self._waiting.end_wait()

    def _prepare(self, database: DatabaseFile, keep: bool) -> None:
        """Migrate and check an open database, and decide whether it is writable."""
        if database.writes and not self.is_newer:
            self._upgrade(database, keep)
        if not self.is_newer and archive_file.is_missing(self._db):
            self.notices.append(archive_file.MISSING)
        if self._was_interrupted() and self.path.stat().st_size <= CHECKED_FIRST:
            self._check_for_damage()
        if self.read_only_reason:
            self._db.connection().pragma("query_only", 1)
        elif keep and not database.is_temporary:
            self._identity = FileIdentity(self.path)

    def _check_log(self) -> None:
        if database_file.lacks_log(self._db, self.path):
            self.notices.append(database_file.WARNING.format(path=self.path))
            opening.mark_interrupted(self.path)

    def _upgrade(self, database: DatabaseFile, keep: bool) -> None:
        if keep:
            opening.choose_journal(self._db.connection(), wal=opening.is_wal_safe(Path(database.filename)))
        self.notices += migrate.upgrade(self._db, self.path if keep else None, self.clock)
        user_state.store_mark_key(self._db)

    def _connect(self, database: DatabaseFile, synchronous: Synchronous) -> None:
        """Open the writer, and prepare the connections for reading and searching."""
        writes, reads = (opening.make_pragmas(synchronous=synchronous, writes=writes) for writes in (True, False))
        writer = Connections(database, writes, self._waiting)
        self._file, self._db = database, writer
        self._read_db, self._search_db = (
            Connections(database, reads, BusyHandler(self.wait, self._report_wait)) for _ in range(2)
        )
        writer.connect()

    def _choose_file(self, scratch: bool) -> DatabaseFile:
        """Decide how to open the database; if the file is not writable, record the reason."""
        if not self.path.exists():
            if (log := set_log_aside(self.path)) is not None:
                self.notices.append(f"{self.path} is missing; only its log was found, and it was renamed to {log}.")
            try:
                opening.create(self.path, self.clock, wal=opening.is_wal_safe(self.path))
            except opening.NotWritable as e:
                return self._copy(None, f"{e} Until then nothing is saved.", scratch)
        if files.is_writable(self.path):
            files.delete_leftovers(self.path)
            for file, mode in files.make_private(self.path):
                self.notices.append(f"{file} was readable by others (mode {mode:o}); now only you can read it.")
            return DatabaseFile(str(self.path))
        reason = (
            f"{self.path} is not writable: nothing new is saved. Make the file and its folder writable, or "
            f"{opening.ANOTHER}."
        )
        return self._open_unwritable(reason, scratch)

    def _open_unwritable(self, reason: str, scratch: bool) -> DatabaseFile:
        """Return the file for reading, or a temporary copy of it."""
        database = opening.open_read_only(self.path)
        if scratch or opening.read_version(database) < migrate.LATEST:
            return self._copy(database, reason, scratch)
        self.read_only_reason = self.not_saved = reason
        return database

    def _copy_to_memory(self) -> DatabaseFile:
        self.not_saved = UNSAVED
        self._is_unsaved = True
        return copies.copy_file_to_memory(self.path)

    def _copy(self, database: DatabaseFile | None, reason: str, scratch: bool) -> DatabaseFile:
        """Make a temporary copy, for `scratch` or to migrate its schema.

        If there is no room, the original is opened read-only.
        """
        self.not_saved = reason
        if not scratch:
            self.read_only_reason = reason
        try:
            return opening.make_scratch_copy(database, self.clock)
        except (OSError, apsw.Error) as e:
            if database is None:
                raise StoreError(reason, code="read_only") from e
            self.read_only_reason = reason
            return database

    def _check_version(self) -> None:
        version = migrate.read_current_version(self._db)
        self.is_newer = version > migrate.LATEST
        if self.is_newer:
            self.read_only_reason = self.not_saved = (
                f"{self.path} was made by a newer sakti (schema {version}, this one knows {migrate.LATEST}): it is "
                "open read-only. Update sakti to write to it."
            )

    def _to_opening_error(self, error: Exception) -> StoreError:
        if failures.classify_error(error) is not None:
            return failures.to_store_error(error, self.path, saving=False, waited=self._waiting.waited)
        return StoreError(
            f"The database {self.path} cannot be opened: {error}. Run `sakti doctor`, or {opening.ANOTHER}."
        )

    # --- loss of the file -----------------------------------------------------------------------------------

    def _check_file(self) -> None:
        """Continue in memory if the file was lost; called on the writer's thread."""
        if self._identity is not None and (loss := self._identity.find_loss()) is not None:
            identity, self._identity = self._identity, None
            self.not_saved = self._continue_in_memory(loss, identity)
            self._call_on_loop(lambda: self.on_damage and self.on_damage(self.not_saved or ""))

    def _set_log_mark(self) -> bool:
        """Mark the file in the open transaction; return whether the mark is new."""
        identity = self._identity
        return identity is not None and identity.has_log and database_file.mark_log(self._db, identity.inode)

    def _continue_in_memory(self, loss: FileLoss, identity: FileIdentity) -> str:
        """Copy the database into memory and use the copy; return the reason.

        The open connection still reads the old files. They are no longer written, since a later start may open
        another database under their names. If the copy fails or is damaged, the database becomes read-only.
        """
        before = [(self._writer, self._db), (self._reader, self._read_db), (self._searcher.pool, self._search_db)]
        memory: DatabaseFile | None = None
        try:
            if loss.can_checkpoint:
                self._waiting.limit = 0
                self._db.connection().pragma("wal_checkpoint", "TRUNCATE")
            memory = copies.copy_to_memory(self._db.connection())
            if reason := failures.find_damage(memory):
                raise StoreError(reason, code="damaged")
            self._connect(memory, "FULL")
        except (apsw.Error, peewee.PeeweeException, StoreError) as e:
            log.warning("%s cannot be copied into memory: %s", self.path, e)
            if memory is not None:
                memory.remove()
            self._is_lost = True
            self.read_only_reason = f"{loss.words}, and the rest of it cannot be read. {LOST}"
        if not loss.keeps_log:
            identity.set_log_aside()
        for pool, connections in before:
            pool.submit(_leave_file, connections, close=self.read_only_reason is None)
        return self.read_only_reason or f"{loss.words}. {IN_MEMORY}"

    # --- damage -------------------------------------------------------------------------------------------

    def _was_interrupted(self) -> bool:
        """Return whether the last process that used the database was killed or lost power."""
        return not self._is_unsaved and opening.was_interrupted(self.path)

    def _check_for_damage(self) -> str | None:
        """Check the complete file; if it is damaged, return the reason and allow only reads."""
        self._checked_at = time.monotonic()
        opening.mark_checked(self.path)
        if self._file is None or (fault := failures.find_damage(self._file)) is None:
            return None
        reason = f"{self.path} is damaged ({fault}): it is open read-only. {failures.RECOVER}"
        self.read_only_reason = self.not_saved = reason
        self._call_on_loop(lambda: self.on_damage and self.on_damage(reason))
        return reason

    def _find_damage_behind(self, error: Exception) -> Exception:
        """Return the error to raise for a query's unexpected error: damage of the file, if any."""
        if isinstance(error, UnicodeDecodeError):
            return StoreError(
                f"{self.path} is damaged: a text in it cannot be read. {failures.RECOVER}", code="damaged"
            )
        if time.monotonic() - self._checked_at > RECHECK_S and (reason := self._check_for_damage()):
            return StoreError(reason, code="damaged")
        return error

    def _to_raised_error(self, error: Exception, waiting: BusyHandler, *, saving: bool) -> Exception:
        """Return the error to raise for a failed transaction; deliberate errors are unchanged."""
        if isinstance(error, SaktiError):
            return error
        if not isinstance(error, peewee.PeeweeException | apsw.Error):
            return self._find_damage_behind(error)
        if self._is_lost and self.read_only_reason:
            return StoreError(self.read_only_reason, code="damaged")
        to_store_error = failures.to_store_error(error, self.path, saving=saving, waited=waiting.waited)
        return self._find_damage_behind(to_store_error) if to_store_error.code == "store" else to_store_error

    # --- transactions --------------------------------------------------------------------------------------

    def _write_unless_cancelled(
        self, cancelled: threading.Event, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        def work(db: Database, *args: P.args, **kwargs: P.kwargs) -> R:
            if cancelled.is_set():
                raise asyncio.CancelledError
            return fn(db, *args, **kwargs)

        self._waiting.is_cancelled = cancelled.is_set
        return self._in_transaction(work, *args, **kwargs)

    def _in_transaction(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_file()
        if self.read_only_reason:
            raise StoreError(self.read_only_reason, code="read_only")
        timed_out = time.monotonic() - self._timed_out_at < SHORT_WAITS_FOR_S
        self._waiting.limit = min(self.wait, SHORT_WAIT_S) if timed_out else self.wait
        try:
            with self._db.atomic():
                began = time.perf_counter()
                result = fn(self._db, *args, **kwargs)
                self._marked |= self._set_log_mark()
            if self._identity is not None:
                self._identity.note_commit()
            self._last_write_s = time.perf_counter() - began
            return result
        except Exception as e:
            reason = self._to_raised_error(e, self._waiting, saving=True)
            if isinstance(reason, StoreError) and reason.code == "busy":
                self._timed_out_at = time.monotonic()
            if reason is e:
                raise
            raise reason from e
        finally:
            self._waiting.end_wait()

    def _report_wait(self, seconds: float | None) -> None:
        """Call `on_wait` on the event loop, from the writer's thread."""
        self._call_on_loop(lambda: self.on_wait and self.on_wait(seconds))

    def _call_on_loop(self, fn: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(fn)

    def _schedule_upkeep(self, seconds: float, idle_since: int | None = None) -> None:
        """Let the writer do `seconds` of upkeep in short pieces; called on the event loop.

        Other writes, here and in other processes, run between the pieces. `idle_since`: the value of `written` when
        writing paused; the next write ends the upkeep.
        """
        if self._closed or (idle_since is not None and idle_since != self.written):
            return
        idle = idle_since is not None
        work = self._loop.run_in_executor(self._writer, self._upkeep, min(seconds, UPKEEP_PIECE_S), idle)

        def continue_upkeep(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and done.exception() is None and done.result() and seconds > UPKEEP_PIECE_S:
                self._loop.call_later(UPKEEP_PIECE_S, self._schedule_upkeep, seconds - UPKEEP_PIECE_S, idle_since)

        work.add_done_callback(continue_upkeep)

    def _truncate_log(self) -> bool:
        self._check_file()
        self._waiting.limit = FLUSH_S
        try:
            busy, *_ = self._db.connection().pragma("wal_checkpoint", "TRUNCATE")
            return not busy
        except (peewee.PeeweeException, apsw.Error) as e:
            raise failures.to_store_error(e, self.path, saving=False) from e
        finally:
            self._waiting.end_wait()

    def _upkeep(self, seconds: float, idle: bool) -> bool:
        """Do maintenance that would otherwise make some later write fifty times as slow.

        For about `seconds`, merge the newest segments of the indexes (all of them if `idle`), then checkpoint the
        write-ahead log. Return whether more remains.
        """
        self._check_file()
        end = time.perf_counter() + seconds
        self._waiting.limit = 0  # upkeep never waits for other writers
        try:
            more = True
            while more and time.perf_counter() < end:
                with self._db.atomic():
                    unfinished = [self._merge_some(table, idle) for table in search_index.TABLES]
                more = any(unfinished)
            self._db.connection().pragma("wal_checkpoint", "PASSIVE")
            if idle and not more and self._identity is not None:
                database_file.clear_log_mark(self._db, self._identity.inode)
                self._identity.note_checkpoint()
        except (peewee.PeeweeException, apsw.Error) as e:
            log.info("upkeep of %s postponed: %s", self.path, e)
            return False
        return more

    def _merge_some(self, table: str, idle: bool) -> bool:
        if index_upkeep.merge_some(self._db, table):
            return True
        is_due = idle and index_upkeep.is_scattered(self._db, table)
        return is_due and index_upkeep.merge_some(self._db, table, whole=True)

    def _with_reader(
        self, name: str, fn: Callable[Concatenate[Connections, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if self._identity is not None and self._identity.find_loss() is not None:
            self._writer.submit(self._check_file).result()
        db: Connections = getattr(self, name)
        try:
            if db.is_closed():
                db.connect()
            with Snapshot(db.connection()):
                return fn(db, *args, **kwargs)
        except Exception as e:
            reason = self._to_raised_error(e, db.waiting, saving=False)
            if reason is e:
                raise
            raise reason from e
        finally:
            db.waiting.end_wait()

    def _close_connection(self, name: str) -> None:
        database: Connections | None = getattr(self, name, None)
        if database is None or database.is_closed():
            return
        if name == "_db" and self._identity is not None and self._identity.find_loss() is None:
            self._waiting.limit = 0
            with contextlib.suppress(peewee.PeeweeException, apsw.Error):
                database_file.clear_log_mark(database, self._identity.inode)
        database.close()
