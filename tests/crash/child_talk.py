"""A turn with two child threads and a background command that kills itself, and what must be left of it.

`python -m tests.crash.child_talk FOLDER POINT…` plays it once for every POINT (as of `talk`), each in a process and a
folder of its own. `check` opens such a folder, goes on, and raises `AssertionError` for anything lost, doubled, alive.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.events import AgentStarted, Event, MessageSaved, TurnFinished, get_event_name
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo, Request, Usage
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store import memory
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.memory import integrity
from sakti.store.threads import messages
from sakti.store.threads import runs as run_store
from tests.crash import processes
from tests.crash.talk import Points, open_acks, watch

GOALS = ("where does the queue drain?", "who reads the queue?")
FINDING = {"claim": "it drains at midnight", "file": "a.txt", "lines": "1", "quote": "the queue drains at midnight"}
REPORT = {"summary": "At midnight.", "findings": [FINDING], "not_found": ["a reader"], "gaps": []}
SETTINGS = (
    "memory.model=extractive",
    "approval.mode=edits",
    'approval.allow=["bash"]',
    "memory.observation.message_tokens=600",
)
USAGE = Usage(100, 0, 0, 10, 0, 0.01)


def is_child(request: Request) -> bool:
    return any(t.name == "report" for t in request.tools)


def play(marker: str, request: Request) -> Answer:
    """A parent that delegates twice and leaves a command running; children that read and report."""
    asked = any(m.role == "assistant" for m in request.messages)
    if is_child(request):
        return Answer(
            "I look.", calls=(Call("report", REPORT) if asked else Call("read", {"path": "a.txt"}),), usage=USAGE
        )
    if not asked:
        first, second = ({"mode": "explore", "goal": goal} for goal in GOALS)
        calls = (Call("bash", {"command": f"sleep {marker}", "background": True}), Call("agent", first))
        return Answer("Two children.", calls=(*calls, Call("agent", {**second, "background": True})), usage=USAGE)
    return Answer("The queue drains at midnight. " * 30, usage=USAGE)


def resume(request: Request) -> Answer:
    """Go on after the crash: resume each child that did not finish, once."""
    last = request.messages[-1]
    if is_child(request):
        return Answer(calls=(Call("report", REPORT),), usage=USAGE)
    texts = [r.content for m in request.messages for r in m.tool_results]
    left = [m[1] for t in texts if (m := re.search(r"child thread (\w+) did not finish", t))]
    if left and last.role == "user":
        return Answer(calls=tuple(Call("agent", {"mode": "explore", "goal": "go on", "resume": i}) for i in left))
    return Answer("done")


async def begin(folder: Path, provider: ScriptedProvider, points: Points | None = None) -> Session:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    (folder / "work/a.txt").write_text("the queue drains at midnight\n")
    store = await Store.open(folder / "sakti.db", synchronous="NORMAL")
    if points is not None:
        watch(store, points)
    even = sum(map(ord, folder.name)) % 2 == 0
    config = load(overrides=(*SETTINGS, *(() if even else ('sandbox.enabled="off"',)))).config
    environment = {"PATH": os.environ["PATH"]}
    options = Options(folder / "work", config, continue_last=True, interactive=False, env=environment)
    model = ModelInfo("demo", "scripted", context_window=100_000)
    session = Session(options, provider=provider, model=model, store=store, counter=Estimator())
    await session.start()
    return session


def marker_of(folder: Path) -> str:
    """Return the seconds that the command of a folder sleeps, which no other process does."""
    return f"98765.{folder.stat().st_ino}"


async def talk(folder: Path, point: str) -> None:
    points = Points(point, open_acks(folder))
    marker = marker_of(folder)
    session = await begin(folder, ScriptedProvider(lambda request: play(marker, request)), points)

    def hear_child(event: Event) -> None:
        if isinstance(event, MessageSaved):
            os.write(points.acks, f"{event.message.id}\n".encode())
        points.pass_(f"child_{get_event_name(event)}")

    def hear(event: Event) -> None:
        if isinstance(event, AgentStarted):
            session.children.all[event.child_id].listeners.append(hear_child)
        points.hear(event)

    session.subscribe(hear)
    await session.submit("explore the queue with two children")
    await session.wait()
    await session.compact()
    (folder / "seen").write_text(repr(dict(points.seen)))
    store = session.workspace.store
    await session.close()
    await store.close()


def alive(marker: str) -> list[str]:
    """Return the processes whose command line has a marker."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if marker in line:
            found.append(line.replace("\0", " "))
    return found


async def check(folder: Path) -> None:
    """Go on in a folder that was killed; nothing may be lost, run twice, delivered twice or left running."""
    acks = {line for line in (folder / "acks").read_text().split("\n") if line and not line.startswith("#")}
    for _ in range(100):
        if not alive(marker_of(folder)):
            break
        await asyncio.sleep(0.05)
    assert not alive(marker_of(folder)), "the command outlived sakti"
    session = await begin(folder, ScriptedProvider(resume))
    store, ended = session.workspace.store, list[TurnFinished]()
    session.subscribe(lambda e: ended.append(e) if isinstance(e, TurnFinished) else None)
    await session.submit("go on")
    await session.wait()
    await session.compact()
    assert [e.status for e in ended] == ["answered"], ended
    assert session.thread is not None
    runs = await store.read(run_store.list_children, session.thread.id)
    stored = [
        m
        for i in (session.thread.id, *(r.child_id for r in runs))
        for m in await store.read(messages.list_after, i, -1)
    ]
    assert acks <= {m.id for m in stored}, "an acknowledged message is lost"
    assert len({r.goal for r in runs}) == len(runs) <= len(GOALS), "a child was started twice"
    assert all(r.state != "running" for r in runs), runs
    record = session.current.engine.record_id
    groups = [g for state in ("buffered", "active") for g in await store.read(memory.list_groups, record, state)]
    reports = [g.metadata["child"] for g in groups if g.origin == "report"]
    assert len(reports) == len(set(reports)), "a report is in the log twice"
    assert set(reports) == {r.child_id for r in runs if r.delivered_at}, "a delivered report is not in the log"
    assert not await store.read(integrity.find_wrong_states, record)
    assert all(f.ok for f in await store.read(checks.check))
    states = await store.read(lambda db: db.execute_sql("SELECT state FROM jobs").fetchall())
    assert all(state != "running" for (state,) in states), states
    await session.close()
    await store.close()


if __name__ == "__main__":
    processes.for_each(sys.argv[2:], Path(sys.argv[1]), talk)
