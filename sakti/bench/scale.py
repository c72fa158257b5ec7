"""Measure search and appending as the store grows: generated messages, the real store, CPU time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sakti.bench.retrieval import percentile
from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.search import search
from sakti.store.threads import messages, threads

WORKSPACES = 4
THREAD_MESSAGES = 200
BATCH = 2_000
APPENDS = 300
QUERIES = 60
VOCABULARY = 50_000
COMMON = (
    "error file test function user schema model server token build request config value path update check type data"
    " session query module client script handler state cache index result option field"
).split()


async def run(sizes: Sequence[int], workdir: Path, *, appends: int = APPENDS, queries: int = QUERIES) -> dict[str, Any]:
    """Grow one database to each of `sizes` messages in turn, and time appends and queries at each.

    `append_ms` is wall time of one durable write, `search_cpu_ms` CPU time of the reading thread.
    """
    out: list[dict[str, Any]] = []
    path = workdir / "scale.db"
    writer = _Writer(random.Random(7))
    took = 0.0
    for size in sorted(set(sizes)):
        store = await Store.open(path, synchronous="NORMAL")
        try:
            began = time.perf_counter()
            while writer.count < size:
                await store.write(writer.append, min(BATCH, size - writer.count))
            took += time.perf_counter() - began
        finally:
            await store.close()
        out.append({"messages": size, "build_s": round(took, 1), **await _measure(path, writer, appends, queries)})
    return {"sizes": out}


async def _measure(path: Path, writer: _Writer, appends: int, queries: int) -> dict[str, Any]:
    store = await Store.open(path)
    try:
        append: list[float] = []
        for _ in range(appends):
            began = time.perf_counter()
            await store.write(writer.append, 1)
            append.append(1000 * (time.perf_counter() - began))
        cpu = {kind: await _search(store, kind, writer, queries) for kind in writer.queries()}
        first = {kind: await _search(store, kind, writer, queries, first=True) for kind in writer.queries()}
    finally:
        await store.close()
    size = sum(p.stat().st_size for s in ("", "-wal") if (p := path.with_name(path.name + s)).exists())
    return {"mb": round(size / 1e6, 1), "append_ms": _spread(append), "search_cpu_ms": cpu, "first_page_cpu_ms": first}


async def _search(store: Store, kind: str, writer: _Writer, queries: int, *, first: bool = False) -> dict[str, float]:
    took = [await store.read(_timed, writer.queries()[kind], first) for _ in range(queries)]
    return _spread(took)


def _timed(db: Database, text: str, first: bool) -> float:
    began = time.thread_time()
    search.search(db, text, search.Scope("/scale-0"), limit=20, first=first)
    return 1000 * (time.thread_time() - began)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 0.5), 3), "p95": round(percentile(values, 0.95), 3)}


class _Writer:
    """Writer of messages with Zipf-distributed words, identifiers and paths."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0
        letters = "abcdefghiklmnoprstuvwy"
        self.words = list(dict.fromkeys(
            [*COMMON, *("".join(rng.choices(letters, k=rng.randint(4, 9))) for _ in range(VOCABULARY))]
        ))  # fmt: skip
        self.weights: list[float] = []
        total = 0.0
        for rank in range(len(self.words)):
            total += 1 / (rank + 3)
            self.weights.append(total)

    def some(self, count: int) -> list[str]:
        return self.rng.choices(self.words, cum_weights=self.weights, k=count)

    def identifier(self) -> str:
        a, b, c = self.some(3)
        return self.rng.choice((f"{a}{b.title()}{c.title()}", f"{a}_{b}_{c}", f"src/{a}/{b}.ts"))

    def append(self, db: Database, count: int) -> None:
        for _ in range(count):
            number = self.count
            at = 1_700_000_000_000 + number * 1000
            workspace, thread = f"/scale-{number // THREAD_MESSAGES % WORKSPACES}", f"t{number // THREAD_MESSAGES}"
            if number % THREAD_MESSAGES == 0:
                threads.create(db, Thread(thread, workspace, "", created_at=at, updated_at=at))
            text = " ".join([*self.some(self.rng.randint(10, 70)), self.identifier(), self.identifier()])
            role = "user" if number % 2 == 0 else "assistant"
            messages.append(db, Message(f"m{number:09d}", thread, workspace, role, (TextPart(text),), at))
            self.count += 1

    def queries(self) -> dict[str, str]:
        identifier = self.identifier()
        return {
            "question": "why does the " + " ".join(self.some(6)) + "?",
            "identifier": identifier,
            "substring": identifier[2:-2],
            "filtered": " ".join(self.some(3)) + " role:user after:2023-11-15",
            "paste10k": " ".join(self.some(1_700))[:10_000],
        }
