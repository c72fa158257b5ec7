"""Define the moves of memory and their result; `advance` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sakti.core.types import Thread
from sakti.store.memory.group_rows import Group, Held, NewLine


@dataclass(frozen=True, slots=True)
class Add:
    """Store a finished observation or reflection, made under a lease.

    It is buffered; with `activate` an observation goes into the log at once. `corrections`: how often the log had
    been corrected when a reflection read it. `ends`: it is the last result of its lease, which is released with it.
    """

    group: Group
    lines: Sequence[NewLine]
    held: Held
    activate: bool = False
    corrections: int = 0
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Activate:
    """Activate buffered groups of one thread, oldest first; with `reflection`, the buffered one too.

    A reflection of a log that has changed since is discarded instead. `revision`: the record's, if the groups were
    chosen by everything that was buffered then and may be activated only as long as that holds.
    """

    group_ids: tuple[str, ...] = ()
    reflection: bool = False
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class UndoCompaction:
    """Undo a thread's last compaction; nothing is observed automatically for the next `interval` tokens."""

    compaction_id: str
    interval: int


@dataclass(frozen=True, slots=True)
class UndoReflection:
    """Undo a reflection, the newest where `generation` is None.

    Nothing is condensed automatically for the next `interval` tokens of the log.
    """

    interval: int
    generation: int | None = None


Move: TypeAlias = Add | Activate | UndoCompaction | UndoReflection


@dataclass(frozen=True, slots=True)
class Advanced:
    """Result of a move.

    The groups that it activated or buffered, the activated reflection, the groups that left the log (superseded,
    discarded or back to buffered), how many corrected lines these had, and the thread if it got a new title.
    """

    groups: tuple[Group, ...] = ()
    reflection: Group | None = None
    removed: tuple[Group, ...] = ()
    corrected_lines: int = 0
    retitled: Thread | None = None
