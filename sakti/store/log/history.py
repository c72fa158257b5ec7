"""When the log of a record changed by itself: observations that entered it, reflections that condensed it.

Raw SQL: the slider of a pane asks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sakti.store.connection import Database


@dataclass(frozen=True, slots=True)
class Moment:
    """`time` (Unix ms) is when the log began to be so; `kind` what happened then: "observation" or "reflection" (both
    at once count as the latter); `generation` is that of the reflection, 0 where there is none."""

    time: int
    kind: str
    generation: int = 0


def moments(db: Database, record_id: str) -> list[Moment]:
    """Oldest first, each time once. What was thrown away later is among them: the log was so then."""
    rows = db.execute_sql(
        "SELECT activated_at, max(kind = 'reflection'), max(CASE kind WHEN 'reflection' THEN generation ELSE 0 END)"
        " FROM observation_groups WHERE record_id = ? AND activated_at IS NOT NULL GROUP BY activated_at"
        " ORDER BY activated_at",
        (record_id,),
    ).fetchall()
    return [
        Moment(time, "reflection" if reflected else "observation", generation) for time, reflected, generation in rows
    ]
