"""Store observational memory: records, groups, and `advance`, which alone changes their states.

The panes' queries are in `sakti.store.log`.
"""

from sakti.store.memory.advance import advance, may_condense
from sakti.store.memory.group_rows import (
    Group,
    GroupState,
    Held,
    NewLine,
    as_line,
    current,
    cursor,
    groups,
    groups_by_id,
    mode_data,
    pinned_lines,
    verified_findings,
)
from sakti.store.memory.moves import Activate, Add, Advanced, Move, UndoCompaction, UndoReflection, discard_stale
from sakti.store.memory.records import (
    HOLD_REFLECTION,
    PAUSED,
    Record,
    RecordOwner,
    count_corrections,
    get_or_create,
    get_record,
    revision,
    set_buffered_at,
    set_record_metadata,
    set_timezone,
)

__all__ = [
    "HOLD_REFLECTION",
    "PAUSED",
    "Activate",
    "Add",
    "Advanced",
    "Group",
    "GroupState",
    "Held",
    "Move",
    "NewLine",
    "Record",
    "RecordOwner",
    "UndoCompaction",
    "UndoReflection",
    "advance",
    "as_line",
    "count_corrections",
    "current",
    "cursor",
    "discard_stale",
    "get_or_create",
    "get_record",
    "groups",
    "groups_by_id",
    "may_condense",
    "mode_data",
    "pinned_lines",
    "revision",
    "set_buffered_at",
    "set_record_metadata",
    "set_timezone",
    "verified_findings",
]
