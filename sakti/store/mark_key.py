"""Key of a database's secret marks: equal secrets get equal marks in every process.

The key tells nothing of a secret by itself, and a mark has 16 bits of its hash: too few to find a value by trying.

Raw SQL: the table may be missing in a database that is not migrated yet.
"""

from __future__ import annotations

import secrets as randomness

import peewee

from sakti.store import secrets
from sakti.store.connection import Database
from sakti.store.text_registry import entering

NAME = "mark_key"  # in ui_state
_READ = f"SELECT value FROM ui_state WHERE key = '{NAME}'"


def use(db: Database) -> None:
    """Make marks with the database's key, or with a new one if it has none."""
    secrets.use_key(_read_key(db) or randomness.token_bytes(16))


def keep(db: Database) -> None:
    """Store the key in use, and go by the one that another process stored first."""
    if _read_key(db) is None:
        value = entering("ui_state", "value", secrets.key().hex())
        db.execute_sql(f"INSERT OR IGNORE INTO ui_state (key, value) VALUES ('{NAME}', ?)", (value,))
    use(db)


def _read_key(db: Database) -> bytes | None:
    try:
        row = db.execute_sql(_READ).fetchone()
        return bytes.fromhex(row[0]) if row else None
    except (peewee.OperationalError, ValueError):  # no such table yet, or no key
        return None
