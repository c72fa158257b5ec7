"""Read and write observation groups, their lines, and the sources of both.

Groups are append-only: buffered → active → superseded | discarded, with the times kept. Their states change in
`advance` alone. A reflection of a shared log covers several threads: its sections map parts of the text to threads.
They are in the group's metadata, written once with the group; its text does not show them.

Raw SQL, made of the models' columns: every window, every commit of memory and each hit of a list queries it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from sakti.core.types import Json
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.models import GroupRow, ObservationRow
from sakti.store.rows import Shape, insert, insert_many, select
from sakti.store.search import index as search_index
from sakti.store.search.index import Doc
from sakti.store.search.query import STOP_WORDS, WORD

GroupState: TypeAlias = Literal["buffered", "active", "superseded", "discarded"]

SECTIONS = "sections"
TITLE = "thread_title"  # key in a group's metadata: its thread's title at that time
LOOKED_AT = 2_000  # most messages of one group that are compared
HEAD = 4_000  # characters of each message that are compared


class Group(Struct, frozen=True):
    """Consecutive messages and the log text that replaces them.

    A reflection's range is that of the groups it merged; a group from a report or an import (`origin`) has none.
    Tokens: `message_tokens` of the raw messages, `observation_tokens` of `text` as stored.
    """

    id: str
    record_id: str
    thread_id: str
    kind: Literal["observation", "reflection"]
    state: GroupState
    text: str
    created_at: int
    mode: str = "default"
    first_message_id: str | None = None
    last_message_id: str | None = None
    first_index: int | None = None
    last_index: int | None = None
    message_ids: tuple[str, ...] = ()
    message_tokens: int = 0
    observation_tokens: int = 0
    generation: int = 0
    merged_group_ids: tuple[str, ...] = ()
    cycle_id: str = ""
    operation_id: str = ""
    model: str = ""
    prompt_hash: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    metadata: Json = field(default_factory=dict)
    activated_at: int | None = None
    superseded_at: int | None = None
    discarded_at: int | None = None
    origin: Literal["thread", "report", "import"] = "thread"

    @property
    def observes(self) -> bool:
        """Return whether the group itself covers messages of its thread; only then it moves the cursor."""
        return self.kind == "observation" and self.origin == "thread"

    @property
    def end(self) -> int | None:
        """Return the index of its last message; for a report, that of the message with the report."""
        return self.metadata.get("at") if self.origin == "report" else self.last_index


class NewLine(Struct, frozen=True):
    """Line of a group to be stored; `thread_id` is empty for a line of the group's own thread."""

    id: str
    line: int
    depth: int
    date: str
    time: str
    priority: str
    content: str
    metadata: Json
    pinned: bool = False
    flags: tuple[str, ...] = ()
    category: str = ""
    thread_id: str = ""


class ResultLease(Struct, frozen=True):
    """Lease under which a result was made."""

    kind: leases.LeaseKind
    owner: str
    operation_id: str
    thread_id: str = ""


GROUP = Shape(GroupRow, Group)
_SELECT = f"SELECT {GROUP.columns} FROM observation_groups WHERE"

NEW_LINE = Shape(ObservationRow, NewLine, date="observed_date")


def list_groups(db: Database, record_id: str, state: GroupState) -> list[Group]:
    """Return the groups of a record in a state, reflections first, each kind in the order of creation."""
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(
        f"{_SELECT} record_id = ? AND state = ? ORDER BY kind = 'observation', pk", (record_id, state)
    ).fetchall()
    return [GROUP.of(r) for r in rows]


def list_current_groups(db: Database, record_id: str, loaded: dict[str, Group]) -> list[Group]:
    """Return the active and buffered groups of a record, in the order of `list_groups`.

    Groups in `known` are not read again: only the state and times of a group change, and a reflection's metadata when
    it is activated.
    """
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT id, state, activated_at FROM observation_groups WHERE record_id = ?"
        " AND state IN ('active', 'buffered') ORDER BY state, kind = 'observation', pk",
        (record_id,),
    ).fetchall()
    here = [_with_state(loaded.get(i), state, time) for i, state, time in rows]
    fresh = [i for (i, _, _), group in zip(rows, here, strict=True) if group is None]
    read = {g.id: g for g in get_groups(db, fresh)} if fresh else {}
    return [group or read[i] for (i, _, _), group in zip(rows, here, strict=True)]


def _with_state(group: Group | None, state: GroupState, activated_at: int | None) -> Group | None:
    """Return a group in its stored state; None if it must be read again."""
    if group is None or group.state == state:
        return group
    return None if group.kind == "reflection" else structs.replace(group, state=state, activated_at=activated_at)


def get_groups(db: Database, ids: Collection[str]) -> list[Group]:
    marks = ",".join("?" * len(ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(f"{_SELECT} id IN ({marks}) ORDER BY pk", list(ids)).fetchall()
    return [GROUP.of(r) for r in rows]


def find_cursor(db: Database, record_id: str, thread_id: str) -> int:
    """Return the index of the last observed message of a thread, or -1.

    It is the end of the groups that are or were in the log.
    """
    # SQL: each step runs it; building a query takes 80-300 µs
    (last,) = db.execute_sql(
        "SELECT max(coalesce((SELECT max(last_index) FROM observation_groups WHERE record_id = ?1 AND thread_id = ?2"
        " AND kind = 'observation' AND state = 'active'), -1), coalesce((SELECT max(last_index) FROM observation_groups"
        " WHERE record_id = ?1 AND thread_id = ?2 AND kind = 'observation' AND state = 'superseded'), -1))",
        (record_id, thread_id),
    ).fetchone()
    return last


def insert_group(db: Database, group: Group, lines: Sequence[NewLine], resource_id: str) -> None:
    """Insert a group's row, its lines and their search rows; `advance` decides whether it may."""
    insert(db, GroupRow, **GROUP.values(group))
    of_group = {"group_id": group.id, "resource_id": resource_id, "mode": group.mode, "created_at": group.created_at}
    insert_many(
        db,
        ObservationRow,
        [NEW_LINE.values(line) | {"thread_id": line.thread_id or group.thread_id} for line in lines],
        same=of_group,
    )
    texts = [(line.id, line.content, line.metadata, line.thread_id or group.thread_id) for line in lines]
    search_index.put_all(db, _iter_docs(group, resource_id, group.created_at, texts))


def _iter_docs(
    group: Group, resource_id: str, created_at: int, lines: Iterable[tuple[str, str, Json, str]]
) -> Iterator[Doc]:
    """Yield the search rows of a group's lines (id, text, metadata, thread), each with the previous line."""
    previous = ""
    for line_id, text, metadata, thread_id in lines:
        yield Doc(
            kind=group.kind,
            doc_id=line_id,
            resource_id=resource_id,
            created_at=created_at,
            text=text,
            thread_id=thread_id,
            position=group.first_index or 0,
            prev=previous,
            paths=[str(p) for p in metadata.get("files", [])],
        )
        previous = text


def unindex_group(db: Database, group: Group) -> None:
    """Remove the lines of a group from search."""
    for (line_id,) in select(db, ObservationRow, ("id",), group_id=group.id):
        search_index.remove(db, group.kind, line_id)


def reindex_group(db: Database, group: Group) -> None:
    """Index the lines of a group again, with corrections."""
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT id, coalesce(edited, content), metadata, thread_id, resource_id FROM observations"
        " WHERE group_id = ? AND forgotten = 0 ORDER BY line",
        (group.id,),
    ).fetchall()
    texts = [(line_id, text, json.loads(metadata), thread_id) for line_id, text, metadata, thread_id, _ in rows]
    if rows:
        search_index.put_all(db, _iter_docs(group, rows[0][4], group.created_at, texts))


def list_verified_findings(db: Database, group_ids: Sequence[str]) -> list[str]:
    """Return the findings of children in some groups whose quotes are on the disk, newest first."""
    is_verified = "category = 'findings' AND (content LIKE '%[verified]' OR content LIKE '%[moved]')"
    return _format_lines(db, group_ids, is_verified)[::-1]


def list_pinned_lines(db: Database, group_ids: Sequence[str]) -> list[str]:
    """Return the pinned lines of some groups as the log writes them, oldest first."""
    return _format_lines(db, group_ids, "pinned = 1")


def _format_lines(db: Database, group_ids: Sequence[str], condition: str) -> list[str]:
    """Return the lines of some groups that meet a condition as the log writes them, oldest first."""
    marks = ",".join("?" * len(group_ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT coalesce(edited, content), priority, time FROM observations"
        f" WHERE group_id IN ({marks}) AND forgotten = 0 AND {condition} ORDER BY pk",
        list(group_ids),
    ).fetchall()
    return [format_line(*row) for row in rows]


def load_mode_data(db: Database, group_ids: Sequence[str]) -> tuple[dict[str, str], dict[str, Json]]:
    """Return the sections and the `mode_specific` fields of these groups' lines, by content."""
    marks = ",".join("?" * len(group_ids))
    # SQL: reads JSON inside a column
    rows = db.execute_sql(
        f"SELECT content, category, json_extract(metadata, '$.mode_specific') FROM observations"
        f" WHERE group_id IN ({marks})",
        list(group_ids),
    ).fetchall()
    sections = {content: category for content, category, _ in rows if category}
    return sections, {content: json.loads(fields) for content, _, fields in rows if fields and fields != "{}"}


def format_line(content: str, priority: str, time: str) -> str:
    sign = {"high": "🔴 ", "medium": "🟡 ", "low": "🟢 ", "done": "✅ "}.get(priority, "")
    return f"* {sign}{f'({time}) ' if time else ''}{content}"


class Span(Struct, frozen=True):
    """Messages `first` to `last` (indexes) of a thread, and its title then."""

    thread_id: str
    first: int
    last: int
    title: str = ""


class Section(Struct, frozen=True):
    """Consecutive lines of a group's text.

    Their number, the number of log rows among them, and the messages that they cover, one span per thread.
    """

    lines: int
    rows: int
    spans: tuple[Span, ...]


def make_section_metadata(sections: Sequence[Section]) -> Json:
    """Convert the sections of a new group to the form in its metadata."""
    return {SECTIONS: [[s.lines, s.rows, [[x.thread_id, x.first, x.last, x.title] for x in s.spans]] for s in sections]}


def read_sections(group: Group) -> tuple[Section, ...]:
    """Return the sections of a group; empty if all its text belongs to its own thread."""
    return tuple(
        Section(lines, rows, tuple(Span(*span) for span in spans))
        for lines, rows, spans in group.metadata.get(SECTIONS, ())
    )


def get_own_span(group: Group) -> tuple[Span, ...]:
    """Return the group's messages from its own thread; empty for a report or an import."""
    if group.first_index is None or group.last_index is None:
        return ()
    return (Span(group.thread_id, group.first_index, group.last_index, str(group.metadata.get(TITLE, ""))),)


def list_spans(group: Group) -> tuple[Span, ...]:
    """Return all messages that a group covers, one span per thread."""
    parts = read_sections(group)
    return merge_spans(x for s in parts for x in s.spans) if parts else get_own_span(group)


def list_row_spans(group: Group, row: int) -> tuple[Span, ...]:
    """Return the messages that one line of a group's log covers."""
    for section in read_sections(group):
        if row < section.rows:
            return section.spans
        row -= section.rows
    return get_own_span(group)


def get_row_thread(group: Group, row: int) -> str:
    """Return the thread of one line of a group's log; the group's thread if it covers several."""
    covered = list_row_spans(group, row)
    return covered[0].thread_id if len(covered) == 1 else group.thread_id


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge spans into one per thread, in order of appearance, with the last title."""
    out: dict[str, Span] = {}
    for span in spans:
        before = out.get(span.thread_id, span)
        first, last = min(before.first, span.first), max(before.last, span.last)
        out[span.thread_id] = Span(span.thread_id, first, last, span.title or before.title)
    return tuple(out.values())


class Origin(Struct, frozen=True):
    """Source of a log line.

    The messages `first` to `last` (indexes in their thread), and the one that shares the most words with the line.
    """

    group_id: str
    thread_id: str
    first: int
    last: int
    message_id: str
    index: int


def find_origin(db: Database, line_id: str) -> Origin | None:
    """Return the origin of a log line; None if it names no messages, or none remains."""
    stored = select(db, ObservationRow, ("group_id", "line", "content"), id=line_id)
    if not stored:
        return None
    group_id, line, content = stored[0]
    # SQL: calls a function of this program on packed texts
    messages = [
        (span, *message)
        for group in get_groups(db, [group_id])
        for span in list_row_spans(group, line)
        for message in db.execute_sql(
            f"SELECT id, message_index, substr(sakti_text(raw_content, parts), 1, {HEAD}) FROM messages"
            " WHERE thread_id = ? AND message_index BETWEEN ? AND ? ORDER BY message_index LIMIT ?",
            (span.thread_id, span.first, span.last, LOOKED_AT),
        ).fetchall()
    ]
    if not messages:
        return None
    span, message_id, index, _ = messages[_find_closest(content, (text for *_, text in messages))]
    return Origin(group_id, span.thread_id, span.first, span.last, message_id, index)


def _find_closest(content: str, texts: Iterable[str]) -> int:
    """Return the index of the text that shares the most words with `content`; ties go to the earliest."""
    words = _collect_words(content)
    shared = [len(words & _collect_words(text)) for text in texts]
    return shared.index(max(shared))


def _collect_words(text: str) -> set[str]:
    return {w for w in WORD.findall(text.lower()) if len(w) > 2 and w not in STOP_WORDS}
