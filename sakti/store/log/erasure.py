"""Erase a line of the log for good, with all copies of its text that memory made.

Raw SQL: the same text is replaced in several tables, of which each may hold it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sakti.core.types import Json
from sakti.store import memory, rows
from sakti.store.connection import Database
from sakti.store.log import corrections
from sakti.store.log.replaced import remove_marks
from sakti.store.models import CarryOverRow, GroupRow, ObservationRow
from sakti.store.search import index as search_index
from sakti.store.search import reindexing

ERASED = "(erased)"
SHORTEST = 4  # characters of a line's text that are replaced anywhere
# Where memory repeats the text of lines: other groups, current tasks, drafts of compactions, metadata.
_COPIES = (
    ("observation_groups", "text"),
    ("observation_groups", "current_task"),
    ("observation_groups", "suggested_response"),
    ("observation_groups", "metadata"),
    ("observations", "content"),
    ("observations", "edited"),
    ("observations", "metadata"),
    ("compaction_records", "summary"),
    ("compaction_records", "before"),
    ("threads", "metadata"),
    ("carry_over", "text"),
)


class Erased(Struct, frozen=True):
    """Erased lines: their ids, and the texts that they had."""

    ids: Sequence[str]
    texts: Sequence[str]
    tasks: Sequence[str] = ()  # that repeated them


def erase(db: Database, record_id: str, line_id: str, now: int) -> Erased:
    """Erase a line, those nested under it, those of merged groups that say the same, and such tasks.

    It cannot be undone: time travel and an undone reflection show the log without it. Raises `MemoryFailure`
    (not_found).
    """
    copies = corrections.with_copies(db, record_id, line_id)
    row = copies[0]
    texts = sorted({text for one in copies for text in _texts(one)}, key=len, reverse=True)
    for one in copies:
        search_index.remove(db, one["kind"], one["id"])
        rows.delete(db, CarryOverRow, kind="line", source_id=one["id"])
        rows.update(
            db, ObservationRow, one["id"], content=ERASED, edited=None, metadata={}, flags=[], pinned=0, forgotten=1
        )
    tasks = _clear_tasks(db, copies, texts)
    erase_copies(db, [*texts, *tasks])
    for one in copies:
        _index_next(db, one)
    corrections.next_number(db, record_id)
    memory.discard_stale(db, record_id, [row["group_id"]], now)
    return Erased([one["id"] for one in copies], texts, tasks)


def erase_tasks(db: Database, thread_id: str, indices: Sequence[int], texts: Sequence[str]) -> list[str]:
    """Clear tasks and titles that repeat deleted messages, and the tasks of groups made of them.

    Return these tasks.
    """
    if not indices:
        return []
    group = GroupRow
    made_of = (group.first_index <= max(indices)) & (group.last_index >= min(indices))
    columns = group.record_id, group.current_task, group.suggested_response
    groups = list(group.select(*columns).where(group.thread_id == thread_id, made_of).tuples().execute(db))
    corrections.clear_titles(db, thread_id, texts)
    tasks = corrections.clear_tasks(db, thread_id, [*texts, *(t for _, *each in groups for t in each if t)]).texts
    erase_copies(db, tasks)
    for record_id in {record_id for record_id, *_ in groups}:
        corrections.next_number(db, record_id)
    return list(tasks)


def erase_copies(db: Database, texts: Iterable[str]) -> None:
    """Erase texts wherever memory repeats them, and the kept requests that have them."""
    for text in texts:
        for form in dict.fromkeys((text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])):
            for table, column in _COPIES:
                # SQL: the text registry names table and column
                db.execute_sql(
                    f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE instr({column}, ?)",
                    (form, ERASED, form),
                )
            # SQL: compares with `instr`, as the statement before
            db.execute_sql("DELETE FROM request_blocks WHERE instr(text, ?)", (form,))


def _clear_tasks(db: Database, copies: Sequence[Json], texts: Sequence[str]) -> list[str]:
    """Clear tasks and titles that repeat erased lines.

    Return the tasks, with those that forgetting these lines had cleared.
    """
    thread_id = copies[0]["thread_id"]
    corrections.clear_titles(db, thread_id, texts)
    before = [v for one in copies for c in one["metadata"].get(corrections.KEY, ()) for v in c.get("tasks", ())]
    return [*corrections.clear_tasks(db, thread_id, texts).texts, *corrections.texts_of(before)]


def _index_next(db: Database, row: Json) -> None:
    """Index the line behind an erased one again: search keeps the text before each line beside it."""
    line = ObservationRow
    behind = line.select(line.pk).where(line.group_id == row["group_id"], line.line > row["line"], line.forgotten == 0)
    for pk in rows.first(db, behind.order_by(line.line)) or ():
        reindexing.index_line(db, pk)


def _texts(row: Json) -> Sequence[str]:
    texts = [row["content"], row["edited"] or ""]
    texts += [str(c["changes"].get("edited") or "") for c in row["metadata"].get(corrections.KEY, ())]
    texts += [str(c["before"].get("edited") or "") for c in row["metadata"].get(corrections.KEY, ())]
    return [text for one in texts for text in (one, remove_marks(one)) if len(text) >= SHORTEST]
