"""List the changes of a record's log over time: activated observations and reflections.

Raw SQL: the slider of a pane queries it.
"""

from __future__ import annotations

from msgspec import Struct

from sakti.store.connection import Database


class LogChange(Struct, frozen=True):
    """Change of the log.

    `time` (Unix ms) is when it took effect; `kind` is "observation" or "reflection" (both at once count as the
    latter); `generation` is that of the reflection, 0 where there is none.
    """

    time: int
    kind: str
    generation: int = 0


def moments(db: Database, record_id: str) -> list[LogChange]:
    """Return the changes, oldest first, each time once; those discarded later are included."""
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
