"""Erase a line of a log, or a thread from shared logs, for good, with all copies of the text.

A thread's groups are deleted with its rows. This module deletes the reflections made of them, and their other sources
become active again. It also removes quotations of the thread from lines that replace its lines. The first transaction
removes the thread from the log; rows and words follow one at a time, so that other windows can write in between. Raw
SQL: the same text is replaced in several tables, each of which may store it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from peewee import fn

from sakti.core.types import Json
from sakti.store import memory, rows
from sakti.store.connection import Database
from sakti.store.log import corrections
from sakti.store.log.replacements import KEY, NOTE, Earlier, format_note, remove_marks
from sakti.store.memory import integrity
from sakti.store.models import CarryOverRow, GroupRow, ObservationRow, ThreadRow
from sakti.store.search import index as search_index
from sakti.store.search import reindexing
from sakti.store.threads import threads

ERASED = "(erased)"
SHORTEST = 4  # shorter texts are not replaced anywhere (characters)
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
    """Erased lines: their ids, and their texts."""

    ids: Sequence[str]
    texts: Sequence[str]
    tasks: Sequence[str] = ()  # tasks that repeated them


def erase(db: Database, record_id: str, line_id: str, now: int) -> Erased:
    """Erase a line, its nested lines, equivalent lines of merged groups, and tasks that repeat them.

    It cannot be undone: time travel and an undone reflection show the log without it. Raises `MemoryFailure`
    (not_found).
    """
    copies = corrections.find_with_copies(db, record_id, line_id)
    row = copies[0]
    texts = sorted({text for one in copies for text in _list_texts(one)}, key=len, reverse=True)
    for one in copies:
        search_index.remove(db, one["kind"], one["id"])
        rows.delete(db, CarryOverRow, kind="line", source_id=one["id"])
        rows.update(
            db, ObservationRow, one["id"], content=ERASED, edited=None, metadata={}, flags=[], pinned=0, forgotten=1
        )
    tasks = _clear_tasks(db, copies, texts)
    erase_copies(db, [*texts, *tasks])
    for one in copies:
        _index_next(db, one["group_id"], one["line"])
    corrections.increase_number(db, record_id)
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
        corrections.increase_number(db, record_id)
    return list(tasks)


def erase_copies(db: Database, texts: Iterable[str]) -> None:
    """Erase texts wherever memory repeats them, and delete stored requests that contain them."""
    for text in texts:
        for form in dict.fromkeys((text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])):
            for table, column in _COPIES:
                # SQL: the text registry names table and column
                db.execute_sql(
                    f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE instr({column}, ?)",
                    (form, ERASED, form),
                )
            # SQL: compares with `instr`, like the previous statement
            db.execute_sql("DELETE FROM request_blocks WHERE instr(text, ?)", (form,))


def _clear_tasks(db: Database, copies: Sequence[Json], texts: Sequence[str]) -> list[str]:
    """Clear tasks and titles that repeat erased lines.

    Return the tasks, with those cleared when these lines were forgotten.
    """
    thread_id = copies[0]["thread_id"]
    corrections.clear_titles(db, thread_id, texts)
    before = [v for one in copies for c in one["metadata"].get(corrections.KEY, ()) for v in c.get("tasks", ())]
    return [*corrections.clear_tasks(db, thread_id, texts).texts, *corrections.list_task_texts(before)]


def _index_next(db: Database, group_id: str, number: int) -> None:
    """Index the line after a changed one again, since its search row contains the changed text."""
    line = ObservationRow
    behind = line.select(line.pk).where(line.group_id == group_id, line.line > number, line.forgotten == 0)
    for pk in rows.fetch_first(db, behind.order_by(line.line)) or ():
        reindexing.index_line(db, pk)


def _list_texts(row: Json) -> Sequence[str]:
    texts = [row["content"], row["edited"] or ""]
    texts += [str(c["changes"].get("edited") or "") for c in row["metadata"].get(corrections.KEY, ())]
    texts += [str(c["before"].get("edited") or "") for c in row["metadata"].get(corrections.KEY, ())]
    return [text for one in texts for text in (one, remove_marks(one)) if len(text) >= SHORTEST]


# --- a thread in shared logs ----------------------------------------------------------------------------------

# The row of a line or reflection to delete, or of a line whose note on replaced words is removed.
Step: TypeAlias = tuple[Literal["line", "group"], str] | tuple[Literal["unsay"], str, tuple[str, ...]]


def begin_erasure(db: Database, thread_id: str, now: int) -> None:
    """Take a thread's own groups and all reflections made of them out of the log, in one transaction.

    The other sources of those reflections become active again. No row is deleted here, so that a large log takes no
    longer; `list_reflection_steps` and `list_note_steps` list what is left to do.
    """
    resource_id = ThreadRow.select(ThreadRow.resource_id).where(ThreadRow.id == thread_id).scalar(db)
    if (record_id := _find_shared_record(db, thread_id)) is None:
        return
    groups = _list_groups(db, record_id)
    reflections, sources = _find_made_of(groups, thread_id)
    _set_state(db, "discarded", reflections, now)
    for group_id in sources:
        was = (GroupRow.id == group_id) & (GroupRow.state == "superseded")
        GroupRow.update(state="active", superseded_at=None).where(was).execute(db)
    _reassign(db, {i: g for i, g in groups.items() if i not in reflections}, thread_id)
    integrity.repair_states(db, record_id, now)
    # last: the repair would fill gaps of this thread with its discarded groups
    _set_state(db, "discarded", {i for i, g in groups.items() if g.is_of(thread_id)}, now)
    recount_log(db, resource_id, now)


def list_reflection_steps(db: Database, thread_id: str) -> list[Step]:
    """List the rows of reflections made of a thread's groups; call it after `begin_erasure`.

    Reflections of reflections come first, so that an interrupted run finds the same list again.
    """
    if (record_id := _find_shared_record(db, thread_id)) is None:
        return []
    groups = _list_groups(db, record_id)
    reflections, _ = _find_made_of(groups, thread_id)
    steps: list[Step] = []
    for group_id in (i for i in reversed(groups) if i in reflections):
        row = ObservationRow
        lines = row.select(row.id).where(row.group_id == group_id).order_by(row.line).tuples().execute(db)
        steps.extend(("line", line_id) for (line_id,) in lines)
        steps.append(("group", group_id))
    return steps


def _join_texts(lines: Iterable[Sequence[Any]]) -> str:
    return "\n".join(f"{line[3]}\n{line[4]}" for line in lines)


def _is_only_in(phrase: str, own_text: str, other_text: str) -> bool:
    return phrase in own_text and phrase not in other_text


def list_note_steps(db: Database, thread_id: str) -> list[Step]:
    """List lines of other threads that quote replaced words of this thread.

    Words that another thread also has are left out. Call it when the steps of `list_reflection_steps` are done, while
    the thread's own lines still exist.
    """
    if (record_id := _find_shared_record(db, thread_id)) is None:
        return []
    group, line = GroupRow, ObservationRow
    columns = group.thread_id, line.id, line.metadata, line.content, fn.COALESCE(line.edited, "")
    lines = list(
        line.select(*columns)
        .join(group, on=group.id == line.group_id)
        .where(group.record_id == record_id)
        .tuples()
        .execute(db)
    )
    others = [r for r in lines if r[0] != thread_id]
    own_text = _join_texts(r for r in lines if r[0] == thread_id).casefold()
    other_text = NOTE.sub("", _join_texts(others)).casefold()
    steps: list[Step] = []
    for _, line_id, metadata, *_ in others:
        quoted = dict.fromkeys(r["text"] for r in metadata.get(KEY, []))
        if phrases := tuple(t for t in quoted if _is_only_in(t.casefold(), own_text, other_text)):
            steps.append(("unsay", line_id, phrases))
    return steps


def run_steps(db: Database, steps: Sequence[Step]) -> None:
    """Run steps of `list_reflection_steps` or `list_note_steps`; repeated ones have no effect."""
    for step in steps:
        match step:
            case ("line", line_id):
                search_index.remove(db, "reflection", line_id)
                rows.delete(db, CarryOverRow, kind="line", source_id=line_id)
                rows.delete(db, ObservationRow, id=line_id)
            case ("group", group_id):
                rows.delete(db, GroupRow, id=group_id)
            case (_, line_id, phrases):
                _remove_note(db, line_id, phrases)


def _find_shared_record(db: Database, thread_id: str) -> str | None:
    """Return the record of the log shared by the thread's workspace; None without one."""
    thread = threads.get(db, thread_id)
    record = memory.get_record(db, f"resource:{thread.resource_id}") if thread is not None else None
    return record.id if record is not None else None


class _SharedGroup(Struct, frozen=True):
    thread_id: str
    kind: str
    state: str
    merged: tuple[str, ...]

    def is_of(self, thread_id: str) -> bool:
        """Return whether the line was observed in that thread."""
        return self.kind == "observation" and self.thread_id == thread_id


def _list_groups(db: Database, record_id: str) -> dict[str, _SharedGroup]:
    """Return the groups of a record by id, in the order of creation."""
    row = GroupRow
    columns = row.id, row.thread_id, row.kind, row.state, row.merged_group_ids
    groups = row.select(*columns).where(row.record_id == record_id).order_by(row.pk).tuples().execute(db)
    return {group_id: _SharedGroup(*rest) for group_id, *rest in groups}


def _set_state(db: Database, state: str, ids: Iterable[str], now: int) -> None:
    for group_id in ids:
        changes = {"state": state, f"{state}_at": now}
        GroupRow.update(**changes).where(GroupRow.id == group_id, GroupRow.state != state).execute(db)


def _find_reflections(groups: Mapping[str, _SharedGroup], sources: set[str]) -> set[str]:
    """Find the groups that were made of `sources`, directly or not. Pure."""
    out: set[str] = set()
    while more := {i for i, g in groups.items() if i not in out and (sources | out).intersection(g.merged)}:
        out |= more
    return out


def _find_made_of(groups: Mapping[str, _SharedGroup], thread_id: str) -> tuple[set[str], set[str]]:
    """Find the reflections made of a thread's groups, directly or not, and their other sources. Pure."""
    own_groups = {i for i, g in groups.items() if g.is_of(thread_id)}
    reflections = _find_reflections(groups, own_groups)
    used = {i: set(g.merged) for i, g in groups.items() if g.state != "discarded"}
    sources = set[str]().union(*(merged for i, merged in used.items() if i in reflections))
    still_used = set[str]().union(*(merged for i, merged in used.items() if i not in reflections))
    return reflections, sources - own_groups - reflections - still_used


def _reassign(db: Database, groups: Mapping[str, _SharedGroup], thread_id: str) -> None:
    """Assign reflections by this thread that only merge lines of others to another thread."""
    for group_id, group in groups.items():
        if group.kind == "reflection" and group.thread_id == thread_id and group.merged:
            other = GroupRow.select(GroupRow.thread_id).where(GroupRow.id == group.merged[-1]).scalar(db)
            rows.update(db, GroupRow, group_id, thread_id=other)


def _remove_note(db: Database, line_id: str, phrases: Sequence[str]) -> None:
    """Remove from a line the note that it replaces these words."""
    row = ObservationRow
    line: Any = row.select().where(row.id == line_id).get_or_none(db)
    if line is None:
        return
    replaced = line.metadata.get(KEY, [])
    for one in replaced:
        if one["text"] in phrases:
            words = format_note(Earlier(one["text"], one["date"], one["time"]), line.observed_date)
            _remove_words(db, line_id, line.group_id, words)
    remaining = [r for r in replaced if r["text"] not in phrases]
    metadata = {**line.metadata, KEY: remaining}
    if not remaining:
        del metadata[KEY]
    rows.update(db, row, line_id, metadata=metadata)
    reindexing.index_line(db, line.pk)
    _index_next(db, line.group_id, line.line)


def _remove_words(db: Database, line_id: str, group_id: str, words: str) -> None:
    for table, column, key, value in (
        ("observations", "content", "id", line_id),
        ("observations", "edited", "id", line_id),
        ("observation_groups", "text", "id", group_id),
        ("carry_over", "text", "source_id", line_id),
    ):
        # SQL: table and column are parameters
        db.execute_sql(
            f"UPDATE {table} SET {column} = replace({column}, ?1, '') WHERE {key} = ?2 AND instr({column}, ?1)",
            (words, value),
        )


def recount_log(db: Database, resource_id: str, now: int) -> None:
    """Recompute the counts of the log shared by a workspace; other windows reload it."""
    # SQL: sums and revision in one statement
    db.execute_sql(
        "UPDATE observational_memory AS r SET revision = revision + 1, updated_at = ?1, observation_token_count ="
        " (SELECT coalesce(sum(observation_tokens), 0) FROM observation_groups g WHERE g.record_id = r.id"
        " AND g.state = 'active'), generation_count = (SELECT count(*) FROM observation_groups g"
        " WHERE g.record_id = r.id AND g.kind = 'reflection' AND g.state IN ('active', 'superseded'))"
        " WHERE r.lookup_key = 'resource:' || ?2",
        (now, resource_id),
    )
