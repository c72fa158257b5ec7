"""Run searches one at a time on a separate thread and connection; cancelled ones stop at once.

Raw SQL: executes statements built elsewhere.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sakti.core.errors import SaktiError
from sakti.store.connection import Connection

if TYPE_CHECKING:
    import apsw

P = ParamSpec("P")
R = TypeVar("R")

STEPS = 10_000  # steps of SQLite's virtual machine, less than a millisecond


class Stopped(SaktiError):
    """Raised in a search whose caller was cancelled; never shown."""


class _UntilCancelled:
    """Connection that executes nothing once the caller is cancelled."""

    def __init__(self, db: Connection, cancelled: threading.Event) -> None:
        self._db, self._cancelled = db, cancelled

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        if self._cancelled.is_set():
            raise Stopped("The search was stopped.")
        # SQL: executes a statement built elsewhere
        return self._db.execute_sql(sql, params)

    def connection(self) -> Any:
        return self._db.connection()


class Searcher:
    """Thread for searches."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="sakti-searcher")
        self._lock = threading.Lock()  # an interrupt affects the current search, and no later one
        self._running: tuple[threading.Event, apsw.Connection] | None = None

    async def run(self, work: Callable[[threading.Event], R]) -> R:
        """Run `work(cancelled)` on the thread; cancelling the caller sets the event and ends the statement."""
        cancelled = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, work, cancelled)
        except asyncio.CancelledError:
            with self._lock:
                cancelled.set()
                if self._running is not None and self._running[0] is cancelled:
                    self._running[1].interrupt()
            raise

    def stoppable(
        self, cancelled: threading.Event, fn: Callable[Concatenate[Connection, P], R]
    ) -> Callable[Concatenate[Connection, P], R]:
        """Wrap `fn` to raise `Stopped` when the caller is cancelled, also in the middle of a statement."""

        def run(db: Connection, *args: P.args, **kwargs: P.kwargs) -> R:
            connection = db.connection()
            # for a statement that begins just after an interrupt, and so misses it
            connection.set_progress_handler(cancelled.is_set, STEPS)
            with self._lock:
                self._running = cancelled, connection
            try:
                return fn(_UntilCancelled(db, cancelled), *args, **kwargs)
            except Exception as e:
                if cancelled.is_set():
                    raise Stopped("The search was stopped.") from e
                raise
            finally:
                with self._lock:
                    self._running = None

        return run
