from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.core.errors import TaskError
from sakti.core.types import Json, Message, TextPart, Thread
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from sakti.store.tasks import questions, rows
from sakti.store.threads import messages, threads
from sakti.tasks import changes, queries, service, transfer
from sakti.tasks.service import Actor
from tests.fakes import task_graph as graph

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "tasks.json"
SAMPLE = Path(__file__).parents[2] / "golden_sample" / "tasks.json"
CASES = json.loads((GOLDEN if GOLDEN.exists() else SAMPLE).read_text())["cases"]


@pytest.fixture
def actor(store: Store) -> Actor:
    return Actor("/w", "s1", store.clock.now())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
async def test_golden_scripts(store: Store, actor: Actor, case: dict[str, Any]) -> None:
    wanted = case["sakti"]
    errors = []
    for number, op in enumerate(case["ops"]):
        try:
            await store.write(play, replace(actor, now=actor.now + number), op)
        except TaskError as e:
            errors.append({"op": number, "class": e.code})
    assert errors == [{"op": e["op"], "class": e["class"]} for e in wanted["errors"]]
    _, state = await store.read(graph.load, "/w")
    assert graph.ready(state) == wanted["ready"]
    asked = await store.read(service.load_board, "/w", 0)
    assert [t.id for t in asked.ready] == wanted["ready"]
    blocked = {t: why for t in state.nodes if (why := graph.find_blockers(state, t))}
    assert {t: sorted(w.by) for t, w in blocked.items()} == {t: sorted(b["by"]) for t, b in wanted["blocked"].items()}
    assert {t: bool(w.inherited) for t, w in blocked.items()} == {
        t: bool(b["inherited"]) for t, b in wanted["blocked"].items()
    }


def play(db: Any, actor: Actor, op: dict[str, Any]) -> None:
    match op["op"]:
        case "create":
            service.create(db, actor, service.NewTask(op["id"], op["title"], priority=op["priority"], type=op["type"]))
        case "dep":
            service.depend(db, actor, op["task"], op["on"], op["type"])
        case "undep":
            service.depend(db, actor, op["task"], op["on"], op.get("type", "blocks"), add=False)
        case "close":
            service.close(db, actor, op["id"], op["reason"], "done", force=op["force"])
        case "reopen":
            service.reopen(db, actor, op["id"])
        case "priority":
            service.update(db, actor, op["id"], {"priority": op["priority"]})
        case "claim":
            service.claim(db, replace(actor, session_id=op["actor"]), op["id"])
        case "delete":
            service.delete(db, actor, op["id"])


async def test_a_claim_makes_the_task_active_and_says_what_was(store: Store, actor: Actor) -> None:
    thread = await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    actor = replace(actor, thread_id=thread.id)
    for name in ("a", "b"):
        await store.write(service.create, actor, service.NewTask(name, f"task {name}"))
    first, none = await store.write(service.claim, actor, "a")
    assert none is None
    _, previous = await store.write(service.claim, actor, "b")
    assert previous == first.handle
    again, _ = await store.write(service.claim, actor, "b")  # idempotent for the holder
    assert again.status == "in_progress"
    await store.write(service.close, actor, "b", "completed", "all of it")
    kept = await store.read(threads.get, "th")
    assert kept is not None
    assert "active_task_id" not in kept.metadata


async def test_a_dead_sessions_claim_is_taken_over(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "x"))
    await store.write(service.claim, actor, "a")
    other = replace(actor, session_id="s2")
    with pytest.raises(TaskError) as e:
        await store.write(service.claim, other, "a")
    assert e.value.code == "already_claimed"
    late = replace(other, now=actor.now + service.CLAIM_MS + 1)
    taken, _ = await store.write(service.claim, late, "a")
    assert taken.session_id == "s2"


async def test_closing_needs_a_summary_and_tells_what_it_freed(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "first"))
    await store.write(service.create, actor, service.NewTask("b", "second", depends_on=["a"]))
    with pytest.raises(TaskError, match="summary"):
        await store.write(service.close, actor, "a", "completed", " ")
    _, freed = await store.write(service.close, actor, "a", "completed", "moved the xylophone into src/x.py")
    assert [t.id for t in freed] == ["b"]
    page = await store.read(search, "xylophone", Scope("/w"))
    assert [h.kind for h in page.hits] == ["task"]
    await store.write(service.reopen, actor, "a")
    board = await store.read(service.load_board, "/w", 0)
    assert [t.id for t in board.blocked] == ["b"]


async def test_handles_are_short_unique_and_never_guessed(store: Store, actor: Actor) -> None:
    made = [await store.write(service.create, actor, service.NewTask(store.ids.new(), f"t{i}")) for i in range(60)]
    assert len({t.handle for t in made}) == 60
    assert all(len(t.handle) <= 6 for t in made)
    for text, code in (("", "not_found"), ("nothing", "not_found"), ("t", "ambiguous")):
        with pytest.raises(TaskError) as e:
            await store.write(service.claim, actor, text)
        assert e.value.code == code


async def test_links_need_a_message_that_exists(store: Store, actor: Actor) -> None:
    await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    await store.write(messages.append, Message("m", "th", "/w", "user", (TextPart("about it"),), 1))
    await store.write(service.create, actor, service.NewTask("a", "x"))
    await store.write(service.link, actor, "a", "m")
    assert [m["id"] for m in await store.read(questions.list_linked_messages, "a")] == ["m"]
    with pytest.raises(TaskError):
        await store.write(service.link, actor, "a", "nope")


async def test_what_was_said_about_a_task_has_the_results_of_its_calls(store: Store, actor: Actor) -> None:
    await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    await store.write(service.create, actor, service.NewTask("a", "x"))
    for n, (role, task) in enumerate((("user", None), ("assistant", "a"), ("tool", None), ("assistant", None))):
        message = Message(f"m{n}", "th", "/w", role, (TextPart(role),), n, task_id=task)  # type: ignore[arg-type]
        await store.write(messages.append, message)
    assert await store.read(rows.list_linked_messages, "a") == ["m1", "m2"]
    assert [m["id"] for m in await store.read(questions.list_linked_messages, "a")] == ["m1"]


async def test_the_last_changes_are_undone_in_their_order(store: Store, actor: Actor) -> None:
    for name in ("a", "b"):
        await store.write(service.create, actor, service.NewTask(name, f"task {name}", labels=["one"]))
    await store.write(service.depend, actor, "b", "a", "blocks")
    await store.write(service.depend, actor, "b", "a", "blocks")  # no change, no event
    await store.write(service.update, actor, "a", {"title": "other", "labels": ["two"]})
    await store.write(service.close, actor, "a", "completed", "done")
    await store.write(service.delete, actor, "b")
    undone = await store.write(service.undo_changes, actor, 4)
    assert [a for a, _ in undone] == ["delete", "close", "update", "dep"]
    board = await store.read(service.load_board, "/w", 0)
    assert [(t.id, t.title) for t in board.ready] == [("a", "task a"), ("b", "task b")]
    assert (await store.read(service.find, "/w", "a")).labels == ("one",)
    await store.write(service.undo_changes, actor, 5)
    assert (await store.read(service.load_board, "/w", 0)).ready == ()
    with pytest.raises(TaskError) as e:
        await store.write(service.undo_changes, actor)
    assert e.value.code == "nothing_to_undo"


async def test_deleting_frees_dependants_and_is_restored(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "the xylophone"))
    await store.write(service.create, actor, service.NewTask("b", "b", depends_on=["a"]))
    _, freed = await store.write(service.delete, actor, "a")
    assert [t.id for t in freed] == ["b"]
    assert (await store.read(queries.search, "/w", "xylophone", 5))["tasks"] == []
    await store.write(service.restore, actor, "a")
    assert [t.id for t in (await store.read(service.load_board, "/w", 0)).blocked] == ["b"]
    assert [t["id"] for t in (await store.read(queries.search, "/w", "xylophone", 5))["tasks"]] == ["a"]


async def test_a_container_is_offered_when_its_last_child_closes(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    await store.write(service.create, actor, service.NewTask("c", "child", parent="e"))
    assert [t["id"] for t in (await store.read(queries.list_ready, "/w", 5))["tasks"]] == ["c"]
    await store.write(service.close, actor, "c", "completed", "done")
    assert [t.id for t in await store.read(service.list_finished_containers, "c")] == ["e"]
    ready = (await store.read(queries.list_ready, "/w", 5))["tasks"]
    assert [(t["id"], t.get("readyToClose")) for t in ready] == [("e", True)]


async def test_an_epic_closes_with_its_open_parts_only_by_force(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    await store.write(service.create, actor, service.NewTask("inner", "inner epic", type="epic", parent="e"))
    for task, parent in (("a", "e"), ("b", "inner"), ("c", "b")):
        await store.write(service.create, actor, service.NewTask(task, task, parent=parent))
    await store.write(service.create, actor, service.NewTask("waits", "waits", depends_on=["c"]))
    with pytest.raises(TaskError, match="open children: .*force to close them with it"):
        await store.write(service.close, actor, "e", "completed", "shipped")
    closed, freed = await store.write(partial(service.close, force=True), actor, "e", "wontfix", "dropped")
    assert (closed.status, [t.id for t in freed]) == ("closed", ["waits"])
    _, state = await store.read(graph.load, "/w")
    assert {t for t, node in state.nodes.items() if node.status == "closed"} == {"e", "inner", "a", "b", "c"}
    shown = await store.read(service.find, "/w", "c")
    assert (shown.close_reason, shown.summary) == ("wontfix", f"Closed with {closed.handle}: dropped")
    undone = await store.write(service.undo_changes, actor)
    assert {(action, task.id) for action, task in undone} == {("close", t) for t in ("e", "inner", "a", "b", "c")}
    assert (await store.read(service.find, "/w", "c")).summary is None


async def test_no_change_leaves_an_open_part_under_a_closed_epic(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("p", "plain"))
    await store.write(service.create, actor, service.NewTask("part", "part", parent="p"))
    await store.write(partial(service.close, force=True), actor, "p", "completed", "done")
    await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    await store.write(service.create, actor, service.NewTask("gone", "gone", parent="e"))
    await store.write(service.delete, actor, "gone")
    await store.write(service.close, actor, "e", "completed", "done")
    for change in (
        partial(service.update, text="p", changes={"type": "epic"}),
        partial(service.restore, text="gone"),
        partial(service.create, new=service.NewTask("new", "new", parent="e")),
        partial(service.depend, text="part", on="e", kind="parent-child"),
    ):
        with pytest.raises(TaskError) as refused:
            await store.write(lambda db, change=change: change(db, actor))
        assert refused.value.code == "closed" and "`reopen " in refused.value.message


async def test_import_reopens_a_closed_epic_with_an_open_part(store: Store, actor: Actor) -> None:
    epic = {"id": "e", "title": "epic", "type": "epic", "created_at": 1, "updated_at": 1}
    part = {"id": "c", "title": "c", "dependencies": [{"on": "e", "type": "parent-child"}], "created_at": 2}
    closed = epic | {"status": "closed", "close_reason": "completed", "summary": "done", "updated_at": 9}
    done = await store.write(transfer.import_tasks, replace(actor, resource_id="/o"), [closed, part])
    assert done.reopened == ((await store.read(service.find, "/o", "e")).handle,)
    for line in (epic, part):
        line["id"] += "2"
    part["dependencies"] = [{"on": "e2", "type": "parent-child"}]
    await store.write(transfer.import_tasks, actor, [epic, part])
    done = await store.write(transfer.import_tasks, actor, [closed | {"id": "e2"}])  # by a newer version
    assert (len(done.reopened), done.updated) == (1, 1)
    for name in ("e", "e2"):
        assert (await store.read(questions.get, name)).status == "open"
    assert {action for action, _ in await store.write(service.undo_changes, actor)} == {"import"}
    assert (await store.read(service.find, "/w", "e2")).updated_at != closed["updated_at"]


async def test_explain_gives_the_shortest_chain_to_something_ready(store: Store, actor: Actor) -> None:
    for name in "abcd":
        await store.write(service.create, actor, service.NewTask(name, name))
    await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    for task, on, kind in (
        ("a", "b", "blocks"),
        ("b", "c", "blocks"),
        ("e", "d", "blocks"),
        ("a", "e", "parent-child"),
    ):
        await store.write(service.depend, actor, task, on, kind)
    found = await store.read(queries.explain, "/w", "a")
    assert [step["id"] for step in found["chain"]] == ["a", "d"]
    await store.write(service.claim, actor, "d")
    assert [s["id"] for s in (await store.read(queries.explain, "/w", "a"))["chain"]] == ["a", "b", "c"]


async def test_what_closed_long_ago_shows_less_and_loses_nothing(store: Store, actor: Actor) -> None:
    long = "the marimba stands in the hall. " * 40
    await store.write(service.create, actor, service.NewTask("a", "old", description=long))
    await store.write(service.close, actor, "a", "completed", long)
    for days, level in ((31, 1), (91, 2)):
        now = actor.now + days * service.DAY_MS
        assert await store.write(service.decay, "/w", now) == 1
        assert await store.write(service.decay, "/w", now) == 0
        shown = await store.read(service.find, "/w", "a")
        assert shown.compaction_level == level
        assert len(shown.description) <= 200
    assert [t["id"] for t in (await store.read(queries.search, "/w", "marimba hall", 5))["tasks"]] == ["a"]
    whole = await store.write(service.restore, replace(actor, now=now), "a")
    assert (whole.description, whole.summary) == (long, long.strip())
    assert await store.write(service.decay, "/w", now) == 0  # it was asked for


async def test_a_takeover_is_recorded_and_messages_renew_a_claim(store: Store, actor: Actor) -> None:
    await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    await store.write(service.create, actor, service.NewTask("a", "x"))
    await store.write(service.claim, replace(actor, thread_id="th"), "a")
    late = actor.now + service.CLAIM_MS - 1
    await store.write(messages.append, Message("m", "th", "/w", "user", (TextPart("x"),), late, task_id="a"))
    other = replace(actor, session_id="s2", now=late + 10)
    with pytest.raises(TaskError):
        await store.write(service.claim, other, "a")
    await store.write(service.claim, replace(other, now=late + service.CLAIM_MS + 1), "a")
    assert next(e["action"] for e in await store.read(questions.list_history, "a")) == "takeover"
    assert len(await store.read(questions.list_linked_messages, "a")) == 1


async def test_tasks_go_out_and_come_in_whole(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "first", labels=["x"]))
    await store.write(service.create, actor, service.NewTask("b", "second", depends_on=["a"], description="d"))
    lines = await store.read(transfer.export, "/w")
    again = await store.write(transfer.import_tasks, actor, lines)
    assert (again.tasks, again.known) == (0, 2)
    for line in lines:
        line["id"] += "2"
        line.pop("handle")
        for edge in line.get("dependencies", ()):
            edge["on"] += "2"
    copy = replace(actor, resource_id="/copy")
    assert (await store.write(transfer.import_tasks, copy, lines)).dependencies == 1
    assert [t.id for t in (await store.read(service.load_board, "/copy", 0)).blocked] == ["b2"]
    cyclic = [
        {"id": "p", "title": "p", "dependencies": [{"on": "q"}]},
        {"id": "q", "title": "q", "dependencies": [{"on": "p"}]},
    ]
    done = await store.write(transfer.import_tasks, copy, cyclic)
    assert (done.tasks, done.dependencies) == (2, 1)
    p, q = [(await store.read(service.find, "/copy", name)).handle for name in "pq"]
    assert [(left.task, left.on, left.type) for left in done.left_out] == [(q, p, "blocks")]
    assert f"{q} → {p} → {q}" in done.left_out[0].reason


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"id": "b", "title": "x\\u0000"}',
            "Line 3: the task.title has a NUL character at position 1; remove it.",
        ),
        ('{"id": "b", "title": ""}', "Line 3: A task needs a title."),
        ('{"id": "b"', "Line 3 is not JSON"),
        (
            '{"id": "b", "title": "x", "dependencies": [{"on": "c"}]}',
            "Line 3: 'x' has an edge of the unknown kind 'blocks' to 'c'",
        ),
    ],
)
async def test_a_line_that_is_refused_is_named_and_nothing_comes_in(
    store: Store, actor: Actor, line: str, said: str
) -> None:
    with pytest.raises(TaskError) as refused:
        await store.write(transfer.import_tasks, actor, ['{"id": "a", "title": "a"}', "", line])
    assert refused.value.message.startswith(said) and refused.value.message.endswith(" Nothing was imported.")
    assert not await store.read(questions.exists, "a")


async def test_search_finds_all_words_first_then_beginnings_then_some(store: Store, actor: Actor) -> None:
    for name, title in (
        ("a", "refresh the token of a session"),
        ("b", "token budget"),
        ("c", "session windows refreshing slowly"),
        ("d", "write refreshTokenStore"),
    ):
        await store.write(service.create, actor, service.NewTask(name, title))

    async def found(query: str, limit: int = 5) -> list[str]:
        return [t["id"] for t in (await store.read(queries.search, "/w", query, limit))["tasks"]]

    assert await found("token session", 1) == ["a"]
    assert set(await found("session budget")) == {"a", "b", "c"}
    assert await found('"token of a session"') == ["a"]
    assert set(await found("token -budget")) == {"a", "d"}
    await store.write(service.create, actor, service.NewTask("e", "handle 404 NOT FOUND"))
    assert await found("404 NOT FOUND") == ["e"]
    assert await found("handle NOT 404") == []
    assert await found("refreshtok") == ["d"]
    assert set(await found("refr*")) >= {"a", "c"}
    assert await found("refreshTokenStore", 1) == ["d"]
    assert await found("sesion windos", 1) == ["c"]  # slips of the finger
    for query in ("", "   ", '"', "-", "*", "NEAR(", "a" * 10_000, "-token", "修复", "path:x", "C++ (", "{title}: x"):
        await found(query)


async def test_secrets_are_not_in_the_index_of_tasks(store: Store, actor: Actor) -> None:
    await store.write(
        service.create, actor, service.NewTask("a", "rotate the key", description="old: AKIAABCDEFGHIJKLMNOP")
    )
    assert (await store.read(queries.search, "/w", "AKIAABCDEFGHIJKLMNOP", 3))["tasks"] == []
    assert [t["id"] for t in (await store.read(queries.search, "/w", "rotate", 3))["tasks"]] == ["a"]


async def test_a_label_of_many_and_of_few_gives_the_same_list(
    store: Store, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(12):
        labels = ["even"] if n % 2 == 0 else []
        await store.write(service.create, actor, service.NewTask(f"t{n}", f"task {n}", priority=n % 5, labels=labels))
    await store.write(service.close, actor, "t4", "completed", "done")

    async def listed() -> Any:
        return await store.read(queries.list_tasks, "/w", label="even", limit=3, offset=1)

    few = await listed()
    monkeypatch.setattr(questions, "FEW", 0)
    assert await listed() == few
    assert ([t["id"] for t in few["tasks"]], few["total"]) == (["t10", "t6", "t2"], 5)


async def test_what_was_connected_while_a_task_was_gone_never_closes_a_cycle(store: Store, actor: Actor) -> None:
    for name in "abc":
        await store.write(service.create, actor, service.NewTask(name, name))
    await store.write(service.depend, actor, "a", "b", "blocks")
    await store.write(service.depend, actor, "b", "c", "parent-child")
    await store.write(service.delete, actor, "b")
    await store.write(service.depend, actor, "c", "a", "blocks")
    with pytest.raises(TaskError, match="cycle") as e:
        await store.write(service.restore, actor, "b")
    assert e.value.code == "cycle"
    with pytest.raises(TaskError, match="no task"):
        await store.read(service.find, "/w", "b")  # nothing of it was done
    await store.write(service.undo_changes, actor, 2)  # the newest first: the edge, then the deletion
    assert [t.id for t in (await store.read(service.load_board, "/w", 0)).blocked] == ["a"]


async def test_however_many_were_closed_today_their_number_is_right(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(questions, "_COUNTED", 4)
    for n in range(9):
        actor = Actor("/w", "s", 1_000 + n)
        await store.write(service.create, actor, service.NewTask(f"k{n}", f"task {n}"))
        await store.write(service.close, actor, f"k{n}", "completed", "done")
    await store.write(service.delete, Actor("/w", "s", 2_000), "k8")
    await store.write(lambda db: db.execute_sql("UPDATE tasks SET closed_at = NULL WHERE id = 'k0'"))
    for since in range(999, 1_010):
        cards, total = await store.read(questions.list_closed_since, "/w", since, 2)
        assert (len(cards), total) == (min(2, total), len([n for n in range(1, 8) if 1_000 + n >= since]))


async def test_ready_begins_with_what_the_most_urgent_task_waits_for(store: Store, actor: Actor) -> None:
    async def new(id: str, priority: int, *, parent: str | None = None, on: Sequence[str] = ()) -> None:
        more = {"priority": priority, "parent": parent, "depends_on": on}
        type = "epic" if id == "epic" else "task"
        await store.write(service.create, actor, service.NewTask(id, f"task {id}", type=type, **more))

    await new("low", 4)
    await new("middle", 1)
    await new("epic", 3)
    await new("part", 4, parent="epic")
    await new("between", 3, on=["low"])
    await new("urgent", 0, on=["between"])
    await new("waits", 1, on=["epic"])
    found = await store.read(queries.list_ready, "/w", 5)
    by_id = {t["id"]: t for t in found["tasks"]}
    assert list(by_id) == ["low", "middle", "part"]
    handles = await store.read(questions.map_handles, ["urgent", "waits"])
    assert (by_id["low"]["for"], by_id["low"]["forPriority"]) == (handles["urgent"], 0)
    assert (by_id["part"]["for"], by_id["part"]["forPriority"]) == (handles["waits"], 1)
    assert "for" not in by_id["middle"]
    claimed, _ = await store.write(service.claim_next, actor)
    assert claimed.id == "low", "the claim takes the same one"


async def test_an_open_child_of_a_closed_epic_is_refused(store: Store, actor: Actor) -> None:
    epic = await store.write(service.create, actor, service.NewTask("e", "epic", type="epic"))
    await store.write(service.create, actor, service.NewTask("t", "task"))
    await store.write(service.close, actor, "e", "completed", "done")
    for change in (
        partial(service.create, actor=actor, new=service.NewTask("c", "child", parent="e")),
        partial(service.depend, actor=actor, text="t", on="e", kind="parent-child"),
    ):
        with pytest.raises(TaskError, match=f"`reopen {epic.handle}` opens it") as refused:
            await store.write(lambda db, change=change: change(db))
        assert refused.value.code == "closed"
    await store.write(service.reopen, actor, "e")
    await store.write(service.create, actor, service.NewTask("c", "child", parent="e"))
    for task in ("c", "e"):
        await store.write(service.close, actor, task, "completed", "done")
    with pytest.raises(TaskError, match=f"`reopen {epic.handle}` opens it"):
        await store.write(service.reopen, actor, "c")


@pytest.mark.parametrize("handle", ["t4k", "TH49", "tX9a", "ABC-12"])
async def test_a_handle_may_be_written_in_any_case(store: Store, actor: Actor, handle: str) -> None:
    lines = [{"id": "one", "title": "a task", "handle": handle}, {"id": "two", "title": "other", "handle": "zz9"}]
    await store.write(transfer.import_tasks, actor, lines)
    for typed in (handle, handle.lower(), handle.upper(), handle[:-1].swapcase()):
        assert (await store.read(service.find, "/w", typed)).id == "one"
    await store.write(transfer.import_tasks, actor, [{"id": "three", "title": "x", "handle": handle.swapcase()}])
    assert (await store.read(service.find, "/w", handle)).id == "one", "as it was written comes first"


def lines_of(found: Sequence[Json], **changes: object) -> list[str]:
    return [json.dumps({**line, **changes}) for line in found]


async def test_an_import_takes_the_newer_version_of_what_was_not_changed_here(store: Store, actor: Actor) -> None:
    here, there = actor, replace(actor, now=actor.now + 1_000)
    await store.write(transfer.import_tasks, here, ['{"id": "a", "title": "first", "updated_at": 5}'])
    newer = '{"id": "a", "title": "second", "status": "closed", "summary": "did it", "updated_at": 9, "labels": ["x"]}'
    done = await store.write(transfer.import_tasks, there, [newer])
    assert (done.tasks, done.updated, done.known, done.differing) == (0, 1, 0, ())
    task = await store.read(questions.get, "a")
    assert (task.title, task.status, task.summary, task.labels, task.updated_at) == (
        "second",
        "closed",
        "did it",
        ("x",),
        9,
    )
    again = await store.write(transfer.import_tasks, there, [newer])
    assert (again.updated, again.known) == (0, 1)
    older = await store.write(transfer.import_tasks, there, ['{"id": "a", "title": "first", "updated_at": 5}'])
    assert [d.reason for d in older.differing] == ["the one here is newer"]
    await store.write(service.undo_changes, there)
    assert (await store.read(questions.get, "a")).title == "first", "an import is one change"


async def test_an_import_lists_what_was_changed_on_both_sides(store: Store, actor: Actor) -> None:
    await store.write(transfer.import_tasks, actor, ['{"id": "a", "title": "first", "updated_at": 5}'])
    task = await store.write(service.update, replace(actor, now=20), "a", {"priority": 0})
    done = await store.write(transfer.import_tasks, actor, ['{"id": "a", "title": "second", "updated_at": 30}'])
    assert [(d.task, d.reason) for d in done.differing] == [(task.handle, "also changed here")]
    assert (done.updated, done.known, (await store.read(questions.get, "a")).title) == (0, 1, "first")


async def test_a_task_comes_back_from_another_board(store: Store, actor: Actor, tmp_path: Path) -> None:
    made = await store.write(service.create, actor, service.NewTask("a", "made here"))
    out = await store.read(transfer.export, "/w")
    other = await Store.open(tmp_path / "other.db")
    try:
        later = replace(actor, now=made.updated_at + 60_000)
        await other.write(transfer.import_tasks, later, lines_of(out))
        await other.write(service.close, later, "a", "completed", "done there")
        back = lines_of(await other.read(transfer.export, "/w"))
    finally:
        await other.close()
    done = await store.write(transfer.import_tasks, actor, back)
    assert done.updated == 1 and (await store.read(questions.get, "a")).summary == "done there"


async def test_a_new_task_is_never_meant_by_its_own_edges(store: Store, actor: Actor) -> None:
    created = await store.write(service.create, actor, service.NewTask("a", "first"))
    for edges in ({"parent": "b"}, {"depends_on": ["b"]}):
        with pytest.raises(TaskError, match="There is no task 'b'"):
            await store.write(service.create, actor, service.NewTask("b", "second", **edges))
    part = await store.write(service.create, actor, service.NewTask("b", "second", parent=created.handle[:1]))
    assert (await store.read(questions.get, "a")).open_children == 1 and part.handle != created.handle


def test_every_stored_field_of_a_task_has_its_uses() -> None:
    assert set(changes.FIELD_USES) == {*questions.STORED, "labels", "metadata"}
