"""A scripted conversation that kills itself. `python talk.py FOLDER POINT…` plays it once for every POINT, each in a
process and a folder of its own; what was acknowledged stands in FOLDER/POINT/acks. `python talk.py --in-turn FOLDER
POINT…` goes on in FOLDER itself. Only tests run this: the points are made here by wrapping the store and listening to
events, the product knows nothing of them.

POINT: `inside:N`, `behind:N` the N-th write (before its commit, right after it), `EVENT:N` as the N-th such event is
heard, `observing:N` in the middle of the N-th answer of the Observer, `full:N` no more room from the N-th write on,
`none` to the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter as Count
from pathlib import Path
from typing import Any

from sakti.agent.session import recovery
from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.errors import NOT_SAVED, SaktiError
from sakti.core.events import Event, MessageSaved, TurnFinished, get_event_name
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo, Request
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from tests.crash import processes

TURNS = 7
SMALL = (
    'memory.model="scripted/demo"',
    "memory.observation.message_tokens=600",
    "memory.reflection.observation_tokens=120",
)


def answer(request: Request) -> Answer:
    """Reads a file, then answers; as the Observer it writes a line, as the Reflector a shorter log."""
    if not request.tools:
        return Answer(
            "<observations>\nDate: Jan 15, 2026\n* 🔴 (09:00) User asked about the queue and read a.txt\n"
            "</observations>\n<current-task>The queue</current-task>"
        )
    if request.messages[-1].role == "user":
        return Answer("I'll look. ", calls=(Call("read", {"path": "a.txt"}), Call("ls", {})))
    return Answer("The queue drains at midnight. " * 12)


class Points:
    """Counts what happens and dies at its point."""

    def __init__(self, point: str, acks: int) -> None:
        self.kind, _, number = point.partition(":")
        self.number = int(number or 0)
        self.acks = acks
        self.seen: Count[str] = Count()

    def pass_(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event: Event) -> None:
        if isinstance(event, MessageSaved):
            os.write(self.acks, f"{event.message.id}\n".encode())
            self.pass_(f"{event.message.role}_saved")
        if isinstance(event, TurnFinished):
            os.write(self.acks, f"# {event.status} {event.error or ''}\n".encode())
        self.pass_(get_event_name(event))


class Watched(ScriptedProvider):
    """Tells when the Observer is in the middle of its answer."""

    points: Points

    async def stream(self, request: Request) -> Any:
        number = 0
        async for event in super().stream(request):
            number += 1
            if not request.tools and number == 2:
                self.points.pass_("observing")
            await asyncio.sleep(0.004 if self.points.kind == "text_delta" else 0)  # time to write what was streamed
            yield event


def watch(store: Store, points: Points) -> None:
    """Every write passes two points: before its commit and after it."""
    whole = store._in_transaction

    def wrapped(fn: Any, *args: Any, **kwargs: Any) -> Any:
        def inside(db: Any, *a: Any, **k: Any) -> Any:
            result = fn(db, *a, **k)
            points.pass_("inside")
            return result

        if points.kind == "full" and points.seen["write"] == points.number:
            (pages,) = store._db.execute_sql("PRAGMA page_count").fetchone()
            store._db.execute_sql(f"PRAGMA max_page_count = {pages}")
        points.pass_("write")
        result = whole(inside, *args, **kwargs)
        points.pass_("behind")
        return result

    store._in_transaction = wrapped  # type: ignore[method-assign]


def open_acks(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "acks", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)


async def begin(
    folder: Path, provider: ScriptedProvider, *, points: Points | None = None, thread: str | None = None
) -> Session:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    (folder / "work" / "a.txt").write_text("the queue drains at midnight\n" * 4)
    store = await Store.open(folder / "sakti.db", synchronous="NORMAL")
    if points is not None:
        watch(store, points)
    config = load(overrides=SMALL).config
    options = Options(
        folder / "work",
        config,
        resume=thread,
        continue_last=thread is None,
        interactive=False,
        env={"PATH": os.environ["PATH"]},
    )
    session = Session(
        options,
        provider=provider,
        model=ModelInfo("demo", "scripted", context_window=100_000),
        store=store,
        counter=Estimator(),
    )
    if points is not None:
        session.subscribe(points.hear)
    await session.start()
    return session


async def talk(folder: Path, point: str, *, thread: str | None = None, turns: int = TURNS) -> None:
    points = Points(point, open_acks(folder))
    if points.kind == "text_delta":
        recovery.JOURNAL_S = 0.0
    provider = Watched(answer)
    provider.points = points
    session = await begin(folder, provider, points=points, thread=thread)
    for number in range(turns):
        while True:
            try:
                await session.submit(f"{os.getpid()} asks {number}: what about the queue? " * 3)
                break
            except SaktiError as e:
                if e.code in NOT_SAVED:
                    os.write(points.acks, f"# error {e.message}\n".encode())
                    break
                if e.code != "thread_busy":
                    raise
                await asyncio.sleep(0.002)
        await session.wait()
        await session.current.engine.wait_idle()
    (folder / f"seen-{os.getpid()}").write_text(repr(dict(points.seen)))
    store = session.workspace.store
    await session.close()
    await store.close()


if __name__ == "__main__":
    if sys.argv[1] == "--in-turn":
        processes.one_after_the_other(sys.argv[3:], Path(sys.argv[2]), talk)
    else:
        processes.for_each(sys.argv[2:], Path(sys.argv[1]), talk)
