"""Diagnose a database in any state: nothing here requires an intact one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from sakti.core.clock import SystemClock
from sakti.core.errors import StoreError
from sakti.store import failures, files, migrate, opening
from sakti.store.connection import plain
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import maintenance
from sakti.store.maintenance.maintenance import Finding

_TO_READ_MS = 5_000


def inspect(path: Path, *, deep: bool = True) -> list[Finding]:
    """Return all findings on the database at `path`, in the order in which a person would ask. Read-only.

    `deep`: each indexed text is also compared with its index.
    """
    place = _place(path)
    if not path.exists() and not path.is_symlink():
        return [*place, _absent(path)]
    try:
        opening.refuse_unusable(path)
        database = DatabaseFile(str(path)) if files.writable(path) else opening.read_only(path)
    except StoreError as e:
        return [*place, _file(e)]
    except (OSError, apsw.Error) as e:
        return [*place, Finding("file", False, f"{path} cannot be opened: {e}")]
    try:
        return [*place, *_contents(path, database, deep=deep)]
    finally:
        database.remove()


def _absent(path: Path) -> Finding:
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir():
        detail = f"{path} does not exist and cannot be created: {folder} is not a folder, so nothing is saved"
        return Finding("file", False, detail, f"Move it away, or {opening.ANOTHER}.")
    if not os.access(folder, os.W_OK):
        detail = f"{path} does not exist and cannot be created: {folder} is not writable, so nothing is saved"
        return Finding("file", False, detail, f"Make it writable, or {opening.ANOTHER}.")
    return Finding("file", True, f"{path} does not exist yet; it is created at the first start")


def _file(error: StoreError) -> Finding:
    """Describe a fault of the file itself; only damage can be recovered."""
    if error.code == "damaged":
        return Finding("file", False, error.message.removesuffix(f" {failures.RECOVER}").rstrip("."), failures.RECOVER)
    detail, _, rest = error.message.partition(f": {opening.ANOTHER}")
    return Finding("file", False, detail, f"{opening.ANOTHER[0].upper()}{opening.ANOTHER[1:]}." if rest else "")


def _place(path: Path) -> list[Finding]:
    """Check where the database lies and who may read it."""
    findings: list[Finding] = []
    wide = [(p, mode) for p in (path.parent, *files.all_of(path)) if (mode := files.open_to_others(p)) is not None]
    for p, mode in wide:
        if p == path.parent and not mode & 0o022:
            continue  # others may look into the folder: its files are private all the same
        what = "write into" if p == path.parent else "read"
        findings.append(Finding("access", False, f"others may {what} {p} (mode {mode:o})", _chmod(p)))
    if path.exists() and not files.writable(path):
        mend = f"Make the file and its folder writable, or {opening.ANOTHER}."
        findings.append(Finding("access", False, f"{path} is not writable: nothing is saved", mend))
    if kind := files.network(path):
        detail = f"{path} is on a network file system ({kind}): no write-ahead log is used"
        mend = f"Locks may not work there: use it from one machine at a time, or {opening.ANOTHER}."
        findings.append(Finding("file system", False, detail, mend))
    return findings


def _chmod(path: Path) -> str:
    return f"chmod {'700' if path.is_dir() else '600'} {path}"


def _contents(path: Path, database: DatabaseFile, *, deep: bool) -> list[Finding]:
    try:
        connection = database.connect()
    except apsw.Error as e:
        return [_unreadable(e, path)]
    try:
        connection.set_busy_timeout(_TO_READ_MS)
        connection.execute("PRAGMA query_only = 1")
        db = plain(connection)
        opening.refuse_foreign(connection, path)
        version = migrate.current_version(db)
        if version != migrate.LATEST:
            integrity = maintenance.integrity_findings(db)
            return [_schema(version, path, database if all(f.ok for f in integrity) else None), *integrity]
        return maintenance.check(db, deep=deep)
    except StoreError as e:
        return [_file(e)]
    except apsw.Error as e:
        return [_unreadable(e, path)]
    except Exception as e:  # a query that was never meant for what it found
        return [Finding("integrity", False, f"its contents cannot be read ({type(e).__name__}: {e})", failures.RECOVER)]
    finally:
        connection.close()


def _schema(version: int, path: Path, database: DatabaseFile | None) -> Finding:
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
    copy = opening.scratch_copy(database, path.name, time)
    try:
        with contextlib.closing(copy.connect()) as connection:
            migrate.apply_steps(plain(connection), time, name=str(path))
    finally:
        copy.remove()


def _unreadable(error: apsw.Error, path: Path) -> Finding:
    if failures.code_of(error) == "damaged":
        return Finding("integrity", False, str(error), failures.RECOVER)
    failure = failures.to_store_error(error, path, saving=False, waited=_TO_READ_MS / 1000)
    return Finding("file", False, failure.message)
