"""Move parts of old messages to the archive, still searchable, and delete unreferenced archive rows.

A piece is stored in the archive before the messages refer to it, in one transaction on the database. If the process is
killed in between, `sweep` removes the archive's unreferenced rows. The search indexes do not change.

Raw SQL: conditions over messages, the log and tasks.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
from msgspec import Struct

from sakti.core.errors import StoreError
from sakti.core.text import format_count
from sakti.store import archive_file, failures, files
from sakti.store.archive_file import MARK, REFERS
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks, upkeep
from sakti.store.search import index_upkeep
from sakti.store.threads import codec

SHORT = 200  # bytes: archiving shorter parts would save nothing
ROOM = 2  # times the moved bytes: for the archive, and for the database's write-ahead log
_ROWS, _LONG = 50, 200_000  # messages and bytes moved at once
_SWEPT = 500  # archive rows compared at once
_OBSERVED = (
    "EXISTS (SELECT 1 FROM observation_groups g WHERE g.thread_id = m.thread_id AND g.kind = 'observation'"
    " AND g.state IN ('active', 'superseded') AND m.message_index BETWEEN g.first_index AND g.last_index)"
)
_NEEDED = (
    "EXISTS (SELECT 1 FROM task_messages l JOIN tasks k ON k.id = l.task_id WHERE l.message_id = m.id"
    " AND k.status != 'closed' AND k.deleted_at IS NULL)"
)
_OLD = (
    f" FROM messages m WHERE m.pk > ? AND m.created_at < ? AND m.state = 'saved' AND length(m.parts) >= {SHORT}"
    f" AND substr(m.parts, 1, {len(MARK)}) != X'{MARK.hex()}' AND {_OBSERVED} AND NOT {_NEEDED}"
)


class Archived(Struct):
    """Result: messages moved, their bytes, and the number of `removed` unreferenced rows."""

    path: Path
    messages: int = 0
    bytes: int = 0
    removed: int = 0


async def archive(
    store: Store, *, before: int, progress: Callable[[int, int], object] = lambda done, total: None
) -> Archived:
    """Move the parts of observed messages before a time (Unix ms) that no open task links to.

    `progress` is called with the number of messages moved and their total. An interrupted run keeps what it moved, and
    the next one continues. Raises `StoreError`: read_only if nothing is saved, full without room on the disk, archive
    if the archive is missing.
    """
    if store.not_saved or store.read_only_reason:
        raise StoreError(store.not_saved or store.read_only_reason or "", code="read_only")
    await upkeep.pack(store)  # search rows refer to a message's text only once it is packed
    done = Archived(archive_file.get_path(store.path))
    await store.read(archive_file.refuse_missing)
    messages, size = await store.read(_count, before)
    _require_room(store.path, size)
    try:
        if messages:
            archive_file.create(store.path)
            last = 0
            while last is not None:
                last = await upkeep.run_piece(store, partial(_move_some, done=done, before=before, after=last))
                progress(done.messages, messages)
        done.removed = await sweep(store)
    except (apsw.Error, OSError) as e:
        raise failures.to_archive_error(e, done.path) from e
    return done


def _count(db: Database, before: int) -> tuple[int, int]:
    """Return the number of messages to move, and their bytes."""
    # SQL: a condition on packed text, without loading it
    return db.execute_sql(f"SELECT count(*), coalesce(sum(length(m.parts)), 0){_OLD}", (0, before)).fetchone()


def _require_room(path: Path, size: int) -> None:
    needed, free = size * ROOM, shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreError(
            f"Archiving needs {needed / 1e6:,.0f} MB of free disk space in {path.parent}, of which {free / 1e6:,.0f} MB"
            " are available: free some space, then run it again. Nothing was moved.",
            code="full",
        )


def _move_some(db: Database, *, done: Archived, before: int, after: int) -> int | None:
    """Move some messages; return the pk of the last one, None at the end."""
    rows: list[tuple[int, str | bytes, str]] = []
    size = 0
    # SQL: a condition on packed text, without loading it
    for pk, parts in db.execute_sql(f"SELECT m.pk, m.parts{_OLD} ORDER BY m.pk LIMIT {_ROWS}", (after, before)):
        rows.append((pk, parts, codec.unpack_or_empty(parts)))
        size += len(parts)
        if size > _LONG:
            break
    if not rows:
        return None
    readable = [row for row in rows if row[2]]  # unreadable parts stay in place, for `db recover`
    with contextlib.closing(archive_file.connect(done.path)) as file:
        references = archive_file.store_parts(file, [text for *_, text in readable])
    with index_upkeep.bypass_triggers(db):  # the text does not change
        for (pk, parts, _), reference in zip(readable, references, strict=True):
            # SQL: writes packed bytes past the field's own packing
            db.execute_sql("UPDATE messages SET parts = ? WHERE pk = ?", (reference, pk))
            done.bytes += len(parts)
    done.messages += len(readable)
    return rows[-1][0]


async def sweep(store: Store) -> int:
    """Remove archive rows that no message refers to any more; return how many.

    Their messages were removed or masked, or a run was killed. Raises `StoreError`.
    """
    place = archive_file.get_path(store.path)
    if store.not_saved or store.read_only_reason or not place.exists():
        return 0
    removed = 0
    last: int | None = 0
    try:
        while last is not None:
            some, last = await upkeep.run_piece(store, partial(_sweep_some, place=place, after=last))
            removed += some
    except (apsw.Error, OSError) as e:
        raise failures.to_archive_error(e, place) from e
    return removed


def _sweep_some(db: Database, *, place: Path, after: int) -> tuple[int, int | None]:
    """Remove some unreferenced rows after a key; return their number and the last key (None at the end)."""
    with contextlib.closing(archive_file.connect(place)) as file:
        number = archive_file.read_number(file)
        if number is None:
            return 0, None
        rows = file.execute("SELECT key FROM parts WHERE key > ? ORDER BY key LIMIT ?", (after, _SWEPT)).fetchall()
        keys = [int(str(key)) for (key,) in rows]
        if not keys:
            return 0, None
        unreferenced = sorted(set(keys) - archive_file.find_referred_keys(db, keys, number))
        with file:
            file.executemany("DELETE FROM parts WHERE key = ?", [(key,) for key in unreferenced])
        return len(unreferenced), keys[-1]


def recover_archive(db: Database, path: Path, end: str) -> str:
    """Copy the readable rows of a damaged archive into a new one; the old one is kept with `end`.

    `db`: the database at `path`. Return what was done; "" if it is intact or missing, or nothing in it can be read.
    Raises `apsw.Error`, `OSError`.
    """
    _, problem = checks.find_archive_problem(db)
    place, new = archive_file.get_path(path), files.make_unfinished_path(archive_file.get_path(path), "recovering")
    some = archive_file.find_reference(db)
    if not problem or some is None or not place.exists():
        return ""
    number = archive_file.archive_number_of(some)
    # SQL: compares packed parts by a range of bytes, which no field supports
    rows = db.execute_sql(f"SELECT parts FROM messages WHERE {REFERS} AND parts >= ?", (some[:-8],)).fetchall()
    keys = sorted(
        {archive_file.key_of(stored) for (stored,) in rows if archive_file.archive_number_of(stored) == number}
    )
    try:
        copied = _copy_rows(place, new, number, keys)
        if not copied:
            return ""
        archive_file.close_archive(path)
        place.rename(files.append_suffix(place, end))
        new.rename(place)
    finally:
        files.delete_database(new)
    damaged = files.append_suffix(place, end)
    return f"{copied:,} of {format_count(len(keys), 'text')} in the archive could be read; the damaged one is {damaged}"


def _copy_rows(place: Path, new: Path, number: bytes, keys: list[int]) -> int:
    """Copy the readable rows of an archive to a new one; return how many."""
    archive_file.build(new, number)
    copied = 0
    with (
        contextlib.closing(archive_file.connect(place, query_only=True)) as source,
        contextlib.closing(archive_file.connect(new)) as target,
        target,
    ):
        for key in keys:
            try:
                row = source.execute("SELECT parts FROM parts WHERE key = ?", (key,)).fetchone()
            except apsw.Error:
                continue
            if row is not None and codec.unpack_or_empty(row[0] if isinstance(row[0], str | bytes) else None):
                target.execute("INSERT INTO parts VALUES (?, ?)", (key, row[0]))
                copied += 1
    return copied
