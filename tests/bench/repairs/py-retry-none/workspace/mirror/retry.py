"""Asking again."""

import time

from mirror.errors import UpstreamError


def retry(function, *, attempts=3, pause=0.5, sleep=time.sleep, log=print):
    """What `function()` returns, asked at most `attempts` times, with a pause in between that doubles."""
    delay = pause
    for attempt in range(1, attempts):
        try:
            return function()
        except UpstreamError as e:
            log(f"attempt {attempt} failed: {e}")
            sleep(delay)
            delay *= 2
