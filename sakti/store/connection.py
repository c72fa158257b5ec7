"""The open database as the functions of this package are given it: queries run as `query.execute(db)`, or in SQL."""

from __future__ import annotations

from peewee import Database

__all__ = ["Database"]
