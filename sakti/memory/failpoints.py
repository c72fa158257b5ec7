"""Name the points at which a process may die in the middle of memory's work: the commit boundaries.

Whoever drives an engine may inject a hook that is called at each of them (benchmarks and tests let it end the
engine there). Without one nothing happens.

`begin`: the work is announced and what it reads is sealed. `asked`: the model has answered, nothing of it is stored.
`written`: inside the transaction, which has not committed. `committed`: stored, the window in memory is not updated
yet. `observed`: what a compaction observed is in the log, the compaction is not recorded yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Hook: TypeAlias = Callable[[str], None]

NAMES: tuple[str, ...] = (
    "buffer.begin",
    "buffer.asked",
    "buffer.written",
    "buffer.committed",
    "observe.begin",
    "observe.asked",
    "observe.written",
    "observe.committed",
    "activate.written",
    "activate.committed",
    "reflect.begin",
    "reflect.asked",
    "reflect.written",
    "reflect.committed",
    "compact.observed",
    "compact.written",
    "compact.committed",
    "uncompact.written",
    "uncompact.committed",
    "unreflect.written",
    "unreflect.committed",
    "edit.written",
    "edit.committed",
)


def nothing(name: str) -> None:
    """Do nothing: the default hook."""
