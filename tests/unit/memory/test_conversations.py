"""Recorded conversations against the engine: small windows, a slow Observer, single messages above the
threshold."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.events import MemoryActivation, MemoryOperation, MemoryStatus
from sakti.core.types import TextPart
from sakti.store.memory import list_groups
from tests.fakes.memory import Driver, ScriptedObserver
from tests.unit.test_golden import FULL

CONVERSATIONS = FULL / "conversations"
TURNS = 30
pytestmark = pytest.mark.skipif(not CONVERSATIONS.is_dir(), reason="the recorded conversations are not here")

NAMES = {
    "messageTokens": "message_tokens",
    "bufferTokens": "buffer_tokens",
    "bufferActivation": "buffer_activation",
    "observationTokens": "observation_tokens",
    "blockAfter": "block_after",
}


def memory_settings(config: dict[str, Any]) -> MemorySettings:
    values = {k: {NAMES[n]: v for n, v in config[k].items() if n in NAMES} for k in ("observation", "reflection")}
    return MemorySettings(
        observation=ObservationSettings(**values["observation"]),
        reflection=ReflectionSettings(**values["reflection"]),
    )


@pytest.mark.parametrize("slow", [0, 5], ids=["quick", "slow"])
@pytest.mark.parametrize("name", ["S2-small-8k-3k", "S5-slow-observer", "S7-burst-over-threshold"])
async def test_conversation(name: str, slow: int, tmp_path: Path) -> None:
    lines = (CONVERSATIONS / f"{name}.jsonl").read_text("utf-8").splitlines()
    config, turns = json.loads(lines[0])["config"], [json.loads(line) for line in lines[1 : TURNS + 1]]
    observer = ScriptedObserver()
    driver = await Driver.make(tmp_path / "m.db", memory_settings(config), observer=observer)
    seen_projection: MemoryStatus | None = None
    calls_since = 0
    for turn in turns:
        driver.clock.advance(turn["gapMs"] / 1000)
        await driver.begin(turn["user"])
        for number, step in enumerate(turn["steps"]):
            if slow:
                calls_since += 1
                if observer.gate is None or observer.gate.is_set():
                    observer.gate, calls_since = asyncio.Event(), 0
                waiting = asyncio.create_task(driver.prepare())
                await asyncio.sleep(0)
                if calls_since >= slow:
                    observer.gate.set()
                for _ in range(400):
                    if waiting.done():
                        break
                    await asyncio.sleep(0.001)
                else:
                    observer.gate.set()  # the step waits: it is allowed to, and the Observer answers
                prepared = await waiting
            else:
                prepared = await driver.prepare()
                await driver.engine.wait_idle()
            seen_projection = prepared.status
            await driver.step(step, f"c{turn['turn']}-{number}")
        await driver.engine.end_turn()
    if observer.gate is not None:
        observer.gate.set()
    await driver.engine.wait_idle()
    assert seen_projection is not None
    assert driver.of(MemoryActivation)
    assert not [e for e in driver.of(MemoryOperation) if e.kind == "failed"]
    observed = [m.index for request in observer.inputs for m in request.messages]
    assert len(observed) == len(set(observed)), "a message was observed twice"
    assert not await driver.store.read(list_groups, driver.engine.record_id, "discarded")
    check_projections(driver)
    await driver.close()


def check_projections(driver: Driver) -> None:
    """What the newest status projected is what the activation removed."""
    last: MemoryStatus | None = None
    for event in driver.events:
        if isinstance(event, MemoryStatus):
            last = event
        elif isinstance(event, MemoryActivation) and event.operation_type == "observation" and event.chunks_activated:
            assert last is not None
            assert event.tokens_activated == last.buffered_observations.projected_message_removal


async def test_reopened_at_every_turn(tmp_path: Path) -> None:
    lines = (CONVERSATIONS / "S2-small-8k-3k.jsonl").read_text("utf-8").splitlines()
    config, turns = json.loads(lines[0])["config"], [json.loads(line) for line in lines[1:20]]
    driver = await Driver.make(tmp_path / "m.db", memory_settings(config))
    for turn in turns:
        driver.clock.advance(turn["gapMs"] / 1000)
        await driver.begin(turn["user"])
        for number, step in enumerate(turn["steps"]):
            await driver.prepare()
            await driver.engine.wait_idle()
            await driver.step(step, f"c{turn['turn']}-{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
        before = driver.engine.preview()
        await driver.engine.close()
        await driver.open()
        after = driver.engine.preview()
        assert after.blocks == before.blocks
        assert [m.id for m in after.messages] == [m.id for m in before.messages]
        assert after.tail == before.tail
        assert after.status.buffered_observations == before.status.buffered_observations
    await driver.close()


async def test_prompt_longer_than_the_threshold_is_sent(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    await driver.begin("word " * 5_000)
    prepared = await driver.prepare()
    assert prepared.messages[-1].parts == (TextPart("word " * 5_000),)
    await driver.close()
