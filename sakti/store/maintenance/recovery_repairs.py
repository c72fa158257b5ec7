"""Repair the rows copied out of a damaged file.

Unreadable values are replaced by placeholders, rows whose parent is lost get a new one, derived data is computed
again.

Raw SQL: the rows that are left of a damaged file may not conform to the models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sakti.core.clock import TimeIds
from sakti.store import packing, text_registry
from sakti.store.connection import Database
from sakti.store.memory import as_line, integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep, reindexing
from sakti.store.tasks import graph, questions
from sakti.store.tasks import rows as task_rows

if TYPE_CHECKING:
    from sakti.core.clock import Clock

LOST = "This message could not be read: the file was damaged."
TITLE = "Recovered thread"
MOST_GAPS = 100_000  # messages that a thread may have lost
# What refers to a row that is gone and says nothing without it.
_LOOSE = (
    ("steps", "thread_id NOT IN (SELECT id FROM threads)"),
    ("request_blocks", "thread_id NOT IN (SELECT id FROM threads)"),
    ("jobs", "thread_id NOT IN (SELECT id FROM threads)"),
    ("origins", "thread_id NOT IN (SELECT id FROM threads)"),
    ("child_runs", "child_id NOT IN (SELECT id FROM threads) OR parent_id NOT IN (SELECT id FROM threads)"),
    (
        "task_dependencies",
        "task_id NOT IN (SELECT id FROM tasks) OR depends_on NOT IN (SELECT id FROM tasks)",
    ),
    ("task_labels", "task_id NOT IN (SELECT id FROM tasks)"),
    ("task_messages", "task_id NOT IN (SELECT id FROM tasks) OR message_id NOT IN (SELECT id FROM messages)"),
    ("leases", "1"),  # none is active: the database is open nowhere else
)
_WORDS: tuple[tuple[str, str, tuple[str, ...], str | None], ...] = (
    ("messages", "role", ("user", "assistant", "tool", "system"), "system"),
    ("messages", "state", ("provisional", "saved", "withheld"), "saved"),
    ("steps", "purpose", ("actor", "observer", "reflector", "search", "side"), "actor"),
    ("observational_memory", "scope", ("thread", "resource"), "thread"),
    ("observational_memory", "origin_type", ("initialization", "observation", "reflection"), "observation"),
    ("observation_groups", "kind", ("observation", "reflection"), "observation"),
    ("observation_groups", "state", ("buffered", "active", "superseded", "discarded"), "active"),
    ("observations", "priority", ("high", "medium", "low", "done", "none"), "low"),
    ("tasks", "status", ("open", "in_progress", "closed"), "open"),
    ("tasks", "type", ("bug", "feature", "task", "epic", "chore"), "task"),
    ("tasks", "close_reason", ("completed", "wontfix", "duplicate"), None),
    ("child_runs", "state", ("running", "finished", "partial", "interrupted"), "interrupted"),
    ("jobs", "state", ("running", "ended", "stopped", "lost"), "lost"),
    ("approval_rules", "decision", ("allow", "ask", "deny"), "ask"),
    ("working_memory", "scope", ("resource", "thread"), "thread"),
)

# What migrations do to rows, by a column that came with them: a file of an older schema has not seen it.
_LATER: dict[str, tuple[str, ...]] = {
    "tasks.claim_owner": (
        "UPDATE tasks SET session_id = thread_id WHERE status = 'in_progress' AND thread_id IS NOT NULL"
        " AND session_id IS NOT NULL AND session_id NOT LIKE 'shell:%' AND session_id NOT LIKE 'user:%'",
    ),
    "prompt_history.thread_id": (
        "UPDATE threads SET metadata = json_remove(metadata, '$.carry_over')",
        "UPDATE threads SET title = sakti_masked(title) WHERE title != sakti_masked(title)",
    ),
}


def repair(db: Database, clock: Clock, lacking: Collection[str] = ()) -> list[str]:
    """Repair the rows; return sentences about repairs that matter to the user.

    `lacking`: columns that the damaged file's tables did not have yet.
    """
    repairs: list[str] = []

    def tell(count: int, text: str) -> None:
        if count:
            repairs.append(f"{count} {text}")

    connection: Any = db.connection()
    with connection:
        # SQL: works on rows that the models do not allow
        db.execute_sql("DELETE FROM task_counts")  # their keys may become the same; they are counted in the end
        with index_upkeep.past_triggers(db):  # they read what is repaired here
            mended = _readable_texts(db)
        tell(mended, "texts had unreadable characters, replaced by �")
        tell(_known_words(db), "rows had invalid values, replaced by the defaults")
        tell(_readable_json(db), "values could not be read: messages keep their plain text where there is one")
        for statement in (s for column, some in _LATER.items() if column in lacking for s in some):
            # SQL: works on rows that the models do not allow
            db.execute_sql(statement)
        tell(_missing_threads(db), "threads were lost but not their messages: they have new titles")
        _missing_records(db)
        tell(_missing_groups(db), "groups of observations were lost but not their lines")
        for table, loose in _LOOSE:
            # SQL: works on rows that the models do not allow
            db.execute_sql(f"DELETE FROM {table} WHERE {loose}")
        tell(_gaps(db, clock), "messages were lost in the middle of a thread, each replaced by a note")
        # SQL: works on rows that the models do not allow
        records = [i for (i,) in db.execute_sql("SELECT id FROM observational_memory").fetchall()]
        repairs += [done for record in records if (done := integrity.mend(db, record, clock.now()))]
    _derive(db)
    # SQL: works on rows that the models do not allow
    db.execute_sql("INSERT OR IGNORE INTO packing VALUES ('messages', 0)")  # those of an older schema are not packed
    packing.pack_all(db, math.inf)
    return repairs


def _columns(db: Database, kind: str) -> Iterator[tuple[str, str]]:
    # SQL: the schema itself, which no model describes
    rows = db.execute_sql(
        "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.type = ?"
        " AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND m.name NOT LIKE 'search\\___%\\_%' ESCAPE '\\'"
        " AND m.name NOT LIKE 'task\\_words\\_%' ESCAPE '\\'",
        (kind,),
    ).fetchall()
    return iter([(str(t), str(c)) for t, c in rows])


def _readable_texts(db: Database) -> int:
    """Convert texts to valid UTF-8 and values to the type of their column; return how many texts changed."""
    connection: Any = db.connection()
    connection.create_scalar_function("sakti_is_text", _is_text, 1)
    connection.create_scalar_function("sakti_as_text", _as_text, 1)
    mended = 0
    for table, column in _columns(db, "TEXT"):
        packed = (
            "0"
            if column not in _packed_columns(table)
            else f"typeof({column}) = 'blob' AND sakti_unpacked({column}) != ''"
        )
        # SQL: calls a function that is registered for this repair
        db.execute_sql(
            f"UPDATE {table} SET {column} = sakti_as_text(CAST({column} AS BLOB)) WHERE {column} IS NOT NULL"
            f" AND (typeof({column}) != 'text' OR NOT sakti_is_text(CAST({column} AS BLOB))) AND NOT ({packed})"
        )
        mended += db.connection().changes()
    for table, column in _columns(db, "INTEGER"):
        if column != "pk":
            # SQL: works on rows that the models do not allow
            db.execute_sql(f"UPDATE {table} SET {column} = 0 WHERE typeof({column}) NOT IN ('integer', 'null')")
    return mended


def _packed_columns(table: str) -> Sequence[str]:
    """Return the columns of a table that may hold compressed values."""
    return text_registry.by_name()[table].packed if table in text_registry.by_name() else ()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _known_words(db: Database) -> int:
    """Replace words that a column's CHECK does not allow by the usual one; return how many."""
    mended = 0
    for table, column, allowed, usual in _WORDS:
        marks = ", ".join("?" * len(allowed))
        # SQL: works on rows that the models do not allow
        db.execute_sql(
            f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL AND {column} NOT IN ({marks})",
            (usual, *allowed),
        )
        mended += db.connection().changes()
    # SQL: works on rows that the models do not allow
    db.execute_sql("UPDATE tasks SET priority = 2 WHERE priority NOT BETWEEN 0 AND 4")
    return mended


def _readable_json(db: Database) -> int:
    mended = 0
    lost = f"json_object('t', 'marker', 'kind', 'withheld', 'text', '{LOST}')"
    plain_text = (
        f"json_array(CASE raw_content WHEN '' THEN {lost} ELSE json_object('t', 'text', 'text', raw_content) END)"
    )
    for table in text_registry.tables():
        for column, usual in table.json:
            text = f"sakti_unpacked({column})" if column in table.packed else column
            wrong = f"{column} IS NOT NULL AND NOT json_valid({text})"
            value = "NULL" if usual is None else f"'{usual}'"
            if (table.name, column) == ("messages", "parts"):
                value = plain_text
                # SQL: reads JSON inside a column
                db.execute_sql(f"UPDATE messages SET part_tokens = json_array(token_count) WHERE {wrong}")
            # SQL: works on rows that the models do not allow
            db.execute_sql(f"UPDATE {table.name} SET {column} = {value} WHERE {wrong}")
            mended += db.connection().changes()
    return mended


def _missing_threads(db: Database) -> int:
    count = 0
    for table in ("messages", "observations", "compaction_records"):
        # SQL: works on rows that the models do not allow
        db.execute_sql(
            "INSERT OR IGNORE INTO threads (id, resource_id, title, created_at, updated_at)"
            f" SELECT thread_id, min(resource_id), '{TITLE}', min(created_at), max(created_at) FROM {table}"
            " WHERE thread_id NOT IN (SELECT id FROM threads) GROUP BY thread_id"
        )
        count += db.connection().changes()
    return count


def _missing_records(db: Database) -> None:
    """Insert a record for groups whose own was lost, with how far it has observed its threads."""
    # SQL: works on rows that the models do not allow
    lost = db.execute_sql(
        "SELECT g.record_id, min(g.thread_id), count(DISTINCT g.thread_id), min(g.created_at), t.resource_id"
        " FROM observation_groups g JOIN threads t ON t.id = g.thread_id"
        " WHERE g.record_id NOT IN (SELECT id FROM observational_memory) GROUP BY g.record_id"
    ).fetchall()
    for record_id, thread_id, count, created_at, resource_id in lost:
        is_single = count == 1
        key = f"thread:{thread_id}" if is_single else f"resource:{resource_id}"
        # SQL: works on rows that the models do not allow
        created = db.execute_sql(
            "INSERT OR IGNORE INTO observational_memory (id, lookup_key, scope, thread_id, resource_id, origin_type,"
            " created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'observation', ?, ?) RETURNING 1",
            (record_id, key, "thread" if is_single else "resource", thread_id if is_single else None, resource_id,
             created_at, created_at),
        ).fetchone()  # fmt: skip
        if created is None:
            # SQL: works on rows that the models do not allow
            db.execute_sql(
                "UPDATE observation_groups SET record_id = (SELECT id FROM observational_memory WHERE lookup_key = ?)"
                " WHERE record_id = ?",
                (key, record_id),
            )
    # SQL: works on rows that the models do not allow
    db.execute_sql(
        "DELETE FROM observation_groups WHERE record_id NOT IN (SELECT id FROM observational_memory)"
        " AND thread_id NOT IN (SELECT id FROM threads)"
        " AND id NOT IN (SELECT group_id FROM observations)"
    )


def _missing_groups(db: Database) -> int:
    """Insert a group for lines whose own was lost, so that they stay in the log; return how many."""
    # SQL: works on rows that the models do not allow
    lost = db.execute_sql(
        "SELECT group_id, min(thread_id), min(resource_id), min(created_at) FROM observations"
        " WHERE group_id NOT IN (SELECT id FROM observation_groups) GROUP BY group_id ORDER BY min(pk)"
    ).fetchall()
    for group_id, thread_id, resource_id, created_at in lost:
        key = f"thread:{thread_id}"
        # SQL: works on rows that the models do not allow
        db.execute_sql(
            "INSERT OR IGNORE INTO observational_memory (id, lookup_key, scope, thread_id, resource_id, origin_type,"
            " created_at, updated_at) VALUES (?, ?, 'thread', ?, ?, 'observation', ?, ?)",
            (f"recovered-{thread_id}", key, thread_id, resource_id, created_at, created_at),
        )
        # SQL: works on rows that the models do not allow
        lines = db.execute_sql(
            "SELECT coalesce(edited, content), priority, time FROM observations WHERE group_id = ? AND forgotten = 0"
            " ORDER BY line",
            (group_id,),
        ).fetchall()
        # SQL: works on rows that the models do not allow
        db.execute_sql(
            "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, text, created_at, activated_at)"
            " VALUES (?, (SELECT id FROM observational_memory WHERE lookup_key = ?), ?, 'observation', 'active', ?, ?,"
            " ?)",
            (group_id, key, thread_id, "\n".join(as_line(*line) for line in lines), created_at, created_at),
        )
    return len(lost)


def _gaps(db: Database, clock: Clock) -> int:
    """Insert a placeholder for each lost message, so that the others keep their indexes; return how many."""
    ids, filled = TimeIds(clock), 0
    parts = json.dumps([{"t": "marker", "kind": "withheld", "text": LOST}])
    # SQL: works on rows that the models do not allow
    for thread_id, resource_id, last in db.execute_sql(
        "SELECT thread_id, min(resource_id), max(message_index) FROM messages GROUP BY thread_id"
        " HAVING max(message_index) + 1 != count(*)"
    ).fetchall():
        # SQL: works on rows that the models do not allow
        there: dict[int, int] = dict(
            db.execute_sql(
                "SELECT message_index, created_at FROM messages WHERE thread_id = ?", (thread_id,)
            ).fetchall()
        )
        if last > len(there) + MOST_GAPS:
            continue  # the number is none
        time = there[min(there)]
        for index in range(last + 1):
            time = there.get(index, time)
            if index in there:
                continue
            # SQL: works on rows that the models do not allow
            db.execute_sql(
                "INSERT INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content, state,"
                " part_tokens, created_at) VALUES (?, ?, ?, 'system', ?, ?, '', 'withheld', '[0]', ?)",
                (ids.new(), thread_id, resource_id, index, parts, time),
            )
            filled += 1
    return filled


def _derive(db: Database) -> None:
    """Compute the readiness of tasks, and everything in the search index."""
    connection: Any = db.connection()
    with connection:
        # SQL: works on rows that the models do not allow
        for (resource_id,) in db.execute_sql("SELECT DISTINCT resource_id FROM tasks").fetchall():
            graph.count_again(db, resource_id)
            for task in questions.all_live(db, resource_id):
                task_rows.update(db, task.id, title=task.title)  # indexes it
        # SQL: works on rows that the models do not allow
        for (thread_id,) in db.execute_sql("SELECT id FROM threads WHERE deleted_at IS NULL").fetchall():
            if _has_unknown_lines(db, thread_id):
                for pk in reindexing.lines_of(db, thread_id):
                    reindexing.index_line(db, pk)
        _index_pages(db)
        search_index.index_messages(db, search_index.unindexed(db))


def _has_unknown_lines(db: Database, thread_id: str) -> bool:
    # SQL: works on rows that the models do not allow
    return (
        db.execute_sql(
            "SELECT 1 FROM observations o JOIN observation_groups g ON g.id = o.group_id WHERE o.thread_id = ?"
            " AND g.state != 'discarded' AND o.forgotten = 0 AND NOT EXISTS (SELECT 1 FROM search_docs d"
            " WHERE d.kind IN ('observation', 'reflection') AND d.doc_id = o.id) LIMIT 1",
            (thread_id,),
        ).fetchone()
        is not None
    )


def _index_pages(db: Database) -> None:
    """Index the newest versions of working memory."""
    # SQL: works on rows that the models do not allow
    for scope, owner_id, content, created_at, resource_id in db.execute_sql(
        "SELECT w.scope, w.owner_id, w.content, w.created_at, CASE w.scope WHEN 'thread' THEN t.resource_id"
        " ELSE w.owner_id END AS resource FROM working_memory w LEFT JOIN threads t ON t.id = w.owner_id"
        " WHERE w.version = (SELECT max(version) FROM working_memory n WHERE n.scope = w.scope"
        " AND n.owner_id = w.owner_id) AND t.deleted_at IS NULL AND resource IS NOT NULL"
    ).fetchall():
        search_index.put(
            db,
            kind="working_memory",
            doc_id=f"{scope}:{owner_id}",
            resource_id=resource_id,
            created_at=created_at,
            text=content,
            thread_id=owner_id if scope == "thread" else None,
        )
