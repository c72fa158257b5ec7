"""Check the archive of a database, copy it with a copy of the database, make it small.

Raw SQL: the messages that refer to it, and a file with two tables.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from sakti.core.errors import StoreError
from sakti.store import archive_file, failures, files
from sakti.store.archive_file import REFERS
from sakti.store.connection import Database
from sakti.store.threads import codec


def archive_error(error: Exception, place: Path) -> StoreError:
    """Return what to raise where an archive cannot be written."""
    if isinstance(error, apsw.Error):
        return failures.to_store_error(error, place, saving=False)
    return StoreError(f"{place} cannot be written: {getattr(error, 'strerror', None) or error}.", code="io")


def problems(db: Database, *, deep: bool = True) -> tuple[int, str]:
    """Return the number of archived messages and the archive's problem ("" without one).

    `deep`: each of them is looked up.
    """
    any_ref = archive_file.any_reference(db)
    if any_ref is None:
        return 0, ""
    # SQL: compares the beginning of packed parts, which no field has
    (count,) = db.execute_sql(f"SELECT count(*) FROM messages WHERE {REFERS}").fetchone()
    place = archive_file.place_of(archive_file.number_of(any_ref))
    if place is None:
        return count, f"{count} messages are in an archive that is missing"
    try:
        file = archive_file.connect(place, query_only=True)
        try:
            faults = [str(row[0]) for row in file.execute("PRAGMA quick_check(3)").fetchall()]
        finally:
            file.close()
    except apsw.Error as e:
        faults = [str(e)]
    if faults != ["ok"]:
        return count, f"{place} is damaged: {faults[0]}"
    if deep:
        # SQL: compares the beginning of packed parts, which no field has
        rows = db.execute_sql(f"SELECT parts FROM messages WHERE {REFERS}")
        lost = sum(not codec.is_there(parts) for (parts,) in rows)
        if lost:
            return count, f"{lost} of {count} archived messages cannot be read in {place}"
    return count, ""


def refuse_existing(db: Database, target: Path) -> None:
    """Raise StoreError (exists) if another archive is at the place of the copy `target`'s archive."""
    place = archive_file.path_of(target)
    if place.exists() and archive_file.any_reference(db) is not None:
        raise StoreError(f"{place} already exists; name another file.", code="exists")


def copy_beside(db: Database, path: Path, target: Path) -> Path | None:
    """Copy the archive of the database at `path` for its copy `target`; None without an archive.

    Raises `StoreError` (full, io).
    """
    place, new_place = archive_file.path_of(path), archive_file.path_of(target)
    if archive_file.any_reference(db) is None or not place.exists():
        return None
    part = files.own(new_place, "part")
    try:
        files.sweep(new_place)
        source = archive_file.connect(place, query_only=True)
        try:
            part.touch(mode=0o600, exist_ok=True)
            copy = apsw.Connection(str(part))
            try:
                with copy.backup("main", source, "main") as backup:
                    backup.step(-1)
            finally:
                copy.close()
        finally:
            source.close()
        part.rename(new_place)
    except (apsw.Error, OSError) as e:
        raise archive_error(e, new_place) from e
    finally:
        for file in files.all_of(part):
            file.unlink(missing_ok=True)
    return new_place


def vacuum(path: Path) -> None:
    """Rewrite a database's archive, if there is one, without free space. Raises apsw.Error."""
    place = archive_file.path_of(path)
    if place.exists():
        file = archive_file.connect(place)
        try:
            if archive_file.number(file) is not None:
                file.execute("VACUUM").fetchall()
        finally:
            file.close()


def recover(db: Database, path: Path, end: str) -> str:
    """Copy the readable rows of a damaged archive into a new one; the old one is kept with `end`.

    `db`: the database at `path`. Return what was done; "" where it is whole, missing, or nothing in it can be read.
    Raises `apsw.Error`, `OSError`.
    """
    _, wrong = problems(db)
    place, new = archive_file.path_of(path), files.own(archive_file.path_of(path), "recovering")
    some = archive_file.any_reference(db)
    if not wrong or some is None or not place.exists():
        return ""
    number = archive_file.number_of(some)
    # SQL: compares packed parts by a range of bytes, which no field has
    rows = db.execute_sql(f"SELECT parts FROM messages WHERE {REFERS} AND parts >= ?", (some[:-8],)).fetchall()
    keys = sorted({archive_file.key_of(stored) for (stored,) in rows if archive_file.number_of(stored) == number})
    try:
        came = _copy_rows(place, new, number, keys)
        if not came:
            return ""
        archive_file.forget(path)
        place.rename(files.beside(place, end))
        new.rename(place)
    finally:
        for file in files.all_of(new):
            file.unlink(missing_ok=True)
    return f"{came} of {len(keys)} texts in the archive could be read; the damaged one is {files.beside(place, end)}"


def _copy_rows(place: Path, new: Path, number: bytes, keys: list[int]) -> int:
    """Copy the rows of an archive that can be read to a new one; return how many."""
    archive_file.build(new, number)
    source, target = archive_file.connect(place, query_only=True), archive_file.connect(new)
    came = 0
    try:
        with target:
            for key in keys:
                try:
                    row = source.execute("SELECT parts FROM parts WHERE key = ?", (key,)).fetchone()
                except apsw.Error:
                    continue
                if row is not None and codec.readable(row[0] if isinstance(row[0], str | bytes) else None):
                    target.execute("INSERT INTO parts VALUES (?, ?)", (key, row[0]))
                    came += 1
    finally:
        source.close()
        target.close()
    return came
