"""`python -m tests.bench memory`: facts planted in generated sessions are asked for after each generation."""

from __future__ import annotations

import json

import pytest

from sakti.core.tokens import Estimator
from sakti.core.types import Json, Request
from sakti.providers.scripted import ScriptedProvider
from tests.bench import memory_bench, planted
from tests.bench.memory_bench import OUTCOMES
from tests.bench.planted import CATEGORIES, Fact, Said, generate
from tests.fakes.shell import bench


def asked(row: Json) -> int:
    return sum(sum(found.values()) for found in row["categories"].values())


def test_a_session_is_the_same_each_time_and_tells_every_fact() -> None:
    session = generate(4)
    assert session == generate(4)
    assert session != generate(5)
    assert {f.category for f in session.facts} == set(CATEGORIES)
    for fact in session.facts:
        for said in fact.said:
            turn = session.turns[said.turn]
            assert said.text in (turn.user if said.role == "user" else turn.answer)
        assert fact.answered(fact.said[-1].text)
        assert not fact.answered("something else")
        if fact.stale:
            assert fact.misled(fact.said[0].text)
            assert not fact.answered(fact.said[0].text)


def test_a_retracted_fact_is_known_only_with_its_retraction() -> None:
    fact = Fact("retracted", "Do we need the cache?", "x-1", (Said(0, "user", ""), Said(1, "user", "")), "x-1")
    assert fact.answered("* 🔴 User stated that the cache x-1 is no longer needed")
    assert not fact.answered("* 🔴 the cache x-1 is needed\n* 🟡 tests no longer fail")
    assert fact.misled("* 🔴 the cache x-1 is needed")


def test_what_was_replaced_contradicts_unless_it_is_marked() -> None:
    fact = Fact("updated", "Which port?", "9090", (Said(0, "user", ""), Said(1, "user", "")), "8080")
    newer = "* 🔴 The port is 9090 now."
    assert fact.contradicted(f"* 🔴 The port is 8080. Our region is eu-2.\n{newer}")
    assert not fact.contradicted("* 🔴 The port is 8080."), "the answer is not in it"
    assert not fact.contradicted("* 🔴 The port moved from 8080 to 9090."), "it says so itself"
    assert not fact.contradicted(f"* 🔴 The port is 8080 [earlier; see 12:09]. Our region is eu-2.\n{newer}")
    assert not fact.contradicted(f"* 🔴 The port is 8080.\n{newer} [replaces 12:00: The port is 8080]")
    assert fact.contradicted(f"* 🔴 The port is 8080, the region eu-2 [earlier; see 12:09].\n{newer}")
    assert not fact.contradicted(f"* 🔴 The queue holds 80801 jobs.\n{newer}")
    gone = Fact("retracted", "Need it?", "x-1", (Said(0, "user", ""), Said(1, "user", "")), "x-1")
    assert gone.contradicted("* We need x-1.\n* We no longer need x-1.")
    assert not gone.contradicted("* We need x-1 [earlier; see 9:00].\n* We no longer need x-1.")


def test_a_mark_on_what_still_holds_is_a_mistake() -> None:
    fact = Fact("facts", "Which region?", "eu-2", (Said(0, "user", ""),))
    assert fact.mistaken("* 🔴 The region is eu-2 [earlier; see 12:09].")
    assert fact.mistaken("* 🔴 The region is eu-2.\n* The region is eu-9 [replaces 12:00: The region is eu-2]")
    assert fact.mistaken("* 🔴 The region is eu-2, the port 8080 [earlier; see 12:09].") is False
    assert fact.mistaken("* 🔴 Nothing of it.") is None


async def test_an_honest_observer_loses_nothing_and_no_memory_does() -> None:
    rows = {row["name"]: row for row in await memory_bench.run((1,), Estimator())}
    assert list(rows) == ["scripted", "extractive", "summary", "none"]
    for row in rows.values():
        assert set(row) == {"name", "retention", "compression", "contradicted", "wrongly_marked", "categories"}
        assert set(row["categories"]) == set(CATEGORIES)
        assert all(set(found) == set(OUTCOMES) for found in row["categories"].values())
    honest, extractive, none = rows["scripted"], rows["extractive"], rows["none"]
    assert honest["retention"] == 1.0
    assert honest["compression"] > 1
    assert asked(honest) > len(generate(1).facts), "it was asked at the end only"
    assert asked(none) == asked(rows["summary"]) == asked(honest)
    assert honest["retention"] >= extractive["retention"] > rows["summary"]["retention"] > none["retention"] - 0.1
    assert all(found["lost"] == 0 for found in extractive["categories"].values()), "search finds what the log lost"
    assert none["compression"] == 0
    assert sum(found["lost"] for found in none["categories"].values())


async def test_five_generations_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planted is still in the log after each of at least five generations: all of it where an Observer writes
    down what it is told, most of it by rules alone, and never what was true before in place of what is true now."""
    generations: list[int] = []
    ends = memory_bench.Observed.turn_ends

    async def turn_ends(self: memory_bench.Observed, last: bool) -> bool:
        now = await ends(self, last)
        if last:
            generations.append(self.engine.state.window.record.generation_count)
        return now

    monkeypatch.setattr(memory_bench.Observed, "turn_ends", turn_ends)
    seeds = range(101, 104)
    rows = {row["name"]: row for row in await memory_bench.run(seeds, Estimator())}
    assert rows["scripted"]["retention"] >= 0.99, "what a Reflector drops without a mark is put back"
    extractive = rows["extractive"]
    assert extractive["retention"] >= 0.85
    for row in (rows["scripted"], extractive):
        assert row["contradicted"] <= 0.1, "what was replaced stands in the log as if it still held"
        assert row["wrongly_marked"] <= 0.02
    for found in extractive["categories"].values():
        assert found["wrong"] == 0
        assert found["lost"] == 0, "search finds what the log let go of"
    assert len(generations) == 2 * len(seeds)
    assert min(generations) >= 5


async def test_a_model_observes_beside_them() -> None:
    """A model that writes down nothing of use: what it lost is found by search, and what it says wrongly is told."""
    stale = next(f for f in generate(2).facts if f.category == "updated")

    def play(request: Request) -> str:
        return f"<observations>\nDate: Jan 15, 2026\n* 🔴 (12:00) {stale.said[0].text}\n</observations>"

    provider = ScriptedProvider(play)
    rows = {row["name"]: row for row in await memory_bench.run((2,), Estimator(), (provider, "demo"))}
    assert list(rows) == ["scripted", "extractive", "scripted/demo", "summary", "none"]
    row = rows["scripted/demo"]
    assert row["categories"]["updated"]["wrong"]
    assert row["categories"]["dates"]["search"]
    assert row["retention"] < rows["scripted"]["retention"]
    assert any("Summarise" in r.system[0].text for r in provider.requests)


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "TURNS", 8)
    said = bench("memory", "--sessions", "1", "--json")
    assert said.exit_code == 0, said.output
    assert [row["name"] for row in json.loads(said.stdout)["observers"]] == [
        "scripted",
        "extractive",
        "summary",
        "none",
    ]
    assert bench("memory", "--sessions", "0").exit_code == 2
    assert "memory" in bench("--help").output
