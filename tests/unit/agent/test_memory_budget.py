"""Memory goes by the model's window from the moment that a thread is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.types import ModelInfo
from sakti.store.database import Store
from tests.fakes.session import Recorded, start

LONG = "one two three " * 400


def thresholds(run: Recorded) -> tuple[int, int]:
    status = run.session.current.status
    assert status is not None and status == run.session.current.engine.status()
    return status.messages.threshold, status.observations.threshold


async def test_thresholds_fit_the_window_before_the_first_turn_of_a_thread(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [LONG, "two", "three"], window=32_800)
    before = thresholds(run)
    assert before[0] < 12_000 and before[1] < 16_000
    await run.ask("hi")
    in_turn, first = thresholds(run), run.session.thread.id
    await run.session.new_thread()
    assert thresholds(run) == pytest.approx(in_turn, abs=500)
    await run.session.open_thread(first)
    assert thresholds(run) == pytest.approx(in_turn, abs=500)
    again = await start(store, tmp_path / "w", [], window=32_800, continue_last=True)
    assert thresholds(again) == pytest.approx(in_turn, abs=500)


async def test_a_window_that_is_learned_later_sets_the_thresholds(store: Store, tmp_path: Path) -> None:
    model = ModelInfo("some-model", "openai")
    run = await start(store, tmp_path / "w", [], model=model, window=None)
    assert thresholds(run) == (30_000, 40_000)
    await run.session.current.learn()
    assert run.session.workspace.models.info.assumed
    assert thresholds(run)[0] < 12_000


async def test_a_large_window_leaves_the_thresholds_as_set(store: Store, tmp_path: Path) -> None:
    assert thresholds(await start(store, tmp_path / "w", [])) == (30_000, 40_000)
