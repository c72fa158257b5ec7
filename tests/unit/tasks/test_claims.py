"""A claim belongs to a chat: it goes on when the chat is opened again, and ends with the process that worked there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.actions.tasks import changes
from sakti.core.errors import TaskError
from sakti.core.types import Thread
from sakti.providers.scripted import Answer, Call
from sakti.store import leases
from sakti.store.database import Store
from sakti.store.tasks import questions
from sakti.store.tasks import rows as tasks_rows
from sakti.store.threads import messages, threads
from sakti.tasks import queries, service
from sakti.tasks.service import Actor
from tests.fakes.session import Recorded, start


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The name of a process that lives, and is not this one."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield f"{socket.gethostname()}:{process.pid}:1"
    process.kill()
    process.wait(10)


@pytest.fixture
def gone() -> str:
    """The name of a process that lives no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(10)
    return f"{socket.gethostname()}:{process.pid}:1"


@pytest.fixture
async def chat(store: Store) -> Actor:
    """A chat called "fix login", with two tasks on the board."""
    for n, (name, title) in enumerate((("a", "fix login"), ("b", ""))):
        await store.write(threads.create, Thread(name, "/w", title, 1, 1))
        await store.write(
            service.create, Actor("/w", "s", store.clock.now() + n), service.NewTask(f"task-{name}", f"task {name}")
        )
    return Actor("/w", "a", store.clock.now(), "a", owner=leases.make_owner())


async def test_the_same_chat_holds_its_claim_in_another_process(store: Store, chat: Actor, elsewhere: str) -> None:
    await store.write(service.claim, chat, "task-a")
    again = replace(chat, owner=elsewhere)
    claimed, _ = await store.write(service.claim, again, "task-a")
    assert (claimed.session_id, claimed.claim_owner) == ("a", elsewhere)
    await store.write(service.release, again, "task-a")


async def test_another_chat_is_refused_by_the_title_and_never_by_an_id(
    store: Store, chat: Actor, elsewhere: str
) -> None:
    other = replace(chat, session_id="b", thread_id="b")
    await store.write(service.claim, replace(chat, owner=elsewhere), "task-a")
    for change in (
        lambda db: service.claim(db, other, "task-a"),
        lambda db: service.release(db, other, "task-a"),
        lambda db: service.close(db, other, "task-a", "completed", "done"),
        lambda db: service.update(db, other, "task-a", {"priority": 1}),
        lambda db: service.set_labels(db, other, "task-a", ["x"]),
        lambda db: service.depend(db, other, "task-a", "task-b"),
        lambda db: service.delete(db, other, "task-a"),
    ):
        with pytest.raises(TaskError, match='the thread "fix login"') as refused:
            await store.write(change)
        assert refused.value.code == "already_claimed"
    task = await store.read(questions.get, "task-a")
    assert task is not None
    assert (task.status, task.priority, task.labels) == ("in_progress", 2, ())
    await store.write(service.update, other, "task-a", {"priority": 1}, force=True)
    await store.write(service.close, other, "task-a", "completed", "done", force=True)
    await store.write(service.claim, replace(other, owner=elsewhere), "task-b")
    with pytest.raises(TaskError, match="claimed by an untitled thread"):
        await store.write(service.claim, chat, "task-b")


async def test_what_a_dead_process_held_is_free_at_once(store: Store, chat: Actor, gone: str) -> None:
    await store.write(service.claim, replace(chat, owner=gone), "task-a")
    ready = await store.read(queries.list_ready, "/w", 5)
    assert [(t["id"], t.get("claimEnded")) for t in ready["tasks"]] == [("task-a", True), ("task-b", None)]
    assert ready["readyCount"] == 2
    (card,) = (await store.read(queries.load_board, "/w", 0)).in_progress
    assert (card.held_by, card.abandoned) == ("fix login", True)
    other = replace(chat, session_id="b", thread_id="b")
    taken, _ = await store.write(service.claim_next, other)
    assert (taken.id, taken.session_id) == ("task-a", "b")
    assert (await store.read(questions.list_history, "task-a"))[0]["action"] == "takeover"
    with pytest.raises(TaskError):  # too late for the first
        await store.write(service.release, chat, "task-a")


async def test_a_claim_of_another_machine_lasts_its_lease(store: Store, chat: Actor) -> None:
    await store.write(service.claim, replace(chat, owner="elsewhere:1:2"), "task-a")
    other = replace(chat, session_id="b", thread_id="b")
    with pytest.raises(TaskError):
        await store.write(service.claim, other, "task-a")
    late = replace(other, now=chat.now + service.CLAIM_MS + 1)
    assert (await store.write(service.claim, late, "task-a"))[0].session_id == "b"


async def test_releasing_the_second_task_goes_back_to_the_first(store: Store, chat: Actor) -> None:
    await store.write(service.claim, chat, "task-a")
    await store.write(service.claim, replace(chat, now=chat.now + 1), "task-b")
    assert await store.read(tasks_rows.find_active_task, "a", "a") == "task-b"
    await store.write(service.release, chat, "task-b")
    assert await store.read(tasks_rows.find_active_task, "a", "a") == "task-a"
    await store.write(service.release, chat, "task-a")
    assert await store.read(tasks_rows.find_active_task, "a", "a") is None
    thread = await store.read(threads.get, "a")
    assert thread is not None
    assert "active_task_id" not in thread.metadata


async def test_who_works_on_in_the_thread_becomes_the_owner(store: Store, chat: Actor, gone: str) -> None:
    await store.write(service.claim, replace(chat, owner=gone), "task-a")
    assert await store.write(tasks_rows.find_active_task, "a", "a", chat.owner) == "task-a"
    task = await store.read(questions.get, "task-a")
    assert task is not None
    assert task.claim_owner == chat.owner
    assert await store.write(tasks_rows.find_active_task, "a", "somebody else", chat.owner) is None


# --- real sessions ----------------------------------------------------------------------------------------


def calls(*steps: Any) -> Any:
    """A model that makes these calls, the next one at each step; None answers."""
    rest = iter(steps)
    return lambda _request: "fine" if (call := next(rest)) is None else Answer("", calls=(call,))


def mutate(action: str, **arguments: Any) -> Call:
    return Call("task-mutate", {"action": action, **arguments})


async def told(run: Recorded) -> list[dict[str, Any]]:
    """What the tools of the thread answered."""
    thread = run.session.thread
    assert thread is not None
    rows = await run.session.workspace.store.read(messages.list_after, thread.id, -1)
    return [json.loads(r.content) for m in rows for r in m.tool_results]


async def test_a_chat_that_is_resumed_goes_on_with_its_task(store: Store, tmp_path: Path) -> None:
    steps = (mutate("create", title="mend the pump"), mutate("claim", id="t"), None)
    first = await start(store, tmp_path / "w", calls(*steps))
    await first.ask("the pump leaks")
    made, claimed = await told(first)
    assert claimed["task"]["claimedBy"] == "the pump leaks"
    await first.session.close()

    again = await start(store, tmp_path / "w", calls(None, mutate("claim", id="t"), None), continue_last=True)
    await again.ask("go on")
    await again.ask("claim it again")
    assert (await told(again))[-1]["success"]
    linked = await store.read(questions.list_linked_messages, made["task"]["id"])
    assert [m["text"] for m in linked if m["role"] == "user"] == ["the pump leaks", "go on", "claim it again"]
    assert [m["relation"] for m in linked if m["role"] == "user"] == ["reference", "output", "output"]
    await again.session.close()


async def test_opening_a_thread_again_keeps_what_its_dead_process_held(store: Store, tmp_path: Path, gone: str) -> None:
    first = await start(store, tmp_path / "w", calls(mutate("create", title="x"), mutate("claim", id="t"), None))
    await first.ask("the pump leaks")
    await first.session.close()
    task_id = (await told(first))[0]["task"]["id"]

    def die(db: Any) -> None:
        db.execute_sql("UPDATE tasks SET claim_owner = ?", (gone,))

    await store.write(die)
    other = await start(store, tmp_path / "w", calls(None))
    assert other.session.thread is not None
    again = await start(store, tmp_path / "w", calls(None), continue_last=True)
    assert again.session.thread is not None
    thread = await store.read(threads.list_recent, str((tmp_path / "w").resolve()), 5)
    assert again.session.thread.id == thread[0].id
    task = await store.read(questions.get, task_id)
    assert task is not None
    assert task.claim_owner == again.session.workspace.owner  # before a word was said
    with pytest.raises(TaskError, match="the pump leaks"):
        await store.write(service.claim, Actor(task.resource_id, "shell:ann", store.clock.now()), task_id)
    for run in (other, again):
        await run.session.close()


async def test_a_task_that_the_agent_makes_is_linked_to_what_the_user_said(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", calls(mutate("create", title="x"), None))
    await run.ask("the pump leaks")
    (made,) = await told(run)
    linked = await store.read(questions.list_linked_messages, made["task"]["id"])
    assert [(m["role"], m["text"]) for m in linked] == [("user", "the pump leaks")]
    await run.session.close()


async def test_the_user_may_change_what_the_chat_of_the_window_holds(store: Store, tmp_path: Path) -> None:
    steps = (mutate("create", title="x"), mutate("claim", id="t"), None)
    run = await start(store, tmp_path / "w", calls(*steps))
    await run.ask("the pump leaks")
    other = await start(store, tmp_path / "w", calls(None))
    task_id = (await told(run))[0]["task"]["id"]
    with pytest.raises(TaskError, match='the thread "the pump leaks"'):
        await changes.change_task(other.session, "close", task_id, "done")
    assert "is open again" in await changes.change_task(run.session, "release", task_id)
    for each in (run, other):
        await each.session.close()
