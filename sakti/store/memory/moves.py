"""Define the moves of memory and their result; `advance` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from sakti.core.types import Thread
from sakti.store.memory.group_rows import Group, Held, NewLine


class Add(Struct, frozen=True):
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


class Activate(Struct, frozen=True):
    """Activate buffered groups of one thread, oldest first; with `reflection`, the buffered one too.

    A reflection of a log that has changed since is discarded instead. `revision`: the record's, if the groups were
    chosen by everything that was buffered then and may be activated only as long as that holds.
    """

    group_ids: tuple[str, ...] = ()
    reflection: bool = False
    revision: int | None = None


class UndoCompaction(Struct, frozen=True):
    """Undo a thread's last compaction; nothing is observed automatically for the next `interval` tokens."""

    compaction_id: str
    interval: int


class UndoReflection(Struct, frozen=True):
    """Undo a reflection, the newest where `generation` is None.

    Nothing is condensed automatically for the next `interval` tokens of the log.
    """

    interval: int
    generation: int | None = None


Move: TypeAlias = Add | Activate | UndoCompaction | UndoReflection


class Advanced(Struct, frozen=True):
    """Result of a move.

    The groups that it activated or buffered, the activated reflection, the groups that left the log (superseded,
    discarded or back to buffered), how many corrected lines these had, and the thread if it got a new title.
    """

    groups: tuple[Group, ...] = ()
    reflection: Group | None = None
    removed: tuple[Group, ...] = ()
    corrected_lines: int = 0
    retitled: Thread | None = None
