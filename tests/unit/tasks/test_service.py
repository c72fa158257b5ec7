from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sakti.core.errors import TaskError
from sakti.core.types import Message, TextPart, Thread
from sakti.store import messages, tasks, threads
from sakti.store.database import Store
from sakti.store.search import Scope, search
from sakti.tasks import graph, service
from sakti.tasks.service import Actor

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
    _, state = await store.read(service.load, "/w")
    assert graph.ready(state) == wanted["ready"]
    asked = await store.read(service.board, "/w", 0)
    assert [t.id for t in asked.ready] == wanted["ready"]
    blocked = {t: why for t in state.nodes if (why := graph.blocked(state, t))}
    assert {t: sorted(w.by) for t, w in blocked.items()} == {t: sorted(b["by"]) for t, b in wanted["blocked"].items()}
    assert {t: bool(w.inherited) for t, w in blocked.items()} == {
        t: bool(b["inherited"]) for t, b in wanted["blocked"].items()
    }


def play(db: Any, actor: Actor, op: dict[str, Any]) -> None:
    match op["op"]:
        case "create":
            service.create(db, actor, op["id"], op["title"], priority=op["priority"], type=op["type"])
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
        await store.write(service.create, actor, name, f"task {name}")
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
    await store.write(service.create, actor, "a", "x")
    await store.write(service.claim, actor, "a")
    other = replace(actor, session_id="s2")
    with pytest.raises(TaskError) as e:
        await store.write(service.claim, other, "a")
    assert e.value.code == "already_claimed"
    late = replace(other, now=actor.now + service.CLAIM_MS + 1)
    taken, _ = await store.write(service.claim, late, "a")
    assert taken.session_id == "s2"


async def test_closing_needs_a_summary_and_tells_what_it_freed(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, "a", "first")
    await store.write(service.create, actor, "b", "second", depends_on=["a"])
    with pytest.raises(TaskError, match="summary"):
        await store.write(service.close, actor, "a", "completed", " ")
    _, freed = await store.write(service.close, actor, "a", "completed", "moved the xylophone into src/x.py")
    assert [t.id for t in freed] == ["b"]
    page = await store.read(search, "xylophone", Scope("/w"))
    assert [h.kind for h in page.hits] == ["task"]
    await store.write(service.reopen, actor, "a")
    board = await store.read(service.board, "/w", 0)
    assert [t.id for t in board.blocked] == ["b"]


async def test_handles_are_short_unique_and_never_guessed(store: Store, actor: Actor) -> None:
    made = [await store.write(service.create, actor, store.ids.new(), f"t{i}") for i in range(60)]
    assert len({t.handle for t in made}) == 60
    assert all(len(t.handle) <= 6 for t in made)
    for text, code in (("", "not_found"), ("nothing", "not_found"), ("t", "ambiguous")):
        with pytest.raises(TaskError) as e:
            await store.write(service.claim, actor, text)
        assert e.value.code == code


async def test_links_need_a_message_that_exists(store: Store, actor: Actor) -> None:
    await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    await store.write(messages.append, Message("m", "th", "/w", "user", (TextPart("about it"),), 1))
    await store.write(service.create, actor, "a", "x")
    await store.write(service.link, actor, "a", "m")
    assert [m["id"] for m in await store.read(tasks.linked_messages, "a")] == ["m"]
    with pytest.raises(TaskError):
        await store.write(service.link, actor, "a", "nope")
