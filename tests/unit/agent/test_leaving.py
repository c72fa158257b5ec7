"""Leaving with `memory.observe_on_exit`: what is pending is observed in sight, bounded, and can be skipped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sakti.agent.session.lifecycle import observe_on_exit
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from tests.fakes.clock import FakeClock
from tests.fakes.memory import ScriptedObserver
from tests.fakes.session import Recorded, start

ON = ("memory.observe_on_exit=true",)


@pytest.fixture
async def store(tmp_path: Path):
    opened = await Store.open(tmp_path / "s.db", clock=FakeClock(), synchronous="NORMAL")
    yield opened
    await opened.close()


async def lines(recorded: Recorded) -> list[str]:
    engine = recorded.session.current.engine
    return [x.content for x in await recorded.session.workspace.store.read(memory_log.read_lines, engine.record_id)]


async def test_it_is_off_by_default(store: Store, tmp_path: Path) -> None:
    recorded = await start(store, tmp_path / "w", ["fine"])
    await recorded.ask("The port is 8001.")
    said: list[str] = []
    await observe_on_exit(recorded.session.current, recorded.session.interrupt, said.append)
    assert said == []
    assert await lines(recorded) == []
    await recorded.session.close()


async def test_what_is_pending_is_observed_and_said(store: Store, tmp_path: Path) -> None:
    recorded = await start(store, tmp_path / "w", ["fine"], overrides=ON)
    said: list[str] = []
    await observe_on_exit(recorded.session.current, recorded.session.interrupt, said.append)
    assert said == [], "nothing was said yet"
    await recorded.ask("The port is 8001.")
    await observe_on_exit(recorded.session.current, recorded.session.interrupt, said.append)
    assert len(said) == 1
    assert said[0].startswith("Observing ")
    assert "User stated: The port is 8001." in await lines(recorded)
    await observe_on_exit(recorded.session.current, recorded.session.interrupt, said.append)
    assert len(said) == 1, "nothing is left"
    await recorded.session.close()


@pytest.mark.parametrize("skip", [True, False])
async def test_it_never_keeps_anybody(store: Store, tmp_path: Path, *, skip: bool) -> None:
    recorded = await start(store, tmp_path / "w", ["fine"], overrides=ON)
    await recorded.ask("The port is 8001.")
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()  # never set: a model that does not answer
    recorded.session.current.engine._worker.observer = observer  # pyright: ignore
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if skip and len(said) == 1:
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)

    await asyncio.wait_for(
        observe_on_exit(recorded.session.current, recorded.session.interrupt, say, limit=30 if skip else 0.05), 20
    )
    assert said[1].startswith("Skipped" if skip else "Not finished in")
    assert "when the thread continues" in said[1]
    await recorded.session.close()
    assert await lines(recorded) == []
    again = await start(store, tmp_path / "w", ["fine"], overrides=ON, continue_last=True)
    await observe_on_exit(again.session.current, again.session.interrupt, say)
    assert "User stated: The port is 8001." in await lines(again)
    await again.session.close()
