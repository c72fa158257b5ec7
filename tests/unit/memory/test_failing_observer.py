"""A model that cannot observe is replaced by code, also where each process sees one of its failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.config import load
from sakti.core.errors import ProviderError
from sakti.core.events import Notice
from sakti.memory.factory import KEY, REST_MS, ChosenObserver, FallbackObserver, SizedModel
from sakti.memory.observe.extractive import ExtractiveObserver
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
    made.load_failures(record.metadata, record.keep)
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
        await run.session.current.engine.wait_idle()
        record_id = run.session.current.engine.record_id
        await run.session.close()
    groups = await store.read(memory_store.list_current_groups, record_id, {})
    assert groups, "the third failure falls back to code"


async def test_a_message_without_room_is_named_while_nobody_observes_it(store: Store, tmp_path: Path) -> None:
    def play(request):
        return Answer(error="overloaded") if not request.tools else Answer("long " * 4000 if first(request) else "ok")

    def first(request) -> bool:
        return not any(m.role == "assistant" for m in request.messages) and "tell" in str(request.messages[-1].parts)

    settings = ("memory.model=scripted/observer", "memory.observation.message_tokens=400")
    run = await start(store, tmp_path / "w", play, overrides=settings, config=None)
    await run.ask("tell me all")
    assert not [n for n in run.of(Notice) if "Too long for" in n.message]
    await run.ask("and then?")
    await run.ask("and then again?")
    (notice,) = [n for n in run.of(Notice) if "Too long for" in n.message]
    assert "1 message, 3," in notice.message and "only the beginning and the end are sent" in notice.message
    status, blocks = run.session.current.engine.status(), await run.session.views.context()
    assert status.unsent and [b.tokens for b in blocks if b.kind == "unsent"] == [0]
    assert status.messages.tokens - status.unsent == sum(b.tokens for b in blocks if b.kind == "message")
    await run.session.close()


async def test_several_models_are_tried_in_order_and_by_size() -> None:
    good = await ExtractiveObserver(COUNTER).observe(asked())
    size = sum(m.tokens for m in asked().messages)

    def chosen(small: Model, large: Model, up_to: int):
        return ChosenObserver([SizedModel(small, up_to), SizedModel(large)])

    small, large = Model(good), Model(good)
    assert await chosen(small, large, size).observe(asked()) is good
    assert (small.answers, large.answers) == ([], [good]), "the first that takes it"
    small, large = Model(DOWN), Model(good)
    assert await chosen(small, large, size).observe(asked()) is good, "the next when it fails"
    small, large = Model(good), Model(good)
    await chosen(small, large, size - 1).observe(asked())
    assert (small.answers, large.answers) == ([good], []), "what is too large for the first"
    with pytest.raises(ProviderError):
        await chosen(Model(DOWN), Model(DOWN), size).observe(asked())
    only = ChosenObserver([SizedModel(Model(good), size - 1)])
    assert await only.observe(asked()) is good, "more than anyone is meant for"


async def test_a_session_takes_the_models_of_its_settings(store: Store, tmp_path: Path) -> None:
    named = load(overrides=('memory.observation.model=["scripted/small <= 100", "extractive"]',)).config
    run = await start(store, tmp_path / "w", ["fine"], config=named)
    assert run.session.current.engine.status().observer == "scripted/small"
    reflecting = load(overrides=("memory.reflection.model=scripted/r",)).config
    run = await start(store, tmp_path / "w2", ["fine"], config=reflecting)
    assert run.session.current.engine.status().observer == "scripted/demo", (
        "a Reflector that is named moves no Observer"
    )
