"""List a memory's events, newest first: observed, activated, reflected, compacted, undone.

`list_changes` lists the times at which the log changed. Both read memory's rows.

Raw SQL: a pane queries them at every step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sakti.store.connection import Database

Kind: TypeAlias = Literal[
    "observed", "activated", "reflected", "taken_over", "taken_back", "compacted", "undone", "failed", "stopped"
]
AT_ONCE = 1_000  # ms: a group activated this soon was observed in the foreground, and is a single event


class MemoryEvent(Struct, frozen=True):
    """Event of a memory; `time` in Unix ms, tokens of input and output.

    `group_ids`: the groups with the details. `text`: a compaction's focus, the reason of a failure, or the child
    thread whose report was added.
    """

    time: int
    kind: Kind
    messages: int = 0
    lines: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    generation: int = 0
    group_ids: tuple[str, ...] = ()
    text: str = ""


def list_events(db: Database, record_id: str, thread_id: str, limit: int = 200) -> list[MemoryEvent]:
    """Return the newest events of a record and compactions of a thread, newest first."""
    # SQL: reads JSON inside a column
    groups = db.execute_sql(
        "SELECT id, kind, json_array_length(message_ids), message_tokens, observation_tokens, generation, created_at,"
        " activated_at, discarded_at, coalesce(json_extract(metadata, '$.input_tokens'), 0),"
        " (SELECT count(*) FROM observations WHERE group_id = g.id),"
        " (SELECT coalesce(nullif(r.agent, ''), r.mode) FROM child_runs r"
        " WHERE g.origin = 'report' AND r.child_id = json_extract(g.metadata, '$.child'))"
        " FROM observation_groups g WHERE record_id = ? ORDER BY pk DESC LIMIT ?",
        (record_id, limit),
    ).fetchall()
    # SQL: a pane runs it after each step; building a query takes 80-300 µs
    compactions = db.execute_sql(
        "SELECT message_count, tokens_before, tokens_after, created_at, undone_at, focus, group_ids"
        " FROM compaction_records WHERE thread_id = ? ORDER BY pk DESC LIMIT ?",
        (thread_id, limit),
    ).fetchall()
    all_events = [*_group_events(groups), *_iter_activation_events(groups), *_iter_compaction_events(compactions)]
    return sorted(all_events, key=lambda e: e.time, reverse=True)[:limit]


def _group_events(rows: list[Any]) -> Iterator[MemoryEvent]:
    for (
        group_id,
        kind,
        messages,
        before,
        after,
        generation,
        created,
        activated,
        discarded,
        source,
        lines,
        child,
    ) in rows:
        ids = (group_id,)
        if kind == "observation":
            yield MemoryEvent(created, "observed", messages, lines, before, after, group_ids=ids, text=child or "")
            continue
        yield MemoryEvent(created, "reflected", 0, lines, source, after, generation, ids)
        if activated is not None:
            yield MemoryEvent(activated, "taken_over", 0, lines, source, after, generation, ids)
            if discarded is not None:
                yield MemoryEvent(discarded, "taken_back", 0, lines, source, after, generation, ids)


def _iter_activation_events(rows: list[Any]) -> Iterator[MemoryEvent]:
    """Yield one event per set of groups activated together."""
    ready = [r for r in rows if r[1] == "observation" and r[7] is not None and r[7] - r[6] >= AT_ONCE]
    for time, together in groupby(sorted(ready, key=lambda r: r[7]), key=lambda r: r[7]):
        yield _make_activation_event(time, list(together))


def _make_activation_event(time: int, rows: list[Any]) -> MemoryEvent:
    """Return the event of groups activated at the same time."""
    ids = tuple(row[0] for row in reversed(rows))
    messages, before, after, lines = (sum(row[n] for row in rows) for n in (2, 3, 4, 10))
    child = "" if messages else str(rows[0][11] or "")
    return MemoryEvent(time, "activated", messages, lines, before, after, group_ids=ids, text=child)


def _iter_compaction_events(rows: list[Any]) -> Iterator[MemoryEvent]:
    for messages, before, after, created, undone, focus, groups in rows:
        ids = tuple(json.loads(groups))
        yield MemoryEvent(created, "compacted", messages, 0, before, after, group_ids=ids, text=focus)
        if undone is not None:
            yield MemoryEvent(undone, "undone", messages, 0, after, before, group_ids=ids, text=focus)


class LogChange(Struct, frozen=True):
    """Change of the log.

    `time` (Unix ms) is when it took effect; `kind` is "observation" or "reflection" (both at once count as the
    latter); `generation` is that of the reflection, 0 without one.
    """

    time: int
    kind: str
    generation: int = 0


def list_changes(db: Database, record_id: str) -> list[LogChange]:
    """Return the changes, oldest first, one per time; groups discarded later are included."""
    # SQL: a pane runs it after each step; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT activated_at, max(kind = 'reflection'), max(CASE kind WHEN 'reflection' THEN generation ELSE 0 END)"
        " FROM observation_groups WHERE record_id = ? AND activated_at IS NOT NULL GROUP BY activated_at"
        " ORDER BY activated_at",
        (record_id,),
    ).fetchall()
    return [
        LogChange(time, "reflection" if reflected else "observation", generation)
        for time, reflected, generation in rows
    ]
