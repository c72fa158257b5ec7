"""Define the open database, peewee's or one that only executes SQL, and the wait for other writers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import apsw
    from peewee import Database
else:
    Database = object  # for annotations only: short commands run without peewee (`opening.read_once`)

__all__ = ["Connection", "Database", "Snapshot", "wrap_connection"]


class Connection(Protocol):
    """Open database for functions that use plain SQL only.

    It is peewee's `Database`, on which queries run as `query.execute(db)`, or the bare connection of a short command.
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
    """Read transaction around several queries: none of them sees a later commit of another process.

    It is a class because a generator would cost a tenth of a small read.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:  # some errors end the transaction
            self._connection.execute("ROLLBACK")


def wrap_connection(connection: apsw.Connection) -> Database:
    """Wrap an apsw connection for functions that use plain SQL, without loading peewee."""
    return cast("Database", _Plain(connection))


REPORT_AFTER_S = 0.5  # a shorter wait goes unnoticed
REPORT_EVERY_S = 1.0
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)  # the same as SQLite's own


class BusyHandler:
    """Busy handler of a connection: retries for at most `limit` seconds, with growing pauses.

    `report` is called with the seconds waited, about once a second, and with None when the wait is over. `is_cancelled`
    ends a wait early. `waited` is the length of the last wait in seconds.
    """

    def __init__(
        self,
        limit: float,
        report: Callable[[float | None], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limit = limit
        self.waited = 0.0
        self.is_cancelled: Callable[[], bool] = lambda: False
        self._report, self._clock, self._sleep = report, clock, sleep
        self._began = 0.0
        self._reported: float | None = None  # time of the last report

    def __call__(self, attempts: int) -> bool:
        """Return whether SQLite should retry, after `attempts` failed ones."""
        now = self._clock()
        if attempts == 0:
            self._began = now
        self.waited = now - self._began
        if self.waited >= self.limit or self.is_cancelled():
            return False
        if self.waited >= REPORT_AFTER_S and (self._reported is None or now - self._reported >= REPORT_EVERY_S):
            self._reported = now
            self._report(self.waited)
        self._sleep(_PAUSES[min(attempts, len(_PAUSES) - 1)])
        return True

    def end_wait(self) -> None:
        """Report the end of a wait, successful or not."""
        self.waited = 0.0
        if self._reported is not None:
            self._reported = None
            self._report(None)
