"""Recorded questions through the real store and the real search; the store that grows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.bench import retrieval, scale


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


async def test_others_are_newer_and_are_not_asked_for(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    write(data / "talk.open.messages.jsonl", [message("a/1", "s1", "We chose the zyxomma parser for dates")])
    write(data / "talk.open.queries.jsonl", [question("which zyxomma parser for the dates?", "a/1", "s1")])
    (row,) = (await retrieval.run(data, "open", work, among=600))["rows"]
    assert (row["R@1"], row["errors"]) == (1.0, 0)
    database = sqlite3.connect(work / "talk-open-0.db")
    assert database.execute("SELECT count(*), min(created_at) FROM messages").fetchone() == (601, 1)
    database.close()


def test_scores_of_a_ranking() -> None:
    found = retrieval.score(["x", "a", "y", "b"], ["a", "b"])
    assert (found["R@1"], found["R@5"], found["H@1"], found["H@5"], found["MRR"]) == (0, 1, 0, 1, 0.5)
    assert 0 < found["nDCG"] < 1
    assert retrieval.score([], ["a"])["MRR"] == 0


async def test_equal_texts_count_as_one_among_answers_and_gold(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    said = [message(f"a/{i}", f"s{i}", "run the importer again" + " " * i) for i in range(3)]
    write(data / "talk.open.messages.jsonl", [*said, message("b", "s9", "the importer is slow")])
    asked = {**question("run importer again", "a/0", "s0"), "gold": ["a/0", "a/1", "a/2"]}
    write(data / "talk.open.queries.jsonl", [asked])
    (row,) = (await retrieval.run(data, "open", work))["rows"]
    assert (row["R@1"], row["MRR"], row["R@10_95"]) == (1.0, 1.0, (1.0, 1.0))
    assert row["cpu_p50_ms"] > 0


def test_an_interval_holds_the_mean() -> None:
    low, high = retrieval.interval([0.0, 1.0] * 50)
    assert 0.35 < low < 0.5 < high < 0.65
    assert retrieval.interval([]) == (0.0, 0.0)


@pytest.mark.parametrize("texts", ["real", "generated"])
async def test_a_store_grows_to_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str) -> None:
    monkeypatch.setattr(scale, "LAG_S", 0.1)
    found = await scale.run([30, 10], tmp_path, texts=texts, appends=5, queries=2)
    assert [s["messages"] for s in found["sizes"]] == [10, 30]
    kinds = {"question", "identifier", "substring", "filtered", "paste10k"}
    assert all(
        set(s["search_cpu_ms"]) == kinds == set(s["first_page_cpu_ms"])
        and set(s["append_ms"]) == {"p50", "p95"}
        and set(s["key_cpu_ms"]) == set(s["loop_lag_ms"]) == {"p50", "p95"}
        and s["mb"] > s["text_mb"] >= 0
        for s in found["sizes"]
    )
