"""Define the open database, peewee's or one that only executes SQL, and the wait for its writers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import apsw
    from peewee import Database
else:
    Database = object  # a name for annotations: a program that only asks does without peewee (see `reading`)

__all__ = ["Connection", "Database", "Snapshot", "wrap_connection"]


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


def wrap_connection(connection: apsw.Connection) -> Database:
    """Wrap an apsw connection for functions that use plain SQL, without loading peewee."""
    return cast("Database", _Plain(connection))


TOLD_AFTER = 0.5  # seconds: who waits less than that notices nothing
TOLD_EVERY = 1.0
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)  # as SQLite's own


class BusyHandler:
    """Busy handler of a connection: retries, ever less often, for `limit` seconds at most.

    `tell` is called with the seconds waited, about once a second, and with None when the wait is over. `given_up`
    ends a wait early. `waited` is how long the last wait was, in seconds.
    """

    def __init__(
        self,
        limit: float,
        tell: Callable[[float | None], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limit = limit
        self.waited = 0.0
        self.given_up: Callable[[], bool] = lambda: False
        self._tell, self._clock, self._sleep = tell, clock, sleep
        self._began = 0.0
        self._told: float | None = None

    def __call__(self, attempts: int) -> bool:
        """Return whether SQLite should retry, after `attempts` failed ones."""
        now = self._clock()
        if attempts == 0:
            self._began = now
        self.waited = now - self._began
        if self.waited >= self.limit or self.given_up():
            return False
        if self.waited >= TOLD_AFTER and (self._told is None or now - self._told >= TOLD_EVERY):
            self._told = now
            self._tell(self.waited)
        self._sleep(_PAUSES[min(attempts, len(_PAUSES) - 1)])
        return True

    def over(self) -> None:
        """Report the end of a wait, successful or not."""
        self.waited = 0.0
        if self._told is not None:
            self._told = None
            self._tell(None)
