"""List every column that holds a user's words, once: removing, masking and checking go by this list.

A text passes `entering` on its way into a column: secrets in it are masked there, whoever wrote it. `TABLES` are in the
order in which rows are removed: referring tables first. A test fails for a table or a column that is not listed.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from sakti.store.secrets import masked, masked_value


class Table(Struct, frozen=True):
    """Table and the kinds of its columns.

    `texts`: columns with words of the user or about what was said, which must hold no secret; `packed`: those whose
    values may be compressed; `json`: those that are read as JSON, with the replacement for an unreadable value.
    `plain`: columns without words: ids, numbers, words of our own. `thread` and `task`: conditions for the rows of a
    thread or a task (?1), if there are any.
    """

    name: str
    texts: tuple[str, ...] = ()
    json: tuple[tuple[str, str | None], ...] = ()
    packed: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    thread: str = ""
    task: str = ""


_OWN_RECORDS = "SELECT id FROM observational_memory WHERE lookup_key = 'thread:' || ?1"
# In a log that threads share, what was observed in one is that one's; what was made of several is undone before.
_GROUPS = f"record_id IN ({_OWN_RECORDS}) OR thread_id = ?1 AND kind = 'observation'"
_OWN_LINES = f"SELECT id FROM observations WHERE group_id IN (SELECT id FROM observation_groups WHERE {_GROUPS})"
_CARRIED = f"kind = 'thread' AND source_id = ?1 OR kind = 'line' AND source_id IN ({_OWN_LINES})"
_SAID = (
    "SELECT sakti_text(raw_content, parts) FROM messages WHERE thread_id = ?1 AND role = 'user' UNION ALL"
    " SELECT '!' || json_extract(metadata, '$.shell') FROM messages WHERE thread_id = ?1 AND role = 'user'"
)
_ITS_WORKSPACE = "resource_id = (SELECT resource_id FROM threads WHERE id = ?1)"

TABLES: tuple[Table, ...] = (
    Table(
        "search_docs",
        texts=("text", "idents", "prev", "summary", "paths"),
        plain=("kind", "doc_id", "resource_id", "thread_id", "task_id", "role"),
        thread=(
            "thread_id = ?1 AND kind IN ('message', 'working_memory')"
            f" OR kind IN ('observation', 'reflection') AND doc_id IN ({_OWN_LINES})"
        ),
        task="kind = 'task' AND doc_id = ?1",
    ),
    Table("reindexing", plain=("thread_id", "operation_id"), thread="thread_id = ?1"),
    Table(
        "request_blocks",
        texts=("text",),
        plain=("thread_id", "hash"),
        # also what requests of later threads quote of this one: before its rows of `carry_over` go
        thread=(
            f"thread_id = ?1 OR thread_id IN (SELECT thread_id FROM carry_over WHERE {_CARRIED}) AND EXISTS"
            f" (SELECT 1 FROM carry_over c WHERE c.thread_id = request_blocks.thread_id AND ({_CARRIED})"
            " AND instr(request_blocks.text, c.text))"
        ),
    ),
    Table(
        "carry_over",
        texts=("text",),
        plain=("thread_id", "kind", "source_id"),
        thread=f"thread_id = ?1 OR {_CARRIED}",
        task="kind = 'task' AND source_id = ?1",
    ),
    Table(
        "prompt_history",
        texts=("text",),
        plain=("resource_id", "thread_id"),
        thread=f"thread_id = ?1 OR thread_id IS NULL AND {_ITS_WORKSPACE} AND text IN ({_SAID})",
    ),
    Table(
        "unsent",
        texts=("draft", "queued"),
        json=(("queued", "[]"),),
        plain=("resource_id", "owner", "thread_id"),
        thread=f"thread_id = ?1 OR thread_id IS NULL AND {_ITS_WORKSPACE} AND draft IN ({_SAID})",
    ),
    Table(
        "observations",
        texts=("content", "edited", "category", "metadata", "flags"),
        json=(("metadata", "{}"), ("flags", "[]")),
        plain=("id", "group_id", "thread_id", "resource_id", "mode", "observed_date", "time", "priority"),
        thread=f"group_id IN (SELECT id FROM observation_groups WHERE {_GROUPS})",
    ),
    Table(
        "observation_groups",
        texts=("text", "current_task", "suggested_response", "metadata"),
        json=(("metadata", "{}"), ("message_ids", "[]"), ("merged_group_ids", "[]")),
        plain=(
            *("id", "record_id", "thread_id", "kind", "state", "mode", "first_message_id", "last_message_id"),
            *("message_ids", "merged_group_ids", "cycle_id", "operation_id", "model", "prompt_hash", "origin"),
        ),
        thread=_GROUPS,
    ),
    Table(
        "leases",
        plain=("record_id", "kind", "owner", "operation_id", "thread_id"),
        thread=f"record_id IN ({_OWN_RECORDS}) OR record_id = ?1",
    ),
    Table(
        "observational_memory",
        texts=("metadata",),
        json=(("metadata", "{}"),),
        plain=("id", "lookup_key", "scope", "thread_id", "resource_id", "origin_type", "observed_timezone"),
        thread="lookup_key = 'thread:' || ?1",
    ),
    Table(
        "compaction_records",
        texts=("focus", "summary", "before"),
        json=(("before", "{}"), ("original_message_ids", "[]"), ("group_ids", "[]")),
        plain=("id", "thread_id", "resource_id", "record_id", "original_message_ids", "group_ids"),
        thread="thread_id = ?1",
    ),
    Table(
        "working_memory",
        texts=("content",),
        plain=("id", "scope", "owner_id", "actor"),
        thread="scope = 'thread' AND owner_id = ?1",
    ),
    Table(
        "task_messages",
        plain=("task_id", "message_id", "relation"),
        thread="message_id IN (SELECT id FROM messages WHERE thread_id = ?1)",
        task="task_id = ?1",
    ),
    Table("task_labels", texts=("label",), plain=("task_id",), task="task_id = ?1"),
    Table("task_dependencies", plain=("task_id", "depends_on", "type"), task="task_id = ?1 OR depends_on = ?1"),
    Table(
        "task_events",
        texts=("before", "after", "actor"),
        json=(("before", None), ("after", None)),
        plain=("task_id", "resource_id", "action", "batch"),
        task="task_id = ?1",
    ),
    Table(
        "task_words",
        texts=("title", "body", "idents"),
        task="rowid = (SELECT pk FROM tasks WHERE id = ?1)",
    ),
    Table(
        "tasks",
        texts=("title", "description", "summary", "original", "metadata", "assignee"),
        json=(("original", None), ("metadata", "{}")),
        plain=(
            *("id", "resource_id", "handle", "status", "type", "session_id", "thread_id", "close_reason"),
            *("claim_owner", "state"),
        ),
        task="id = ?1",
    ),
    Table(
        "child_runs",
        texts=("goal", "report"),
        json=(("report", None),),
        plain=("child_id", "parent_id", "call_id", "mode", "agent", "state"),
        thread="child_id = ?1 OR parent_id = ?1",
    ),
    Table(
        "jobs",
        texts=("command",),
        plain=("thread_id", "state", "file"),
        thread="thread_id = ?1",
    ),
    Table(
        "origins",
        plain=("program", "entry_id", "thread_id", "message_id", "run_id"),
        thread="thread_id = ?1",
    ),
    Table(
        "steps",
        json=(("request", None),),
        plain=("id", "thread_id", "message_id", "purpose", "model", "stop_reason", "request"),
        thread="thread_id = ?1",
    ),
    Table(
        "messages",
        texts=("parts", "raw_content", "search_text", "injection_text", "paths", "summary", "metadata"),
        packed=("parts",),
        json=(("parts", None), ("paths", "[]"), ("part_tokens", "[]"), ("metadata", "{}")),
        plain=("id", "thread_id", "resource_id", "role", "task_id", "part_tokens", "token_counter", "state"),
        thread="thread_id = ?1",
    ),
    Table(
        "threads",
        texts=("title", "metadata"),
        json=(("metadata", "{}"),),
        plain=("id", "resource_id", "parent_id", "mode"),
        thread="id = ?1",
    ),
    Table("import_sources", json=(("counts", "{}"),), plain=("program", "path", "head", "counts", "last_run")),
    Table("task_counts", plain=("resource_id", "state", "type")),
    Table("approval_rules", texts=("rule",), plain=("resource_id", "decision")),
    Table("ui_state", texts=("value",), plain=("key",)),
    Table("schema_migrations", plain=("name",)),
    Table("packing", plain=("step",)),
    # indexes over search_docs: its triggers keep them, so what goes there goes here
    Table("search_words", texts=("text", "idents", "prev", "summary")),
    Table("search_trigrams", texts=("text",)),
    Table("search_vocabulary", texts=("term",)),
)
BY_NAME = {table.name: table for table in TABLES}
_JSON = {(table.name, column) for table in TABLES for column, _ in table.json}


def holds_words(table: str, column: str) -> bool:
    """Return whether a column holds a user's words."""
    return table in BY_NAME and column in BY_NAME[table].texts


def entering(table: str, column: str, text: str) -> str:
    """Return `text` as a column may hold it: without keys, tokens and passwords.

    Raises `KeyError` for a column without texts.
    """
    if column not in BY_NAME[table].texts:
        raise KeyError(f"{table}.{column} holds no text: name it in {__name__}")
    clean = masked(text)
    if clean != text and (table, column) in _JSON:  # text by text: a secret never spans two of them
        return json.dumps(masked_value(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    return clean


def leaving(text: str) -> str:
    """Mask secrets in `text` before it leaves the database for a list or a file."""
    return masked(text)


def leaving_all(value: Any) -> Any:
    """Mask secrets in every text of a JSON value, or of a struct's fields."""
    if isinstance(value, str):
        return leaving(value)
    if isinstance(value, dict):
        return {k: leaving_all(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [leaving_all(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple(leaving_all(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Struct):
        return replace(value, **{name: leaving_all(v) for name, v in structs.asdict(value).items()})
    return value
