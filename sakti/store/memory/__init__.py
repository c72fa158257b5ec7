"""Store observational memory: records and groups; only `advance` changes the states of groups.

The panes' queries are in `sakti.store.log`.
"""

from sakti.store.memory.advance import advance, require_condensable
from sakti.store.memory.group_rows import (
    Group,
    GroupState,
    NewLine,
    ResultLease,
    find_cursor,
    format_line,
    get_groups,
    list_current_groups,
    list_groups,
    list_pinned_lines,
    list_verified_findings,
    load_mode_data,
)
from sakti.store.memory.moves import Activate, Add, Move, MoveResult, UndoCompaction, UndoReflection, discard_stale
from sakti.store.memory.records import (
    HOLD_REFLECTION,
    PAUSED,
    Record,
    RecordOwner,
    count_corrections,
    get_or_create,
    get_record,
    read_revision,
    set_buffered_at,
    set_record_metadata,
    set_timezone,
)

__all__ = [
    "HOLD_REFLECTION",
    "PAUSED",
    "Activate",
    "Add",
    "Group",
    "GroupState",
    "Move",
    "MoveResult",
    "NewLine",
    "Record",
    "RecordOwner",
    "ResultLease",
    "UndoCompaction",
    "UndoReflection",
    "advance",
    "count_corrections",
    "discard_stale",
    "find_cursor",
    "format_line",
    "get_groups",
    "get_or_create",
    "get_record",
    "list_current_groups",
    "list_groups",
    "list_pinned_lines",
    "list_verified_findings",
    "load_mode_data",
    "read_revision",
    "require_condensable",
    "set_buffered_at",
    "set_record_metadata",
    "set_timezone",
]
