"""Correct the log: pin, edit and forget lines, undo that, and read the log as of a time.

A line stores all its corrections with their times in its metadata; its columns have the result. The text of its group
never changes. An Observer also states tasks in the user's words: in a group, in its thread, and in the block that new
threads begin with. Tasks that repeat a forgotten or erased line are cleared. `read_changed_lines` and `read_log_at`
are raw SQL: every window, and the pane's time slider, query them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote
from sakti.core.types import Json
from sakti.store import memory, rows
from sakti.store.connection import Database
from sakti.store.log import replacements
from sakti.store.log.lines import LogLine, add_earlier, select_lines
from sakti.store.models import CarryOverRow, GroupRow, ObservationRow, ThreadRow
from sakti.store.rows import make_substring_condition, make_suffix_condition
from sakti.store.search import index as search_index
from sakti.store.threads import threads

FIELDS = ("current_task", "suggested_response")
_SAME_TASK_SHARE = 0.7  # two texts are the same task if they share this part of the shorter one's words
SHORT = 60  # more words than this share most words with any text, so longer texts are not compared
_LABEL = lazy_pattern(r"(?:^|(?<=\s))(?:Primary|Secondary|Its task|Last thread):\s+")
_LEAD = lazy_pattern(r"^(?:-> )?[A-Z][\w' ]{1,40}: ")

Action: TypeAlias = Literal["pin", "unpin", "edit", "forget"]
KEY = "corrections"
GROUP, LINE = GroupRow, ObservationRow
SAME_SHARE = 0.7  # a merged line repeats a reflection's line if it shares this part of its words
_WORD = lazy_pattern(r"\w+")
_FIELDS = ("pinned", "edited", "forgotten")
_CHANGED = (
    "SELECT g.id, o.line, o.edited, o.forgotten FROM observation_groups g"
    " JOIN observations o ON o.group_id = g.id"
    " WHERE g.record_id = ? AND g.state IN ('active', 'buffered') AND (o.edited IS NOT NULL OR o.forgotten = 1)"
)
_STATES = ("active", "buffered", "superseded", "discarded")
_COLUMNS = LINE, GROUP.kind, GROUP.first_index, GROUP.state


class Cleared(Struct, frozen=True):
    """Tasks that were cleared: their texts, and the values that `restore_tasks` stores again."""

    texts: Sequence[str]
    values: Sequence[Json]


def clear_tasks(db: Database, thread_id: str, texts: Iterable[str]) -> Cleared:
    """Clear the tasks that repeat one of these texts, in all threads of a thread's workspace."""
    here, plain_texts = _select_threads_beside(thread_id), _list_plain_texts(texts)
    group, carried = GroupRow, CarryOverRow
    stated = group.current_task.is_null(False) | group.suggested_response.is_null(False)
    groups = group.select(group.id, *(getattr(group, name) for name in FIELDS)).where(group.thread_id.in_(here), stated)
    values: list[Json] = []
    for row in list(groups.dicts().execute(db)):
        if _is_repeated(row, plain_texts):
            rows.update(db, group, row["id"], **dict.fromkeys(FIELDS))
            values.append({"table": "groups", **row})
    metadata = ThreadRow.select(ThreadRow.id, ThreadRow.metadata).where(ThreadRow.id.in_(here))
    for one, stored in list(metadata.tuples().execute(db)):
        task = {name: stored.get(name) for name in FIELDS}
        if _is_repeated(task, plain_texts):
            threads.update_metadata(db, one, dict.fromkeys(FIELDS))
            values.append({"table": "threads", "id": one, **task})
    pieces = carried.select().where(carried.thread_id.in_(here), carried.kind == "thread")
    for row in list(pieces.dicts().execute(db)):
        if _repeats(row["text"], plain_texts):
            rows.delete(db, carried, thread_id=row["thread_id"], position=row["position"])
            values.append({"table": "carry_over", **row})
    return Cleared(list_task_texts(values), values)


def restore_tasks(db: Database, values: Iterable[Json]) -> None:
    """Restore cleared tasks, unless an Observer has stated a newer one since."""
    for value in values:
        match value:
            case {"table": "carry_over", **row}:
                rows.insert_new(db, CarryOverRow, **row)
            case {"table": "threads", "id": thread_id, **task}:
                thread = threads.get(db, thread_id)
                if thread is not None and not thread.metadata.keys() & set(FIELDS):
                    threads.update_metadata(db, thread_id, task)
            case _:
                rows.update(db, GroupRow, value["id"], **{name: value[name] for name in FIELDS})


def list_task_texts(values: Iterable[Json]) -> list[str]:
    """Return the tasks and responses of cleared values."""
    return list(dict.fromkeys(v[name] for v in values for name in FIELDS if v.get(name)))


def clear_titles(db: Database, thread_id: str, texts: Iterable[str]) -> None:
    """Clear generated titles that repeat one of these texts, in all threads of a thread's workspace.

    Titles stored with groups are cleared, too, since they would become the thread's next titles.
    """
    plain_texts = _list_plain_texts(texts)
    row, group = ThreadRow, GroupRow
    titles = row.select(row.id, row.title).where(row.id.in_(_select_threads_beside(thread_id)), row.title_pinned == 0)
    for one, title in list(titles.tuples().execute(db)):
        if _repeats(title, plain_texts):
            rows.update(db, row, one, title="")
    titled = group.thread_id.in_(_select_threads_beside(thread_id)) & rows.make_substring_condition(
        group.metadata, '"title"'
    )
    for one, metadata in list(group.select(group.id, group.metadata).where(titled).tuples().execute(db)):
        if _repeats(str(metadata.get("title") or ""), plain_texts):
            rows.update(db, group, one, metadata={k: v for k, v in metadata.items() if k != "title"})


def _select_threads_beside(thread_id: str) -> Any:
    """Select the threads of a thread's workspace."""
    row = ThreadRow
    return row.select(row.id).where(row.resource_id == row.select(row.resource_id).where(row.id == thread_id))


def _list_plain_texts(texts: Iterable[str]) -> list[str]:
    return [plain for text in texts if (plain := _normalize_words(_LEAD.sub("", text)))]


def _is_repeated(task: Json, texts: Sequence[str]) -> bool:
    return any(_repeats(task[name] or "", texts) for name in FIELDS)


def _repeats(task: str, texts: Sequence[str]) -> bool:
    """Return whether a part of a task repeats a plain text. Pure."""
    parts = [part for text in _LABEL.split(task) if (part := _normalize_words(text))]
    return any(part in text or _is_same(part.split(), text.split()) for part in parts for text in texts)


def _is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    if len(other) > SHORT:
        return False
    first, second = set(one), set(other)
    return len(first & second) >= _SAME_TASK_SHARE * min(len(first), len(second))


def _normalize_words(text: str) -> str:
    """Return a text's words, separated by spaces; "" if it has none."""
    words = " ".join(_WORD.findall(text.casefold()))
    return f" {words} " if words else ""


class LineCorrection(Struct, frozen=True):
    """Correction of a line: its text before and after ("" if forgotten)."""

    line_id: str
    group_id: str
    action: str
    before: str
    after: str


def find_line(db: Database, record_id: str, text: str) -> str:
    """Return the id of the line in a record's log whose id is `text` or ends with it.

    Raises `MemoryFailure` (not_found, ambiguous).
    """
    suffix = text.strip()
    candidates = _select_log_lines(record_id, LINE.id).where(make_suffix_condition(LINE.id, suffix)).limit(2)
    ids: list[str] = [line_id for (line_id,) in candidates.tuples().execute(db)]
    if not suffix or not ids:
        raise MemoryFailure(f"No line of the log has the id {quote(text)}.", code="not_found")
    if len(ids) > 1:
        raise MemoryFailure(
            f"More than one line's id ends with {quote(text)}: write more characters.", code="ambiguous"
        )
    return ids[0]


_FLAGS: Mapping[Action, Json] = {"pin": {"pinned": 1}, "unpin": {"pinned": 0}, "forget": {"forgotten": 1}}


def _build_new_values(action: Action, text: str) -> Json:
    """Return the new values of a line. Raises `MemoryFailure` (empty)."""
    if action != "edit":
        return _FLAGS[action]
    if not text.strip():
        raise MemoryFailure("A line cannot be empty; forget it instead.", code="empty")
    return {"edited": " ".join(text.split())}


def correct_line(
    db: Database, record_id: str, line_id: str, action: Action, *, text: str = "", now: int
) -> LineCorrection:
    """Pin, unpin, edit or forget a line of the log; nested lines are forgotten with it.

    Forgetting includes equivalent lines of merged groups, and tasks that repeat the line. A buffered reflection made
    from the uncorrected line is discarded. Raises `MemoryFailure` (not_found, empty, unchanged).
    """
    changes = _build_new_values(action, text)
    row = _get_row(db, record_id, line_id)
    if all(row[name] == value for name, value in changes.items()):
        raise MemoryFailure("The line already says that.", code="unchanged")
    number = increase_number(db, record_id)
    lines, tasks = [row], ()
    if action == "forget":
        lines += _find_forgotten_with(db, row)
        tasks = clear_tasks(db, row["thread_id"], [_get_shown_text(one) for one in lines]).values
    for one in lines:
        before = {name: one[name] for name in _FIELDS}
        correction: Json = {
            "n": number,
            "at": now,
            "action": action,
            "changes": changes,
            "before": before,
            "undone_at": None,
        }
        if tasks and one is row:
            correction["tasks"] = tasks
        _store_corrections(db, one, [*_list_corrections(one), correction])
    memory.discard_stale(db, record_id, [row["group_id"]], now)
    return LineCorrection(line_id, row["group_id"], action, _get_shown_text(row), _get_shown_text({**row, **changes}))


def list_cleared_tasks(db: Database, line_id: str) -> list[str]:
    """Return the tasks that were cleared when a line was forgotten."""
    metadata = LINE.select(LINE.metadata).where(LINE.id == line_id).scalar(db)
    return list_task_texts(v for c in metadata.get(KEY, ()) for v in c.get("tasks", ()))


def find_with_copies(db: Database, record_id: str, line_id: str) -> list[Json]:
    """Return the row of a line of the log, followed by those that are forgotten with it.

    Raises `MemoryFailure` (not_found).
    """
    row = _get_row(db, record_id, line_id)
    return [row, *_find_forgotten_with(db, row)]


def undo_correction(db: Database, record_id: str, now: int, *, line_id: str | None = None) -> LineCorrection:
    """Undo the newest correction of a line or of the log. Raises MemoryFailure (not_found)."""
    corrected = _fetch_rows(
        db, _select_log_lines(record_id, *_COLUMNS).where(make_substring_condition(LINE.metadata, f'"{KEY}"'))
    )
    numbers = [(_last_number(row), row) for row in corrected if line_id in (None, row["id"])]
    number, row = max(numbers, key=lambda pair: pair[0], default=(0, {}))
    if not number:
        raise MemoryFailure("There is no correction to undo.", code="not_found")
    action = ""
    for one in _load_corrected_rows(db, record_id):
        corrections = _list_corrections(one)
        undone = [c for c in corrections if c["n"] == number]
        for correction in undone:
            correction["undone_at"], action = now, correction["action"]
            restore_tasks(db, correction.pop("tasks", ()))
        if undone:
            _store_corrections(db, one, corrections)
    increase_number(db, record_id)
    memory.discard_stale(db, record_id, [row["group_id"]], now)
    after = _get_row(db, record_id, row["id"])
    return LineCorrection(row["id"], row["group_id"], action, _get_shown_text(row), _get_shown_text(after))


def _last_number(row: Json) -> int:
    """Return the number of a line's newest correction in effect, 0 without one."""
    return next((c["n"] for c in reversed(_list_corrections(row)) if c["undone_at"] is None), 0)


def compute_state(columns: Json, corrections: Sequence[Json], time: int | None) -> Json:
    """Compute the pinned, edited and forgotten state of a line at a time (None: now). Pure."""
    state = dict(corrections[0]["before"]) if corrections else {name: columns[name] for name in _FIELDS}
    for c in corrections:
        undone = c["undone_at"] is not None and (time is None or c["undone_at"] <= time)
        if (time is None or c["at"] <= time) and not undone:
            state.update(c["changes"])
    return state


def read_changed_lines(db: Database, record_id: str) -> dict[str, dict[int, str | None]]:
    """Map each corrected active group to {line number: current text, None if forgotten}."""
    # SQL: each step runs it; building a query takes 80-300 µs
    changes = db.execute_sql(_CHANGED, (record_id,)).fetchall()
    out: dict[str, dict[int, str | None]] = {}
    for group_id, line, edited, forgotten in changes:
        out.setdefault(group_id, {})[line] = None if forgotten else edited
    return out


def read_log_at(db: Database, record_id: str, time: int) -> list[LogLine]:
    """Return the log as it was at a time (Unix ms), in the model's order, without forgotten lines."""
    originals = select_lines(
        db,
        "g.record_id = ? AND g.activated_at <= ? AND (g.superseded_at IS NULL OR g.superseded_at > ?)"
        " AND (g.discarded_at IS NULL OR g.discarded_at > ?)"
        # it was not in the log while a reflection, since undone, replaced it
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
        state = compute_state(now, line.metadata.get(KEY, ()), time)
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
    return add_earlier(out)


# --- rows -------------------------------------------------------------------------------------------------


def _select_log_lines(record_id: str, *columns: Any) -> Any:
    """Select lines of a record's active groups, oldest first."""
    return _select_in_states(("active", "buffered"), record_id, *columns)


def _select_in_states(states: Sequence[str], record_id: str, *columns: Any) -> Any:
    return _select_lines(*columns).where(GROUP.record_id == record_id, GROUP.state.in_(states))


def _select_lines(*columns: Any) -> Any:
    return LINE.select(*columns).join(GROUP, on=GROUP.id == LINE.group_id).order_by(LINE.pk)


def _fetch_rows(db: Database, query: Any) -> list[Json]:
    return list(query.dicts().execute(db))


def _get_row(db: Database, record_id: str, line_id: str) -> Json:
    matches = _fetch_rows(db, _select_log_lines(record_id, *_COLUMNS).where(LINE.id == line_id))
    if not matches:
        raise MemoryFailure("That line is no longer in the log.", code="not_found")
    return matches[0]


def _find_forgotten_with(db: Database, row: Json) -> list[Json]:
    """Return the lines forgotten with one: nested ones, and equivalent ones in merged groups."""
    nested = _find_nested(db, row)
    words = set(_WORD.findall(replacements.remove_marks(_get_shown_text(row)).casefold()))
    merged = _list_merged_ids(db, [row["group_id"]])
    rest = (one for group in merged for one in _fetch_rows(db, _select_lines(*_COLUMNS).where(LINE.group_id == group)))
    same = [one for one in rest if _says_same(one, words)]
    below = [one for above in same for one in _find_nested(db, above)]
    return [*nested, *{one["id"]: one for one in (*same, *below) if not one["forgotten"]}.values()]


def _says_same(row: Json, words: set[str]) -> bool:
    line_words = set(_WORD.findall(replacements.remove_marks(_get_shown_text(row)).casefold()))
    return bool(line_words) and len(line_words & words) >= SAME_SHARE * len(line_words)


def _list_merged_ids(db: Database, group_ids: Sequence[str]) -> list[str]:
    """Return the groups merged by reflections, through all generations."""
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
    for other in _fetch_rows(
        db, _select_lines(*_COLUMNS).where(LINE.group_id == row["group_id"], LINE.line > row["line"])
    ):
        if other["depth"] <= row["depth"]:
            break
        if not other["forgotten"]:
            out.append(other)
    return out


def _load_corrected_rows(db: Database, record_id: str) -> list[Json]:
    return _fetch_rows(
        db, _select_in_states(_STATES, record_id, *_COLUMNS).where(make_substring_condition(LINE.metadata, f'"{KEY}"'))
    )


def _list_corrections(row: Json) -> list[Json]:
    return list(row["metadata"].get(KEY, ()))


def _store_corrections(db: Database, row: Json, corrections: list[Json]) -> None:
    state = compute_state(row, corrections, None)
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


def _get_shown_text(row: Json) -> str:
    return "" if row["forgotten"] else row["edited"] or row["content"]


def increase_number(db: Database, record_id: str) -> int:
    """Increase the number of corrections of a record's log, so that readers reload it."""
    number = memory.count_corrections(db, record_id) + 1
    memory.set_record_metadata(db, record_id, {KEY: number})
    return number
