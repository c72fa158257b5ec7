"""Undo puts back what a change touched, and nothing else; an import is one change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from sakti.core.errors import TaskError
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks import questions
from sakti.store.tasks.questions import Task
from sakti.tasks import beads, queries, service, transfer
from sakti.tasks.service import Actor


@pytest.fixture
def actor(store: Store) -> Actor:
    return Actor("/w", "s1", store.clock.now())


async def get(store: Store, name: str) -> Task:
    task = await store.read(questions.get, name)
    assert task is not None
    return task


async def test_a_later_renewal_of_the_claim_stays(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "a"))
    await store.write(service.claim, actor, "a")
    await store.write(service.update, actor, "a", {"priority": 0})
    later = replace(actor, now=actor.now + 1_000_000)
    await store.write(service.claim, later, "a")  # a renewal, no change
    await store.write(service.undo_changes, later)
    task = await get(store, "a")
    assert (task.priority, task.status, task.session_id) == (2, "in_progress", "s1")
    assert task.claim_expires_at == later.now + service.CLAIM_MS


async def test_a_deletion_that_was_restored_costs_no_step(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "a"))
    await store.write(service.update, actor, "a", {"priority": 0})
    await store.write(service.delete, actor, "a")
    await store.write(service.restore, actor, "a")
    assert [a for a, _ in await store.write(service.undo_changes, actor)] == ["restore"]
    with pytest.raises(TaskError):
        await store.read(service.find, "/w", "a")
    assert [a for a, _ in await store.write(service.undo_changes, actor)] == ["delete"]
    assert [a for a, _ in await store.write(service.undo_changes, actor)] == ["update"]
    assert (await get(store, "a")).priority == 2


async def test_what_an_older_version_wrote_down_is_undone_by_its_fields(store: Store, actor: Actor) -> None:
    """It kept whole rows, and said nothing of what a restore brought back."""
    await store.write(service.create, actor, service.NewTask("a", "a"))

    def old(db: Database) -> None:
        before = to_builtins(questions.get(db, "a"))  # type: ignore[call-overload]
        after = before | {"priority": 0}
        db.execute_sql("UPDATE tasks SET priority = 0, title = 'renamed by an import' WHERE id = 'a'")
        for action, values in (
            ("update", (json.dumps(before), json.dumps(after))), ("delete", (json.dumps(before), None)),
            ("restore", (None, None)),
        ):  # fmt: skip
            db.execute_sql(
                "INSERT INTO task_events (task_id, resource_id, action, before, after, created_at)"
                " VALUES ('a', '/w', ?, ?, ?, 1)",
                (action, *values),
            )

    await store.write(old)
    assert [a for a, _ in await store.write(service.undo_changes, actor)] == ["update"]
    task = await get(store, "a")
    assert (task.priority, task.title) == (2, "renamed by an import")


async def test_the_whole_text_of_a_shrunk_task_comes_back_whatever_is_undone(store: Store, actor: Actor) -> None:
    long = "the marimba stands in the hall. " * 40
    await store.write(service.create, actor, service.NewTask("a", "old", description=long))
    await store.write(service.close, actor, "a", "completed", long)
    late = replace(actor, now=actor.now + 40 * service.DAY_MS)
    await store.write(service.decay, "/w", late.now)
    short = (await get(store, "a")).description
    await store.write(service.restore, late, "a")
    await store.write(service.undo_changes, late)  # of the restore: short again
    shrunk = await get(store, "a")
    assert (shrunk.description, shrunk.compaction_level) == (short, 1)
    await store.write(service.reopen, late, "a")
    await store.write(service.undo_changes, late)  # of the reopening: closed, with all that it said
    closed = await get(store, "a")
    assert (closed.status, closed.description, closed.summary) == ("closed", long, long.strip())


async def test_an_import_is_one_step(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("z", "z"))
    lines = [{"id": f"t{n}", "title": f"t{n}", "dependencies": [{"on": "z"}]} for n in range(9)]
    await store.write(transfer.import_tasks, actor, lines)
    assert (await store.read(queries.list_ready, "/w", 1))["blockedCount"] == 9
    undone = await store.write(service.undo_changes, actor)
    assert [a for a, _ in undone] == ["import"] * 9
    assert (await store.read(queries.list_tasks, "/w"))["total"] == 1
    assert (await store.read(queries.search, "/w", "t3", 3))["tasks"] == []
    assert [a for a, _ in await store.write(service.undo_changes, actor)] == ["create"]


async def test_an_import_of_beads_is_one_step_with_all_that_it_changed(store: Store, actor: Actor) -> None:
    def issues(*changed: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": "bd-1", "title": "one"}, {"id": "bd-2", "title": "two"}, *changed]

    async def bring(lines: list[dict[str, Any]]) -> None:
        await store.write(beads.import_issues, actor, store.ids, lines)

    edge = {"depends_on_id": "bd-1"}
    await bring(issues({"id": "bd-3", "title": "three", "labels": ["x"], "dependencies": [edge]}))
    await bring(issues({"id": "bd-3", "title": "THREE", "labels": ["y"]}, {"id": "bd-4", "title": "four"}))
    await store.write(service.undo_changes, actor)
    three = await store.read(service.find, "/w", "bd-3")
    assert (three.title, three.labels, three.state) == ("three", ("x",), "blocked")
    with pytest.raises(TaskError):
        await store.read(service.find, "/w", "bd-4")
    await store.write(service.undo_changes, actor)
    assert (await store.read(queries.list_tasks, "/w", status="all"))["total"] == 0


async def test_only_what_changed_is_written_down(store: Store, actor: Actor) -> None:
    await store.write(service.create, actor, service.NewTask("a", "a", description="long " * 200))
    await store.write(service.update, actor, "a", {"priority": 0})
    row = await store.read(
        lambda db: db.execute_sql("SELECT before, after FROM task_events WHERE action = 'update'").fetchone()
    )
    assert [json.loads(r) for r in row] == [{"priority": 2}, {"priority": 0}]
