"""Measure search and appending as the store grows: many messages, the real store, CPU time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Connection, Database
from sakti.store.database import Store
from sakti.store.maintenance import upkeep
from sakti.store.search import search
from sakti.store.threads import messages, threads
from tests.bench.retrieval import percentile
from tests.bench.scale_texts import SOURCES, Texts

WORKSPACES = 4
THREAD_MESSAGES = 200
BATCH = 2_000
APPENDS = 300
QUERIES = 60
TYPED = 12  # queries that are typed key by key
KEYS = 16  # of each
LAG_S = 5.0  # seconds of queries back to back
TICK_S = 0.005


async def run(
    sizes: Sequence[int], workdir: Path, *, texts: str = "real", appends: int = APPENDS, queries: int = QUERIES
) -> dict[str, Any]:
    """Grow one database to each of `sizes` messages in turn, and time appends and queries at each.

    `append_ms` is wall time of one durable write, `search_cpu_ms`, `first_page_cpu_ms` and `key_cpu_ms` (a first page
    for each key of a query that is typed) CPU time of the searching thread, `loop_lag_ms` how late the event loop is
    while queries run back to back. `text_mb`: the text alone.
    """
    out: list[dict[str, Any]] = []
    path = workdir / "scale.db"
    writer = _Writer(SOURCES[texts](random.Random(7)))
    took = 0.0
    for size in sorted(set(sizes)):
        store = await Store.open(path, synchronous="NORMAL")
        try:
            began = time.perf_counter()
            while writer.count < size:
                await store.write(writer.append, min(BATCH, size - writer.count))
            took += time.perf_counter() - began
            await upkeep.merge_indexes(store)
            await store.flush()
        finally:
            await store.close()
        measured = await _measure(path, writer, appends, queries)
        out.append({"messages": size, "texts": texts, "build_s": round(took, 1), **measured})
    return {"sizes": out}


async def _measure(path: Path, writer: _Writer, appends: int, queries: int) -> dict[str, Any]:
    size = sum(p.stat().st_size for s in ("", "-wal") if (p := path.with_name(path.name + s)).exists())
    said = writer.bytes
    store = await Store.open(path)
    try:
        append: list[float] = []
        for _ in range(appends):
            began = time.perf_counter()
            await store.write(writer.append, 1)
            append.append(1000 * (time.perf_counter() - began))
        asked = [writer.texts.queries() for _ in range(queries)]
        cpu = {kind: await _search(store, [q[kind] for q in asked]) for kind in asked[0]}
        first = {kind: await _search(store, [q[kind] for q in asked], first=True) for kind in asked[0]}
        lines = [q[kind] for q in asked[:TYPED] for kind in ("question", "identifier")]
        typed = [line[:n] for line in lines for n in range(1, min(KEYS, len(line)) + 1)]
        keys = await _search(store, typed, first=True)
        lag = await _lag(store, [q["question"] for q in asked])
    finally:
        await store.close()
    return {
        "mb": round(size / 1e6, 1), "text_mb": round(said / 1e6, 1), "append_ms": _spread(append),
        "search_cpu_ms": cpu, "first_page_cpu_ms": first, "key_cpu_ms": keys, "loop_lag_ms": lag,
    }  # fmt: skip


async def _search(store: Store, asked: Sequence[str], *, first: bool = False) -> dict[str, float]:
    return _spread([await store.search(_timed, text, first) for text in asked])


def _timed(db: Connection, text: str, first: bool) -> float:
    began = time.thread_time()
    search.search(db, text, search.Scope("/scale-0"), limit=20, first=first)
    return 1000 * (time.thread_time() - began)


async def _lag(store: Store, asked: Sequence[str]) -> dict[str, float]:
    """Return how late the event loop wakes while queries run back to back."""

    async def ask() -> None:
        while True:
            for text in asked:
                await store.search(_timed, text, False)

    asking = asyncio.create_task(ask())
    late: list[float] = []
    end = time.perf_counter() + LAG_S
    try:
        while (began := time.perf_counter()) < end:
            await asyncio.sleep(TICK_S)
            late.append(1000 * (time.perf_counter() - began - TICK_S))
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    return _spread(late)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 0.5), 3), "p95": round(percentile(values, 0.95), 3)}


class _Writer:
    """Writer of messages, in threads of several workspaces."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.count = 0
        self.bytes = 0

    def append(self, db: Database, count: int) -> None:
        for _ in range(count):
            number = self.count
            at = 1_700_000_000_000 + number * 1000
            workspace, thread = f"/scale-{number // THREAD_MESSAGES % WORKSPACES}", f"t{number // THREAD_MESSAGES}"
            if number % THREAD_MESSAGES == 0:
                threads.create(db, Thread(thread, workspace, "", created_at=at, updated_at=at))
            text = self.texts.text(number)
            role = "user" if number % 2 == 0 else "assistant"
            messages.append(db, Message(f"m{number:09d}", thread, workspace, role, (TextPart(text),), at))
            self.count += 1
            self.bytes += len(text.encode())
