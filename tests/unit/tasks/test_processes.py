"""Several processes on one board, and processes that die in the middle of a change."""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sakti.core.errors import TaskError
from sakti.store.database import Store
from sakti.tasks import service
from sakti.tasks.service import Actor
from tests.fakes import task_graph as graph

PROCESSES, ROUNDS = 8, 50
SPAWN = mp.get_context("spawn")


def _contend(path: Path, number: int, start: Any, winners: Any) -> None:
    async def run() -> None:
        store = await Store.open(path, synchronous="NORMAL")
        for turn in range(ROUNDS):
            start.wait()
            try:
                await store.write(service.claim, Actor("/w", f"s{number}", store.clock.now()), f"task-{turn}")
                winners.put((turn, number))
            except TaskError as e:
                assert e.code == "already_claimed"
            start.wait()
            task, _ = await store.write(service.claim_next, Actor("/w", f"s{number}", store.clock.now()))
            winners.put((f"next {turn}", task.id))
        await store.close()

    asyncio.run(run())


def test_one_of_eight_processes_wins_every_claim(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async def prepare() -> None:
        store = await Store.open(path)
        actor = Actor("/w", "s", store.clock.now())
        for n in range(ROUNDS):
            await store.write(service.create, actor, service.NewTask(f"task-{n}", "contested", priority=4))
        for n in range(ROUNDS * PROCESSES):
            await store.write(service.create, actor, service.NewTask(f"other-{n}", "one of many", priority=0))
        await store.close()

    asyncio.run(prepare())
    start, winners = SPAWN.Barrier(PROCESSES), SPAWN.Queue()
    running = [SPAWN.Process(target=_contend, args=(path, n, start, winners)) for n in range(PROCESSES)]
    for process in running:
        process.start()
    got = [winners.get(timeout=120) for _ in range(ROUNDS + ROUNDS * PROCESSES)]
    for process in running:
        process.join(120)
        assert process.exitcode == 0
    assert sorted(turn for turn, _ in got if isinstance(turn, int)) == list(range(ROUNDS))
    taken = [task for turn, task in got if isinstance(turn, str)]
    assert len(set(taken)) == len(taken)


def test_shells_that_ask_at_once_get_a_task_each(tmp_path: Path) -> None:
    env = {**os.environ, "SAKTI_DB": str(tmp_path / "x.db")}
    program = [sys.executable, "-m", "sakti", "tasks"]

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*program, *arguments], cwd=tmp_path, env=env, stdout=subprocess.PIPE)

    for number in range(3):
        subprocess.run([*program, "create", f"task {number}"], cwd=tmp_path, env=env, check=True)
    shells = [start("ready", "--claim", "--json", "--as", f"shell-{n}") for n in range(5)]
    told = [json.loads(shell.communicate(timeout=60)[0]) for shell in shells]
    assert [shell.returncode for shell in shells] == [0 if t["success"] else 1 for t in told]
    won = [t["task"] for t in told if t["success"]]
    assert len({t["id"] for t in won}) == len(won) == 3
    assert {t["code"] for t in told if not t["success"]} == {"nothing_ready"}
    assert all(t["task"]["claimedBy"] == f"shell:shell-{n}" for n, t in enumerate(told) if t["success"])


def _die(path: Path, change: str) -> None:
    async def run() -> None:
        store = await Store.open(path)
        actor = Actor("/w", "s", store.clock.now())

        def half(db: Any) -> None:
            match change:
                case "create":
                    service.create(db, actor, service.NewTask("new", "new", parent="a", depends_on=["b"]))
                case "close":
                    service.close(db, actor, "b", "completed", "done")
                case "delete":
                    service.delete(db, actor, "b")
                case "claim":
                    service.claim(db, actor, "b")
                case _:
                    service.undo_changes(db, actor, 2)
            os.kill(os.getpid(), signal.SIGKILL)

        await store.write(half)

    asyncio.run(run())


@pytest.mark.parametrize("change", ["create", "close", "delete", "claim", "undo"])
def test_a_process_killed_in_mid_change_has_changed_nothing(tmp_path: Path, change: str) -> None:
    path = tmp_path / "x.db"

    def state(db: Any) -> Any:
        tasks, pure = graph.load(db, "/w")
        board = service.load_board(db, "/w", 0)
        assert [t.id for t in board.ready] == graph.ready(pure)
        assert {t.id for t in board.blocked} == {t for t in tasks if graph.find_blockers(pure, t)}
        return tasks, board

    async def look(prepare: bool) -> Any:
        store = await Store.open(path)
        if prepare:
            actor = Actor("/w", "s", store.clock.now())
            await store.write(service.create, actor, service.NewTask("b", "blocker"))
            await store.write(service.create, actor, service.NewTask("a", "epic", type="epic", depends_on=["b"]))
            await store.write(service.create, actor, service.NewTask("c", "child", parent="a"))
        try:
            return await store.read(state)
        finally:
            await store.close()

    before = asyncio.run(look(True))
    process = SPAWN.Process(target=_die, args=(path, change))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert asyncio.run(look(False)) == before
