"""Insert and change one row by its peewee model, with the statement built once: building it costs more than running
it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from peewee import Field, Model

from sakti.store.connection import Database


def insert(db: Database, model: type[Model], /, **values: Any) -> None:
    """Insert a row; fields that are not named take their defaults. Raises `TypeError` for a field that the model
    does not have."""
    sql, row = _filled(model, values)
    db.execute_sql(f"INSERT {sql}", row)


def insert_new(db: Database, model: type[Model], /, **values: Any) -> bool:
    """Insert a row unless its key is taken; tell whether it was inserted. Raises as `insert`."""
    sql, row = _filled(model, values)
    return db.execute_sql(f"INSERT OR IGNORE {sql} RETURNING 1", row).fetchone() is not None


def update(db: Database, model: type[Model], row_id: str, /, **changes: Any) -> None:
    """Change fields of the row with this id. Raises `TypeError` for a field that the model does not have."""
    fields, _ = _statement(model)
    if unknown := changes.keys() - fields.keys():
        raise TypeError(f"{model.__name__} has no field {', '.join(sorted(unknown))}.")
    values = [fields[name][0](value) for name, value in changes.items()]
    db.execute_sql(_update_statement(model, tuple(changes)), (*values, row_id))


def _filled(model: type[Model], values: dict[str, Any]) -> tuple[str, list[Any]]:
    fields, sql = _statement(model)
    unknown = values.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{model.__name__} has no field {', '.join(sorted(unknown))}.")
    return sql, [convert(values[name] if name in values else default()) for name, (convert, default) in fields.items()]


Column = tuple[Callable[[Any], Any], Callable[[], Any]]


@cache
def _statement(model: type[Model]) -> tuple[dict[str, Column], str]:
    """Return of each field how a value is stored and what stands there without one; and the statement's end."""
    meta: Any = getattr(model, "_meta")  # noqa: B009
    fields: list[Field] = [f for f in meta.sorted_fields if not getattr(f, "primary_key", False)]
    columns: dict[str, Column] = {f.name: (f.db_value, _default(f)) for f in fields}
    names = ", ".join(f'"{f.column_name}"' for f in fields)
    return columns, f'INTO "{meta.table_name}" ({names}) VALUES ({", ".join("?" * len(fields))})'


@cache
def _update_statement(model: type[Model], names: tuple[str, ...]) -> str:
    meta: Any = getattr(model, "_meta")  # noqa: B009
    changed = ", ".join(f'"{meta.fields[name].column_name}" = ?' for name in names)
    return f'UPDATE "{meta.table_name}" SET {changed} WHERE "id" = ?'


def _default(field: Any) -> Callable[[], Any]:
    return field.default if callable(field.default) else lambda: field.default
