"""Looking after the database: check, statistics, backup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sakti.core.errors import StoreError
from sakti.store import migrate
from sakti.store.connection import Database

COUNTED = (
    "threads",
    "messages",
    "observation_groups",
    "observations",
    "tasks",
    "compaction_records",
    "steps",
    "search_docs",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked. `mend` says what to do where it is not `ok`."""

    name: str
    ok: bool
    detail: str
    mend: str = ""


def check(db: Database) -> list[Finding]:
    """Is the file sound, do its references hold, are the search indexes in step, is nothing lost?"""
    restore = "Make a copy with `sakti db backup`, then write to the maintainers with this line."
    found: list[Finding] = []
    rows = [r[0] for r in db.execute_sql("PRAGMA integrity_check(5)").fetchall()]
    found.append(Finding("integrity", rows == ["ok"], "; ".join(map(str, rows)), restore))
    foreign = db.execute_sql("PRAGMA foreign_key_check").fetchall()
    found.append(Finding("references", not foreign, f"{len(foreign)} broken", restore))
    for table in ("search_words", "search_trigrams"):
        try:
            db.execute_sql(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
            found.append(Finding(table, True, "in step"))
        except Exception as e:
            found.append(Finding(table, False, str(e), "The index is out of step with the texts it covers."))
    (missing,) = db.execute_sql(
        "SELECT count(*) FROM messages m WHERE state = 'saved' AND trim(coalesce(search_text, raw_content)) != ''"
        " AND NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.kind = 'message' AND d.doc_id = m.id)"
    ).fetchone()
    found.append(
        Finding(
            "search", missing == 0, f"{missing} messages not searchable", "Run it again after closing other windows."
        )
    )
    (gaps,) = db.execute_sql(
        "SELECT count(*) FROM (SELECT thread_id FROM messages GROUP BY thread_id"
        " HAVING max(message_index) - min(message_index) + 1 != count(*))"
    ).fetchone()
    found.append(Finding("messages", gaps == 0, f"{gaps} threads with gaps", restore))
    return found


def stats(db: Database, path: Path) -> dict[str, int | str]:
    """Sizes and counts; bytes of all files of the database together."""
    out: dict[str, int | str] = {"path": str(path), "schema": migrate.current_version(db)}
    out["bytes"] = sum(p.stat().st_size for s in ("", "-wal", "-shm") if (p := path.with_name(path.name + s)).exists())
    for table in COUNTED:
        (out[table],) = db.execute_sql(f"SELECT count(*) FROM {table}").fetchone()
    (out["tokens"],) = db.execute_sql("SELECT coalesce(sum(token_count), 0) FROM messages").fetchone()
    return out


def backup(db: Database, target: Path) -> Path:
    """A consistent copy of the database while it is in use. Raises `StoreError` where `target` exists."""
    if target.exists():
        raise StoreError(f"{target} exists already; name another file.")
    migrate.copy(db, target)
    return target
