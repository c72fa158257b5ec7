"""Run coroutines. Imported lazily: importing asyncio takes longer than querying the task board."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop and return its result; its errors propagate."""
    return asyncio.run(work)
