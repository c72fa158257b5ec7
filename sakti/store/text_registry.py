"""List every column that holds a user's words, once: removing, masking and checking use this list.

The models give the kinds of the columns; this module adds the order in which rows are removed, referring tables first,
and which rows belong to a thread or a task. A test fails for a table or a column that is not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from sakti.core.lazy import lazy_imports
from sakti.store.secrets import mask_secrets

with lazy_imports:  # a query about tasks reads this module, but does not need the models
    from sakti.store import models

if TYPE_CHECKING:
    from peewee import Model


class TextTable(Struct, frozen=True):
    """Table and the kinds of its columns.

    `texts`: columns with words of a user or a conversation, which must contain no secret; `packed`: those whose values
    may be compressed; `json`: JSON columns, each with the replacement for an unreadable value. `plain`: columns without
    words, such as ids and kinds. `thread` and `task`: conditions for the rows of a thread or a task (?1), if any.
    """

    name: str
    texts: tuple[str, ...] = ()
    json: tuple[tuple[str, str | None], ...] = ()
    packed: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    thread: str = ""
    task: str = ""


def _derive(model: type[Model]) -> TextTable:
    name = models.get_meta(model).table_name
    fields = [f for f in models.get_meta(model).sorted_fields if isinstance(f, models.TextField)]
    json_fields = [f for f in fields if isinstance(f, models.JsonField)]
    return TextTable(
        name,
        texts=_select_columns(fields, lambda f: f.has_words),
        json=tuple((f.column_name, None if f.null else f.if_unreadable) for f in json_fields),
        packed=_select_columns(fields, lambda f: isinstance(f, models.PartsField)),
        plain=(*_select_columns(fields, lambda f: not f.has_words), *_GENERATED.get(name, ())),
    )


def _select_columns(fields: Iterable[models.TextField], belongs: Callable[[models.TextField], bool]) -> tuple[str, ...]:
    return tuple(field.column_name for field in fields if belongs(field))


class OwnedRows(Struct, frozen=True):
    """Conditions for the rows of a thread or a task (?1) in a table; "" if it has none of them."""

    table: str
    thread: str = ""
    task: str = ""


_OWN_RECORDS = "SELECT id FROM observational_memory WHERE lookup_key = 'thread:' || ?1"
# In a shared log the observations of a thread belong to it; reflections on several threads are undone before.
_GROUPS = f"record_id IN ({_OWN_RECORDS}) OR thread_id = ?1 AND kind = 'observation'"
_OWN_LINES = f"SELECT id FROM observations WHERE group_id IN (SELECT id FROM observation_groups WHERE {_GROUPS})"
_CARRIED = f"kind = 'thread' AND source_id = ?1 OR kind = 'line' AND source_id IN ({_OWN_LINES})"
_SAID = (
    "SELECT sakti_text(raw_content, parts) FROM messages WHERE thread_id = ?1 AND role = 'user' UNION ALL"
    " SELECT '!' || json_extract(metadata, '$.shell') FROM messages WHERE thread_id = ?1 AND role = 'user'"
)
_UNNAMED = "thread_id IS NULL AND resource_id = (SELECT resource_id FROM threads WHERE id = ?1)"

# In the order in which rows are removed.
_ROWS = (
    OwnedRows(
        "search_docs",
        thread=(
            "thread_id = ?1 AND kind IN ('message', 'working_memory')"
            f" OR kind IN ('observation', 'reflection') AND doc_id IN ({_OWN_LINES})"
        ),
        task="kind = 'task' AND doc_id = ?1",
    ),
    OwnedRows("reindexing", thread="thread_id = ?1"),
    # also quotations of this thread in requests of later ones: removed before its rows of `carry_over`
    OwnedRows(
        "request_blocks",
        thread=(
            f"thread_id = ?1 OR thread_id IN (SELECT thread_id FROM carry_over WHERE {_CARRIED}) AND EXISTS"
            f" (SELECT 1 FROM carry_over c WHERE c.thread_id = request_blocks.thread_id AND ({_CARRIED})"
            " AND instr(request_blocks.text, c.text))"
        ),
    ),
    OwnedRows("carry_over", thread=f"thread_id = ?1 OR {_CARRIED}", task="kind = 'task' AND source_id = ?1"),
    OwnedRows("prompt_history", thread=f"thread_id = ?1 OR {_UNNAMED} AND text IN ({_SAID})"),
    OwnedRows("unsent", thread=f"thread_id = ?1 OR {_UNNAMED} AND draft IN ({_SAID})"),
    OwnedRows("observations", thread=f"group_id IN (SELECT id FROM observation_groups WHERE {_GROUPS})"),
    OwnedRows("observation_groups", thread=_GROUPS),
    OwnedRows("leases", thread=f"record_id IN ({_OWN_RECORDS}) OR record_id = ?1"),
    OwnedRows("observational_memory", thread="lookup_key = 'thread:' || ?1"),
    OwnedRows("compaction_records", thread="thread_id = ?1"),
    OwnedRows("working_memory", thread="scope = 'thread' AND owner_id = ?1"),
    OwnedRows(
        "task_messages", thread="message_id IN (SELECT id FROM messages WHERE thread_id = ?1)", task="task_id = ?1"
    ),
    OwnedRows("task_labels", task="task_id = ?1"),
    OwnedRows("task_dependencies", task="task_id = ?1 OR depends_on = ?1"),
    OwnedRows("task_events", task="task_id = ?1"),
    OwnedRows("task_words", task="rowid = (SELECT pk FROM tasks WHERE id = ?1)"),
    OwnedRows("tasks", task="id = ?1"),
    OwnedRows("child_runs", thread="child_id = ?1 OR parent_id = ?1"),
    OwnedRows("jobs", thread="thread_id = ?1"),
    OwnedRows("origins", thread="thread_id = ?1"),
    OwnedRows("steps", thread="thread_id = ?1"),
    OwnedRows("messages", thread="thread_id = ?1"),
    OwnedRows("threads", thread="id = ?1"),
    OwnedRows("import_sources"),
    OwnedRows("task_counts"),
    OwnedRows("approval_rules"),
    OwnedRows("ui_state"),
    OwnedRows("schema_migrations"),
    OwnedRows("packing"),
    # indexes of search_docs, whose triggers keep them up to date
    OwnedRows("search_words"),
    OwnedRows("search_trigrams"),
    OwnedRows("search_vocabulary"),
)
_WITHOUT_MODEL = {
    "task_words": TextTable("task_words", texts=("title", "body", "idents")),
    "schema_migrations": TextTable("schema_migrations", plain=("name",)),
    "search_words": TextTable("search_words", texts=("text", "idents", "prev", "summary")),
    "search_trigrams": TextTable("search_trigrams", texts=("text",)),
    "search_vocabulary": TextTable("search_vocabulary", texts=("term",)),
}
_GENERATED = {"tasks": ("state",)}  # generated columns, which only the schema has


@cache
def list_tables() -> tuple[TextTable, ...]:
    """Return all tables in the order in which rows are removed."""
    derived = _WITHOUT_MODEL | {models.get_meta(model).table_name: _derive(model) for model in models.MODELS}
    return tuple(structs.replace(derived[rows.table], thread=rows.thread, task=rows.task) for rows in _ROWS)


@cache
def map_tables() -> dict[str, TextTable]:
    return {table.name: table for table in list_tables()}


@cache
def _map_text_fields() -> dict[tuple[str, str], models.TextField]:
    fields = (field for model in models.MODELS for field in models.get_meta(model).sorted_fields)
    return {(models.get_meta(f.model).table_name, f.column_name): f for f in fields if isinstance(f, models.TextField)}


def mask_for_storage(table: str, column: str, text: str) -> str:
    """Return `text` in the form for a column: without keys, tokens and passwords.

    Raises `KeyError` for a column without texts.
    """
    if column not in map_tables()[table].texts:
        raise KeyError(f"{table}.{column} holds no text: give it another kind in {models.__name__}")
    field = _map_text_fields().get((table, column))
    return mask_secrets(text) if field is None else field.mask(text)
