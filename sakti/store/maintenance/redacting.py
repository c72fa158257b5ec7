"""Mask secrets stored by an older sakti, or by one with fewer patterns.

Rows are read on the reader; changes are written in pieces, so that other windows can write in between. An interrupted
run continues on the next request, since masked rows are no longer found. Raw SQL: rows of search beside their
messages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field
from peewee import CompositeKey, Model, Value

from sakti.core.types import Message, join_plain_text
from sakti.store import archive_file, user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import upkeep
from sakti.store.models import MODELS, MessageRow, PartsField, SearchDocRow, TaskRow, UiStateRow, get_meta
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.secrets import MARK, find_marks, mask_secrets, mask_value
from sakti.store.tasks import rows as task_rows
from sakti.store.text_registry import map_tables, mask_for_storage
from sakti.store.threads import codec

BATCH = 50  # rows examined at once

Values = dict[str, Any]
T = TypeVar("T")


class SecretCounts(Struct):
    """Number of texts with secrets, by table, and of distinct secrets, by kind."""

    texts: Counter[str] = field(default_factory=Counter[str])
    marks: set[str] = field(default_factory=set[str])

    @property
    def kinds(self) -> dict[str, int]:
        counted = Counter(match[1] for one in self.marks if (match := MARK.fullmatch(one)))
        return dict(sorted(counted.items(), key=lambda kind: (-kind[1], kind[0])))


class _Dirty(Struct, frozen=True):
    """Row with secrets: its key, and its columns before and after masking."""

    key: Values
    before: Values
    after: Values


async def count(store: Store) -> SecretCounts:
    """Count the texts with secrets, changing nothing. Raises StoreError (archive) as `redact`."""
    await store.read(archive_file.refuse_missing)
    out = SecretCounts()
    for model in _list_models():
        async for some in _find_dirty_rows(store, model):
            _count_dirty(out, model, some)
    async for rows in _find_spanning(store):
        _add_spanning(out, rows)
    return out


async def redact(store: Store) -> SecretCounts:
    """Mask every secret and return the counts. Archived parts with secrets return to the database.

    Raises `StoreError` (archive) if the archive is missing.
    """
    await store.read(archive_file.refuse_missing)
    out = SecretCounts()
    for model in _list_models():
        async for some in _find_dirty_rows(store, model):
            _count_dirty(out, model, some)
            step = partial(_write_masked, model=model)
            await upkeep.run_in_pieces(store, some, partial(_merge_later, step=step), step=1)
    async for rows in _find_spanning(store):
        _add_spanning(out, rows)
        await upkeep.run_in_pieces(store, rows, partial(_merge_later, step=_write_joined), step=1)
    return out


def _list_models() -> list[type[Model]]:
    return [model for model in MODELS if map_tables()[get_meta(model).table_name].texts]


def _count_dirty(out: SecretCounts, model: type[Model], some: Sequence[_Dirty]) -> None:
    for row in some:
        out.texts[get_meta(model).table_name] += len(row.after)
        new, old = (_to_json_values(values) for values in (row.after, row.before))
        out.marks |= set(find_marks(new)) - set(find_marks(old))


def _to_json_values(values: Values) -> list[Any]:
    """Return the values of columns as JSON values, parts of messages among them."""
    return [[_list_field_values(p) for p in v] if name == "parts" else v for name, v in values.items()]


def _list_field_values(part: Any) -> list[Any]:
    return [getattr(part, name) for name in part.__slots__]


async def _find_dirty_rows(store: Store, model: type[Model]) -> AsyncIterator[list[_Dirty]]:
    """Yield the rows of a table with secrets, some at a time."""
    last: Any = None
    while True:
        batch, last = await store.read(_read_dirty, model, last)
        if batch:
            yield batch
        if last is None:
            return


def _read_dirty(db: Database, model: type[Model], last: Any) -> tuple[list[_Dirty], Any]:
    """Return the next rows with secrets, and the key at which to continue; None at the end.

    A table without row numbers is small, and is read at once.
    """
    meta = get_meta(model)
    number = meta.fields.get("pk")
    query: Any = model.select()
    if number is None:
        query = query.where(meta.fields[_key_names(meta.primary_key)[0]] > "")
    else:
        query = query.where(number > (-1 if last is None else last)).order_by(number).limit(BATCH)
    rows = list(query.execute(db))
    dirty = [one for row in rows if (one := _find_dirty(model, row)) is not None]
    more = number is not None and len(rows) == BATCH
    return dirty, rows[-1].pk if more else None


def _find_dirty(model: type[Model], row: Any) -> _Dirty | None:
    if model is UiStateRow and row.key == user_state.MARK_KEY:
        return None
    meta = get_meta(model)
    words = map_tables()[meta.table_name].texts
    before = {f.name: getattr(row, f.name) for f in meta.sorted_fields if f.column_name in words}
    after = {name: _mask_value(meta.fields[name], value) for name, value in before.items()}
    changed = {name: value for name, value in after.items() if value != before[name]}
    if not changed:
        return None
    key = {name: getattr(row, name) for name in _key_names(meta.primary_key)}
    return _Dirty(key, {name: before[name] for name in changed}, changed)


def _key_names(primary_key: Any) -> Sequence[str]:
    return primary_key.field_names if isinstance(primary_key, CompositeKey) else [primary_key.name]


def _mask_value(column: Any, value: Any) -> Any:
    return codec.mask_parts(value) if isinstance(column, PartsField) else mask_value(value)


def _write_masked(db: Database, some: Sequence[_Dirty], *, model: type[Model]) -> None:
    """Write masked rows; one changed by another window meanwhile is masked in its new state."""
    fields = get_meta(model).fields
    for row in some:
        # a key may be the user's text, which its column would mask
        here: Any = [fields[name] == Value(value, converter=False) for name, value in row.key.items()]
        now: Any = model.select().where(*here).get_or_none(db)
        if now is None or (judged := _find_dirty(model, now)) is None:
            continue
        changes = {**judged.after, **_derive_values(model, now, judged.after)}
        if model is TaskRow:
            task_rows.update(db, now.id, **changes)  # and its index
        else:
            model.update({fields[name]: value for name, value in changes.items()}).where(*here).execute(db)


def _derive_values(model: type[Model], row: Any, changed: Values) -> Values:
    """Return values derived from masked columns: index terms, tokens of dropped parts."""
    if model is SearchDocRow and "text" in changed and row.form == 0:
        return {"idents": search_index.list_identifier_parts(changed["text"])}
    if model is MessageRow and "parts" in changed and len(changed["parts"]) != len(row.parts):
        message = Message(row.id, "", "", row.role, row.parts, 0, tokens=row.token_count, part_tokens=row.part_tokens)
        clean = codec.mask_message(message)
        return {"part_tokens": clean.part_tokens, "token_count": clean.tokens}
    return {}


# --- secrets in two parts of one message ----------------------------------------------------------------------


class _Joined(Struct, frozen=True):
    """Search row of a message whose parts hold a secret only together: key, text, masked text."""

    pk: int
    message_pk: int
    text: str
    clean: str


_REFERRING = (
    "SELECT d.pk, m.pk, m.raw_content, m.parts, m.search_text FROM search_docs d JOIN messages m ON m.pk = d.message_pk"
    " WHERE d.pk > ? AND d.text = '' ORDER BY d.pk LIMIT ?"
)


async def _find_spanning(store: Store) -> AsyncIterator[list[_Joined]]:
    last: int | None = -1
    while last is not None:
        batch, last = await store.read(_look_at_texts, last)
        if batch:
            yield batch


def _look_at_texts(db: Database, last: int) -> tuple[list[_Joined], int | None]:
    # SQL: a loop runs it for each piece of a long table; building a query takes 80-300 µs
    rows = db.execute_sql(_REFERRING, (last, BATCH)).fetchall()
    joined = [one for row in rows if (one := _mask_as_one_text(*row)) is not None]
    return joined, rows[-1][0] if len(rows) == BATCH else None


def _mask_as_one_text(
    pk: int, message_pk: int, raw: str, parts: str | bytes, search_text: str | None
) -> _Joined | None:
    """Return the masked text a search row must store; None if masking its message suffices."""
    if raw or search_text is not None:
        return None
    text = codec.read_text(raw, parts)
    if mask_secrets(text) == text:
        return None
    message_text = join_plain_text(
        codec.mask_parts([codec.decode(part) for part in json.loads(codec.unpack_or_empty(parts))])
    )
    clean = mask_secrets(message_text)
    return _Joined(pk, message_pk, text, clean) if clean != message_text else None


def _add_spanning(out: SecretCounts, rows: Sequence[_Joined]) -> None:
    out.texts["search_docs"] += len(rows)
    for row in rows:
        out.marks |= set(find_marks([row.clean])) - set(find_marks([row.text]))


def _write_joined(db: Database, some: Sequence[_Joined]) -> None:
    """Store masked texts in the search rows themselves and in the previous-message column."""
    for row in some:
        # SQL: writes past the fields' own masking, with references cleared in the same statement
        db.execute_sql(
            "UPDATE search_docs SET text = ?, message_pk = NULL WHERE pk = ? AND text = ''",
            (mask_for_storage("search_docs", "text", row.clean[: search_index.TEXT_LIMIT]), row.pk),
        )
        # SQL: writes past the fields' own masking, with references cleared in the same statement
        db.execute_sql(
            "UPDATE search_docs SET prev = ?, prev_pk = NULL WHERE kind = 'message' AND prev_pk = ? AND prev = ''"
            " AND thread_id = (SELECT thread_id FROM messages WHERE pk = ?)",
            (
                mask_for_storage("search_docs", "prev", row.clean[: search_index.PREVIOUS_LIMIT]),
                row.message_pk,
                row.message_pk,
            ),
        )


def _merge_later(db: Database, some: Sequence[T], *, step: Callable[[Database, Sequence[T]], None]) -> None:
    index_upkeep.with_deferred_merge(db, lambda db: step(db, some))
