"""The open database as the functions of this package are given it: queries run as `query.execute(db)`, or in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peewee import Database
else:
    Database = object  # a name for annotations: a program that only reads does without peewee (see `reading`)

__all__ = ["Database"]
