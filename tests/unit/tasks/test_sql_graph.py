"""What the queries answer is what the pure graph answers, whatever was done before."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sakti.core.clock import TimeIds
from sakti.core.errors import TaskError
from sakti.store.database import Store
from sakti.store.tasks import graph as task_graph
from sakti.store.tasks import questions as task_store
from sakti.store.tasks.deadlocks import BLOCKS, EDGE_TYPES, PARENT
from sakti.tasks import queries, service
from sakti.tasks.service import Actor
from tests.fakes import task_graph as reference
from tests.fakes.clock import FakeClock
from tests.fakes.task_graph import find_cycle, unblocked_by

NAMES = "abcdefg"
name = st.sampled_from(NAMES)
step = st.one_of(
    st.tuples(st.just("dep"), name, name, st.sampled_from(EDGE_TYPES)),
    st.tuples(st.just("dep"), name, name, st.sampled_from((BLOCKS, PARENT))),
    st.tuples(st.just("undep"), name, name, st.sampled_from(EDGE_TYPES)),
    st.tuples(st.sampled_from(("close", "force", "reopen", "claim", "release", "delete", "restore", "undo")), name),
    st.tuples(st.just("priority"), name, st.integers(0, 4)),
    st.tuples(st.just("crash"), st.sampled_from(("force", "delete", "undo")), name),
)


def play(db: Any, actor: Actor, op: tuple[Any, ...]) -> None:
    match op:
        case ("dep", task, on, kind):
            service.depend(db, actor, task, on, kind)
        case ("undep", task, on, kind):
            service.depend(db, actor, task, on, kind, add=False)
        case ("close" | "force" as how, task):
            before = reference.load(db, "/w")[1]
            known = before.nodes.get(task)
            expected = unblocked_by(before, task) if known and known.status != "closed" else ()
            _, freed = service.close(db, actor, task, "completed", "done", force=how == "force")
            assert tuple(t.id for t in freed) == expected
        case ("reopen", task):
            service.reopen(db, actor, task)
        case ("claim", task):
            service.claim(db, actor, task)
        case ("release", task):
            service.release(db, actor, task)
        case ("delete", task):
            service.delete(db, actor, task)
        case ("restore", task):
            service.restore(db, actor, task)
        case ("undo", _):
            service.undo_changes(db, actor)
        case (_, task, value):
            service.update(db, actor, task, {"priority": value})


async def crash(store: Store, actor: Actor, op: tuple[Any, ...]) -> Store:
    """A change that does not come to its end, and the database opened again: nothing happened."""

    def half(db: Any) -> None:
        play(db, actor, op)
        raise InterruptedError

    before = await store.read(task_store.list_live, "/w")
    with contextlib.suppress(InterruptedError, TaskError):
        await store.write(half)
    await store.close()
    again = await Store.open(store.path, clock=store.clock, ids=store.ids, synchronous="NORMAL")
    assert await again.read(task_store.list_live, "/w") == before
    return again


def same(db: Any) -> None:
    tasks, state = reference.load(db, "/w")
    board = service.load_board(db, "/w", 0)
    assert [t.id for t in board.ready] == reference.ready(state)
    assert [t["id"] for t in queries.list_ready(db, "/w", 50)["tasks"]] == reference.ready(state)
    blocked = {t: why for t in state.nodes if (why := reference.find_blockers(state, t))}
    found = task_graph.find_reasons(db, tasks)
    assert {t: sorted(found[t]) for t in blocked} == {
        t: sorted([(t, b) for b in w.by] + list(w.inherited)) for t, w in blocked.items()
    }
    assert {t.id for t in board.blocked} == {t for t in blocked if tasks[t].status == "open"}
    assert board.counts is not None
    assert board.counts[:2] == (len(board.ready), len(board.blocked))
    edges = [reference.Edge(*e) for e in task_graph.list_edges(db, "/w")]
    for a in tasks:
        assert set(task_graph.list_open_children(db, [a]).get(a, ())) == set(reference.open_children(state, a))
        for b in tasks:
            for kind in (BLOCKS, PARENT):
                wanted = find_cycle(edges, reference.Edge(a, b, kind))
                got = task_graph.find_deadlock(db, a, b, kind)
                assert (wanted is None) == (got is None)
                if wanted and got:
                    assert len(wanted) == len(got)
                    assert got[0] == got[-1] == a


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=30))
def test_queries_answer_what_the_pure_graph_answers(ops: list[tuple[Any, ...]]) -> None:
    async def run(folder: Path) -> None:
        clock = FakeClock()
        store = await Store.open(folder / "x.db", clock=clock, ids=TimeIds(clock), synchronous="NORMAL")
        try:
            actor = Actor("/w", "s1", clock.now())
            for task in NAMES:
                await store.write(service.create, actor, service.NewTask(task, task))
            await store.read(same)
            for op in ops:
                try:
                    if op[0] == "crash":
                        store = await crash(store, actor, op[1:])
                    else:
                        await store.write(play, actor, op)
                except TaskError as e:
                    assert e.code
                await store.read(same)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
