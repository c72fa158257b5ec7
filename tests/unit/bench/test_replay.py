"""Conversations played against the real engine, in small: what the command does with many and long ones."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from sakti.core.errors import ConfigError
from sakti.core.tokens import O200k
from sakti.core.types import Block, Message, Request, TextPart
from sakti.memory.state import FAILPOINTS
from tests.bench import bench_store, script, talks
from tests.bench.prompt_cache import PromptCache
from tests.bench.replay import Run, replay

COUNTER = O200k()
generate = functools.cache(talks.generate)
# Every kind of circumstance: delays, failures, restarts, budgets, shared budget, no buffering, what is done by hand;
# two threads with a memory each, and with one of both.
SEEDS = (0, 1, 4, 5, 8, 12)
# Two windows on one thread, and windows on one memory of several threads: one loses what the other observed.
TWO_WINDOWS = (18, 50, 6, 22)

TURNS = 12  # of each conversation; the command plays them whole


async def play(seed: int, **changes: object) -> Run:
    whole = generate(seed)
    return await replay(structs.replace(whole, **{"turns": whole.turns[:TURNS], **changes}), COUNTER)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_generated_conversation_keeps_every_promise(seed: int) -> None:
    run = await play(seed)
    assert run.violations == []
    assert run.steps
    assert run.observer_calls


@pytest.mark.parametrize("seed", TWO_WINDOWS)
async def test_windows_do_not_take_from_each_other(seed: int) -> None:
    assert (await play(seed)).violations == []


async def test_the_same_seed_plays_the_same_run() -> None:
    runs = [(await play(7, turns=generate(7).turns[:8])).as_json() for _ in range(2)]
    for run in runs:
        del run["step_cpu_ms"]
    assert runs[0] == runs[1]


async def test_a_log_that_the_reflector_repeats_is_condensed_while_observers_fail_and_take_long() -> None:
    run = await play(16, incompressible=True, fail_rate=0.3, delay=7)
    assert run.violations == []
    assert run.generations == 1, "code condenses it"


def dying(name: str) -> script.Script:
    """A conversation that passes a failpoint: buffering and a slow Observer for the background's boundaries, neither
    for those of a step that waits."""
    waits = name.startswith("observe")
    base = generate(16)
    observation = base.settings.observation
    buffer = False if waits else observation.buffer_tokens
    return structs.replace(
        base,
        settings=replace(base.settings, observation=replace(observation, buffer_tokens=buffer)),
        turns=base.turns[:6],
        fail_rate=0.0,
        incompressible=False,
        budget=None,
        delay=0 if waits else 1,
        undo_every=4,
    )


@pytest.mark.parametrize("name", FAILPOINTS)
async def test_dying_at_a_commit_boundary_loses_nothing(name: str) -> None:
    run = await replay(dying(name), COUNTER, kill_at=name)
    assert run.kills, "the failpoint was never reached"
    assert run.violations == []


async def test_the_same_conversation_ends_with_the_same_messages_observed_after_crashes() -> None:
    run = await replay(dying("buffer.committed"), COUNTER, kill_at="buffer.committed")
    again = await replay(dying("buffer.committed"), COUNTER)
    assert run.conversation_tokens == again.conversation_tokens
    assert not run.violations
    assert not again.violations


async def test_a_long_history_is_not_loaded() -> None:
    base = generate(8)
    run = await replay(structs.replace(base, turns=base.turns[:TURNS]), COUNTER, history_messages=1_200)
    assert run.violations == []


async def test_a_database_that_answers_late_is_no_step_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = tuple(range(12, 24))  # of the loop, round the number after which a step is looked at
    monkeypatch.setattr(bench_store, "PASSES", passes)
    base = generate(8)
    run = await replay(structs.replace(base, turns=base.turns[:12], late=True), COUNTER)
    assert run.violations == []
    assert run.steps


def test_a_recorded_conversation(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    lines = [
        {
            "config": {
                "observation": {"messageTokens": 900, "bufferTokens": 0.3, "blockAfter": 1.5},
                "reflection": {"observationTokens": 500},
                "shareTokenBudget": True,
                "scope": "thread",
                "observerDelay": 2,
                "observerFailRate": 0.1,
                "reflector": "incompressible",
            }
        },
        {
            "turn": 0,
            "gapMs": 5_000,
            "user": "Hello",
            "steps": [
                {"text": "I look.", "tool": {"name": "read", "args": {"path": "a.py"}, "result": "def f(): ..."}},
                {"text": "Done."},
            ],
        },
        {"restart": True},
        {"turn": 1, "gapMs": 600_000, "user": "And now?", "steps": [{"text": "Nothing."}], "model": "other/m"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    read = script.load(path)
    assert read.settings.share_token_budget
    assert read.settings.observation.block_after == 1.5
    assert (read.delay, read.fail_rate, read.incompressible) == (2, 0.1, True)
    assert [t.restart for t in read.turns] == [False, True, False]
    run = asyncio.run(replay(read, COUNTER))
    assert run.violations == []
    assert run.as_json()["step_cpu_ms"].keys() == {"p50", "p95", "max"}


def test_what_is_no_conversation_is_refused(tmp_path: Path) -> None:
    contradicting = '{"config": {"observation": {"messageTokens": 100, "bufferTokens": 200}}}\n{"user": "x"}'
    for text in ("{", '{"config": {}}', contradicting):
        path = tmp_path / "x.jsonl"
        path.write_text(text)
        with pytest.raises(ConfigError):
            script.load(path)


def message(number: int, role: str, text: str) -> Message:
    return Message(f"m{number}", "t", "r", role, (TextPart(text),), 1, number)  # pyright: ignore


def test_cached_share_is_that_of_the_prefixes_that_stay() -> None:
    system = Block("system", "word " * 500, edge=True)
    talk = [message(0, "user", "hello " * 100)]
    cache = PromptCache(COUNTER)
    cache.add(Request("m", (system,), tuple(talk)))
    assert cache.share == 0.0  # the first request is not counted
    talk += [message(1, "assistant", "yes"), message(2, "user", "and?")]
    cache.add(Request("m", (system,), tuple(talk)))
    first = cache.share
    assert first > 0.7
    cache.add(Request("m", (Block("system", "other", edge=True),), tuple(talk)))
    assert cache.share < first
