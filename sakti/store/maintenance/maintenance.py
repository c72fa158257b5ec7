"""Check the database, rebuild the task index, count, back up, and vacuum.

Nothing here but `vacuum` holds a write transaction for long; longer work runs in pieces (`upkeep`). Vacuuming shrinks
the file to its content, and its free space holds nothing then.

Raw SQL: it works on whatever file there is, and without peewee.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from sakti.core.errors import StoreError
from sakti.store import archive_file, database_file, failures, files, migrate, opening, packing
from sakti.store.connection import Database, plain
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import archive_care, copying
from sakti.store.memory import integrity as memory_integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.tasks import deadlocks, graph, questions
from sakti.store.tasks import rows as task_rows

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

TOLD = 400  # characters of a file's problem that are shown
REPORT = "Make a backup with `sakti db backup`, then report this line to the maintainers."
DIFFER = "texts differ"  # said of an index that has to be rebuilt
INDEX = "`sakti db check` repairs it."
INCOMPLETE = "`sakti db check` adds what can be added; `sakti db recover` copies every row into a complete database."
ARCHIVE = "Put a copy of it from a backup in its place; the other messages are not affected."


class Finding(Struct, frozen=True):
    """Result of one check.

    `mend` says what to do where it is not `ok`; `mendable`: `upkeep.repair_finding` repairs it.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    mendable: bool = False


def check(db: Database, *, deep: bool = True) -> list[Finding]:
    """Check the file, its references, the search indexes, the messages and the tasks. Read-only.

    `deep`: each text is also compared with its index.
    """
    rest, broken = failures.split_faults(integrity(db))
    findings = _integrity(rest)
    if rest:
        return findings
    if missing := migrate.find_missing(db):  # what else is looked at needs them
        return [*findings, Finding("schema", False, f"the database lacks {', '.join(missing)}", INCOMPLETE)]
    unreadable = failures.unreadable(db.connection())
    findings.append(Finding("contents", unreadable is None, unreadable or "readable", failures.RECOVER))
    # SQL: the schema itself, which no model describes
    foreign = db.execute_sql("PRAGMA foreign_key_check").fetchall()
    findings.append(Finding("references", not foreign, f"{len(foreign)} broken", REPORT))
    archive = _archive(db, deep=deep)
    findings.append(archive)
    # with an archive missing no text in it can be compared
    findings += [_index(db, table, broken=table in broken, deep=deep and archive.ok) for table in search_index.TABLES]
    findings.append(_task_index(db, broken=search_index.TASKS in broken))
    findings.append(_searchable(db))
    # SQL: looks at a file of which nothing is certain
    (gaps,) = db.execute_sql(
        "SELECT count(*) FROM (SELECT thread_id FROM messages GROUP BY thread_id"
        " HAVING max(message_index) - min(message_index) + 1 != count(*))"
    ).fetchone()
    wrong = memory_integrity.check(db)
    detail = "; ".join(wrong.values()) or "each observed message is in the log once"
    findings.append(Finding("memory", not wrong, detail, INDEX, mendable=True))
    findings.append(Finding("messages", gaps == 0, f"{gaps} threads with gaps", REPORT))
    return [*findings, _check_packing(db), *_check_tasks(db)]


def _archive(db: Database, *, deep: bool) -> Finding:
    """Check that archived messages can be read."""
    count, wrong = archive_care.problems(db, deep=deep)
    detail = f"{count} messages are archived" if count else "nothing is archived"
    return Finding("archive", not wrong, wrong or detail, archive_file.MISSING if "missing" in wrong else ARCHIVE)


def _searchable(db: Database) -> Finding:
    """Check that search covers every message and that no thread waits to be indexed or removed."""
    lost = len(search_index.unindexed(db))
    # SQL: also runs on a bare connection, which no query of peewee does
    (threads,) = db.execute_sql("SELECT count(*) FROM reindexing n").fetchone()
    what = [f"{lost} messages are not searchable"] if lost else []
    what += [f"{threads} deleted or restored threads are not finished"] if threads else []
    return Finding("search", not what, "; ".join(what) or "every message is searchable", INDEX, mendable=True)


def _check_packing(db: Database) -> Finding:
    """Check that what earlier versions wrote is packed; a session does that in the background."""
    progress = packing.progress(db)
    mend = "`sakti db check` packs the rest; until then the file is larger than necessary."
    return Finding("space", progress is None, str(progress or "packed"), mend, mendable=True)


def _check_tasks(db: Database) -> list[Finding]:
    """Check the counts of the task graph, and that no tasks wait for each other in a cycle."""
    stale = len(graph.find_stale(db))
    detail = f"{stale} workspaces have wrong counts" if stale else "consistent"
    rings = deadlocks.find_deadlocks(db)
    cycles = "; ".join(f"{' → '.join(ring.path)} in {ring.resource_id}" for ring in rings[:5])
    more = f"; and {len(rings) - 5} more" if len(rings) > 5 else ""
    mend = "Nothing on such a path can start: remove one dependency with `sakti tasks dep TASK ON --remove`."
    return [
        Finding("task counts", not stale, detail, INDEX, mendable=True),
        Finding("task graph", not rings, f"{cycles}{more}" if rings else "no tasks wait for each other", mend),
    ]


def integrity_findings(db: Database) -> list[Finding]:
    """Check the file of a database of any schema."""
    return _integrity(failures.split_faults(integrity(db))[0])


def _integrity(rest: Sequence[str]) -> list[Finding]:
    detail = "; ".join(line for row in rest for line in row.splitlines())
    return [Finding("integrity", not rest, detail[:TOLD] + "…" * (len(detail) > TOLD) or "ok", failures.RECOVER)]


def integrity(db: Database) -> list[str]:
    """Return the rows of SQLite's integrity check, `["ok"]` for an intact file.

    It runs on a connection of its own: FTS5 mistakes concurrent merges for damage where the index is open.
    """
    connection: Any = db.connection()
    other = opening.open_another(connection)
    try:
        return [str(r[0]) for r in other.execute("PRAGMA integrity_check(20)").fetchall()]
    finally:
        other.close()


def _index(db: Database, table: str, *, broken: bool, deep: bool) -> Finding:
    """Check that an index matches its texts and that no replaced index remains."""
    what = []
    if broken:
        what.append("it is damaged")
    else:
        counts = len(index_upkeep.missing(db, table)), index_upkeep.count_orphans(db, table)
        what += [f"{n} {text}" for n, text in zip(counts, ("texts are missing", "are no more"), strict=True) if n]
        if deep and not what and (n := index_upkeep.count_differing(db, table)):
            what.append(f"{n} {DIFFER}")
    if f"{table}{index_upkeep.OLD}" in index_upkeep.replaced(db):
        what.append("an old one still exists")
    detail = f"does not match its texts: {', '.join(what)}" if what else "consistent"
    return Finding(table, not what, detail, INDEX, mendable=True)


def _task_index(db: Database, *, broken: bool) -> Finding:
    missing = len(unindexed_tasks(db))
    fault = "it is damaged" if broken else f"{missing} tasks are missing" if missing else ""
    detail = f"does not match the tasks: {fault}" if fault else "consistent"
    return Finding(search_index.TASKS, not fault, detail, INDEX, mendable=True)


def unindexed_tasks(db: Database) -> list[str]:
    """Return the ids of tasks that are not in their index."""
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(
        "SELECT id FROM tasks t WHERE deleted_at IS NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {search_index.TASKS}_docsize s WHERE s.id = t.pk) ORDER BY pk"
    ).fetchall()
    return [i for (i,) in rows]


def index_tasks(db: Database, ids: Sequence[str]) -> None:
    """Add tasks to their index."""
    for task in questions.get_many(db, ids).values():
        task_rows.update(db, task.id, title=task.title)


def stats(db: Database, path: Path) -> dict[str, int | str]:
    """Return sizes and counts; `bytes` is of all files of the database together."""
    out: dict[str, int | str] = {"path": str(path), "schema": migrate.current_version(db)}
    out["bytes"] = sum(p.stat().st_size for s in ("", "-wal", "-shm") if (p := path.with_name(path.name + s)).exists())
    sources = {table: f"count(*) FROM {table}" for table in COUNTED}
    sources["archived"] = f"count(*) FROM messages WHERE {archive_file.REFERS}"
    sources["tokens"] = "coalesce(sum(token_count), 0) FROM messages"
    # SQL: the counts of nine tables in one statement
    counted = db.execute_sql(f"SELECT {', '.join(f'(SELECT {source})' for source in sources.values())}").fetchone()
    counts = dict(zip(sources, counted, strict=True))
    tokens = counts.pop("tokens")
    out.update(counts)
    place = archive_file.path_of(path)
    out["archive_bytes"] = place.stat().st_size if place.exists() else 0
    out["tokens"] = tokens
    return out


def backup(db: Database, path: Path, target: Path) -> list[Path]:
    """Copy a database in use, with its archive; return the copies. See `copying.copy`."""
    archive_care.refuse_existing(db, target)
    copying.copy(db, target)
    try:  # behind it: what the copy refers to is in the archive by now
        archive = archive_care.copy_beside(db, path, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return [target, *([archive] if archive else [])]


def is_clean(path: Path) -> bool:
    """Return whether the free space of a database never held removed text.

    Raises `StoreError` where it cannot be opened.
    """
    try:
        connection = DatabaseFile(str(path)).connect()
        try:
            return bool(int(str(connection.execute("PRAGMA user_version").get)) & database_file.CLEAN)
        finally:
            connection.close()
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e


def vacuum(path: Path) -> tuple[int, int]:
    """Vacuum the database at `path`; return its bytes before and after.

    Takes as long, and meanwhile as much room, as a copy of it. Raises `StoreError`: busy where it is open elsewhere,
    full, damaged, read_only, missing.
    """
    if not path.exists():
        raise StoreError(f"{path} is not there.", code="missing")
    opening.refuse_unusable(path)
    if not files.writable(path):
        raise StoreError(f"{path} or its folder is not writable.", code="read_only")
    if not opening.is_alone(path):
        raise StoreError(
            f"{path} is open in another window: close it first. Nothing was changed.", code="busy", retryable=True
        )
    before = _bytes(path)
    if shutil.disk_usage(path.parent).free < before * 2:
        raise StoreError(f"Not enough disk space to rewrite {path}: it needs {2 * before:,} bytes.", code="full")
    try:
        connection = DatabaseFile(str(path)).connect()
        try:
            opening.refuse_foreign(connection, path)
            if migrate.current_version(plain(connection)) != migrate.LATEST:
                raise StoreError(f"{path} is of another version of sakti: open it once, then run this.", code="schema")
            for index in (*search_index.TABLES, search_index.TASKS):  # they keep removed entries until they are merged
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
            connection.execute(f"PRAGMA user_version = {database_file.CLEAN}")
            connection.execute("VACUUM").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            archive_care.vacuum(path)
        finally:
            connection.close()
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e
    return before, _bytes(path)


def _bytes(path: Path) -> int:
    return sum(p.stat().st_size for p in files.all_of(path))
