"""Measure the task graph: workspaces of many tasks with two dependencies a task."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.tasks import queries, service, transfer

WORDS = "parser token session cache index login export theme queue retry search schema lease budget window".split()
SIZES = (1_000, 10_000, 50_000)
ROUNDS = 60
EPIC, WINDOW = 20, 5_000  # every so manyth task is an epic; how far back edges reach
MEASURED = ("ready", "list", "search", "board", "show", "explain", "refusal", "create", "close")


def lines(count: int, seed: int = 1) -> Iterator[Json]:
    """Yield tasks of which a third is closed and one in twenty is an epic, each with two edges to older ones.

    Two in three wait for a task, or for an epic from before the last `WINDOW`; one in six is a part of a newer epic.
    So no task waits for an epic that could still get a part which waits for it.
    """
    chance = random.Random(seed)
    for n in range(count):
        edges: dict[tuple[str, str], None] = {}
        while len(edges) < min(n, 2):
            kind = chance.choices(("blocks", "parent-child", "related"), (4, 1, 1))[0]
            on = chance.randrange(max(0, n - WINDOW), n)
            if kind == "parent-child":
                on -= on % EPIC
            elif kind == "blocks" and on % EPIC == 0:
                on = max(0, on - WINDOW)
            if kind == "blocks" and on % EPIC == 0 and on + WINDOW > n:
                kind = "related"
            edges[f"bench-{on:06d}", kind] = None
        closed = chance.random() < 1 / 3
        title = f"{chance.choice(WORDS)} {chance.choice(WORDS)}: step {n} of {chance.choice(WORDS)}_{n % 977}"
        yield {
            "id": f"bench-{n:06d}",
            "title": title,
            "description": " ".join(chance.choices(WORDS, k=12)),
            "priority": chance.randrange(5),
            "type": "epic" if n % EPIC == 0 else chance.choice(("bug", "feature", "task")),
            "status": "closed" if closed else "open",
            "created_at": 1_700_000_000_000 + n,
            "dependencies": [{"on": on, "type": kind} for on, kind in edges],
        }


async def measure(count: int, folder: Path, rounds: int = ROUNDS) -> Json:
    """Measure one size: CPU milliseconds in process, and of `sakti tasks ready` as a whole process."""
    workspace = folder / "workspace"
    workspace.mkdir()
    store = await Store.open(folder / "bench.db")
    try:
        actor = service.Actor(str(workspace.resolve()), "bench", store.clock.now(), name="bench")
        made = await store.write(transfer.import_tasks, actor, lines(count))
        cpu = await _in_process(store, actor, count, rounds)
    finally:
        await store.close()
    return {
        "tasks": made.tasks,
        "dependencies": made.dependencies,
        "cpu_ms": cpu,
        "process_ms": {"ready": _whole_process(folder, workspace)},
    }


async def _in_process(store: Store, actor: service.Actor, count: int, rounds: int) -> Json:
    chance = random.Random(2)
    who = actor.resource_id
    made: list[str] = []

    def create(db: Database, _: int) -> None:
        on = [f"bench-{n:06d}" for n in chance.sample(range(count), 2)]
        made.append(
            service.create(db, actor, service.NewTask(store.ids.new(), f"one more {len(made)}", depends_on=on)).id
        )

    def close(db: Database, _: int) -> None:
        first = queries.list_ready(db, who, 1)["tasks"][0]["id"]
        begun = time.thread_time()
        service.close(db, actor, first, "completed", "done in src/a.py", force=True)
        times["close"].append(time.thread_time() - begun)

    def refusal(db: Database, n: int) -> None:
        changes: tuple[Callable[[], object], ...] = (
            lambda: service.claim(db, actor, blocked[n]),
            lambda: service.close(db, actor, blocked[n], "completed", "done"),
        )
        for change in changes:
            begun = time.thread_time()
            try:
                change()
            except TaskError:
                times["refusal"].append(time.thread_time() - begun)

    first = (await store.read(queries.load_board, who, 0)).blocked
    blocked = [chance.choice(first).id for _ in range(rounds)]
    reads: dict[str, Callable[[Database, int], Any]] = {
        "ready": lambda db, _: queries.list_ready(db, who, 20),
        "list": lambda db, n: queries.list_tasks(db, who, limit=20, offset=n),
        "search": lambda db, n: queries.search(db, who, f"{WORDS[n % len(WORDS)]}_{n * 37 % 977}", 5),
        "board": lambda db, _: queries.load_board(db, who, 0),
        "show": lambda db, n: queries.show_task(db, who, blocked[n]),
        "explain": lambda db, n: queries.explain(db, who, blocked[n]),
    }
    times: dict[str, list[float]] = {"close": [], "refusal": []}
    for name, fn in reads.items():
        times[name] = [await store.read(_timed, fn, n) for n in range(rounds)]
    for n in range(rounds):
        await store.write(refusal, n)
    times["create"] = [await store.write(_timed, create, n) for n in range(rounds)]
    for n in range(rounds):
        await store.write(close, n)
    return {name: percentiles([t * 1000 for t in times[name]]) for name in MEASURED}


def _timed(db: Database, fn: Callable[[Database, int], Any], n: int) -> float:
    begun = time.thread_time()
    fn(db, n)
    return time.thread_time() - begun


def _whole_process(folder: Path, workspace: Path, runs: int = 5) -> float:
    """Return the wall milliseconds of `sakti tasks ready`, the median of some runs."""
    env = {**os.environ, "SAKTI_DB": str(folder / "bench.db"), "SAKTI_STORE__PATH": str(folder / "bench.db")}
    times: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "sakti", "tasks", "ready", "--json"],
            cwd=workspace,
            env=env,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        times.append((time.perf_counter() - begun) * 1000)
    return round(sorted(times)[len(times) // 2], 1)


def percentiles(values: Sequence[float]) -> Json:
    """Return p50 and p95."""
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 3),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 3),
    }


async def run(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[Json]:
    """Measure every size in a temporary folder."""
    out: list[Json] = []
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="sakti-bench-") as folder:
            out.append(await measure(count, Path(folder), rounds))
    return out
