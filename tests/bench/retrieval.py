"""Measure the quality of search: recorded messages are stored, questions with known answers are searched.

A folder holds sets: `NAME.HALF.messages.jsonl` (`{id, corpus, session, role, ts, text}` a line) and
`NAME.HALF.queries.jsonl` (`{corpus, query, gold, gold_sessions, category}`). Each corpus is a database of its own,
each session a thread. A set without messages of its own searches those of the sets that hold its answers. The half
`open` takes the files of `dev` where it has none. Equal texts count as one, among the answers and among the gold: a
search lists identical texts once. The indexes are merged before, as the program does when it is idle. `among`: so many
newer messages (code, diffs, prose and logs of this Python) are in each database, too, and nobody asks for them: what
the bounds on time cost in a large store.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from sakti.core.errors import StoreError
from sakti.core.types import Message, Role, TextPart, Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import upkeep
from sakti.store.search import search
from sakti.store.threads import messages, threads
from tests.bench.scale_texts import SOURCES

WORKSPACE = "/retrieval"
DEPTH = 50
CUTS = (1, 5, 10)
BATCH = 500
RESAMPLES = 400  # of the bootstrap
Row = dict[str, Any]


async def run(
    data: Path, half: str, workdir: Path, say: Callable[[Row], None] | None = None, *, among: int = 0
) -> dict[str, Any]:
    """Measure every set under `data`.

    `rows` (a set), `categories` (a kind of question in it), metrics 0 to 1 (`R@10_95`, `MRR_95`: bootstrap 95 %
    intervals), milliseconds of wall time and of CPU, `missing`: the sets that lack a file.
    Databases are made in `workdir`.
    """
    names = sorted({p.name.split(".")[0] for h in _halves(half) for p in data.glob(f"*.{h}.*.jsonl")})
    said: dict[str, list[Row]] = {}
    asked: dict[str, list[Row]] = {}
    for name in names:
        if file := _file(data, name, half, "messages"):
            said[name] = _read(file)
        if file := _file(data, name, half, "queries"):
            asked[name] = _read(file)
    rows: list[Row] = []
    categories: list[Row] = []
    missing = [n for n in names if n not in asked]
    for name, queries in asked.items():
        corpora = _corpora(name, queries, said)
        if not corpora:
            missing.append(name)
            continue
        row, kinds = await _measure(name, half, corpora, queries, workdir, among)
        rows.append(row)
        categories += kinds
        if say:
            say(row)
    return {"rows": rows, "categories": categories, "missing": sorted(missing)}


def score(ranked: Sequence[str], gold: Iterable[str]) -> dict[str, float]:
    """Compute the metrics of one ranking, all 0 to 1.

    R@k share of the gold within the first k, H@k whether any is, MRR 1 / rank of the first, nDCG binary at 10
    (Järvelin and Kekäläinen 2002).
    """
    wanted = set(gold)
    out: dict[str, float] = {}
    for k in CUTS:
        within = len(wanted & set(ranked[:k]))
        out[f"R@{k}"] = within / len(wanted)
        out[f"H@{k}"] = float(within > 0)
    out["MRR"] = next((1 / (i + 1) for i, x in enumerate(ranked) if x in wanted), 0.0)
    gain = sum(1 / math.log2(i + 2) for i, x in enumerate(ranked[:10]) if x in wanted)
    out["nDCG"] = gain / sum(1 / math.log2(i + 2) for i in range(min(10, len(wanted))))
    return out


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


# --- data ---------------------------------------------------------------------------------------------------


def _halves(half: str) -> tuple[str, ...]:
    return (half, "dev") if half == "open" else (half,)


def _file(data: Path, name: str, half: str, what: str) -> Path | None:
    return next((p for h in _halves(half) if (p := data / f"{name}.{h}.{what}.jsonl").exists()), None)


def _read(path: Path) -> list[Row]:
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as e:
        raise StoreError(f"{path} is not a file of JSON lines: {e}") from e


def _corpora(name: str, queries: Sequence[Row], said: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = defaultdict(list)
    if name in said:
        for message in said[name]:
            out[message["corpus"]].append(message)
        return out
    for corpus in dict.fromkeys(q["corpus"] for q in queries):
        gold = {g for q in queries if q["corpus"] == corpus for g in q["gold"]}
        for others in said.values():
            if any(m["id"] in gold for m in others):
                out[corpus] += others
    return out


# --- measuring ----------------------------------------------------------------------------------------------


async def _measure(
    name: str, half: str, corpora: Mapping[str, list[Row]], queries: Sequence[Row], workdir: Path, among: int
) -> tuple[Row, list[Row]]:
    scores: list[Row] = []
    by_category: dict[str, list[Row]] = defaultdict(list)
    took: list[float] = []
    cpu: list[float] = []
    errors, build, size = 0, 0.0, 0
    for number, (corpus, said) in enumerate(corpora.items()):
        path = workdir / f"{name}-{half}-{number}.db"
        store = await Store.open(path, synchronous="NORMAL")
        try:
            began = time.perf_counter()
            ids = await _ingest(store, said)
            build += time.perf_counter() - began
            await _add_others(store, among, said)
            await upkeep.merge_indexes(store)
            same = first_of_equals(said)
            session = {m["id"]: m["session"] for m in said}
            for query in (q for q in queries if q["corpus"] == corpus):
                began = time.perf_counter()
                try:
                    page, spent = await store.read(_timed, query["query"])
                    cpu.append(spent)
                    found_ids = [ids.get(h.id, h.id) for h in page.hits]
                    ranked = list(dict.fromkeys(same.get(i, i) for i in found_ids))
                except Exception:  # counted, and shown as `errors`: an error is a question without an answer
                    errors += 1
                    ranked = []
                took.append(1000 * (time.perf_counter() - began))
                gold: set[str] = {same.get(g, g) for g in map(str, query["gold"])}
                found = score(ranked, gold) if gold else {}
                sessions = list(dict.fromkeys(session.get(i, i) for i in ranked))
                if query["gold_sessions"]:
                    found |= {f"s{k}": v for k, v in score(sessions, query["gold_sessions"]).items()}
                scores.append(found)
                by_category[query["category"]].append(found)
        finally:
            await store.close()
        size += sum(p.stat().st_size for s in ("", "-wal") if (p := path.with_name(path.name + s)).exists())
    row = _mean(scores) | {
        "dataset": name, "half": half, "n": len(scores), "errors": errors, "ingest_s": build, "mb": size / 1e6,
        "p50_ms": percentile(took, 0.5), "p95_ms": percentile(took, 0.95),
        "cpu_p50_ms": percentile(cpu, 0.5), "cpu_p95_ms": percentile(cpu, 0.95),
        **{f"{k}_95": interval([x[k] for x in scores if k in x]) for k in ("R@10", "MRR")},
    }  # fmt: skip
    kinds = [
        _mean(found) | {"dataset": name, "half": half, "category": c, "n": len(found)}
        for c, found in sorted(by_category.items())
    ]
    return row, kinds


def first_of_equals(said: Sequence[Row]) -> dict[str, str]:
    """Return for the id of each message the first one with the same text, but for white space at the ends."""
    first: dict[str, str] = {}
    return {m["id"]: first.setdefault(m["text"].strip(), m["id"]) for m in said}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the bootstrap 95 % interval of the mean (percentiles of 400 resamples, seeded)."""
    if not values:
        return (0.0, 0.0)
    rng = random.Random(1)
    means = [statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return (percentile(means, 0.025), percentile(means, 0.975))


def _timed(db: Database, text: str) -> tuple[search.SearchPage, float]:
    """Search, and return the page and the milliseconds of CPU time that it took."""
    began = time.thread_time()
    page = search.search(db, text, search.Scope(WORKSPACE), limit=DEPTH)
    return page, 1000 * (time.thread_time() - began)


def _mean(scores: Sequence[Row]) -> Row:
    keys = sorted({k for s in scores for k in s})
    return {k: statistics.fmean(s[k] for s in scores if k in s) for k in keys}


async def _ingest(store: Store, said: Sequence[Row]) -> dict[str, str]:
    """Store the messages; return their ids by their ids in the store."""
    ids = {f"message-{i:08d}": m["id"] for i, m in enumerate(said)}
    known: set[str] = set()
    for start in range(0, len(said), BATCH):
        await store.write(_append, said[start : start + BATCH], start, known)
    return ids


def _append(db: Database, said: Sequence[Row], start: int, known: set[str]) -> None:
    for number, m in enumerate(said, start):
        thread, at = str(m["session"]), int(m["ts"])
        if thread not in known:
            known.add(thread)
            threads.create(db, Thread(thread, WORKSPACE, "", created_at=at, updated_at=at))
        role: Role = m["role"] if m["role"] in get_args(Role) else "user"
        messages.append(db, Message(f"message-{number:08d}", thread, WORKSPACE, role, (TextPart(m["text"]),), at))


async def _add_others(store: Store, count: int, said: Sequence[Row]) -> None:
    """Add messages that are newer than those that are asked for."""
    texts, known = SOURCES["real"](random.Random(7)), set[str]()
    newest = max((int(m["ts"]) for m in said), default=0)
    for start in range(0, count, BATCH):
        others = [
            {
                "session": f"other-{start}",
                "ts": newest + 1 + n,
                "role": ("user", "assistant")[n % 2],
                "text": texts.text(n),
            }
            for n in range(start, min(start + BATCH, count))
        ]
        await store.write(_append, others, len(said) + start, known)
