"""Run coroutines. A file of its own, imported lazily: asyncio costs more than a question to the task board."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of its own and return its result; raises what it raises."""
    return asyncio.run(work)
