"""A memory that is driven without an agent and kills itself. `python -m tests.crash.memory_talk FOLDER POINT…` plays
the story once for every POINT (`FAILPOINT:N`, the N-th time it is passed), each in a process and a folder of its own;
what was acknowledged stands in FOLDER/POINT/acks. `--hold` instead of points: begin to observe, and wait.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter as Count
from pathlib import Path

from sakti.core.events import MemoryOperation
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store.log import lines as memory_log
from tests.crash import processes
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, ScriptedObserver, settings

SETTINGS = settings(500, 150, buffer_tokens=0.2)
TURNS = 12


class Killer:
    """The hook of the failpoints: one of them ends the process, without a word."""

    def __init__(self, point: str) -> None:
        self.name, _, number = point.partition(":")
        self.number = int(number)
        self.seen: Count[str] = Count()

    def __call__(self, name: str) -> None:
        self.seen[name] += 1
        if name == self.name and self.seen[name] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


async def story(driver: Driver, first: int, last: int) -> None:
    """Turns with tool calls, and everything a person can do to memory in between."""
    engine = driver.engine
    for number in range(first, last):
        await driver.turn(
            f"{number}: what about the queue in src/queue_{number}.py? " * 3,
            [
                {
                    "tool": {
                        "name": "read",
                        "args": {"path": f"src/queue_{number}.py"},
                        "result": "def drain(): ..." * 20,
                    }
                },
                {"text": f"Queue {number} drains at midnight. " * 10},
            ],
        )
        await engine.wait_idle()
        if number % 4 == 0:
            await engine.pause()  # so that it is observed by hand
            await driver.turn(f"{number}: and src/b.py? " * 3, [{"text": "No."}])
            await engine.observe_rest()
            await engine.resume(start=False)
        if number % 4 == 1:
            for _ in range(2):
                await driver.turn(f"{number}: and src/a.py?", [{"text": "No."}])
            await engine.compact()
            await engine.undo_compaction()
        if number % 4 == 2 and (lines := await driver.store.read(memory_log.read_lines, engine.record_id)):
            await engine.correct(lines[0].id, "edit", f"The queue is empty, says turn {number}.")
        if number % 4 == 3 and await engine.reflect_now():
            await engine.undo_reflection()
            await engine.reflect_now()


async def play(folder: Path, point: str) -> None:
    folder.mkdir(parents=True)
    acks = os.open(folder / "acks", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    # as late as the machine's own clock: what comes after the crash is later
    driver = await Driver.make(folder / "m.db", SETTINGS, failpoint=Killer(point), clock=FakeClock())
    said = driver.say

    async def say(role: str, *parts: object) -> object:
        message = await said(role, *parts)  # type: ignore[arg-type]
        os.write(acks, f"{message.id}\n".encode())
        return message

    driver.say = say  # type: ignore[method-assign,assignment]
    await story(driver, 0, TURNS)
    (folder / "whole").touch()
    await driver.close()


class Held(ScriptedObserver):
    """Answers when a line comes in on stdin."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        print("observing", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return await super().observe(request)


async def hold(folder: Path) -> None:
    """Begin to observe, wait for a line, and tell what became of the result."""
    folder.mkdir(parents=True)
    driver = await Driver.make(folder / "m.db", SETTINGS, observer=Held())
    await driver.turn("what about the queue? " * 40, [{"text": "It drains at midnight. " * 30}])
    await driver.engine.wait_idle()
    failed = [e.fields.get("error") for e in driver.of(MemoryOperation) if e.kind == "failed"]
    print(failed, flush=True)
    await driver.close()


if __name__ == "__main__":
    if sys.argv[2] == "--hold":
        asyncio.run(hold(Path(sys.argv[1]) / "hold"))
    else:
        processes.for_each(sys.argv[2:], Path(sys.argv[1]), play)
