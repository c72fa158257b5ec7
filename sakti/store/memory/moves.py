"""The moves of memory, and what one of them did. `advance` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sakti.core.types import Thread
from sakti.store.memory.group_rows import Group, Held, NewLine


@dataclass(frozen=True, slots=True)
class Add:
    """A finished observation or reflection, made under a lease. It is buffered, or, with `activate`, an observation in
    the log at once. `corrections`: how often the log had been corrected when a reflection read it."""

    group: Group
    lines: Sequence[NewLine]
    held: Held
    activate: bool = False
    corrections: int = 0


@dataclass(frozen=True, slots=True)
class Activate:
    """Buffered groups of one thread, oldest first, enter the log; with `reflection` what waits to condense it does,
    too. A reflection that the log has outrun is discarded instead."""

    group_ids: tuple[str, ...] = ()
    reflection: bool = False


@dataclass(frozen=True, slots=True)
class UndoCompaction:
    """Take back a thread's last compaction; then nothing is observed by itself for `interval` tokens."""

    compaction_id: str
    interval: int


@dataclass(frozen=True, slots=True)
class UndoReflection:
    """Take back a reflection, the newest where `generation` is None; then nothing is condensed by itself for `interval`
    tokens of the log."""

    interval: int
    generation: int | None = None


Move: TypeAlias = Add | Activate | UndoCompaction | UndoReflection


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a move did: the groups that are in the log or buffered now, the reflection that is, those that were
    taken out (superseded, discarded or back to buffered), what `lines` of them people had changed, and the thread where
    its title changed."""

    groups: tuple[Group, ...] = ()
    reflection: Group | None = None
    removed: tuple[Group, ...] = ()
    corrected_lines: int = 0
    retitled: Thread | None = None
