from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sakti.store.tasks.deadlocks import BLOCKS, EDGE_TYPES, PARENT
from tests.fakes.task_graph import Edge, Node, build, find_blockers, find_cycle, ready, unblocked_by


def nodes(*specs: tuple[str, str, int]) -> list[Node]:
    return [Node(i, s, p, n) for n, (i, s, p) in enumerate(specs)]


def test_children_of_a_blocked_parent_are_blocked_with_its_reasons() -> None:
    graph = build(
        nodes(("epic", "open", 2), ("child", "open", 2), ("x", "open", 1), ("r", "open", 3)),
        [
            Edge("child", "epic", PARENT),
            Edge("epic", "x"),
            Edge("r", "x", "related"),
            Edge("r", "x", "discovered-from"),
        ],
    )
    why = find_blockers(graph, "child")
    assert why is not None
    assert why.by == ()
    assert why.inherited == (("epic", "x"),)
    assert ready(graph) == ["x", "r"]
    assert unblocked_by(graph, "x") == ("child", "epic")


def test_a_cycle_is_told_with_its_whole_path() -> None:
    edges = [Edge("b", "c"), Edge("c", "d", PARENT), Edge("d", "a")]
    assert find_cycle(edges, Edge("a", "b")) == ("a", "b", "c", "d", "a")
    assert find_cycle(edges, Edge("a", "b", "related")) is None
    assert find_cycle([], Edge("a", "a")) == ("a", "a")
    assert find_cycle(edges, Edge("x", "a")) is None


names = st.sampled_from("abcdef")
edges_strategy = st.lists(st.builds(Edge, names, names, st.sampled_from(EDGE_TYPES)), max_size=20)


@given(edges_strategy, st.lists(st.sampled_from(["open", "closed", "in_progress"]), min_size=6, max_size=6))
def test_what_is_ready_is_never_blocked_and_edges_never_close_a_cycle(wanted: list[Edge], statuses: list[str]) -> None:
    kept: list[Edge] = []
    for edge in wanted:
        if find_cycle(kept, edge) is None:
            kept.append(edge)
    graph = build([Node(i, s, 2, n) for n, (i, s) in enumerate(zip("abcdef", statuses, strict=True))], kept)
    for task in ready(graph):
        assert find_blockers(graph, task) is None
    order = {e.task: e.on for e in kept if e.type == BLOCKS}
    for start in order:  # following edges always ends
        seen, at = set(), start
        while at in order and at not in seen:
            seen.add(at)
            at = order[at]
        assert at not in seen
