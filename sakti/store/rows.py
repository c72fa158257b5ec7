"""Inserting one row by its peewee model, with the statement built once: building it costs more than running it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from peewee import Field, Model

from sakti.store.connection import Database


def insert(db: Database, model: type[Model], /, **values: Any) -> None:
    """Insert a row; fields that are not named take their defaults. Raises `TypeError` for a field that the model
    does not have."""
    fields, sql = _statement(model)
    unknown = values.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{model.__name__} has no field {', '.join(sorted(unknown))}.")
    row = [convert(values[name] if name in values else default()) for name, (convert, default) in fields.items()]
    db.execute_sql(sql, row)


Column = tuple[Callable[[Any], Any], Callable[[], Any]]


@cache
def _statement(model: type[Model]) -> tuple[dict[str, Column], str]:
    """Of each field how a value is stored and what stands there without one; and the statement."""
    meta: Any = getattr(model, "_meta")  # noqa: B009
    fields: list[Field] = [f for f in meta.sorted_fields if not getattr(f, "primary_key", False)]
    columns: dict[str, Column] = {f.name: (f.db_value, _default(f)) for f in fields}
    names = ", ".join(f'"{f.column_name}"' for f in fields)
    return columns, f'INSERT INTO "{meta.table_name}" ({names}) VALUES ({", ".join("?" * len(fields))})'


def _default(field: Any) -> Callable[[], Any]:
    return field.default if callable(field.default) else lambda: field.default
