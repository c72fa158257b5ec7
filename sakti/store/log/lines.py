"""Read the memory data shown by panes and tools: log lines, generations, sources, figures. Read-only.

The log, its generations and figures, and the actors and messages of other threads are raw SQL: panes and windows query
them at every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs
from peewee import fn

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.log import replacements
from sakti.store.memory.group_rows import Span, find_cursor, get_groups, list_spans
from sakti.store.memory.records import count_corrections
from sakti.store.models import GroupRow, MessageRow, ObservationRow, TaskRow, ThreadRow
from sakti.store.rows import make_suffix_condition
from sakti.store.threads import threads

SHORTEST_ID = 6  # characters of the short form of an id
UNVERIFIED = " [unverified]"  # mark for the model after an important line with flags

_GROUPS = (
    "SELECT id FROM observation_groups WHERE record_id = ? AND state IN ('active', 'buffered')"
    " ORDER BY state = 'buffered', kind = 'observation', pk"
)
_WAITING = "g.record_id = ? AND g.kind = ? AND g.state = ?"
# SQL for each field of a line; panes read the whole log at every step.
_FIELDS = {
    "id": "o.id",
    "group_id": "o.group_id",
    "kind": "g.kind",
    "state": "g.state",
    "date": "o.observed_date",
    "time": "o.time",
    "priority": "o.priority",
    "depth": "o.depth",
    "content": "coalesce(o.edited, o.content)",
    "flags": "o.flags",
    "pinned": "o.pinned",
    "edited": "o.edited IS NOT NULL",
    "forgotten": "o.forgotten",
    "metadata": "o.metadata",
    "first_index": "g.first_index",
    "last_index": "g.last_index",
    "category": "o.category",
}
_LINES = (
    f"SELECT {', '.join(_FIELDS.values())}, o.content FROM observation_groups g"
    " JOIN observations o ON o.group_id = g.id"
)
_ORDER = "ORDER BY g.state = 'buffered', g.kind = 'observation', g.pk, o.line"
_GENERATIONS = (
    "SELECT id, generation, state, metadata, observation_tokens, merged_group_ids, model, created_at, activated_at"
    " FROM observation_groups WHERE record_id = ? AND kind = 'reflection' ORDER BY pk"
)
_OTHERS = (
    "SELECT id, title FROM threads WHERE resource_id = ? AND id != ? AND parent_id IS NULL AND deleted_at IS NULL"
    " ORDER BY updated_at DESC LIMIT ?"
)
_SAID = (
    "SELECT message_index, role, substr(sakti_text(raw_content, parts), 1, ?), created_at FROM messages"
    " WHERE thread_id = ? AND message_index > ? AND state = 'saved' AND role != 'system'"
    " AND instr(metadata, '\"synthetic\"') = 0 ORDER BY message_index DESC LIMIT ?"
)
_ACTORS = "SELECT created_at, model FROM steps WHERE thread_id = ? AND purpose = 'actor' ORDER BY pk"
TURNS = 10  # newest turns that a forecast averages
ENOUGH = 5  # number of turns from which the largest and the smallest are ignored


class LogLine(Struct, frozen=True):
    """Line of the active log.

    `content` includes corrections; `earlier` are the parts of it replaced by newer lines that were read with it.
    """

    id: str
    group_id: str
    kind: str
    state: str
    date: str
    time: str
    priority: str
    depth: int
    content: str
    flags: tuple[str, ...]
    pinned: bool
    edited: bool
    forgotten: bool
    metadata: Json
    first_index: int | None
    last_index: int | None
    category: str = ""
    earlier: tuple[replacements.Earlier, ...] = ()

    @property
    def marked_text(self) -> str:
        """Return the text for people, with a mark after each replaced part."""
        return replacements.add_marks(self.content, self.earlier, self.date)

    @property
    def text_beside_flags(self) -> str:
        """Return the text for views that show the flags themselves."""
        return self.marked_text.removesuffix(UNVERIFIED) if self.flags else self.marked_text


def add_earlier(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines of a log, in order, each with its parts replaced by later ones."""
    rows = [replacements.MarkRow(x.id, x.content, x.date, x.time, x.metadata, x.forgotten) for x in lines]
    earlier = replacements.find_replacements(rows)
    return [structs.replace(x, earlier=earlier[x.id]) if x.id in earlier else x for x in lines]


def read_lines(db: Database, record_id: str, *, states: Sequence[str] = ("active",)) -> list[LogLine]:
    """Return the lines of a record's log in the model's order."""
    marks = ",".join("?" * len(states))
    pairs = select_lines(db, f"g.record_id = ? AND g.state IN ({marks})", (record_id, *states))
    return add_earlier([line for line, _ in pairs])


class LogSnapshot(Struct, frozen=True):
    """Lines of the groups of a record that are in its log or will be, in the model's order, by group.

    A line's state is that of the first read, and `earlier` is left out. `corrections`: their number at the time of
    the read.
    """

    record_id: str
    corrections: int
    groups: Mapping[str, Sequence[LogLine]]

    @property
    def lines(self) -> list[LogLine]:
        return [line for lines in self.groups.values() for line in lines]


def read_snapshot(db: Database, record_id: str, before: LogSnapshot | None = None) -> LogSnapshot:
    """Return the active and buffered lines of a record; those of `before` are not read again.

    Lines of a group only change by corrections, which are counted.
    """
    corrections = count_corrections(db, record_id)
    groups: Mapping[str, Sequence[LogLine]] = {}
    if before is not None and (before.record_id, before.corrections) == (record_id, corrections):
        groups = before.groups
    # SQL: each step runs it; building a query takes 80-300 µs
    ids: list[str] = [i for (i,) in db.execute_sql(_GROUPS, (record_id,)).fetchall()]
    if fresh := [i for i in ids if i not in groups]:
        loaded: dict[str, list[LogLine]] = {i: [] for i in fresh}
        for line, _ in select_lines(db, f"g.id IN ({','.join('?' * len(fresh))})", fresh):
            loaded[line.group_id].append(line)
        groups = {**groups, **loaded}
    return LogSnapshot(record_id, corrections, {i: groups[i] for i in ids})


def read_waiting_lines(db: Database, record_id: str) -> list[LogLine]:
    """Return the observations outside the prompt: they enter it when messages leave the window."""
    marks = ("observation", "buffered")
    return add_earlier([x for x, _ in select_lines(db, _WAITING, (record_id, *marks))])


def select_lines(db: Database, where: str, values: Sequence[object]) -> list[tuple[LogLine, str]]:
    """Return (line, uncorrected text) of the groups `g` that `where` selects, in log order."""
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(f"{_LINES} WHERE {where} {_ORDER}", list(values)).fetchall()
    return [(_to_line(row), row[-1]) for row in rows]


def _to_line(row: Sequence[Any]) -> LogLine:
    values = list(row[:-1])
    for at, read in _READ:
        values[at] = read(values[at])
    return LogLine(*values)


def _load_flags(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))


_READ: list[tuple[int, Callable[[Any], Any]]] = [
    (list(_FIELDS).index(name), read)
    for name, read in (
        ("flags", _load_flags), ("metadata", json.loads), ("pinned", bool), ("edited", bool), ("forgotten", bool)
    )
]  # fmt: skip


class Generation(Struct, frozen=True):
    """One reflection of a record; tokens of the log lines it merged, and of itself."""

    group_id: str
    generation: int
    state: str
    input_tokens: int
    tokens: int
    merged_group_ids: tuple[str, ...]
    model: str
    created_at: int
    activated_at: int | None


def list_generations(db: Database, record_id: str) -> list[Generation]:
    """Return the reflections of a record, oldest first."""
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(_GENERATIONS, (record_id,)).fetchall()
    return [
        Generation(r[0], r[1], r[2], json.loads(r[3]).get("input_tokens", 0), r[4], tuple(json.loads(r[5])), *r[6:])
        for r in rows
    ]


def list_sources(db: Database, group_id: str) -> list[str]:
    """Return the ids of the messages that a group covers, oldest first, thread by thread.

    For a reflection, those of all groups it merged.
    """
    row = MessageRow
    here = row.select(row.id).order_by(row.message_index)
    return [
        message_id
        for group in get_groups(db, [group_id])
        for span in list_spans(group)
        for (message_id,) in here.where(
            row.thread_id == span.thread_id, row.message_index.between(span.first, span.last)
        )
        .tuples()
        .execute(db)
    ]


def find_group(db: Database, resource_id: str, text: str) -> tuple[Span, ...]:
    """Return the message ranges of the group in a workspace with the id or its short form `text`.

    Deleted threads are left out; empty without one. Raises `MemoryFailure` for an ambiguous form.
    """
    group, thread = GroupRow, ThreadRow
    here = group.select(group.id).join(thread, on=thread.id == group.thread_id).where(thread.resource_id == resource_id)
    with_place = here.where(group.first_index.is_null(False))
    matches: list[tuple[Span, ...]] = []
    for condition in _list_id_conditions(group.id, text):
        for (group_id,) in with_place.where(condition).order_by(group.pk.desc()).limit(20).tuples().execute(db):
            spans = (s for g in get_groups(db, [group_id]) for s in list_spans(g))
            if visible := tuple(s for s in spans if not threads.is_deleted(db, s.thread_id)):
                matches.append(visible)
        if matches:
            return _pick_one(matches, text)
    return ()


def _list_id_conditions(field: Any, text: str) -> list[Any]:
    """Return the conditions that an id is `text`, then that `text` is its short form."""
    return [field == text, *([make_suffix_condition(field, text)] if len(text) >= SHORTEST_ID else [])]


def _pick_one(matches: Sequence[Any], text: str) -> Any:
    """Return the only match. Raises `MemoryFailure` for several."""
    if len(matches) > 1:
        raise MemoryFailure(f"More than one id ends with {text}: write more characters.", code="ambiguous")
    return matches[0]


def list_thread_ids(db: Database, resource_id: str) -> list[str]:
    """Return the ids of a workspace's threads that are not deleted."""
    row = ThreadRow
    here = row.select(row.id).where(row.resource_id == resource_id, row.deleted_at.is_null())
    return [i for (i,) in here.tuples().execute(db)]


def find_message(db: Database, resource_id: str, text: str) -> tuple[str, str, int] | None:
    """Return (id, thread id, index) of the message in a workspace with the id or its short form `text`.

    Raises `MemoryFailure` for an ambiguous form.
    """
    row, thread = MessageRow, ThreadRow
    deleted = thread.select(thread.pk).where(thread.id == row.thread_id, thread.deleted_at.is_null(False))
    here = row.select(row.id, row.thread_id, row.message_index).where(
        row.resource_id == resource_id, ~fn.EXISTS(deleted)
    )
    for condition in _list_id_conditions(row.id, text):
        if matches := list(here.where(condition).limit(2).tuples().execute(db)):
            return _pick_one(matches, text)
    return None


class MessageExcerpt(Struct, frozen=True):
    """Beginning of a message's text, with its role, place and time."""

    thread_id: str
    index: int
    role: str
    text: str
    created_at: int
    title: str = ""


def list_unobserved_of_others(
    db: Database,
    record_id: str,
    resource_id: str,
    thread_id: str,
    *,
    recent: int = 8,
    limit: int = 40,
    characters: int = 1_000,
) -> list[MessageExcerpt]:
    """Return the newest messages of a workspace's other threads that a record has not observed.

    Of the `recent` threads last used, at most `limit` messages each, newest first.
    """
    # SQL: each step runs it; building a query takes 80-300 µs
    threads = db.execute_sql(_OTHERS, (resource_id, thread_id, recent)).fetchall()
    # SQL: calls a function of this program on packed texts
    return [
        MessageExcerpt(thread, *row, title=title)
        for thread, title in threads
        for row in db.execute_sql(_SAID, (characters, thread, find_cursor(db, record_id, thread), limit)).fetchall()
    ]


def list_actor_calls(db: Database, thread_id: str) -> list[tuple[int, str]]:
    """Return (time, model) of the agent's calls in a thread, in order."""
    # SQL: each step runs it; building a query takes 80-300 µs
    return [(r[0], r[1]) for r in db.execute_sql(_ACTORS, (thread_id,)).fetchall()]


# --- the block of earlier work ----------------------------------------------------------------------------


class CarryOver(Struct, frozen=True):
    """Earlier work in a workspace.

    The last thread, its title and task; lines worth knowing (newest thread first) and open tasks, each with its id.
    """

    thread_id: str
    title: str
    current_task: str
    lines: tuple[tuple[str, str], ...]
    tasks: tuple[tuple[str, str], ...]


def find_group_of_line(db: Database, line_id: str) -> str:
    """Return the id of the group of a line; "" if there is no such line."""
    row = ObservationRow
    groups = row.select(row.group_id).where(row.id == line_id).limit(1).tuples().execute(db)
    return next((group for (group,) in groups), "")


def has_earlier(db: Database, resource_id: str, thread_id: str) -> bool:
    """Return whether a workspace has other threads than this one."""
    row = ThreadRow
    others = row.select(row.id).where(row.resource_id == resource_id, row.id != thread_id, row.deleted_at.is_null())
    return bool(others.limit(1).tuples().execute(db))


def _is_worth_carrying(line: LogLine) -> bool:
    """Return whether a new thread gets a line: an important one, less than half of it replaced."""
    if line.forgotten or not (line.pinned or (line.priority == "high" and not line.depth)):
        return False
    replaced_words = sum(len(part.text.split()) for part in line.earlier)
    return not replaced_words or 2 * replaced_words < len(replacements.remove_marks(line.content).split())


def _choose_lines_to_carry(db: Database, thread_id: str, limit: int) -> list[LogLine]:
    """Return the newest lines of a thread worth carrying over, pinned ones first."""
    log = add_earlier([x for x, _ in select_lines(db, "g.thread_id = ? AND g.state = 'active'", (thread_id,))])
    return sorted((x for x in reversed(log) if _is_worth_carrying(x)), key=lambda x: not x.pinned)[:limit]


def build_carry_over(
    db: Database, resource_id: str, thread_id: str, *, recent: int = 5, limit: int = 60
) -> CarryOver | None:
    """Return the earlier work that a new thread begins with; None without an earlier thread."""
    row, message = ThreadRow, MessageRow
    messages = message.select(message.pk).where(message.thread_id == row.id)
    columns = row.id, row.title, row.metadata, row.updated_at
    others = row.select(*columns).where(row.resource_id == resource_id, row.id != thread_id)
    visible = others.where(row.parent_id.is_null(), row.deleted_at.is_null(), fn.EXISTS(messages))
    visible = visible.where(threads.has_own_messages())
    newest = visible.order_by(row.updated_at.desc()).limit(recent).tuples().execute(db)
    earlier = [each[:3] for each in newest if not threads.is_undone(*each[2:])]
    if not earlier:
        return None
    lines: dict[str, str] = {}  # text: id of the line that states it last
    for line in (line for each in earlier for line in _choose_lines_to_carry(db, each[0], limit)):
        lines.setdefault(replacements.NOTE.sub("", line.marked_text), line.id)
    task = TaskRow
    unclosed = task.select(task.handle, task.title, task.status, task.id).where(
        task.resource_id == resource_id, task.status.in_(("open", "in_progress")), task.deleted_at.is_null()
    )
    tasks = unclosed.order_by(task.status.desc(), task.priority, task.created_at).limit(12).tuples().execute(db)
    last, title, metadata = earlier[0]
    return CarryOver(
        last,
        title,
        metadata.get("current_task") or "",
        tuple((line_id, text) for text, line_id in lines.items()),
        tuple((task_id, f"{handle} {title} ({status})") for handle, title, status, task_id in tasks),
    )


def find_outdated(db: Database, line_ids: Sequence[str]) -> set[str]:
    """Return those of some lines that newer lines replace or the user removed."""
    # SQL: one statement for all ids, which are one parameter
    records = db.execute_sql(
        "SELECT DISTINCT g.record_id FROM json_each(?) j CROSS JOIN observations o ON o.id = j.value"
        " JOIN observation_groups g ON g.id = o.group_id",
        (json.dumps(list(line_ids)),),
    ).fetchall()
    logs = [line for (record_id,) in records for line in read_lines(db, record_id)]
    return {line.id for line in logs if line.earlier or line.forgotten} & set(line_ids)


class Pass(Struct, frozen=True):
    """One observation or reflection: tokens in and out, the model, when (Unix ms)."""

    tokens_before: int
    tokens_after: int
    model: str
    created_at: int


class Figures(Struct, frozen=True):
    """Figures of one record.

    `observation` and `reflection` are the newest ones, `generations` all reflections that were not discarded or undone.
    Findings of the faithfulness check: `marked_lines` of the log with `claims` that their source lacks, and important
    lines and paths that the log's reflections dropped. `ready_lines` are buffered, not yet in the context.
    """

    observation: Pass | None = None
    reflection: Pass | None = None
    generations: tuple[Generation, ...] = ()
    marked_lines: int = 0
    claims: int = 0
    dropped_lines: int = 0
    dropped_paths: int = 0
    ready_lines: int = 0


def compute_average_turn(db: Database, thread_id: str) -> int | None:
    """Return the mean tokens of the newest turns, None if there are fewer than two.

    If there are enough, the largest and the smallest are left out.
    """
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT role, token_count FROM messages WHERE thread_id = ? AND state = 'saved'"
        " ORDER BY message_index DESC LIMIT 400",
        (thread_id,),
    ).fetchall()
    turns: list[int] = []
    total = 0
    for role, tokens in rows:
        total += tokens
        if role == "user":
            turns.append(total)
            total = 0
        if len(turns) == TURNS:
            break
    if len(turns) >= ENOUGH:
        turns = sorted(turns)[1:-1]
    return None if len(turns) < 2 else sum(turns) // len(turns)


def compute_figures(db: Database, record_id: str) -> Figures:
    """Compute a record's figures from stored numbers. Read-only."""
    # SQL: each step runs it; building a query takes 80-300 µs
    last = db.execute_sql(
        "SELECT message_tokens, observation_tokens, model, created_at FROM observation_groups"
        " WHERE record_id = ? AND state IN ('buffered', 'active', 'superseded') AND kind = 'observation'"
        " AND observation_tokens > 0 ORDER BY pk DESC LIMIT 1",
        (record_id,),
    ).fetchone()
    # SQL: reads JSON inside a column
    marked, claims = db.execute_sql(
        "SELECT count(*), coalesce(sum(json_array_length(o.flags)), 0) FROM observation_groups g"
        " JOIN observations o ON o.group_id = g.id"
        " WHERE g.record_id = ? AND g.state = 'active' AND o.forgotten = 0 AND o.flags != '[]'",
        (record_id,),
    ).fetchone()
    # SQL: reads JSON inside a column
    lines, paths, ready = db.execute_sql(
        "SELECT coalesce(sum(json_array_length(metadata, '$.dropped.lines')), 0),"
        " coalesce(sum(json_array_length(metadata, '$.dropped.paths')), 0),"
        " (SELECT count(*) FROM observation_groups g JOIN observations o ON o.group_id = g.id"
        " WHERE g.record_id = ?1 AND g.kind = 'observation' AND g.state = 'buffered' AND o.forgotten = 0)"
        " FROM observation_groups WHERE record_id = ?1 AND state = 'active' AND kind = 'reflection'",
        (record_id,),
    ).fetchone()
    lasting = tuple(g for g in list_generations(db, record_id) if g.state != "discarded")
    reflected = (
        Pass(lasting[-1].input_tokens, lasting[-1].tokens, lasting[-1].model, lasting[-1].created_at)
        if lasting
        else None
    )
    return Figures(Pass(*last) if last else None, reflected, lasting, marked, claims, lines, paths, ready)
