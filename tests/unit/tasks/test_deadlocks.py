"""No ring of waiting comes into the graph, and one that an older version let in is found and told."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.core.errors import TaskError
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks, upkeep
from sakti.store.tasks import graph, questions, rows
from sakti.store.tasks.deadlocks import Edge, WaitGraph, find_cycles, find_deadlocks
from sakti.tasks import queries, service, transfer
from sakti.tasks.service import Actor, CycleError

names = st.sampled_from("abcdefgh")
kinds = st.sampled_from(["blocks", "blocks", "parent-child", "related"])
edge_lists = st.lists(st.tuples(names, names, kinds), max_size=30)


@pytest.fixture
def actor(store: Store) -> Actor:
    return Actor("/w", "s1", store.clock.now())


def can_be_done(wanted: list[Edge]) -> bool:
    """Whether there is an order in which every task begins and ends: told by doing whatever can be done."""
    tasks = {t for a, b, _ in wanted for t in (a, b)}
    begun: set[str] = set()
    ended: set[str] = set()

    def may_begin(t: str, seen: frozenset[str] = frozenset()) -> bool:
        own = all(b in ended for a, b, k in wanted if a == t and k == "blocks")
        wholes = [b for a, b, k in wanted if a == t and k == "parent-child"]
        return own and t not in seen and all(may_begin(p, seen | {t}) for p in wholes)

    while True:
        more = {t for t in tasks - begun if may_begin(t)}
        over = {
            t for t in (begun | more) - ended
            if all(a in ended for a, b, k in wanted if b == t and k == "parent-child")
        }  # fmt: skip
        if not more and not over:
            return ended == tasks
        begun |= more
        ended |= over


@given(edge_lists, st.integers(0, 30))
def test_what_is_taken_in_can_be_done_and_what_is_refused_could_not(wanted: list[Edge], known: int) -> None:
    kept: list[Edge] = []
    for edge in wanted[:known]:  # edges that are there already
        if edge[0] != edge[1] and can_be_done([*kept, edge]):
            kept.append(edge)
    waiting = WaitGraph(kept, wanted[known:])
    for edge in wanted[known:]:
        if edge[2] == "related":
            continue
        cycle = waiting.add(edge)
        assert (cycle is None) == (edge[0] != edge[1] and can_be_done([*kept, edge]))
        if cycle is None:
            kept.append(edge)
        else:
            assert cycle[0] == cycle[-1] == edge[0]
            assert len(cycle) == 2 or edge[1] in cycle
    assert find_cycles(kept) == []


async def test_a_container_ends_after_its_children(store: Store, actor: Actor) -> None:
    epic = await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    x = await store.write(service.create, actor, service.NewTask("x", "x", parent="e"))
    y = await store.write(service.create, actor, service.NewTask("y", "y"))
    await store.write(service.depend, actor, "x", "y")
    with pytest.raises(CycleError) as refused:
        await store.write(service.depend, actor, "y", "e")
    assert refused.value.path == ("y", "e", "x", "y")
    assert f"{y.handle} → {epic.handle} → {x.handle} → {y.handle}" in refused.value.message
    assert f"Close the child {x.handle} before {epic.handle}." in refused.value.message
    with pytest.raises(CycleError) as own:
        await store.write(service.depend, actor, "x", "e")
    assert own.value.path == ("x", "e", "x")
    with pytest.raises(CycleError):
        await store.write(service.create, actor, service.NewTask("z", "z", parent="e", depends_on=["e"]))
    assert await store.read(find_deadlocks) == []
    await store.write(service.close, actor, "x", "completed", "done", force=True)
    with pytest.raises(CycleError):  # closed can be opened again
        await store.write(service.depend, actor, "y", "e")


async def test_a_task_cannot_wait_for_itself(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "a"))
    with pytest.raises(CycleError, match="cannot depend on itself"):
        await store.write(service.depend, actor, "a", "a")
    with pytest.raises(CycleError, match="cannot be a part of itself"):
        await store.write(service.depend, actor, "a", "a", "parent-child")


async def test_an_epic_is_no_part_of_a_task_and_the_direction_is_turned_round(store: Store, actor: Actor) -> None:
    epic = await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    task = await store.write(service.create, actor, service.NewTask("t", "task"))
    with pytest.raises(TaskError) as refused:
        await store.write(service.depend, actor, "e", "t", "parent-child")
    assert refused.value.code == "bad_parent"
    assert f"`dep {task.handle} {epic.handle} --type parent-child`" in refused.value.message
    with pytest.raises(TaskError):
        await store.write(service.create, actor, service.NewTask("e2", "epic", type="epic", parent="t"))
    await store.write(service.depend, actor, "t", "e", "parent-child")
    for name, kind in (("e", "feature"),):
        await store.write(service.update, actor, name, {"type": kind})  # a task may be part of a feature
    with pytest.raises(TaskError) as refused:
        await store.write(service.update, actor, "t", {"type": "epic"})
    assert refused.value.code == "bad_parent"
    await store.write(service.update, actor, "e", {"type": "epic"})
    await store.write(service.update, actor, "t", {"type": "epic"})
    with pytest.raises(TaskError):
        await store.write(service.update, actor, "e", {"type": "task"})


def ring(db: Database, actor: Actor) -> None:
    """What an older version let in: an epic that waits for what waits for it."""
    for name, kind in (("e", "epic"), ("x", "task"), ("y", "task")):
        service.create(db, actor, service.NewTask(name, name, type=kind))
    for edge in (("x", "e", "parent-child"), ("x", "y", "blocks"), ("y", "e", "blocks")):
        rows.add_edge(db, *edge, actor.now)


async def test_an_old_ring_is_found_told_and_leaves_room_for_the_rest(store: Store, actor: Actor) -> None:
    await store.write(ring, actor)
    e, x, y = [(await store.read(service.find, "/w", name)).handle for name in "exy"]
    (found,) = await store.read(find_deadlocks)
    assert (found.resource_id, set(found.path)) == ("/w", {e, x, y})
    assert await store.read(find_deadlocks, "/other") == []
    with pytest.raises(TaskError) as stuck:
        await store.read(queries.explain, "/w", "x")
    assert stuck.value.code == "deadlock"
    for part in ("nothing here can start", f"{x} waits for {y}", f"{y} waits for {e}", f"{e} waits for its child {x}"):
        assert part in stuck.value.message
    check = {f.name: f for f in await store.read(checks.check)}
    assert not check["task graph"].ok
    assert e in check["task graph"].detail
    await store.write(service.create, actor, service.NewTask("z", "z", depends_on=["y"]))  # beside the ring all goes on
    await store.write(service.depend, actor, "y", "e", add=False)
    assert await store.read(find_deadlocks) == []
    assert all(f.ok for f in await store.read(checks.check))
    chain = (await store.read(queries.explain, "/w", "z"))["chain"]
    assert [step["id"] for step in chain] == ["z", "y"]


async def test_an_import_leaves_out_what_would_be_a_ring_and_names_it(store: Store, actor: Actor) -> None:
    lines = [
        {"id": "e", "title": "e", "type": "epic"},
        {"id": "x", "title": "x", "dependencies": [{"on": "e", "type": "parent-child"}, {"on": "y"}]},
        {"id": "y", "title": "y", "dependencies": [{"on": "e"}]},
        {"id": "f", "title": "f", "type": "epic", "dependencies": [{"on": "y", "type": "parent-child"}]},
    ]
    done = await store.write(transfer.import_tasks, actor, lines)
    handles = {name: (await store.read(service.find, "/w", name)).handle for name in "exyf"}
    assert (done.tasks, done.dependencies) == (4, 2)
    assert [(e.task, e.on, e.type) for e in done.left_out] == [
        (handles["y"], handles["e"], "blocks"), (handles["f"], handles["y"], "parent-child"),
    ]  # fmt: skip
    assert "cycle" in done.left_out[0].reason
    assert "epic" in done.left_out[1].reason
    assert await store.read(find_deadlocks) == []


async def test_a_great_many_edges_that_go_round_come_in_without_a_walk_each(store: Store, actor: Actor) -> None:
    chance = random.Random(3)
    lines = [
        {
            "id": f"t{n}",
            "title": f"t{n}",
            "dependencies": [
                {"on": f"t{chance.randrange(max(0, n - 200), n)}", "type": chance.choice(["blocks", "parent-child"])}
                for _ in range(2)
            ] if n else [],
        }
        for n in range(1_500)
    ]  # fmt: skip
    done = await store.write(transfer.import_tasks, actor, lines)
    assert done.tasks == 1_500
    assert 100 < len(done.left_out) < 2_500
    assert await store.read(find_deadlocks) == []
    assert await store.read(graph.find_stale) == []


async def test_counts_that_are_out_of_step_are_found_and_made_anew(store: Store, actor: Actor) -> None:
    for name in "ab":
        await store.write(service.create, actor, service.NewTask(name, name))
    await store.write(service.depend, actor, "b", "a")
    await store.write(service.create, replace(actor, resource_id="/other"), service.NewTask("c", "c"))
    right = await store.read(questions.read_counts, "/w")
    for harm in (
        "UPDATE task_counts SET count = count + 1 WHERE resource_id = '/w'",
        "UPDATE tasks SET held = 0 WHERE id = 'b'",
        "UPDATE tasks SET own_blockers = 3 WHERE id = 'a'",
        "DELETE FROM task_counts WHERE resource_id = '/w'",
    ):
        await store.write(lambda db, sql=harm: db.execute_sql(sql))
        assert await store.read(graph.find_stale) == ["/w"], harm
        (seen,) = [f for f in await store.read(checks.check) if not f.ok]
        assert (seen.name, seen.is_repairable) == ("task counts", True)
        assert await store.read(graph.find_stale) == ["/w"]  # looking changes nothing
        (found,) = [f for f in await upkeep.check(store) if f.name == "task counts"]
        assert found.ok and "counted again" in found.detail
        assert await store.read(graph.find_stale) == []
        assert await store.read(questions.read_counts, "/w") == right
    assert await store.read(graph.find_reasons, ["b"]) == {"b": [("b", "a")]}


def one_by_one(edges: list[Edge]) -> list[tuple[str, ...]]:
    """What `find_cycles` says, in the time of the square."""
    waiting = WaitGraph(())
    return [cycle for edge in edges if (cycle := waiting.add(edge)) is not None]


@pytest.mark.parametrize("seed", range(150))
def test_the_cycles_of_components_are_those_of_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{n}" for n in range(rng.randint(2, 12))]
    kinds = ("blocks", "parent-child")
    drawn = sorted({(rng.choice(names), rng.choice(names), rng.choice(kinds)) for _ in range(rng.randint(1, 25))})
    edges = rng.sample(drawn, len(drawn))
    assert [cycle[0] for cycle in find_cycles(edges)] == [cycle[0] for cycle in one_by_one(edges)]


def test_each_of_many_rings_is_found() -> None:
    rings = [(f"{n}-{i}", f"{n}-{(i + 1) % 3}", "blocks") for n in range(2_000) for i in range(3)]
    random.Random(1).shuffle(rings)
    assert {cycle[0].split("-")[0] for cycle in find_cycles(rings)} == {str(n) for n in range(2_000)}
