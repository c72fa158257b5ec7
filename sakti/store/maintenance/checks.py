"""Check a database in any state, and its archive, indexes, memory and tasks."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from sakti.core.clock import SystemClock
from sakti.core.errors import StoreError
from sakti.core.text import format_count
from sakti.store import archive_file, failures, files, migrate, opening, packing
from sakti.store.archive_file import REFERS
from sakti.store.connection import Database, wrap_connection
from sakti.store.database_file import DatabaseFile
from sakti.store.memory import integrity as memory_integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.tasks import deadlocks, graph, questions
from sakti.store.tasks import rows as task_rows
from sakti.store.threads import codec

TOLD = 400  # characters shown of a file's problem
REPORT = "Make a backup with `sakti db backup`, then report this line to the maintainers."
DIFFER = "differ"  # marks an index that must be rebuilt
INDEX = "`sakti db check` repairs it."
INCOMPLETE = "`sakti db check` adds what can be added; `sakti db recover` copies every row into a complete database."
ARCHIVE = "Put a copy of it from a backup in its place; the other messages are not affected."


class Finding(Struct, frozen=True):
    """Result of one check.

    `advice` says what to do unless it is `ok`; `is_repairable`: `upkeep.repair_finding` can repair it.
    """

    name: str
    ok: bool
    detail: str
    advice: str = ""
    is_repairable: bool = False


def check(db: Database, *, deep: bool = True) -> list[Finding]:
    """Check the file, its references, the search indexes, the messages and the tasks. Read-only.

    `deep`: each text is also compared with its index.
    """
    rest, broken = failures.split_faults(run_integrity_check(db))
    findings = _to_integrity_finding(rest)
    if rest:
        return findings
    if missing := migrate.find_missing(db):  # the other checks need them
        return [*findings, Finding("schema", False, f"the database lacks {', '.join(missing)}", INCOMPLETE)]
    unreadable = failures.find_unreadable_column(db.connection())
    findings.append(Finding("contents", unreadable is None, unreadable or "readable", failures.RECOVER))
    # SQL: the schema itself, which no model describes
    foreign = db.execute_sql("PRAGMA foreign_key_check").fetchall()
    findings.append(Finding("references", not foreign, f"{len(foreign)} broken", REPORT))
    archive = _check_archive(db, deep=deep)
    findings.append(archive)
    # without the archive its texts cannot be compared
    findings += [
        _check_index(db, table, broken=table in broken, deep=deep and archive.ok) for table in search_index.TABLES
    ]
    findings.append(_check_task_index(db, broken=search_index.TASKS in broken))
    findings.append(_check_search(db))
    # SQL: reads a file in an unknown state
    (gaps,) = db.execute_sql(
        "SELECT count(*) FROM (SELECT thread_id FROM messages GROUP BY thread_id"
        " HAVING max(message_index) - min(message_index) + 1 != count(*))"
    ).fetchone()
    wrong = memory_integrity.check(db)
    detail = "; ".join(wrong.values()) or "each observed message is in the log once"
    findings.append(Finding("memory", not wrong, detail, INDEX, is_repairable=True))
    findings.append(Finding("messages", gaps == 0, f"{format_count(gaps, 'thread')} with gaps", REPORT))
    return [*findings, _check_packing(db), *_check_tasks(db)]


def _check_archive(db: Database, *, deep: bool) -> Finding:
    """Check that archived messages can be read."""
    count, wrong = find_archive_problem(db, deep=deep)
    detail = format_count(count, "message is archived", "messages are archived") if count else "nothing is archived"
    return Finding("archive", not wrong, wrong or detail, archive_file.MISSING if "missing" in wrong else ARCHIVE)


def _check_search(db: Database) -> Finding:
    """Check that search covers every message and that no thread waits to be indexed or removed."""
    lost = len(search_index.list_unindexed(db))
    # SQL: also runs on a bare connection, which no query of peewee does
    (threads,) = db.execute_sql("SELECT count(*) FROM reindexing n").fetchone()
    problems = [format_count(lost, "message is not searchable", "messages are not searchable")] if lost else []
    if threads:
        one = "deleted or restored thread is not finished"
        problems.append(format_count(threads, one, "deleted or restored threads are not finished"))
    return Finding(
        "search", not problems, "; ".join(problems) or "every message is searchable", INDEX, is_repairable=True
    )


def _check_packing(db: Database) -> Finding:
    """Check that rows of earlier versions are packed; a session does that in the background."""
    progress = packing.read_progress(db)
    advice = "`sakti db check` packs the rest; until then the file is larger than necessary."
    return Finding("space", progress is None, str(progress or "packed"), advice, is_repairable=True)


def _check_tasks(db: Database) -> list[Finding]:
    """Check the counts of the task graph, and that no tasks wait for each other in a cycle."""
    stale = len(graph.find_stale(db))
    wrong = format_count(stale, "workspace has wrong counts", "workspaces have wrong counts")
    rings = deadlocks.find_deadlocks(db)
    cycles = "; ".join(f"{' → '.join(ring.path)} in {ring.resource_id}" for ring in rings[:5])
    more = f"; and {len(rings) - 5} more" if len(rings) > 5 else ""
    advice = "Nothing on such a path can start: remove one dependency with `sakti tasks dep TASK ON --remove`."
    return [
        Finding("task counts", not stale, wrong if stale else "consistent", INDEX, is_repairable=True),
        Finding("task graph", not rings, f"{cycles}{more}" if rings else "no tasks wait for each other", advice),
    ]


def check_integrity(db: Database) -> list[Finding]:
    """Check the file of a database of any schema."""
    return _to_integrity_finding(failures.split_faults(run_integrity_check(db))[0])


def _to_integrity_finding(rest: Sequence[str]) -> list[Finding]:
    detail = "; ".join(line for row in rest for line in row.splitlines())
    return [Finding("integrity", not rest, detail[:TOLD] + "…" * (len(detail) > TOLD) or "ok", failures.RECOVER)]


def run_integrity_check(db: Database) -> list[str]:
    """Return the rows of SQLite's integrity check, `["ok"]` for an intact file.

    It uses a separate connection: on one with the index open, FTS5 mistakes concurrent merges for damage.
    """
    connection: Any = db.connection()
    with contextlib.closing(opening.open_another(connection)) as other:
        return [str(r[0]) for r in other.execute("PRAGMA integrity_check(20)").fetchall()]


def _check_index(db: Database, table: str, *, broken: bool, deep: bool) -> Finding:
    """Check that an index matches its texts and that no replaced index remains."""
    problems = []
    if broken:
        problems.append("it is damaged")
    else:
        counts = len(index_upkeep.list_missing(db, table)), index_upkeep.count_orphans(db, table)
        forms = ("text is missing", "texts are missing"), ("text is gone", "texts are gone")
        problems += [format_count(n, *form) for n, form in zip(counts, forms, strict=True) if n]
        if deep and not problems and (n := index_upkeep.count_differing(db, table)):
            problems.append(format_count(n, "text differs", f"texts {DIFFER}"))
    if f"{table}{index_upkeep.OLD}" in index_upkeep.list_replaced(db):
        problems.append("an old one still exists")
    detail = f"does not match its texts: {', '.join(problems)}" if problems else "consistent"
    return Finding(table, not problems, detail, INDEX, is_repairable=True)


def _check_task_index(db: Database, *, broken: bool) -> Finding:
    missing = len(find_unindexed_tasks(db))
    count = format_count(missing, "task is missing", "tasks are missing")
    fault = "it is damaged" if broken else count if missing else ""
    detail = f"does not match the tasks: {fault}" if fault else "consistent"
    return Finding(search_index.TASKS, not fault, detail, INDEX, is_repairable=True)


def find_unindexed_tasks(db: Database) -> list[str]:
    """Return the ids of tasks that are not in their index."""
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(
        "SELECT id FROM tasks t WHERE deleted_at IS NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {search_index.TASKS}_docsize s WHERE s.id = t.pk) ORDER BY pk"
    ).fetchall()
    return [i for (i,) in rows]


def index_tasks(db: Database, ids: Sequence[str]) -> None:
    for task in questions.get_many(db, ids).values():
        task_rows.update(db, task.id, title=task.title)


def find_archive_problem(db: Database, *, deep: bool = True) -> tuple[int, str]:
    """Return the number of archived messages and the archive's problem ("" without one).

    `deep`: each of them is looked up.
    """
    any_ref = archive_file.find_reference(db)
    if any_ref is None:
        return 0, ""
    # SQL: compares the beginning of packed parts, which no field has
    (count,) = db.execute_sql(f"SELECT count(*) FROM messages WHERE {REFERS}").fetchone()
    place = archive_file.find_archive(archive_file.archive_number_of(any_ref))
    if place is None:
        return count, f"{format_count(count, 'message is', 'messages are')} in an archive that is missing"
    try:
        with contextlib.closing(archive_file.connect(place, query_only=True)) as file:
            faults = [str(row[0]) for row in file.execute("PRAGMA quick_check(3)").fetchall()]
    except apsw.Error as e:
        faults = [str(e)]
    if faults != ["ok"]:
        return count, f"{place} is damaged: {faults[0]}"
    if deep:
        # SQL: compares the beginning of packed parts, which no field has
        rows = db.execute_sql(f"SELECT parts FROM messages WHERE {REFERS}")
        lost = sum(not codec.is_readable(parts) for (parts,) in rows)
        if lost:
            return count, f"{lost:,} of {format_count(count, 'archived message')} cannot be read in {place}"
    return count, ""


_TO_READ_MS = 5_000


def inspect(path: Path, *, deep: bool = True) -> list[Finding]:
    """Return findings on the database at `path`: place and file first, then contents. Read-only.

    `deep`: each indexed text is also compared with its index.
    """
    place = _check_place(path)
    if not path.exists() and not path.is_symlink():
        return [*place, _describe_missing_file(path)]
    try:
        opening.refuse_unusable(path)
        database = DatabaseFile(str(path)) if files.is_writable(path) else opening.open_read_only(path)
    except StoreError as e:
        return [*place, _describe_file_error(e)]
    except (OSError, apsw.Error) as e:
        return [*place, Finding("file", False, f"{path} cannot be opened: {e}")]
    try:
        return [*place, *_check_contents(path, database, deep=deep)]
    finally:
        database.remove()


def _describe_missing_file(path: Path) -> Finding:
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir():
        detail = f"{path} does not exist and cannot be created: {folder} is not a folder, so nothing is saved"
        return Finding("file", False, detail, f"Move it away, or {opening.ANOTHER}.")
    if not os.access(folder, os.W_OK):
        detail = f"{path} does not exist and cannot be created: {folder} is not writable, so nothing is saved"
        return Finding("file", False, detail, f"Make it writable, or {opening.ANOTHER}.")
    return Finding("file", True, f"{path} does not exist yet; it is created at the first start")


def _describe_file_error(error: StoreError) -> Finding:
    """Describe a fault of the file itself; only damage can be recovered."""
    if error.code == "damaged":
        return Finding("file", False, error.message.removesuffix(f" {failures.RECOVER}").rstrip("."), failures.RECOVER)
    detail, _, rest = error.message.partition(f": {opening.ANOTHER}")
    return Finding("file", False, detail, f"{opening.ANOTHER[0].upper()}{opening.ANOTHER[1:]}." if rest else "")


def _check_place(path: Path) -> list[Finding]:
    """Check the location of the database and its permissions."""
    findings: list[Finding] = []
    shared = [
        (p, mode) for p in (path.parent, *files.list_files(path)) if (mode := files.find_open_mode(p)) is not None
    ]
    for p, mode in shared:
        if p == path.parent and not mode & 0o022:
            continue  # others may read the folder: its files are still private
        what = "write into" if p == path.parent else "read"
        findings.append(Finding("access", False, f"others may {what} {p} (mode {mode:o})", _format_chmod(p)))
    if path.exists() and not files.is_writable(path):
        advice = f"Make the file and its folder writable, or {opening.ANOTHER}."
        findings.append(Finding("access", False, f"{path} is not writable: nothing is saved", advice))
    if kind := files.find_network_type(path):
        detail = f"{path} is on a network file system ({kind}): no write-ahead log is used"
        advice = f"Locks may not work there: use it from one machine at a time, or {opening.ANOTHER}."
        findings.append(Finding("file system", False, detail, advice))
    return findings


def _format_chmod(path: Path) -> str:
    return f"chmod {'700' if path.is_dir() else '600'} {path}"


def _check_contents(path: Path, database: DatabaseFile, *, deep: bool) -> list[Finding]:
    try:
        connection = database.connect()
    except apsw.Error as e:
        return [_describe_unreadable(e, path)]
    try:
        connection.set_busy_timeout(_TO_READ_MS)
        connection.execute("PRAGMA query_only = 1")
        db = wrap_connection(connection)
        opening.refuse_foreign(connection, path)
        version = migrate.read_current_version(db)
        if version != migrate.LATEST:
            integrity = check_integrity(db)
            return [_check_schema(version, path, database if all(f.ok for f in integrity) else None), *integrity]
        return check(db, deep=deep)
    except StoreError as e:
        return [_describe_file_error(e)]
    except apsw.Error as e:
        return [_describe_unreadable(e, path)]
    except Exception as e:  # a query met unexpected data
        return [Finding("integrity", False, f"its contents cannot be read ({type(e).__name__}: {e})", failures.RECOVER)]
    finally:
        connection.close()


def _check_schema(version: int, path: Path, database: DatabaseFile | None) -> Finding:
    """Compare the schema with the latest; missing migrations are tried on a copy of `database`."""
    if version > migrate.LATEST:
        detail = f"made by a newer sakti (schema {version}, this one knows {migrate.LATEST}): it is open read-only"
        return Finding("schema", False, detail, "Update sakti to write to it.")
    pending = f"schema {version}; it is migrated to {migrate.LATEST} at the next start"
    if database is None:
        return Finding("schema", True, pending)
    try:
        _try_migrations(path, database)
    except migrate.MigrationError as e:
        detail = f"schema {version}; migrating a copy of it failed at step {e.step} ({e.reason})"
        return Finding("schema", False, detail, failures.RECOVER)
    except (OSError, apsw.Error) as e:
        return Finding("schema", True, f"{pending} (not tried on a copy: {e})")
    return Finding("schema", True, pending)


def _try_migrations(path: Path, database: DatabaseFile) -> None:
    """Migrate a temporary copy. Raises OSError or apsw.Error if it cannot be made."""
    time = SystemClock()
    copy = opening.make_scratch_copy(database, time)
    try:
        with contextlib.closing(copy.connect()) as connection:
            migrate.apply_steps(wrap_connection(connection), time, name=str(path))
    finally:
        copy.remove()


def _describe_unreadable(error: apsw.Error, path: Path) -> Finding:
    if failures.classify_error(error) == "damaged":
        return Finding("integrity", False, str(error), failures.RECOVER)
    failure = failures.to_store_error(error, path, saving=False, waited=_TO_READ_MS / 1000)
    return Finding("file", False, failure.message)
