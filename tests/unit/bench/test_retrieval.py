"""Recorded questions through the real store and the real search; the store that grows."""

from __future__ import annotations

import json
from pathlib import Path

from sakti.bench import retrieval, scale


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")


def message(id_: str, session: str, text: str) -> dict[str, object]:
    return {"id": id_, "corpus": "c", "conv": "c", "session": session, "role": "Ann", "ts": 1, "seq": 0, "text": text}


def question(query: str, gold: str, session: str) -> dict[str, object]:
    return {"corpus": "c", "query": query, "gold": [gold], "gold_sessions": [session], "category": "plain"}


async def test_sets_are_measured_and_what_lacks_is_named(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    said = [message("a/1", "s1", "We chose the parser for dates"), message("a/2", "s2", "Lunch was late: getUserId")]
    write(data / "talk.dev.messages.jsonl", said)
    write(data / "talk.dev.queries.jsonl", [question("which parser for the dates?", "a/1", "s1")])
    write(data / "names.open.queries.jsonl", [question("get_user_id", "a/2", "s2")])
    write(data / "lone.open.messages.jsonl", said)
    write(data / "lost.open.queries.jsonl", [question("anything", "nowhere", "s9")])
    found = await retrieval.run(data, "open", work)
    assert [(r["dataset"], r["R@1"], r["MRR"], r["sR@1"], r["errors"]) for r in found["rows"]] == [
        ("names", 1.0, 1.0, 1.0, 0),
        ("talk", 1.0, 1.0, 1.0, 0),
    ]
    assert {c["category"] for c in found["categories"]} == {"plain"}
    assert found["missing"] == ["lone", "lost"]
    assert (await retrieval.run(data, "other", work))["rows"] == []


def test_scores_of_a_ranking() -> None:
    found = retrieval.score(["x", "a", "y", "b"], ["a", "b"])
    assert (found["R@1"], found["R@5"], found["H@1"], found["H@5"], found["MRR"]) == (0, 1, 0, 1, 0.5)
    assert 0 < found["nDCG"] < 1
    assert retrieval.score([], ["a"])["MRR"] == 0


async def test_a_store_grows_to_each_size(tmp_path: Path) -> None:
    found = await scale.run([30, 10], tmp_path, appends=5, queries=2)
    assert [s["messages"] for s in found["sizes"]] == [10, 30]
    kinds = {"question", "identifier", "substring", "filtered", "paste10k"}
    assert all(
        set(s["search_cpu_ms"]) == kinds == set(s["first_page_cpu_ms"]) and set(s["append_ms"]) == {"p50", "p95"}
        for s in found["sizes"]
    )
