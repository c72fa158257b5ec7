"""Wait for another process that writes to the database, visibly and for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable

TOLD_AFTER = 0.5  # seconds: who waits less than that notices nothing
TOLD_EVERY = 1.0
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)  # as SQLite's own


class Waiting:
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
