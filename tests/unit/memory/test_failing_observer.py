"""A model that cannot observe is replaced by code, also where each process sees one of its failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.errors import ProviderError
from sakti.memory.extractive import ExtractiveObserver
from sakti.memory.fallback import KEY, REST_MS, FallbackObserver
from sakti.providers.scripted import Answer
from sakti.store import memory as memory_store
from sakti.store.database import Store
from tests.fakes.clock import FakeClock
from tests.fakes.session import start
from tests.unit.memory.test_observers import COUNTER, asked


class Model:
    name = "far/away"

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    async def observe(self, request):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


DOWN = ProviderError("down", code="overloaded", retryable=True)


class Record:
    def __init__(self) -> None:
        self.metadata: dict = {}

    async def keep(self, changes: dict) -> None:
        self.metadata |= changes


def process(record: Record, clock: FakeClock, *answers: object) -> FallbackObserver:
    made = FallbackObserver(Model(*answers), ExtractiveObserver(COUNTER), clock)
    made.remember(record.metadata, record.keep)
    return made


async def test_failures_of_several_processes_are_counted_together() -> None:
    record, clock = Record(), FakeClock()
    for _ in range(2):
        with pytest.raises(ProviderError):
            await process(record, clock, DOWN).observe(asked())
    third = await process(record, clock, DOWN).observe(asked())
    assert third.model == "extractive" and "For the next hour" in third.note
    fourth = process(record, clock)  # not asked at all
    assert fourth.name == "extractive"
    assert (await fourth.observe(asked())).model == "extractive"
    clock.advance(REST_MS / 1000)
    assert process(record, clock).name == "far/away", "after an hour it has another try"


async def test_a_success_forgets_them() -> None:
    record, clock = Record(), FakeClock()
    for _ in range(2):
        with pytest.raises(ProviderError):
            await process(record, clock, DOWN).observe(asked())
    good = await ExtractiveObserver(COUNTER).observe(asked())
    await process(record, clock, good).observe(asked())
    assert record.metadata == {KEY: None}
    with pytest.raises(ProviderError):
        await process(record, clock, DOWN).observe(asked())


async def test_another_model_has_no_failures() -> None:
    record, clock = Record(), FakeClock()
    record.metadata[KEY] = {"model": "some/other", "count": 9, "time": clock.now()}
    assert process(record, clock).name == "far/away"


async def test_runs_one_after_the_other_come_to_observe(store: Store, tmp_path: Path) -> None:
    """Each session is a process of its own: what was kept of the failures is all that they share."""
    for number in range(5):

        def play(request):
            observing = not request.tools
            return Answer(error="overloaded") if observing else "It is noted. " + "word " * 200

        run = await start(
            store,
            tmp_path / "w",
            play,
            overrides=("memory.model=scripted/observer", "memory.observation.message_tokens=400"),
            continue_last=number > 0,
            config=None,
        )
        await run.ask(f"remember that service {number} listens on port 90{number} " + "and more " * 60)
        await run.session.engine.wait_idle()
        record_id = run.session.engine.record_id
        await run.session.close()
    groups = await store.read(memory_store.current, record_id, {})
    assert groups, "the third failure falls back to code"
