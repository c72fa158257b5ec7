"""Check that memory's groups are in consistent states, and repair them.

Each index of a thread up to the cursor is in exactly one group that is in the log, or that a reflection in the log
was made from; no group follows a gap; a superseded group is merged by a reflection that is not discarded. States
are derived from the ranges of the groups; raw text is always complete, so messages that no group covers are observed
again.

Raw SQL: recovery uses it, too, where peewee is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.store.connection import Database
from sakti.store.memory import group_rows as rows
from sakti.store.memory.group_rows import GroupState
from sakti.store.memory.moves import has_messages_between, update_figures

OBSERVED_TO = "observed_to"  # key in a record's metadata: cursors of an earlier version, until the record is opened

# Selects whether observable messages lie strictly between two indexes of a thread: (thread, after, before).
Between = Callable[[str, int, int], bool]


class GroupSpan(Struct, frozen=True):
    """Fields of a group that determine its state; indexes are -1 if it lacks its own range."""

    id: str
    thread_id: str
    kind: str
    state: GroupState
    first: int = -1
    last: int = -1
    merged: tuple[str, ...] = ()


class _StateRules(Struct):
    """Computes the correct states of a record's groups, first by reflection, then by thread."""

    spans: Sequence[GroupSpan]
    between: Between
    observed_to: Mapping[str, int]
    dissolved: set[str] = field(default_factory=set[str])  # reflections that must be dissolved
    states: dict[str, GroupState] = field(default_factory=dict[str, GroupState])

    def settle(self) -> dict[str, GroupState]:
        while True:
            before = len(self.dissolved)
            self.states = {s.id: s.state for s in self.spans}
            claimed = self._settle_reflections()
            for thread in dict.fromkeys(s.thread_id for s in self.spans if s.first >= 0):
                self._settle_thread(thread, claimed)
            if len(self.dissolved) == before:
                return {s.id: self.states[s.id] for s in self.spans if self.states[s.id] != s.state}

    def _settle_reflections(self) -> dict[str, str]:
        """Map group ids to the reflection in the log that covers them; newer reflections come first."""
        claimed: dict[str, str] = {}
        reflections = [s for s in self.spans if s.kind == "reflection"]
        for span in reversed(reflections):
            if span.id in self.dissolved:
                self.states[span.id] = "discarded"
            if not self._may_cover(span, claimed):
                continue
            if not claimed.keys().isdisjoint(span.merged):
                self.states[span.id] = "discarded"
                continue
            self.states[span.id] = "superseded" if span.id in claimed else "active"
            claimed |= dict.fromkeys(span.merged, span.id)
            self.states |= dict.fromkeys(self.states.keys() & set(span.merged), "superseded")
        return claimed

    def _may_cover(self, span: GroupSpan, claimed: dict[str, str]) -> bool:
        """Return whether a reflection is in the log, or was until a later reflection was dissolved."""
        if span.id in claimed or (span.state == "active" and span.id not in self.dissolved):
            return True
        return self.states[span.id] == "superseded"

    def _settle_thread(self, thread: str, claimed: dict[str, str]) -> None:
        """Walk along a thread: keep each group directly after the last one, fill gaps from unused groups."""
        observations = [s for s in self.spans if s.thread_id == thread and s.kind == "observation" and s.first >= 0]
        log = [s for s in observations if s.id in claimed or s.state in ("active", "superseded")]
        end = -1
        for span in sorted(log, key=lambda s: (s.first, s.id not in claimed)):
            if span.first <= end:
                if span.id not in claimed:
                    self.states[span.id] = "discarded"  # its messages are already covered
                continue
            end = self._fill(observations, thread, end, span.first)
            if self.between(thread, end, span.first):
                self._buffer_from(log, span, claimed)
                break
            self.states[span.id] = "superseded" if span.id in claimed else "active"
            end = span.last
        else:
            end = self._fill_to(observations, thread, end)
        self._discard_overlaps(observations, end)

    def _fill_to(self, groups: Sequence[GroupSpan], thread: str, end: int) -> int:
        """Use unused groups up to the last observed message; return the new end."""
        observed_to = self.observed_to.get(thread, -1)
        return self._fill(groups, thread, end, observed_to + 1) if observed_to > end else end

    def _fill(self, groups: Sequence[GroupSpan], thread: str, end: int, before: int) -> int:
        """Use unused groups that fit the gap between `end` and `before`; return the new end."""
        spare = [s for s in groups if s.state in ("buffered", "discarded") and end < s.first and s.last < before]
        for span in sorted(spare, key=lambda s: (s.first, s.state)):
            if not self.between(thread, end, before):
                break
            if span.first > end and not self.between(thread, end, span.first):
                self.states[span.id], end = "active", span.last
        return end

    def _buffer_from(self, log: Sequence[GroupSpan], first: GroupSpan, claimed: dict[str, str]) -> None:
        """Buffer the log from `first` on, since no group covers the earlier messages.

        It waits until those are observed.
        """
        for span in log:
            if span.first < first.first:
                continue
            if span.id in claimed:
                self.dissolved.add(claimed[span.id])
            self.states[span.id] = "buffered"

    def _discard_overlaps(self, groups: Sequence[GroupSpan], end: int) -> None:
        """Discard buffered groups that are not after the cursor or overlap another."""
        for span in sorted((s for s in groups if self.states[s.id] == "buffered"), key=lambda s: s.first):
            if span.first <= end:
                self.states[span.id] = "discarded"
            else:
                end = span.last


def compute_states(
    spans: Sequence[GroupSpan], between: Between, observed_to: Mapping[str, int] | None = None
) -> dict[str, GroupState]:
    """Compute the states that groups of one record should have and do not.

    `spans` are in the order of creation. `observed_to`: the last observed indexes that an earlier version stored, by
    thread. Pure except for `between`.
    """
    return _StateRules(spans, between, observed_to or {}).settle()


def find_wrong_states(db: Database, record_id: str) -> dict[str, GroupState]:
    """Map a record's groups in a wrong state to the right one."""
    # SQL: looks at groups in states that should not be
    rows = db.execute_sql(
        "SELECT id, thread_id, kind, state, first_index, last_index, merged_group_ids FROM observation_groups"
        " WHERE record_id = ? ORDER BY pk",
        (record_id,),
    ).fetchall()
    spans = [
        GroupSpan(i, t, kind, state, -1 if a is None else a, -1 if b is None else b, tuple(json.loads(m)))
        for i, t, kind, state, a, b, m in rows
    ]
    # SQL: reads JSON inside a column
    (observed_to,) = db.execute_sql(
        f"SELECT coalesce(json_extract(metadata, '$.{OBSERVED_TO}'), '{{}}') FROM observational_memory WHERE id = ?",
        (record_id,),
    ).fetchone() or ("{}",)
    return compute_states(
        spans, lambda thread, after, before: has_messages_between(db, thread, after, before), json.loads(observed_to)
    )


def check(db: Database) -> dict[str, str]:
    """Map each record with groups in a wrong state to a sentence that says which."""
    # SQL: also runs on a bare connection, which no query of peewee does
    rows = db.execute_sql("SELECT id, lookup_key FROM observational_memory").fetchall()
    wrong_by_record = {i: (key, find_wrong_states(db, i)) for i, key in rows}
    return {i: f"{key}: {_describe(wrong.values(), _SHOULD)}" for i, (key, wrong) in wrong_by_record.items() if wrong}


def repair_states(db: Database, record_id: str, now: int) -> str:
    """Correct the states of a record's groups; return a description, empty if all were right."""
    wrong = find_wrong_states(db, record_id)
    # SQL: reads JSON inside a column
    db.execute_sql(
        f"UPDATE observational_memory SET metadata = json_remove(metadata, '$.{OBSERVED_TO}')"
        f" WHERE id = ? AND json_extract(metadata, '$.{OBSERVED_TO}') IS NOT NULL",
        (record_id,),
    )
    if not wrong:
        return ""
    for group in rows.get_groups(db, list(wrong)):
        state = wrong[group.id]
        # SQL: looks at groups in states that should not be
        db.execute_sql(
            "UPDATE observation_groups SET state = ?, activated_at = CASE WHEN ? THEN coalesce(activated_at, ?)"
            " WHEN ? THEN activated_at END, superseded_at = CASE WHEN ? THEN coalesce(superseded_at, ?) END,"
            " discarded_at = CASE WHEN ? THEN ? END WHERE id = ?",
            (
                state,
                state in ("active", "superseded"),
                now,
                state == "discarded",
                state == "superseded",
                now,
                state == "discarded",
                now,
                group.id,
            ),
        )
        if state == "discarded":
            rows.unindex_group(db, group)
        elif group.state == "discarded":
            rows.reindex_group(db, replace(group, state=state))
    # SQL: looks at groups in states that should not be
    db.execute_sql(
        "UPDATE observational_memory SET generation_count = (SELECT count(*) FROM observation_groups"
        " WHERE record_id = ?1 AND kind = 'reflection' AND state IN ('active', 'superseded')) WHERE id = ?1",
        (record_id,),
    )
    # SQL: looks at groups in states that should not be
    for (thread_id,) in db.execute_sql(
        "SELECT DISTINCT thread_id FROM observation_groups WHERE record_id = ?", (record_id,)
    ).fetchall():
        update_figures(db, record_id, thread_id, now)
    return _describe(wrong.values(), _WERE)


_SHOULD = {
    "active": "should be in the log",
    "buffered": "should wait for the messages before them",
    "superseded": "should be replaced by their reflection",
    "discarded": "should not count: other groups cover the same messages",
}
_WERE = {
    "active": "put back into the log",
    "buffered": "set to wait for the messages before them",
    "superseded": "replaced by their reflection again",
    "discarded": "discarded: others cover the same messages",
}


def _describe(states: Iterable[str], words: Mapping[str, str]) -> str:
    counted = list(states)
    parts = [f"{counted.count(s)} {phrase}" for s, phrase in words.items() if s in counted]
    return f"Groups of observations: {', '.join(parts)}"
