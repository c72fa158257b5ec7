"""What panes and tools read of memory: log lines, generations, where a line comes from. Read-only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sakti.core.types import Json
from sakti.store import replaced, threads
from sakti.store.connection import Database
from sakti.store.memory.group_rows import cursor, groups_by_id
from sakti.store.memory.sections import Span, spans


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the active log. `content` is what a correction made of it where there is one; `earlier` what of it
    newer lines of the same look at the log replace."""

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
    earlier: tuple[replaced.Earlier, ...] = ()

    @property
    def marked(self) -> str:
        """The text as people read it: with a mark behind what a newer line replaces."""
        return replaced.with_marks(self.content, self.earlier, self.date)


def with_earlier(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines of a log, in its order, each with what the later ones among them replace of it."""
    rows = [replaced.Row(x.id, x.content, x.date, x.time, x.metadata, x.forgotten) for x in lines]
    found = replaced.found(rows)
    return [dataclasses.replace(x, earlier=found[x.id]) if x.id in found else x for x in lines]


def log_lines(db: Database, record_id: str, *, states: Sequence[str] = ("active",)) -> list[LogLine]:
    """The lines of a record's log in the order in which the model sees them."""
    marks = ",".join("?" * len(states))
    found = lines_where(db, f"g.record_id = ? AND g.state IN ({marks})", (record_id, *states))
    return with_earlier([line for line, _ in found])


def lines_where(db: Database, where: str, values: Sequence[object]) -> list[tuple[LogLine, str]]:
    """(line, its text before any correction) of the groups `g` that `where` chooses, in the log's order."""
    rows = db.execute_sql(
        "SELECT o.id, o.group_id, g.kind, g.state, o.observed_date, o.time, o.priority, o.depth,"
        " coalesce(o.edited, o.content), o.flags, o.pinned, o.edited IS NOT NULL, o.forgotten, o.metadata,"
        " g.first_index, g.last_index, o.content, o.category"
        " FROM observation_groups g JOIN observations o ON o.group_id = g.id"
        f" WHERE {where}"
        " ORDER BY g.state = 'buffered', g.kind = 'observation', g.pk, o.line",
        list(values),
    ).fetchall()
    return [
        (
            LogLine(
                id=r[0],
                group_id=r[1],
                kind=r[2],
                state=r[3],
                date=r[4],
                time=r[5],
                priority=r[6],
                depth=r[7],
                content=r[8],
                flags=tuple(json.loads(r[9])),
                pinned=bool(r[10]),
                edited=bool(r[11]),
                forgotten=bool(r[12]),
                metadata=json.loads(r[13]),
                first_index=r[14],
                last_index=r[15],
                category=r[17],
            ),
            r[16],
        )
        for r in rows
    ]


@dataclass(frozen=True, slots=True)
class Generation:
    """One reflection of a record. Tokens: of the log lines it merged, and of itself."""

    group_id: str
    generation: int
    state: str
    input_tokens: int
    tokens: int
    merged_group_ids: tuple[str, ...]
    model: str
    created_at: int
    activated_at: int | None


def generations(db: Database, record_id: str) -> list[Generation]:
    """The reflections of a record, oldest first."""
    rows = db.execute_sql(
        "SELECT id, generation, state, metadata, observation_tokens, merged_group_ids, model, created_at,"
        " activated_at"
        " FROM observation_groups WHERE record_id = ? AND kind = 'reflection' ORDER BY pk",
        (record_id,),
    ).fetchall()
    return [
        Generation(r[0], r[1], r[2], json.loads(r[3]).get("input_tokens", 0), r[4], tuple(json.loads(r[5])), *r[6:])
        for r in rows
    ]


def sources_of_group(db: Database, group_id: str) -> list[str]:
    """Ids of the messages that a group stands for, oldest first, thread by thread; of a reflection, those of all it
    merged."""
    return [
        row[0]
        for group in groups_by_id(db, [group_id])
        for span in spans(group)
        for row in db.execute_sql(
            "SELECT id FROM messages WHERE thread_id = ? AND message_index BETWEEN ? AND ? ORDER BY message_index",
            (span.thread_id, span.first, span.last),
        ).fetchall()
    ]


def find_group(db: Database, resource_id: str, text: str) -> tuple[Span, ...]:
    """The messages of threads that are not deleted that the newest group of a workspace stands for whose id is or ends
    with `text`; empty where there is none."""
    like = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    found = db.execute_sql(
        "SELECT g.id FROM observation_groups g JOIN threads t ON t.id = g.thread_id WHERE t.resource_id = ?"
        " AND g.id LIKE ? ESCAPE '\\' AND g.first_index IS NOT NULL ORDER BY g.pk DESC LIMIT 20",
        (resource_id, f"%{like}"),
    )
    for (group_id,) in found.fetchall():
        known = [s for g in groups_by_id(db, [group_id]) for s in spans(g) if not threads.is_deleted(db, s.thread_id)]
        if known:
            return tuple(known)
    return ()


def thread_ids(db: Database, resource_id: str) -> list[str]:
    """The threads of a workspace that are not deleted."""
    rows = db.execute_sql("SELECT id FROM threads WHERE resource_id = ? AND deleted_at IS NULL", (resource_id,))
    return [i for (i,) in rows.fetchall()]


def find_message(db: Database, resource_id: str, text: str) -> tuple[str, str, int] | None:
    """(id, thread id, index) of the newest message of a workspace whose id is or ends with `text`."""
    like = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    row = (
        db.execute_sql(
            "SELECT id, thread_id, message_index FROM messages WHERE id = ? AND resource_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = thread_id AND t.deleted_at IS NOT NULL)",
            (text, resource_id),
        ).fetchone()
        or db.execute_sql(
            "SELECT id, thread_id, message_index FROM messages"
            " WHERE resource_id = ? AND id LIKE ? ESCAPE '\\'"
            " AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = thread_id AND t.deleted_at IS NOT NULL)"
            " ORDER BY created_at DESC LIMIT 1",
            (resource_id, f"%{like}"),
        ).fetchone()
    )
    return None if row is None else (row[0], row[1], row[2])


@dataclass(frozen=True, slots=True)
class Said:
    """The beginning of a message's text, and who said it where and when."""

    thread_id: str
    index: int
    role: str
    text: str
    created_at: int
    title: str = ""


def unobserved_elsewhere(
    db: Database,
    record_id: str,
    resource_id: str,
    thread_id: str,
    *,
    recent: int = 8,
    limit: int = 40,
    characters: int = 1_000,
) -> list[Said]:
    """What was last said in a workspace's other threads that a record has not observed: of the `recent` threads
    last talked in, at most `limit` messages of each, the newest first."""
    threads = db.execute_sql(
        "SELECT id, title FROM threads WHERE resource_id = ? AND id != ? AND parent_id IS NULL AND deleted_at IS NULL"
        " ORDER BY updated_at DESC LIMIT ?",
        (resource_id, thread_id, recent),
    ).fetchall()
    return [
        Said(thread, *row, title=title)
        for thread, title in threads
        for row in db.execute_sql(
            "SELECT message_index, role, substr(raw_content, 1, ?), created_at FROM messages"
            " WHERE thread_id = ? AND message_index > ? AND state = 'saved' AND role != 'system'"
            " AND instr(metadata, '\"synthetic\"') = 0 ORDER BY message_index DESC LIMIT ?",
            (characters, thread, cursor(db, record_id, thread), limit),
        ).fetchall()
    ]


def actors(db: Database, thread_id: str) -> list[tuple[int, str]]:
    """(time, model) of the agent's calls in a thread, in order."""
    rows = db.execute_sql(
        "SELECT created_at, model FROM steps WHERE thread_id = ? AND purpose = 'actor' ORDER BY pk", (thread_id,)
    ).fetchall()
    return [(r[0], r[1]) for r in rows]


# --- what a new thread begins with ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Earlier work in a workspace: the last thread, its title and task; lines worth knowing (newest thread first) and
    open tasks, each with its id."""

    thread_id: str
    title: str
    current_task: str
    lines: tuple[tuple[str, str], ...]
    tasks: tuple[tuple[str, str], ...]


def carry_over(db: Database, resource_id: str, thread_id: str, *, recent: int = 5, limit: int = 60) -> CarryOver | None:
    """What a new thread of a workspace may be told; None where there is no earlier thread."""
    threads = db.execute_sql(
        "SELECT id, title, metadata FROM threads WHERE resource_id = ? AND id != ? AND parent_id IS NULL"
        " AND deleted_at IS NULL"
        " AND EXISTS (SELECT 1 FROM messages m WHERE m.thread_id = threads.id)"
        " ORDER BY updated_at DESC LIMIT ?",
        (resource_id, thread_id, recent),
    ).fetchall()
    if not threads:
        return None
    lines: dict[str, str] = {}  # text: where it was said last
    for identifier, _, _ in threads:
        log = with_earlier([x for x, _ in lines_where(db, "g.thread_id = ? AND g.state = 'active'", (identifier,))])
        worth = [x for x in reversed(log) if not x.forgotten and (x.pinned or (x.priority == "high" and not x.depth))]
        worth.sort(key=lambda x: not x.pinned)
        for line in worth[:limit]:
            lines.setdefault(line.marked, line.id)
    tasks = db.execute_sql(
        "SELECT handle, title, status, id FROM tasks WHERE resource_id = ? AND status IN ('open', 'in_progress')"
        " AND deleted_at IS NULL ORDER BY status DESC, priority, created_at LIMIT 12",
        (resource_id,),
    ).fetchall()
    last, title, metadata = threads[0]
    return CarryOver(
        last,
        title,
        json.loads(metadata).get("current_task") or "",
        tuple((line_id, text) for text, line_id in lines.items()),
        tuple((task_id, f"{handle} {title} ({status})") for handle, title, status, task_id in tasks),
    )
