"""SIGKILL at every commit boundary of memory's work: what comes after finds a whole log, and goes on to the same
end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sakti.core.events import StaleLeases
from sakti.memory import state
from sakti.store import leases
from sakti.store.maintenance import checks
from sakti.store.threads import messages
from tests.bench import invariants, snapshot
from tests.bench.snapshot import Ledger
from tests.crash import memory_talk
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver

AGAIN = (1, 2)  # the first time a point is passed, and the second


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each failpoint, with what a process left that was killed there."""
    folder = tmp_path_factory.mktemp("killed")
    points = [f"{name}:{number}" for name in state.FAILPOINTS for number in AGAIN]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.memory_talk", str(folder), *points],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


async def sound(driver: Driver, acks: list[str]) -> None:
    """What must hold at any time: nothing acknowledged is lost, nothing is observed twice, and everything is raw or
    in the log."""
    assert all(f.ok for f in await driver.store.read(checks.check))
    rows = await driver.store.read(messages.list_after, "t1", -1)
    assert [m.index for m in rows] == list(range(len(rows)))
    assert set(acks) <= {m.id for m in rows}
    now = await driver.store.read(snapshot.take, driver.engine.record_id)
    assert now is not None
    ledger = Ledger()
    ledger.begin("t1")
    for message in rows:
        ledger.add(message)
    assert not list(invariants.coverage(now, ledger))
    observed = [
        i
        for g in now.groups.values()
        if g.kind == "observation" and g.state != "discarded"
        for i in range(g.first_index or 0, (g.last_index or 0) + 1)
    ]
    assert len(observed) == len(set(observed)), "a message was observed twice"
    raw = {m.index for m in driver.engine.preview().messages}
    behind = set(range(now.cursor("t1") + 1))
    assert set(range(len(rows))) <= raw | behind, "a message is neither raw nor in the log"


@pytest.mark.parametrize("name", state.FAILPOINTS)
async def test_what_a_kill_leaves_is_whole_and_goes_on(name: str, killed: Path) -> None:
    for number in AGAIN:
        folder = killed / f"{name}:{number}"
        assert not (folder / "whole").exists(), f"{name} was passed fewer than {number} times"
        acks = (folder / "acks").read_text().split()
        clock = FakeClock()
        clock.advance(3_600)
        driver = await Driver.make(folder / "m.db", memory_talk.SETTINGS, clock=clock)
        driver.said = await driver.store.read(messages.list_after, "t1", -1)
        await sound(driver, acks)
        assert not await driver.store.read(leases.list_leases, driver.engine.record_id, clock.now())
        # a killed turn left a call without its result: the loop answers it, here the driver does
        if driver.said and driver.said[-1].tool_calls:
            await driver.step_result(driver.said[-1])
        await memory_talk.story(driver, memory_talk.TURNS, memory_talk.TURNS + 5)
        await sound(driver, [*acks, *(m.id for m in driver.said)])
        await driver.close()


def holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.memory_talk", str(folder), "--hold"],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_a_holder_that_was_stopped_past_its_lease_commits_nothing(tmp_path: Path) -> None:
    """The other process has taken the work over meanwhile: its result stands, and only once."""
    process = holder(tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "observing\n"
        process.send_signal(signal.SIGSTOP)
        clock = FakeClock()
        clock.advance(3_600)
        driver = await Driver.make(tmp_path / "hold" / "m.db", memory_talk.SETTINGS, clock=clock)
        driver.said = await driver.store.read(messages.list_after, "t1", -1)
        assert [e.kinds for e in driver.of(StaleLeases)] == [("observing",)]
        await memory_talk.story(driver, 1, 4)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("answer\n")
        process.stdin.flush()
        told = process.stdout.readline()
        assert "took over this work" in told or "observed in another window" in told, told
        assert process.wait(30) == 0
        await sound(driver, [m.id for m in driver.said])
        await driver.close()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
