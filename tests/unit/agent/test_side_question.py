"""A question beside the thread: the same prefix, and nothing of it stays but the cost of its call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.agent.session.side_calls import complete
from sakti.core.errors import SaktiError
from sakti.core.events import SideQuestion, StepStarted
from sakti.core.types import Request
from sakti.providers.scripted import Answer, Call
from sakti.store.connection import Database
from sakti.store.database import Store
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_questions import until

TABLES = ("messages", "observations", "observation_groups", "search_docs", "threads")


def contents(db: Database) -> dict[str, object]:
    return {table: db.execute_sql(f"SELECT * FROM {table} ORDER BY pk").fetchall() for table in TABLES}


def is_aside(request: Request) -> bool:
    return request.tool_choice == "none"


def ended(run: Recorded) -> list[SideQuestion]:
    return [e for e in run.of(SideQuestion) if e.state != "answering"]


async def test_it_leaves_nothing_in_the_thread_while_a_turn_runs(store: Store, tmp_path: Path) -> None:
    waits = Call("bash", {"command": "touch started; while [ ! -e go ]; do sleep 0.01; done"})

    def play(request: Request) -> Answer:
        if is_aside(request):
            return Answer("It is in sakti. " * 3)
        if request.messages[-1].role == "tool":
            return Answer("done")
        return Answer("", calls=(waits,)) if "run" in request.messages[-1].text else Answer("hello")

    run = await start(store, tmp_path / "w", play, overrides=("approval.mode=edits", 'approval.allow=["bash"]'))
    await run.ask("hi")
    await run.session.submit("run it")
    await until((tmp_path / "w/started").exists)
    before = await store.read(contents)
    steps = len(run.of(StepStarted))
    run.session.turns.aside.ask("where is it?")
    with pytest.raises(SaktiError, match="is being answered"):
        run.session.turns.aside.ask("and this?")
    await until(lambda: bool(ended(run)))
    assert await store.read(contents) == before and len(run.of(StepStarted)) == steps
    [end] = ended(run)
    assert (end.state, end.text) == ("answered", "It is in sakti. " * 3)
    streamed = "".join(e.text for e in run.of(SideQuestion) if e.state == "answering")
    assert streamed == end.text
    (tmp_path / "w/go").touch()
    await run.session.wait()
    aside = next(r for r in run.provider.requests if is_aside(r))
    first, last = run.provider.requests[0], run.provider.requests[-1]
    assert (aside.system, aside.tools) == (last.system, last.tools) == (first.system, first.tools)
    assert [m.id for m in aside.messages[:-1]] == [m.id for m in last.messages[:2]]
    assert aside.messages[:-1] == last.messages[:2], "byte-equal up to the last complete exchange"
    assert "where is it?" in aside.messages[-1].text
    purposes = await store.read(lambda db: db.execute_sql("SELECT purpose FROM steps ORDER BY pk").fetchall())
    assert [p for (p,) in purposes].count("side") == 1
    assert "where is it" not in str(await store.read(contents))
    await run.session.close()


async def test_a_failure_and_an_escape_end_it(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Answer:
        if not is_aside(request):
            return Answer("hello")
        return Answer("", error="auth") if "fail" in request.messages[-1].text else Answer("long", delay=3_600)

    run = await start(store, tmp_path / "w", play)
    with pytest.raises(SaktiError, match="no messages yet"):
        run.session.turns.aside.ask("anybody?")
    await run.ask("hi")
    run.session.turns.aside.ask("fail")
    await until(lambda: bool(ended(run)))
    assert ended(run)[0].state == "failed"
    run.session.turns.aside.ask("slow")
    await asyncio.sleep(0)
    assert run.session.turns.aside.stop()
    await until(lambda: len(ended(run)) == 2)
    assert ended(run)[1].state == "stopped" and not run.session.turns.aside.busy
    assert complete(()) == ()
    await run.session.close()
