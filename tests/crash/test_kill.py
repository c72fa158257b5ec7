"""Killed anywhere, the conversation goes on: nothing acknowledged is lost, nothing is observed twice."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from sakti.agent.session.session import Session
from sakti.core.errors import StoreError
from sakti.core.events import TurnFinished
from sakti.core.types import MarkerPart
from sakti.providers.scripted import ScriptedProvider
from sakti.store import memory
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.threads import messages
from tests.crash import talk

EVENTS = (
    "user_saved:3",
    "assistant_saved:5",
    "tool_saved:3",
    "text_delta:40",
    "tool_started:4",
    "tool_finished:6",
    "step_started:6",
    "observing:1",
    "observing:3",
    "data-om-activation:1",
    "turn_finished:4",
)


def play(*arguments: str | Path) -> None:
    """Play the conversation once for each point of `arguments` (see `talk`)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.talk", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def acknowledged(folder: Path) -> list[str]:
    return [line for line in (folder / "acks").read_text().splitlines() if not line.startswith("#")]


def groups(db: Database, record_id: str) -> list[memory.Group]:
    return [g for state in ("buffered", "active", "superseded") for g in memory.list_groups(db, record_id, state)]  # type: ignore[arg-type]


async def sound(session: Session, acks: list[str]) -> None:
    """What must hold of an open thread at any time."""
    store, thread = session.workspace.store, session.thread
    assert thread is not None
    assert all(f.ok for f in await store.read(checks.check)), await store.read(checks.check)
    rows = await store.read(messages.list_after, thread.id, -1)
    assert [m.index for m in rows] == list(range(len(rows)))
    ids = [m.id for m in rows]
    assert set(acks) <= set(ids), "an acknowledged message is lost"

    calls: set[str] = set()
    for row in rows:
        if row.role == "tool":
            assert {r.call_id for r in row.tool_results} == calls
            calls = set()
        else:
            assert not calls, f"message {row.index} follows a call without a result"
            calls = {c.id for c in row.tool_calls}
    assert not calls

    observed = [
        m
        for g in await store.read(groups, session.current.engine.record_id)
        if g.kind == "observation"
        for m in g.message_ids
    ]
    assert len(observed) == len(set(observed)), "a message was observed twice"
    assert set(ids) <= session.current.engine.window_ids | set(observed), "a message is neither raw nor covered"


async def go_on(folder: Path) -> Session:
    """Reopen what was killed, check it, talk on, check it again."""
    provider = ScriptedProvider(talk.answer)
    session = await talk.begin(folder, provider)
    ended: list[TurnFinished] = []
    session.subscribe(lambda e: ended.append(e) if isinstance(e, TurnFinished) else None)
    await sound(session, acknowledged(folder))
    for number in range(2):
        await session.submit(f"and after the crash {number}? " * 5)
        await session.wait()
        await session.current.engine.wait_idle()
    assert [e.status for e in ended] == ["answered"] * 2, ended
    await sound(session, acknowledged(folder))
    store = session.workspace.store
    await session.close()
    await store.close()
    return session


async def has_partial_answer(session: Session) -> None:
    """The answer that was cut by the kill is there, marked, and what it said is no draft."""
    store = await Store.open(session.workspace.store.path)
    assert session.thread is not None
    rows = await store.read(messages.list_after, session.thread.id, -1)
    partial = [m for m in rows if any(p == MarkerPart("interrupted") for p in m.parts)]
    text = "The queue drains at midnight. " * 12
    assert len(partial) == 1 and 20 < len(partial[0].text) < len(text) and text.startswith(partial[0].text)
    assert partial[0].metadata["ended"]["status"] == "interrupted"
    assert not await store.read(lambda db: db.execute_sql("SELECT * FROM unsent").fetchall())
    await store.close()


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many writes the whole conversation makes."""
    folder = tmp_path_factory.mktemp("whole")
    play(folder, "none")
    (seen,) = (folder / "none").glob("seen-*")
    counted = ast.literal_eval(seen.read_text())
    assert counted["turn_finished"] == talk.TURNS
    for event in EVENTS:  # each of them is reached
        name, _, number = event.partition(":")
        assert counted.get(name, 0) >= int(number), (name, counted)
    return counted["write"]


async def test_killed_at_an_event(tmp_path: Path, writes: int) -> None:
    play(tmp_path, *EVENTS)
    for point in EVENTS:
        assert acknowledged(tmp_path / point)
        assert not list((tmp_path / point).glob("seen-*")), f"{point} was not reached"
        session = await go_on(tmp_path / point)
        if point.startswith("text_delta"):
            await has_partial_answer(session)


async def test_killed_at_every_third_write_before_and_after_its_commit(tmp_path: Path, writes: int) -> None:
    points = [f"{kind}:{n}" for kind, first in (("inside", 2), ("behind", 3)) for n in range(first, writes, 6)]
    play(tmp_path, *points)
    for point in points:
        await go_on(tmp_path / point)


async def test_killed_again_and_again_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    play("--in-turn", folder, *(f"{kind}:{n}" for n in (31, 17, 23, 9, 27, 12) for kind in ("behind", "inside")))
    assert not list(folder.glob("seen-*")), "a point was not reached"
    session = await go_on(folder)
    assert session.thread is not None


def both_talk(folder: Path, thread: str) -> list[int]:
    """Two processes with five turns each in one thread; their ids."""
    code = (
        "import asyncio, sys; from pathlib import Path; from tests.crash import talk;"
        "asyncio.run(talk.talk(Path(sys.argv[1]), 'none', thread=sys.argv[2], turns=5))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), thread],
            cwd=Path(__file__).parents[2],
            env=dict(os.environ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in both:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    return [process.pid for process in both]


async def test_two_processes_on_one_thread(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    session = await talk.begin(folder, ScriptedProvider(talk.answer))
    assert session.thread is not None
    await session.submit("begin")
    await session.wait()
    thread, store = session.thread.id, session.workspace.store
    await session.close()
    await store.close()

    ids = both_talk(folder, thread)
    lines = (folder / "acks").read_text().splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# answered "] * 10
    acks = [line for line in lines if not line.startswith("#")]
    assert len(set(acks)) == len(acks) == 40
    session = await go_on(folder)
    db = await talk.Store.open(folder / "sakti.db")
    rows = await db.read(messages.list_after, thread, -1)
    await db.close()
    turns = [r.text.split()[0] for r in rows if r.role == "user"][1:11]
    assert sorted(turns) == sorted(str(i) for i in ids for _ in range(5))
    # a turn is never interrupted by another one
    assert [r.role for r in rows] == ["user", "assistant", "tool", "assistant"] * 13


async def test_a_full_disk_stops_the_turn_and_it_goes_on_when_there_is_room(tmp_path: Path, writes: int) -> None:
    points = [f"full:{n}" for n in range(4, writes, 7)]
    play(tmp_path, *points)
    stopped = 0
    for point in points:
        folder = tmp_path / point
        ends = [line for line in (folder / "acks").read_text().splitlines() if line.startswith("#")]
        assert not any("Traceback" in line for line in ends)
        full = [line for line in ends if line != "# answered "]
        assert all("full" in line for line in full), full
        stopped += bool(full)
        await go_on(folder)
    assert stopped > len(points) // 2


async def refused(folder: Path, why: str) -> None:
    """A turn on a database that cannot be written: one clear error, not a byte changed."""
    before = (folder / "sakti.db").read_bytes()
    session = await talk.begin(folder, ScriptedProvider(talk.answer))
    ended: list[TurnFinished] = []
    session.subscribe(lambda e: ended.append(e) if isinstance(e, TurnFinished) else None)
    with pytest.raises(StoreError, match=why) as caught:
        await session.submit("is this kept?")
    assert (caught.value.code, session.busy, ended) == ("read_only", False, [])
    assert await session.views.search("midnight")  # reading goes on
    store = session.workspace.store
    await session.close()
    await store.close()
    assert (folder / "sakti.db").read_bytes() == before


async def test_a_database_of_a_newer_sakti_is_read_and_never_written(tmp_path: Path) -> None:
    play(tmp_path, "none")
    connection = apsw.Connection(str(tmp_path / "none" / "sakti.db"))
    connection.execute("INSERT INTO schema_migrations VALUES (999, 'later', 0)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    await refused(tmp_path / "none", "newer sakti")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_read_and_never_written(tmp_path: Path) -> None:
    play(tmp_path, "none")
    (tmp_path / "none" / "sakti.db").chmod(0o400)
    await refused(tmp_path / "none", "is not writable")
