"""Leases: held by one owner, over when they end, and never ended by a clock or a machine that is another."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sakti.store import files, leases
from sakti.store.database import Store
from tests.fakes.clock import FakeClock

HOUR = 3_600_000
NOW = 100 * HOUR


def of(owner: str, now: int = NOW, **values: Any) -> dict[str, Any]:
    return {"record_id": "r", "kind": "observing", "owner": owner, "operation_id": owner, "thread_id": "t"} | {
        "now": now,
        **values,
    }


@pytest.fixture
async def store(tmp_path: Path):
    store = await Store.open(tmp_path / "m.db", clock=FakeClock(), synchronous="NORMAL")
    yield store
    await store.close()


async def test_one_owner_holds_it_until_it_ends(store: Store) -> None:
    assert await store.write(leases.acquire, **of("a"))
    assert not await store.write(leases.acquire, **of("b", NOW + leases.EXPIRES_MS - 1))
    assert await store.write(leases.renew, **of("a", NOW + 20_000))
    assert not await store.write(leases.acquire, **of("b", NOW + leases.EXPIRES_MS))
    assert await store.write(leases.acquire, **of("b", NOW + 20_000 + leases.EXPIRES_MS))


async def test_what_another_owner_took_is_not_renewed(store: Store) -> None:
    await store.write(leases.acquire, **of("a"))
    await store.write(leases.acquire, **of("b", NOW + HOUR))
    assert not await store.write(leases.renew, **of("a", NOW + HOUR))
    assert not await store.write(leases.renew, **of("b", NOW + HOUR, operation_id="an earlier one"))
    assert [x.owner for x in await store.read(leases.list_leases, "r", NOW + HOUR)] == ["b"]


async def test_a_lease_from_the_future_holds_nobody_up(store: Store) -> None:
    """The clock was set back by an hour since it was written."""
    await store.write(leases.acquire, **of("a", NOW + HOUR))
    assert await store.write(leases.acquire, **of("b", NOW))
    await store.write(leases.acquire, **of("a", NOW + 3 * HOUR))
    assert [x.owner for x in await store.write(leases.clear_expired, "r", NOW)] == ["a"]


async def test_of_another_machine_nobody_is_known_to_have_ended(store: Store) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    ended = process.pid
    here, elsewhere = f"{socket.gethostname()}:{ended}:x", f"elsewhere:{ended}:x"
    assert not files.is_owner_running(here)
    assert all(map(files.is_owner_running, (elsewhere, leases.make_owner(), "a")))
    await store.write(leases.acquire, **of(here))
    await store.write(leases.acquire, **of(elsewhere, thread_id="other"))
    assert [x.owner for x in await store.write(leases.clear_dead, "r")] == [here]
    assert [x.owner for x in await store.read(leases.list_leases, "r", NOW)] == [elsewhere]


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and stays in the table of processes."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


async def test_leases_of_an_ended_process_that_nobody_waited_for_are_cleared(store: Store, zombie: int) -> None:
    owner = f"{socket.gethostname()}:{zombie}:x"
    await store.write(leases.acquire, **of(owner))
    assert [x.owner for x in await store.write(leases.clear_dead, "r")] == [owner]


async def test_leases_of_an_ended_process_whose_id_was_used_again_are_cleared(store: Store) -> None:
    mine = leases.make_owner()
    name, _, start = mine.rpartition(".")
    earlier = f"{name}.{int(start) - 1}"
    await store.write(leases.acquire, **of(mine))
    await store.write(leases.acquire, **of(earlier, thread_id="other"))
    await store.write(leases.acquire, **of(name, thread_id="without start time, from an earlier version"))
    assert [x.owner for x in await store.write(leases.clear_dead, "r")] == [earlier]


async def test_a_process_without_a_readable_start_time_is_looked_up_by_its_id(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems without /proc."""
    named = leases.make_owner()
    monkeypatch.setattr(files, "_read_process_state", lambda pid: [])
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    assert leases.make_owner().count(".") == socket.gethostname().count(".")
    assert all(map(files.is_owner_running, (named, leases.make_owner())))
    assert not files.is_owner_running(f"{socket.gethostname()}:{process.pid}:x.5")
