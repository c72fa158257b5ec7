"""Correct the log: pin, edit and forget lines, undo that, and read the log as of a time.

A line keeps all its corrections with their times in its metadata; its columns hold the result. The text of its group
never changes. `changed_lines` and `as_of` are raw SQL: every window, and the pane's time slider, query them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from sakti.core.errors import MemoryFailure
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json
from sakti.store import memory, rows
from sakti.store.connection import Database
from sakti.store.log import replaced, stated_tasks
from sakti.store.log.lines import LogLine, lines_where, with_earlier
from sakti.store.models import GroupRow, ObservationRow
from sakti.store.rows import contains, ends_with
from sakti.store.search import index as search_index

Action: TypeAlias = Literal["pin", "unpin", "edit", "forget"]
KEY = "corrections"
GROUP, LINE = GroupRow, ObservationRow
SAME_SHARE = 0.7  # of the words of a line that a reflection merged: so many, and the reflection's line says the same
_WORD = lazy_pattern(r"\w+")
_FIELDS = ("pinned", "edited", "forgotten")


class LineCorrection(Struct, frozen=True):
    """Correction of a line: its text before and after ("" if forgotten)."""

    line_id: str
    group_id: str
    action: str
    before: str
    after: str


def find_line(db: Database, record_id: str, text: str) -> str:
    """Return the id of the line in a record's log that `text` is, or is the end of.

    Raises `MemoryFailure` (not_found, ambiguous).
    """
    suffix = text.strip()
    candidates = _in_log(record_id, LINE.id).where(ends_with(LINE.id, suffix)).limit(2)
    ids: list[str] = [line_id for (line_id,) in candidates.tuples().execute(db)]
    if not suffix or not ids:
        raise MemoryFailure(f"No line of the log has the id {text!r}.", code="not_found")
    if len(ids) > 1:
        raise MemoryFailure(f"More than one line's id ends with {text!r}: write more characters.", code="ambiguous")
    return ids[0]


def correct(db: Database, record_id: str, line_id: str, action: Action, *, text: str = "", now: int) -> LineCorrection:
    """Pin, unpin, edit or forget a line of the log; nested lines are forgotten with it.

    Forgetting reaches the groups that a reflection merged: lines that say the same, in these or in other words; tasks
    that repeat the line are cleared. A
    buffered reflection made from the uncorrected line is discarded. Raises `MemoryFailure` (not_found, empty,
    unchanged).
    """
    if action == "edit" and not text.strip():
        raise MemoryFailure("A line cannot be empty; forget it instead.", code="empty")
    changes: Json = {
        "pin": {"pinned": 1},
        "unpin": {"pinned": 0},
        "edit": {"edited": " ".join(text.split())},
        "forget": {"forgotten": 1},
    }[action]
    row = _row(db, record_id, line_id)
    if all(row[name] == value for name, value in changes.items()):
        raise MemoryFailure("The line already says that.", code="unchanged")
    number = next_number(db, record_id)
    lines = [row, *(_with_it(db, row) if action == "forget" else [])]
    shown = [_shown_text(one) for one in lines]
    tasks = stated_tasks.clear(db, row["thread_id"], shown).values if action == "forget" else ()
    for one in lines:
        done = {
            "n": number,
            "at": now,
            "action": action,
            "changes": changes,
            "before": {name: one[name] for name in _FIELDS},
            "undone_at": None,
            **({"tasks": tasks} if tasks and one is row else {}),
        }
        _store(db, one, [*_corrections(one), done])
    memory.discard_stale(db, record_id, [row["group_id"]], now)
    return LineCorrection(line_id, row["group_id"], action, _shown_text(row), _shown_text({**row, **changes}))


def cleared_tasks(db: Database, line_id: str) -> list[str]:
    """Return the tasks that were cleared when a line was forgotten."""
    metadata = LINE.select(LINE.metadata).where(LINE.id == line_id).scalar(db)
    return stated_tasks.texts_of(v for c in metadata.get(KEY, ()) for v in c.get("tasks", ()))


def with_copies(db: Database, record_id: str, line_id: str) -> list[Json]:
    """Return the row of a line of the log, then those that are forgotten with it.

    Raises `MemoryFailure` (not_found).
    """
    row = _row(db, record_id, line_id)
    return [row, *_with_it(db, row)]


def undo(db: Database, record_id: str, now: int, *, line_id: str | None = None) -> LineCorrection:
    """Undo the newest correction of a line or of the log. Raises MemoryFailure (not_found)."""
    best: tuple[int, Json] | None = None
    for row in _rows(db, _in_log(record_id, *_COLUMNS).where(contains(LINE.metadata, f'"{KEY}"'))):
        if line_id is not None and row["id"] != line_id:
            continue
        last = next((c for c in reversed(_corrections(row)) if c["undone_at"] is None), None)
        if last is not None and (best is None or last["n"] > best[0]):
            best = last["n"], row
    if best is None:
        raise MemoryFailure("There is no correction to undo.", code="not_found")
    number, row = best
    action = ""
    for one in _corrected_rows(db, record_id):
        corrections = _corrections(one)
        if not any(c["n"] == number for c in corrections):
            continue
        for correction in corrections:
            if correction["n"] == number:
                correction["undone_at"], action = now, correction["action"]
                stated_tasks.restore(db, correction.pop("tasks", ()))
        _store(db, one, corrections)
    next_number(db, record_id)
    memory.discard_stale(db, record_id, [row["group_id"]], now)
    after = _row(db, record_id, row["id"])
    return LineCorrection(row["id"], row["group_id"], action, _shown_text(row), _shown_text(after))


def state_at(columns: Json, corrections: Sequence[Json], time: int | None) -> Json:
    """Compute pinned, edited and forgotten of a line at a time (None: now) from its corrections. Pure."""
    state = dict(corrections[0]["before"]) if corrections else {name: columns[name] for name in _FIELDS}
    for c in corrections:
        undone = c["undone_at"] is not None and (time is None or c["undone_at"] <= time)
        if (time is None or c["at"] <= time) and not undone:
            state.update(c["changes"])
    return state


_CHANGED = (
    "SELECT g.id, o.line, o.edited, o.forgotten FROM observation_groups g"
    " JOIN observations o ON o.group_id = g.id"
    " WHERE g.record_id = ? AND g.state IN ('active', 'buffered') AND (o.edited IS NOT NULL OR o.forgotten = 1)"
)


def changed_lines(db: Database, record_id: str) -> dict[str, dict[int, str | None]]:
    """Map each corrected active group to {line number: current text, None if forgotten}."""
    changes = db.execute_sql(_CHANGED, (record_id,)).fetchall()
    out: dict[str, dict[int, str | None]] = {}
    for group_id, line, edited, forgotten in changes:
        out.setdefault(group_id, {})[line] = None if forgotten else edited
    return out


def as_of(db: Database, record_id: str, time: int) -> list[LogLine]:
    """Return the log as it was at a time (Unix ms), in the model's order, without forgotten lines."""
    originals = lines_where(
        db,
        "g.record_id = ? AND g.activated_at <= ? AND (g.superseded_at IS NULL OR g.superseded_at > ?)"
        " AND (g.discarded_at IS NULL OR g.discarded_at > ?)"
        # while a reflection that was taken back later stood in its place, it was not in the log
        " AND NOT EXISTS (SELECT 1 FROM json_each(g.metadata, '$.away') w"
        " WHERE json_extract(w.value, '$[0]') <= ? AND json_extract(w.value, '$[1]') > ?)",
        (record_id, time, time, time, time, time),
    )
    out: list[LogLine] = []
    for line, original in originals:
        now: Json = {
            "pinned": int(line.pinned),
            "edited": line.content if line.edited else None,
            "forgotten": int(line.forgotten),
        }
        state = state_at(now, line.metadata.get(KEY, ()), time)
        if not state["forgotten"]:
            out.append(
                structs.replace(
                    line,
                    content=state["edited"] or original,
                    pinned=bool(state["pinned"]),
                    edited=state["edited"] is not None,
                    forgotten=False,
                )
            )
    return with_earlier(out)


# --- rows -------------------------------------------------------------------------------------------------


def _in_log(record_id: str, *columns: Any) -> Any:
    """Select lines of a record's active groups, oldest first."""
    return _in_states(("active", "buffered"), record_id, *columns)


def _in_states(states: Sequence[str], record_id: str, *columns: Any) -> Any:
    return _lines(*columns).where(GROUP.record_id == record_id, GROUP.state.in_(states))


def _lines(*columns: Any) -> Any:
    return LINE.select(*columns).join(GROUP, on=GROUP.id == LINE.group_id).order_by(LINE.pk)


def _rows(db: Database, found: Any) -> list[Json]:
    return list(found.dicts().execute(db))


_STATES = ("active", "buffered", "superseded", "discarded")
_COLUMNS = LINE, GROUP.kind, GROUP.first_index, GROUP.state


def _row(db: Database, record_id: str, line_id: str) -> Json:
    matches = _rows(db, _in_log(record_id, *_COLUMNS).where(LINE.id == line_id))
    if not matches:
        raise MemoryFailure("That line is no longer in the log.", code="not_found")
    return matches[0]


def _with_it(db: Database, row: Json) -> list[Json]:
    """Return the lines that are forgotten with one: nested ones, and the same in merged groups."""
    nested = _find_nested(db, row)
    words = set(_WORD.findall(replaced.remove_marks(_shown_text(row)).casefold()))
    merged = _merged_ids(db, [row["group_id"]])
    rest = (one for group in merged for one in _rows(db, _lines(*_COLUMNS).where(LINE.group_id == group)))
    same = [one for one in rest if _says(one, words)]
    below = [one for above in same for one in _find_nested(db, above)]
    return [*nested, *{one["id"]: one for one in (*same, *below) if not one["forgotten"]}.values()]


def _says(row: Json, words: set[str]) -> bool:
    line_words = set(_WORD.findall(replaced.remove_marks(_shown_text(row)).casefold()))
    return bool(line_words) and len(line_words & words) >= SAME_SHARE * len(line_words)


def _merged_ids(db: Database, group_ids: Sequence[str]) -> list[str]:
    """Return the groups that reflections were made from, through all generations."""
    out: dict[str, None] = {}
    rest = list(group_ids)
    while rest:
        sources = [
            g for i in rest for g in GROUP.select(GROUP.merged_group_ids).where(GROUP.id == i).tuples().execute(db)
        ]
        rest = [i for (ids,) in sources for i in (ids or ()) if i not in out]
        out |= dict.fromkeys(rest)
    return list(out)


def _find_nested(db: Database, row: Json) -> list[Json]:
    out: list[Json] = []
    for other in _rows(db, _lines(*_COLUMNS).where(LINE.group_id == row["group_id"], LINE.line > row["line"])):
        if other["depth"] <= row["depth"]:
            break
        if not other["forgotten"]:
            out.append(other)
    return out


def _corrected_rows(db: Database, record_id: str) -> list[Json]:
    return _rows(db, _in_states(_STATES, record_id, *_COLUMNS).where(contains(LINE.metadata, f'"{KEY}"')))


def _corrections(row: Json) -> list[Json]:
    return list(row["metadata"].get(KEY, ()))


def _store(db: Database, row: Json, corrections: list[Json]) -> None:
    state = state_at(row, corrections, None)
    rows.update(db, LINE, row["id"], **state, metadata={**row["metadata"], KEY: corrections})
    if state["forgotten"] or row["state"] == "discarded":
        search_index.remove(db, row["kind"], row["id"])
        return
    search_index.put(
        db,
        kind=row["kind"],
        doc_id=row["id"],
        resource_id=row["resource_id"],
        created_at=row["created_at"],
        text=state["edited"] or row["content"],
        thread_id=row["thread_id"],
        position=row["first_index"] or 0,
        paths=[str(p) for p in row["metadata"].get("files", [])],
    )


def _shown_text(row: Json) -> str:
    return "" if row["forgotten"] else row["edited"] or row["content"]


def next_number(db: Database, record_id: str) -> int:
    """Increase the number of corrections of a record's log, so that readers reload it."""
    number = memory.count_corrections(db, record_id) + 1
    memory.set_record_metadata(db, record_id, {KEY: number})
    return number
