"""Whatever is done with tasks, each statement finds its rows by an index."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sakti.core.errors import TaskError
from sakti.core.types import Message, TextPart, Thread
from sakti.store.database import Store
from sakti.store.tasks import deadlocks, questions, rows
from sakti.store.threads import messages, threads
from sakti.tasks import beads, queries, service, transfer
from sakti.tasks.service import Actor
from tests.bench import tasks as bench
from tests.fakes.statements import Plan, captured, explained, unlisted

TASKS = 600
ALLOWED = {
    "b.handle, d.type FROM task_dependencies d": "`db check` looks at every edge of the database",
}


def everything(db: Any, actor: Actor, ids: Any) -> None:
    """Every change and every question, on a board of many tasks, refusals too."""
    who, now = actor.resource_id, actor.now
    chat = replace(actor, session_id="th", thread_id="th", owner="host:1:2")
    board = queries.load_board(db, who, 0, 20)
    first, second, third = (t.id for t in board.ready[:3])
    held, container = board.blocked[0].id, board.containers[0].id

    def refused(fn: Any, *args: Any, **kwargs: Any) -> None:
        try:
            fn(db, *args, **kwargs)
        except TaskError:
            return
        raise AssertionError(fn)

    made = service.create(
        db,
        chat,
        service.NewTask(
            ids.new(), "new", labels=["x"], parent=None, depends_on=[first, second], metadata={"k": 1}, message_id="m2"
        ),
    )
    service.update(db, chat, made.id, {"title": "other", "labels": ["y"], "type": "bug", "metadata": {"k": 2}})
    service.set_labels(db, chat, made.handle, ["x"], ["y"])
    service.claim(db, chat, first)
    service.claim_next(db, replace(chat, owner=None))
    refused(service.claim, replace(actor, session_id="s9"), first)
    refused(service.claim, actor, held)
    refused(service.close, actor, held, "completed", "x")
    refused(service.close, actor, container, "completed", "x")
    refused(service.close, replace(actor, session_id="s9"), first, "completed", "x")
    messages.append(db, Message("m9", "th", who, "user", (TextPart("x"),), now, task_id=first))
    rows.find_active_task(db, "th", "th", "host:3:4")
    rows.adopt_claims(db, who, "th", "host:5:6")
    service.release(db, chat, first)
    service.close(db, actor, first, "completed", "done in src/a.py", force=True)
    service.list_finished_containers(db, first)
    epic = service.create(db, actor, service.NewTask(ids.new(), "epic", type="epic"))
    part = service.create(db, actor, service.NewTask(ids.new(), "part", parent=epic.id))
    service.close(db, actor, epic.id, "completed", "x", force=True)
    refused(service.reopen, actor, part.id)  # its epic is closed
    service.reopen(db, actor, epic.id)
    service.reopen(db, actor, first)
    service.depend(db, actor, third, second)
    service.depend(db, actor, third, second, add=False)
    service.depend(db, actor, third, container, "parent-child")
    refused(service.depend, actor, container, third)
    service.link(db, actor, third, "m")
    service.delete(db, actor, third)
    service.restore(db, actor, third)
    service.decay(db, who, now + 200 * service.DAY_MS)
    old, _ = questions.select(db, who, questions.TaskFilter("closed"), limit=TASKS)
    service.restore(db, actor, next(t.id for t in old if t.compaction_level))
    service.undo_changes(db, actor, 8)
    for status in ("open", "ready", "blocked", "in_progress", "closed", "all", None):
        for more in ({}, {"label": "x"}, {"type": "bug"}, {"assignee": "ann"}, {"label": "x", "assignee": "ann"}):
            queries.list_tasks(db, who, status=status, **more)
    queries.list_ready(db, who, 20)
    for task in (held, container):
        queries.show_task(db, who, task)
        queries.build_tree(db, who, task)
        queries.explain(db, who, task)
    for query in ("token_12", "token session", "tokn sesion", '"of cache" -bug'):
        queries.search(db, who, query, 5, True)
    questions.read_last_event(db, who)
    rows.list_linked_messages(db, third)
    deadlocks.find_deadlocks(db, who)
    lines = transfer.export(db, who)
    copies = [{**line, "id": f"o{line['id']}", "dependencies": []} for line in lines[:9]]
    transfer.import_tasks(db, replace(actor, resource_id="/other"), copies)
    issues = [{"id": "bd-1", "title": "a"}, {"id": "bd-2", "title": "b", "dependencies": [{"depends_on_id": "bd-1"}]}]
    beads.import_issues(db, actor, ids, issues)
    issues[1] |= {"title": "c", "dependencies": []}
    beads.import_issues(db, actor, ids, issues)
    service.undo_changes(db, actor, 2)


async def plans_of_everything(store: Store) -> list[Plan]:
    actor = Actor("/w", "s1", store.clock.now())
    await store.write(transfer.import_tasks, actor, bench.lines(TASKS))
    await store.write(threads.create, Thread("th", "/w", "", 1, 1))
    for n, role in (("m", "user"), ("m2", "assistant")):
        await store.write(messages.append, Message(n, "th", "/w", role, (TextPart("of the pump"),), 1))  # type: ignore[arg-type]
    async with captured(store) as statements:
        await store.write(everything, actor, store.ids)
    return await store.read(explained, statements)


async def test_every_statement_of_the_tasks_has_its_index(store: Store) -> None:
    plans = await plans_of_everything(store)
    assert len(plans) > 60
    assert unlisted(plans, ALLOWED) == []
    for part in ALLOWED:  # what is listed is still needed
        assert any(part in plan.sql and plan.scans() for plan in plans), part


async def test_a_statement_without_its_index_is_noticed(store: Store) -> None:
    await store.write(transfer.import_tasks, Actor("/w", "s1", store.clock.now()), bench.lines(50))
    async with captured(store) as statements:
        await store.read(lambda db: db.execute_sql("SELECT id FROM tasks WHERE title = ?", ("x",)).fetchall())
        await store.read(
            lambda db: db.execute_sql(
                "SELECT d.task_id FROM json_each(?) j JOIN task_dependencies d ON d.created_at = j.value", ("[1]",)
            ).fetchall()
        )
    found = unlisted(await store.read(explained, statements), {})
    assert len(found) == 2
    assert "SCAN tasks" in found[0]
    assert unlisted(await store.read(explained, statements), {"WHERE title": "", "created_at": ""}) == []
