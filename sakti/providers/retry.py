"""Decide whether and when to retry a failed model call. Pure: the caller waits and shows it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from sakti.core.errors import ProviderError

MAX_ATTEMPTS = 8
# Failures that are seldom mended by waiting: attempts in all.
FEWER_ATTEMPTS = {"unknown_host": 3, "unreachable": 4, "empty": 2, "unreadable": 2, "line_too_long": 2}
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
LONGEST_RETRY_AFTER = 600.0
LONGEST_WAIT = 900.0  # seconds of waiting that one turn, or one question of memory, has in all


def delay(attempt: int, retry_after: float | None, random: Callable[[], float]) -> float:
    """Return the seconds to wait after failed attempt number `attempt` (1 is the first call).

    Doubles from 1 s up to 30 s; `random()` in [0, 1) subtracts up to half of it, so that many clients do not come
    back together. The provider's Retry-After is never undercut, and only extended by a little.
    """
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (max(1, attempt) - 1))
    if retry_after is not None and retry_after >= 0:
        return retry_after + 0.25 * random()
    return ceiling * (1 - 0.5 * random())


def attempts(error: ProviderError) -> int:
    """Return the most attempts of a call that fails with `error`."""
    return FEWER_ATTEMPTS.get(error.code, MAX_ATTEMPTS)


class Retries(Struct):
    """Failures of one call; `left` are the seconds that may still be waited, over all calls that share it."""

    random: Callable[[], float]
    left: float = LONGEST_WAIT
    attempt: int = 0

    def wait(self, error: ProviderError, at_most: float | None = None) -> float | None:
        """Return the seconds until the retry; None if there is no retry.

        `error` is final, it was tried often enough, or the wait is longer than the provider may ask for, than
        `at_most` or than what is left.
        """
        self.attempt += 1
        if not error.retryable or self.attempt >= attempts(error):
            return None
        seconds = delay(self.attempt, error.retry_after, self.random)
        if (error.retry_after or 0.0) > LONGEST_RETRY_AFTER or seconds > min(
            self.left, self.left if at_most is None else at_most
        ):
            return None
        self.left -= seconds
        return seconds
