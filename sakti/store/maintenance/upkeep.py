"""Run long work on the database in short transactions; other windows wait up to 0.1 s.

Each piece works for `PIECE_S` and is followed by an equal pause, in which waiting writers get the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

from sakti.core.errors import StoreError
from sakti.core.text import format_count
from sakti.store import archive_file, database_file, failures, files, migrate, opening, packing
from sakti.store.connection import Database, wrap_connection
from sakti.store.database import Store
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import checks
from sakti.store.maintenance.checks import Finding
from sakti.store.memory import integrity as memory_integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep, reindexing
from sakti.store.tasks import graph

T = TypeVar("T")
log = logging.getLogger(__name__)

PIECE_S = 0.03
PACK_S = 0.01  # for background work: a commit, or one long text, takes the same time again
_STEP = 10  # items between two checks of the time
_WINDOW = 2_000  # texts indexed at a time: the newest window first, oldest first within it, which is faster


async def run_in_pieces(
    store: Store, items: Sequence[T], do: Callable[[Database, Sequence[T]], object], *, step: int = _STEP
) -> None:
    """Run `do(db, some)` on all of `items` in pieces, with `step` items between two checks of the time."""
    at = 0
    while at < len(items):
        at = await run_piece(store, partial(_run_from, items=items, at=at, do=do, step=step))


def _run_from(
    db: Database, *, items: Sequence[T], at: int, do: Callable[[Database, Sequence[T]], object], step: int
) -> int:
    end = time.perf_counter() + PIECE_S
    while True:
        do(db, items[at : at + step])
        at += step
        if at >= len(items) or time.perf_counter() >= end:
            return at


async def run_until_done(store: Store, step: Callable[[Database], bool], *, seconds: float | None = None) -> None:
    """Run `step(db)` in pieces (of `seconds`) until it returns False."""

    def some(db: Database) -> bool:
        end = time.perf_counter() + (PIECE_S if seconds is None else seconds)
        while step(db):
            if time.perf_counter() >= end:
                return True
        return False

    while await run_piece(store, some):
        pass


async def run_piece(store: Store, work: Callable[[Database], T]) -> T:
    """Run `work(db)` and rest for the same time, but no longer than two pieces."""
    began = time.perf_counter()
    done = await store.write(work)
    await asyncio.sleep(min(time.perf_counter() - began, PIECE_S * 2))
    return done


async def reindex(store: Store) -> None:
    """Remove the remaining rows of deleted threads from search, and add those missing for restored ones.

    Raises `StoreError` if nothing can be written; then the next start continues.
    """
    while noted := await store.read(reindexing.list_notes):
        for one in noted:
            items = await store.read(reindexing.list_items, one)
            # one row at a time: putting a long text into the indexes takes long
            await run_in_pieces(store, items, partial(reindexing.work_off, noted=one), step=1)
            await store.write(reindexing.is_done, one)


async def run_quietly(store: Store, work: Callable[[Store], Awaitable[object]]) -> None:
    """Run unfinished work if the database is writable; after a failure the next start tries again."""
    if store.read_only_reason:
        return
    try:
        await work(store)
    except StoreError as e:
        log.warning("%s will be retried later: %s", work.__name__, e)


async def pack(store: Store) -> None:
    """Pack rows of earlier versions (see `packing`). Raises StoreError if nothing can be written."""
    await run_until_done(store, packing.pack_some, seconds=PACK_S)


async def check(store: Store) -> list[Finding]:
    """Check everything on the reader, make repairs that need no decision, and return the final findings."""
    findings = await store.read(checks.check)
    return [f if f.ok or not f.is_repairable else await repair_finding(store, f) for f in findings]


async def repair_finding(store: Store, finding: Finding) -> Finding:
    """Repair a finding and return the one to report instead."""
    return await _REPAIRS[finding.name](store, finding)


async def _add_messages(store: Store, finding: Finding) -> Finding:
    pks = await store.read(search_index.list_unindexed)
    await run_in_pieces(store, pks, search_index.index_messages)
    await reindex(store)
    added = format_count(len(pks), "message was not searchable", "messages were not searchable")
    outcome = f"{added}: added" if pks else f"{finding.detail}: done now"
    return Finding("search", True, outcome)


async def _pack(store: Store, finding: Finding) -> Finding:
    await pack(store)
    return Finding("space", True, f"was {finding.detail}; packed now")


async def _repair_memory(store: Store, _: Finding) -> Finding:
    wrong = await store.read(memory_integrity.check)
    done = [await store.write(memory_integrity.repair_states, record, store.clock.now()) for record in wrong]
    return Finding("memory", True, f"repaired: {'; '.join(filter(None, done))}")


async def _count_tasks(store: Store, _: Finding) -> Finding:
    stale = await store.read(graph.find_stale)
    for resource_id in stale:
        await run_in_pieces(store, await store.read(graph.list_task_ids, resource_id), graph.refresh)
        await store.write(graph.count_states, resource_id)
    return Finding("task counts", True, f"{format_count(len(stale), 'workspace')} had wrong counts: counted again")


async def _repair_task_index(store: Store, finding: Finding) -> Finding:
    await store.write(index_upkeep.clear_index, finding.name)
    await run_in_pieces(store, await store.read(checks.find_unindexed_tasks), checks.index_tasks)
    return Finding(finding.name, True, f"was {finding.detail}; rebuilt")


async def _repair_index(store: Store, finding: Finding) -> Finding:
    table = finding.name
    if await store.read(archive_file.is_missing):
        return replace(finding, advice=archive_file.MISSING, is_repairable=False)
    beyond_filling = any(words in finding.detail for words in ("damaged", checks.DIFFER))
    if beyond_filling or await store.read(index_upkeep.count_orphans, table):
        await rebuild(store, table)
        return Finding(table, True, f"was {finding.detail}; rebuilt")
    await _fill(store, table, await store.read(index_upkeep.list_missing, table))
    await _drop_old_indexes(store)
    return Finding(table, True, f"was {finding.detail}; filled")


# The repair of a finding, by the name of the finding.
_REPAIRS: dict[str, Callable[[Store, Finding], Awaitable[Finding]]] = {
    "search": _add_messages,
    "memory": _repair_memory,
    "space": _pack,
    "task counts": _count_tasks,
    search_index.TASKS: _repair_task_index,
    **dict.fromkeys(search_index.TABLES, _repair_index),
}


async def rebuild_index(store: Store) -> dict[str, int]:
    """Rebuild the search indexes.

    Return the numbers of indexed `texts` and of messages that were missing (`added`). Meanwhile search finds what is
    indexed again, newest first.
    """
    added = await store.read(search_index.list_unindexed)
    await run_in_pieces(store, added, search_index.index_messages)
    for table in search_index.TABLES:
        await rebuild(store, table)
    return {"texts": await store.read(index_upkeep.count_texts), "added": len(added)}


async def rebuild(store: Store, table: str) -> None:
    """Rebuild one index."""
    await store.read(archive_file.refuse_missing)
    await _drop_old_indexes(store)
    await store.write(index_upkeep.replace_by_empty, table)
    await _fill(store, table, await store.read(index_upkeep.list_missing, table))
    await _drop_old_indexes(store)


async def _fill(store: Store, table: str, pks: Sequence[int]) -> None:
    for end in range(len(pks), 0, -_WINDOW):
        window = pks[max(0, end - _WINDOW) : end]
        await run_in_pieces(store, window, partial(_fill_some, table=table))
        await run_until_done(store, partial(index_upkeep.merge_some, table=table))


def _fill_some(db: Database, pks: Sequence[int], *, table: str) -> None:
    index_upkeep.fill(db, table, pks)


async def _drop_old_indexes(store: Store) -> None:
    for table in await store.read(index_upkeep.list_replaced):
        await run_until_done(store, partial(index_upkeep.drop_some, table=table))


async def optimize_indexes(store: Store) -> None:
    """Merge each search index into one segment and refresh SQLite's statistics.

    Searches get faster, and nothing removed is left in the indexes.
    """
    for table in (*search_index.TABLES, search_index.TASKS):
        await _merge_whole(store, table)
    await store.write(_finish_merge)


async def merge_indexes(store: Store) -> None:
    """Merge the segments of the search indexes, as an idle session does."""
    for table in search_index.TABLES:
        await run_until_done(store, partial(index_upkeep.merge_some, table=table))
        if await store.read(index_upkeep.is_scattered, table):
            await _merge_whole(store, table)


async def _merge_whole(store: Store, table: str) -> None:
    await store.write(index_upkeep.merge_some, table, whole=True)
    await run_until_done(store, partial(index_upkeep.merge_some, table=table))


def _finish_merge(db: Database) -> None:
    index_upkeep.set_mark(db, database_file.UNMERGED, on=False)
    db.connection().pragma("optimize")


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


def collect_stats(db: Database, path: Path) -> dict[str, int | str]:
    """Return sizes and counts; `bytes` is of all files of the database together."""
    out: dict[str, int | str] = {"path": str(path), "schema": migrate.read_current_version(db)}
    out["bytes"] = _compute_total_size(path)
    sources = {table: f"count(*) FROM {table}" for table in COUNTED}
    sources["archived"] = f"count(*) FROM messages WHERE {archive_file.REFERS}"
    sources["tokens"] = "coalesce(sum(token_count), 0) FROM messages"
    # SQL: the counts of nine tables in one statement
    counted = db.execute_sql(f"SELECT {', '.join(f'(SELECT {source})' for source in sources.values())}").fetchone()
    counts = dict(zip(sources, counted, strict=True))
    tokens = counts.pop("tokens")
    out.update(counts)
    out["archive_bytes"] = files.get_size(archive_file.get_path(path))
    out["tokens"] = tokens
    return out


def is_clean(path: Path) -> bool:
    """Return whether the free space of a database never held removed text.

    Raises `StoreError` if it cannot be opened.
    """
    try:
        with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
            return bool(connection.pragma("user_version") & database_file.CLEAN)
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e


def vacuum(path: Path) -> tuple[int, int]:
    """Vacuum the database at `path`; return its bytes before and after.

    It takes the time and the room of a copy. Raises `StoreError`: busy if another process has it open,
    full, damaged, read_only, missing.
    """
    if not path.exists():
        raise StoreError(f"{path} does not exist.", code="missing")
    opening.refuse_unusable(path)
    if not files.is_writable(path):
        raise StoreError(f"{path} or its folder is not writable.", code="read_only")
    if not opening.is_alone(path):
        raise StoreError(
            f"{path} is open in another window: close it first. Nothing was changed.", code="busy", retryable=True
        )
    before = _compute_total_size(path)
    if shutil.disk_usage(path.parent).free < before * 2:
        raise StoreError(f"Not enough disk space to rewrite {path}: it needs {2 * before:,} bytes.", code="full")
    try:
        with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
            opening.refuse_foreign(connection, path)
            if migrate.read_current_version(wrap_connection(connection)) != migrate.LATEST:
                raise StoreError(f"{path} is of another version of sakti: open it once, then run this.", code="schema")
            for index in (*search_index.TABLES, search_index.TASKS):  # they keep removed entries until they are merged
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
            connection.execute(f"PRAGMA user_version = {database_file.CLEAN}")
            connection.execute("VACUUM").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            _vacuum_archive(path)
    except apsw.Error as e:
        raise failures.to_store_error(e, path, saving=False) from e
    return before, _compute_total_size(path)


def _compute_total_size(path: Path) -> int:
    return sum(map(files.get_size, files.list_files(path)))


def _vacuum_archive(path: Path) -> None:
    """Rewrite a database's archive, if there is one, without free space. Raises apsw.Error."""
    place = archive_file.get_path(path)
    if place.exists():
        with contextlib.closing(archive_file.connect(place)) as file:
            if archive_file.read_number(file) is not None:
                file.execute("VACUUM").fetchall()
