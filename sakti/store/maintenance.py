"""Looking after the database: check, search indexes, statistics, backup."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sakti.core.errors import StoreError
from sakti.store import migrate, search_index
from sakti.store.connection import Database
from sakti.store.tasks import checks, deadlocks

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
    """Is the file sound, do its references hold, are the search indexes in step, is nothing lost?

    An index out of step is rebuilt, a message that search does not know is added; `detail` says so.
    """
    restore = "Make a copy with `sakti db backup`, then write to the maintainers with this line."
    found: list[Finding] = []
    rows = [r[0] for r in db.execute_sql("PRAGMA integrity_check(5)").fetchall()]
    found.append(Finding("integrity", rows == ["ok"], "; ".join(map(str, rows)), restore))
    foreign = db.execute_sql("PRAGMA foreign_key_check").fetchall()
    found.append(Finding("references", not foreign, f"{len(foreign)} broken", restore))
    for table in search_index.TABLES:
        try:
            db.execute_sql(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
            found.append(Finding(table, True, "in step"))
        except Exception as e:
            search_index.rebuild(db, (table,))
            found.append(Finding(table, True, f"was out of step with its texts ({e}): rebuilt"))
    added = index_missing(db)
    detail = f"{added} messages were not searchable: added" if added else "every message is searchable"
    found.append(Finding("search", True, detail))
    (gaps,) = db.execute_sql(
        "SELECT count(*) FROM (SELECT thread_id FROM messages GROUP BY thread_id"
        " HAVING max(message_index) - min(message_index) + 1 != count(*))"
    ).fetchone()
    found.append(Finding("messages", gaps == 0, f"{gaps} threads with gaps", restore))
    return [*found, *_check_tasks(db)]


def _check_tasks(db: Database) -> list[Finding]:
    """Is every count of the task graph right, and is there no ring of tasks that wait for each other?"""
    stale = checks.find_stale(db)
    for resource_id in stale:
        checks.count_again(db, resource_id)
    counted = f"{len(stale)} workspaces were out of step: counted again" if stale else "in step"
    rings = deadlocks.find_deadlocks(db)
    told = "; ".join(f"{' → '.join(ring.path)} in {ring.resource_id}" for ring in rings[:5])
    more = f"; and {len(rings) - 5} more" if len(rings) > 5 else ""
    mend = "Nothing on such a path can start: take one dependency away with `sakti tasks dep TASK ON --remove`."
    return [
        Finding("task counts", True, counted),
        Finding("task graph", not rings, f"{told}{more}" if rings else "no tasks wait for each other", mend),
    ]


def index_missing(db: Database, thread_id: str | None = None) -> int:
    """Add the messages (of one thread) that search should know and does not; returns how many."""
    rows = db.execute_sql(
        "SELECT m.id, m.resource_id, m.thread_id, m.task_id, m.role, m.message_index, m.created_at,"
        " coalesce(m.search_text, m.raw_content), m.paths,"
        " coalesce((SELECT coalesce(p.search_text, p.raw_content) FROM messages p WHERE p.thread_id = m.thread_id"
        " AND p.message_index < m.message_index AND p.state = 'saved' ORDER BY p.message_index DESC LIMIT 1), ''),"
        " coalesce(m.summary, '')"
        " FROM messages m WHERE m.state = 'saved' AND trim(coalesce(m.search_text, m.raw_content)) != ''"
        " AND NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.kind = 'message' AND d.doc_id = m.id)"
        " AND m.thread_id NOT IN (SELECT id FROM threads WHERE deleted_at IS NOT NULL)"
        + (" AND m.thread_id = ?" if thread_id else "")
        + " ORDER BY m.pk",
        (thread_id,) if thread_id else (),
    ).fetchall()
    added = 0
    for doc_id, resource_id, thread, task_id, role, position, created_at, text, paths, prev, summary in rows:
        if not text.strip():  # SQL's trim knows the space alone
            continue
        search_index.put(
            db,
            kind="message",
            doc_id=doc_id,
            resource_id=resource_id,
            thread_id=thread,
            task_id=task_id,
            role=role,
            position=position,
            created_at=created_at,
            text=text,
            prev=prev,
            paths=json.loads(paths),
        )
        search_index.summarise(db, "message", doc_id, summary)
        added += 1
    return added


def rebuild_index(db: Database) -> dict[str, int]:
    """Make the search indexes anew. Returns `texts` that are covered and `added`, messages that were missing."""
    added = index_missing(db)
    search_index.rebuild(db)
    (texts,) = db.execute_sql("SELECT count(*) FROM search_docs").fetchone()
    return {"texts": texts, "added": added}


def optimize(db: Database) -> None:
    """Merge the search indexes and let SQLite look at its statistics again."""
    search_index.optimize(db)
    db.execute_sql("PRAGMA optimize")


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
