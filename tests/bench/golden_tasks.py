"""Run scripts of task operations: what is ready, what is blocked and why, which operations are refused."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks import questions, rows
from sakti.tasks import changes, service
from sakti.tasks.service import Actor
from tests.fakes import task_graph as graph


async def passes(store: Store, workspace: str, case: Json) -> bool:
    """Return whether a script ends as its `sakti` says.

    `workspace` must be its own: ids repeat between scripts.
    """
    try:
        return await outcome(store, workspace, case) == wanted(case)
    except Exception:  # an operation that the script does not expect to fail in this way
        return False


def wanted(case: Json) -> Json:
    want = case["sakti"]
    return {
        "ready": want["ready"],
        "blocked": {
            t: (sorted(b["by"]), sorted((i["via"], i["by"]) for i in b["inherited"]))
            for t, b in want["blocked"].items()
        },
        "errors": [(e["op"], e["class"], e.get("path")) for e in want["errors"]],
    }


async def outcome(store: Store, workspace: str, case: Json) -> Json:
    """Return the state of the task graph after a script. Raises KeyError for an unknown operation."""
    actor = Actor(workspace, "s1", store.clock.now())
    errors: list[tuple[int, str, list[str] | None]] = []
    with_path = {e["op"] for e in case["sakti"]["errors"] if "path" in e}
    prefix = f"{workspace}:"
    for number, op in enumerate(case["ops"]):
        try:
            await store.write(_play, replace(actor, now=actor.now + number), op, prefix)
        except TaskError as e:
            path = [t.removeprefix(prefix) for t in e.path] if isinstance(e, service.CycleError) else []
            errors.append((number, e.code, path if number in with_path else None))
    _, state = await store.read(graph.load, workspace)

    def name(task_id: str) -> str:
        return task_id.removeprefix(prefix)

    blocked = {t: why for t in state.nodes if (why := graph.find_blockers(state, t))}
    return {
        "ready": [name(t) for t in graph.ready(state)],
        "blocked": {
            name(t): (sorted(map(name, w.by)), sorted((name(a), name(b)) for a, b in w.inherited))
            for t, w in blocked.items()
        },
        "errors": errors,
    }


def _play(db: Database, actor: Actor, op: Json, prefix: str) -> None:
    """Play one operation; only claims name their actor, other operations are done by the task's holder."""
    if op["op"] not in ("create", "claim"):
        task = questions.get(db, f"{prefix}{op.get('task') or op.get('id')}")
        actor = replace(actor, session_id=task.session_id) if task is not None and task.session_id else actor

    def at(key: str) -> str:
        return f"{prefix}{op[key]}"

    match op["op"]:
        case "create":
            service.create(
                db,
                actor,
                service.NewTask(at("id"), op["title"], priority=op.get("priority", 2), type=op.get("type", "task")),
            )
        case "dep":
            service.depend(db, actor, at("task"), at("on"), op.get("type"))
        case "undep":
            service.depend(db, actor, at("task"), at("on"), op.get("type"), add=False)
        case "close":
            service.close(db, actor, at("id"), op.get("reason", "completed"), "done", force=bool(op.get("force")))
        case "reopen":
            service.reopen(db, actor, at("id"))
        case "priority":
            service.update(db, actor, at("id"), {"priority": op["priority"]})
        case "claim":
            service.claim(db, replace(actor, session_id=op["actor"]), at("id"))
        case "status":
            _set_status(db, actor, at("id"), str(op["status"]))
        case "delete":
            service.delete(db, actor, at("id"))
        case other:
            raise KeyError(other)


def _set_status(db: Database, actor: Actor, text: str, status: str) -> Any:
    task = service.find(db, actor.resource_id, text)
    changes.check_choice("status", status, changes.STATUSES)
    if status == "closed":
        return service.close(db, actor, task.id, "completed", "done")
    if task.status == "closed":
        service.reopen(db, actor, task.id)
    return rows.update(db, task.id, status=status)[0]
