"""How long to wait before a failed model call is tried again. Pure: whoever waits shows the countdown."""

from __future__ import annotations

from collections.abc import Callable

from sakti.core.errors import ProviderError

MAX_ATTEMPTS = 8
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
LONGEST_RETRY_AFTER = 600.0


def delay(attempt: int, retry_after: float | None, random: Callable[[], float]) -> float:
    """Seconds to wait after failed attempt number `attempt` (1 is the first call).

    Doubles from 1 s up to 30 s; `random()` in [0, 1) takes away up to half of it, so that many clients do not
    come back together. What the provider asked for is never undercut, and only extended by a little.
    """
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (max(1, attempt) - 1))
    if retry_after is not None and retry_after >= 0:
        return min(retry_after, LONGEST_RETRY_AFTER) + 0.25 * random()
    return ceiling * (1 - 0.5 * random())


def should_retry(error: ProviderError, attempt: int) -> bool:
    """Whether the call that failed with `error` as attempt number `attempt` is to be made again."""
    return error.retryable and attempt < MAX_ATTEMPTS
