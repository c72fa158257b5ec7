"""Compute the figures of a run from its records alone, and show them. Pure but for `say`."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sakti.cli import common
from sakti.core.types import Json
from tests.bench.longmemeval.formats import FIRST_TYPES
from tests.bench.retrieval import percentile

RESAMPLES = 10_000
PLACES = ("context", "source_range", "search", "either", "results", "in_reach")
SHARES = ("any", "all")
SIZES = ("log", "window", "results")
WORKS = ("answer", "observer", "judge")


def summarize(records: Sequence[Json], seed: int) -> Json:
    """Return the object that `--json` prints; its figures are not rounded."""
    run = next((r for r in records if r["kind"] == "run"), {})
    arms = dict.fromkeys(r["arm"] for r in records if r["kind"] == "question")
    questions = {r["id"] for r in records if r["kind"] == "question"}
    pairs = [r for r in records if r["kind"] == "pair"]
    return {
        "format": run.get("format", ""),
        "questions": len(questions),
        "seed": seed,
        "versions": run.get("versions", {}),
        "evidence_ids": run.get("evidence_ids", {}),
        "arms": [_arm(name, [r for r in records if r.get("arm") == name], pairs, seed) for name in arms],
    }


def _arm(name: str, records: Sequence[Json], pairs: Sequence[Json], seed: int) -> Json:
    questions = [r for r in records if r["kind"] == "question"]
    conversations = [r for r in records if r["kind"] == "conversation"]
    planted: Json = next((r["figures"] for r in records if r["kind"] == "planted"), {})
    lines = [r["supported"] for r in records if r["kind"] == "line"]
    unsupported = 1000 * sum(s is False for s in lines) / len(lines) if lines else None
    return {
        "name": name,
        "models": questions[0]["models"],
        "recall": _recall(questions, seed),
        "answers": _answers(questions, seed),
        "judge_error": _judge_error(pairs),
        "tokens": _tokens(questions, conversations),
        "usd_per_question": {work: _usd(questions, conversations, work) for work in WORKS},
        "latency_ms": _latency(questions),
        "retention": planted.get("retention", []),
        "invented_per_1000": planted.get("invented_per_1000"),
        "false_replaced": planted.get("false_replaced"),
        "stale": planted.get("stale"),
        "unsupported_per_1000": unsupported,
    }


# --- evidence recall ----------------------------------------------------------------------------------------


def _recall(questions: Sequence[Json], seed: int) -> Json:
    """Return the recall of questions with an answer and known evidence, by place, and by type."""
    asked = [q for q in questions if not q["abstention"] and q["evidence"]]
    places = [p for p in PLACES if asked and p in asked[0]["recall"]]
    out: Json = {place: _shares(asked, place, seed) for place in places}
    out["questions"] = len(asked)
    out["by_type"] = {
        type: {"questions": len(rows)} | {p: {s: _mean(rows, p, s) for s in SHARES} for p in places}
        for type, rows in _by_type(asked)
    }
    return out


def _shares(asked: Sequence[Json], place: str, seed: int) -> Json:
    shares: Json = {share: _mean(asked, place, share) for share in SHARES}
    shares["ci"] = {share: interval(asked, lambda q: q["recall"][place][share], seed) for share in SHARES}  # noqa: B023
    return shares


def _mean(rows: Sequence[Json], place: str, share: str) -> float:
    return statistics.fmean(r["recall"][place][share] for r in rows) if rows else 0.0


def _by_type(rows: Iterable[Json]) -> list[tuple[str, list[Json]]]:
    """Return the rows of each type, those whose evidence is in several sessions first."""
    by_type: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        by_type[row["type"]].append(row)
    return sorted(by_type.items(), key=lambda item: (item[0] not in FIRST_TYPES, item[0]))


def interval(rows: Sequence[Json], value: Callable[[Json], float], seed: int) -> tuple[float, float] | None:
    """Return the bootstrap 95 % interval of a mean: percentiles of seeded resamples of whole conversations.

    None for a single conversation: nothing is known of how others differ from it.
    """
    sums: dict[str, tuple[float, int]] = {}
    for row in rows:
        total, count = sums.get(row["conversation"], (0.0, 0))
        sums[row["conversation"]] = (total + value(row), count + 1)
    if len(sums) < 2:
        return None
    source, clusters = random.Random(seed), list(sums.values())
    means: list[float] = []
    for _ in range(RESAMPLES):
        drawn = source.choices(clusters, k=len(clusters))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    return (percentile(means, 0.025), percentile(means, 0.975))


# --- answers and cost ---------------------------------------------------------------------------------------


def _answers(questions: Sequence[Json], seed: int) -> Json | None:
    """Return the accuracy of judged answers, abstention apart; None if nothing was judged.

    A reply of the judge that is neither yes nor no counts as wrong, and under `unclear`.
    """
    judged = [q for q in questions if "verdict" in q]
    if not judged:
        return None
    plain = [q for q in judged if not q["abstention"]]
    apart = [q for q in judged if q["abstention"]]
    return {
        "accuracy": _share_right(plain),
        "ci": interval(plain, lambda q: float(q["verdict"] is True), seed),
        "questions": len(plain),
        "by_type": {type: _share_right(rows) for type, rows in _by_type(plain)},
        "abstention": _share_right(apart),
        "unclear": sum(q["verdict"] is None for q in judged),
    }


def _share_right(rows: Sequence[Json]) -> float | None:
    return sum(r["verdict"] is True for r in rows) / len(rows) if rows else None


def _judge_error(pairs: Sequence[Json]) -> float | None:
    """Return the share of labelled pairs that the judge got wrong; an unclear reply is wrong."""
    return sum(p["verdict"] is not p["expected"] for p in pairs) / len(pairs) if pairs else None


def _tokens(questions: Sequence[Json], conversations: Sequence[Json]) -> Json:
    """Return means per question; the Observer's work is shared by the questions of a conversation."""
    out: Json = {s: statistics.fmean(q[f"{s}_tokens"] for q in questions) for s in SIZES}
    for work in WORKS:
        used = [u for r in (*questions, *conversations) if (u := r["usage"].get(work))]
        out[work] = {kind: sum(u[kind] for u in used) / len(questions) for kind in ("fresh", "cached", "output")}
    return out


def _usd(questions: Sequence[Json], conversations: Sequence[Json], work: str) -> float | None:
    prices = [u["usd"] for r in (*questions, *conversations) if (u := r["usage"].get(work))]
    return None if not prices or None in prices else math.fsum(prices) / len(questions)


def _latency(questions: Sequence[Json]) -> Json | None:
    took = [q["latency_ms"] for q in questions if q.get("latency_ms") is not None]
    return {"p50": percentile(took, 0.5), "p95": percentile(took, 0.95)} if took else None


# --- tables -------------------------------------------------------------------------------------------------


def say(figures: Json) -> None:
    """Print recall and answers as two tables, and cost and planted figures below each arm."""
    common.say(f"{figures['format']}, {figures['questions']} questions, seed {figures['seed']}")
    ids = figures["evidence_ids"]
    if any(ids.values()):
        common.say(f"malformed ids of evidence: {ids['repaired']} repaired, {ids['dropped']} dropped")
    common.say("\nEvidence recall: any / all evidence, 95 % interval; abstention questions have none")
    for arm in figures["arms"]:
        _say_recall(arm)
    common.say("\nAnswer accuracy, by the judge; abstention apart")
    for arm in figures["arms"]:
        _say_answers(arm)
    common.say("\nPer question: tokens (fresh + cached in, out), price, time")
    for arm in figures["arms"]:
        _say_cost(arm)


def _say_recall(arm: Json) -> None:
    recall = arm["recall"]
    common.say(f"{arm['name']}, {recall['questions']} questions")
    for place in (p for p in PLACES if p in recall):
        figures = recall[place]
        values = [f"{100 * figures[share]:5.1f} % {_ends(figures['ci'][share])}" for share in SHARES]
        common.say(f"   {place:<14} " + " / ".join(values))
    for type, row in recall["by_type"].items():
        cells = "  ".join(f"{p} {100 * row[p]['any']:.0f}/{100 * row[p]['all']:.0f}" for p in PLACES if p in row)
        common.say(f"      {type:<26} {row['questions']:>4}  {cells}")


def _say_answers(arm: Json) -> None:
    answers = arm["answers"]
    if answers is None:
        why = "no judge" if arm["models"]["answer"] else "no answer model: evidence recall only"
        common.say(f"{arm['name']:<28} not measured ({why})")
        return
    common.say(
        f"{arm['name']:<28} {_percent(answers['accuracy'])} {_ends(answers['ci'])}"
        f"  abstention {_percent(answers['abstention'])}  judge's own error {_percent(arm['judge_error'])}"
        f"  unclear {answers['unclear']}"
    )
    for type, share in answers["by_type"].items():
        common.say(f"      {type:<26} {_percent(share)}")


def _say_cost(arm: Json) -> None:
    tokens, usd, latency = arm["tokens"], arm["usd_per_question"], arm["latency_ms"]
    common.say(
        f"{arm['name']:<28} log {tokens['log']:,.0f}, window {tokens['window']:,.0f}, ten results of a search"
        f" {tokens['results']:,.0f} tokens"
    )
    for work in WORKS:
        used = tokens[work]
        if any(used.values()):
            price = "price not known" if usd[work] is None else f"${usd[work]:.5f}"
            common.say(
                f"   {work:<10} {used['fresh']:,.0f} + {used['cached']:,.0f} in, {used['output']:,.0f} out, {price}"
            )
    if latency:
        common.say(f"   latency    {latency['p50']:,.0f} / {latency['p95']:,.0f} ms wall (p50 / p95)")
    if arm["retention"]:
        shares = " ".join("–" if share is None else f"{share:.0%}" for share in arm["retention"])
        common.say(f"   planted facts in the log by generation: {shares}")
        common.say(
            f"   invented lines per 1,000: {arm['invented_per_1000']:.1f}, false replaced {arm['false_replaced']:.1%},"
            f" stale as current {arm['stale']:.1%}"
        )
    if arm["unsupported_per_1000"] is not None:
        common.say(
            f"   lines not supported by their messages, per 1,000 (by the judge): {arm['unsupported_per_1000']:.1f}"
        )


def _ends(interval: tuple[float, float] | None) -> str:
    return "[–]" if interval is None else f"[{100 * interval[0]:.1f}–{100 * interval[1]:.1f}]"


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
