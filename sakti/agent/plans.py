"""Plans that the agent proposes: their Markdown and their tasks on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from sakti.core.clock import Ids
from sakti.core.config import SessionMode
from sakti.core.errors import TaskError, ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json, Thread
from sakti.store.connection import Database
from sakti.store.secrets import mask_value
from sakti.store.tasks import questions
from sakti.store.threads import fork
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as thread_store
from sakti.tasks import service

KEY = "plan"  # in a thread's metadata
UNDONE = "undone"  # in a stored plan that an undo took back: the deleted tasks, and the approval mode until then
PLANNED_IN = "planned_in"  # in a thread's metadata: the thread in which its plan was made
BEGIN = "Carry out the plan."
_STEP = lazy_pattern(r"(\d+)[.)]\s+(.+)")
_FIELD = lazy_pattern(r"\s*(Files|After|Check):\s*(.*)")


class PlanStep(Struct, frozen=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(min_length=1, max_length=200)]
    detail: Annotated[str, Meta(max_length=4_000)] = ""
    files: tuple[str, ...] = ()
    depends_on: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(description="numbers of earlier steps, from 1")
    ] = ()
    check: Annotated[str, Meta(max_length=1_000, description="command or observation that shows it is done")] = ""


class ProposedPlan(Struct, frozen=True):
    title: str
    summary: str
    steps: tuple[PlanStep, ...]

    def require_order(self) -> None:
        """Raise `ToolError` for a step that depends on itself or a later one."""
        for number, step in enumerate(self.steps, start=1):
            if wrong := [n for n in step.depends_on if n >= number]:
                raise ToolError(f"Step {number} depends on step {wrong[0]}: a step depends on earlier steps only.")


class PlanChange(Struct, frozen=True):
    """Approval mode after an undo or a redo of a plan, and tasks that were not deleted or restored."""

    mode: SessionMode
    remaining: tuple[str, ...] = ()


# --- Markdown ---------------------------------------------------------------------------------------------


def to_markdown(plan: ProposedPlan) -> str:
    """Return a plan as people read and edit it; `from_markdown` reads it again."""
    out = [f"# {plan.title}", ""]
    if plan.summary:
        out += [plan.summary, ""]
    for number, step in enumerate(plan.steps, start=1):
        out.append(f"{number}. {step.title}")
        out += [f"   {line}".rstrip() for line in step.detail.split("\n") if step.detail]
        fields = {"Files": step.files, "After": step.depends_on, "Check": (step.check,) if step.check else ()}
        out += [f"   {name}: {', '.join(map(str, values))}" for name, values in fields.items() if values]
    return "\n".join(out)


def from_markdown(text: str, before: ProposedPlan | None = None) -> ProposedPlan:
    """Read a plan that was edited as Markdown, and number its steps again.

    `before` is the plan that was edited: dependencies that the edit did not touch have its numbers. Raises `ToolError`
    if it has no title or no step, or a step depends on a later one.
    """
    title, summary, steps, numbers = "", list[str](), list[PlanStep](), list[int]()
    for line in text.split("\n"):
        if not title and line.startswith("# "):
            title = line[2:].strip()
        elif match := _STEP.match(line):
            steps.append(PlanStep(match[2].strip()))
            numbers.append(int(match[1]))
        elif steps:
            steps[-1] = _add_line(steps[-1], line)
        elif line.strip():
            summary.append(line.strip())
    if not title or not steps:
        raise ToolError("The plan needs a title (# TITLE) and numbered steps (1. STEP).")
    steps = _renumber([replace(s, detail=s.detail.strip()) for s in steps], numbers, before)
    plan = ProposedPlan(title, "\n".join(summary), tuple(steps))
    plan.require_order()
    return plan


def _renumber(steps: list[PlanStep], numbers: Sequence[int], before: ProposedPlan | None) -> list[PlanStep]:
    """Make dependencies name the steps by their places; those on deleted steps, or itself, are dropped.

    A step whose dependencies are as in the plan `before` means its numbers, any other one those that were written.
    """
    written = {n: place for place, n in enumerate(numbers, start=1)}
    if len(written) < len(numbers):  # all "1.", as Markdown allows
        written = {place: place for place in range(1, len(numbers) + 1)}
    old_steps = before.steps if before is not None else ()
    old = {step.title: step.depends_on for step in old_steps}
    earlier = _map_old_places([step.title for step in old_steps], steps, written)
    renumbered: list[PlanStep] = []
    for place, step in enumerate(steps, start=1):
        by_number = earlier if step.depends_on == old.get(step.title) else written
        depends_on = tuple(by_number[n] for n in step.depends_on if by_number.get(n, place) != place)
        renumbered.append(replace(step, depends_on=depends_on))
    return renumbered


def _map_old_places(titles: list[str], steps: list[PlanStep], written: Mapping[int, int]) -> dict[int, int]:
    """Return the places of steps by their old numbers: found by title, or by number if they were renamed."""
    places = {step.title: place for place, step in enumerate(steps, start=1)}
    renamed = {number: place for number, place in written.items() if steps[place - 1].title not in titles}
    return renamed | {n: places[title] for n, title in enumerate(titles, start=1) if title in places}


def _add_line(step: PlanStep, line: str) -> PlanStep:
    match = _FIELD.fullmatch(line)
    if match is None:
        return replace(step, detail=f"{step.detail}\n{line.strip()}")
    values = [value.strip() for value in match[2].split(",") if value.strip()]
    if match[1] == "Files":
        return replace(step, files=tuple(values))
    if match[1] == "After":
        return replace(step, depends_on=tuple(int(v) for v in values if v.isdecimal() and int(v) > 0))
    return replace(step, check=match[2].strip())


# --- the board --------------------------------------------------------------------------------------------


def approve(db: Database, actor: service.Actor, plan: ProposedPlan, ids: Ids, message_id: str, approval: Json) -> Json:
    """Create the epic and its tasks, and store the plan with the thread, all in one transaction.

    `approval`: the approval mode `before` and from now on, `mode`. Returns what the thread's metadata has of the plan.
    """
    message = message_store.get(db, message_id)
    epic = service.create(
        db, actor, service.NewTask(ids.new(), plan.title, description=plan.summary, type="epic", message_id=message_id)
    )
    task_ids: list[str] = []
    for step in plan.steps:
        blockers = [task_ids[n - 1] for n in step.depends_on]
        task = service.create(
            db,
            actor,
            service.NewTask(
                ids.new(),
                step.title,
                description=_describe_step(step),
                parent=epic.id,
                depends_on=blockers,
                message_id=message_id,
            ),
        )
        task_ids.append(task.id)
    stored: Json = mask_value(
        {
            **to_builtins(plan),
            **approval,
            "epic": epic.id,
            "tasks": task_ids,
            "index": message.index if message is not None else -1,
        }
    )
    if actor.thread_id is not None:
        thread_store.update_metadata(db, actor.thread_id, {KEY: stored, **pin(stored)})
    return stored


def pin(stored: Json) -> Json:
    """Return the metadata of the block that stays with the model once the plan's message is gone."""
    plan = find_plan({KEY: stored})
    assert plan is not None
    index = stored["index"] + 1 if stored["index"] >= 0 else -1
    return {thread_store.PINNED_PLAN: {"text": to_markdown(plan), "index": index, "epic": stored["epic"]}}


def _describe_step(step: PlanStep) -> str:
    fields = (("Files", ", ".join(step.files)), ("Check", step.check))
    return "\n".join([*filter(None, [step.detail]), *(f"{name}: {value}" for name, value in fields if value)])


def take_back(db: Database, thread_id: str, first: int, mode: SessionMode, now: int) -> PlanChange | None:
    """Take back the plan that a thread approved since its message with index `first`, if it did.

    Its unchanged tasks are deleted, and the epic with the last; `bring_back` reverses that, also the approval mode
    that was in force, `mode`.
    """
    thread = thread_store.get(db, thread_id)
    stored: Json = (thread.metadata.get(KEY) if thread is not None else None) or {}
    if stored.get("index", -1) < max(first, 0):
        return None
    deleted: list[str] = []
    remaining: list[str] = []
    for task_id in [*reversed(stored["tasks"]), stored["epic"]]:
        task = questions.get(db, task_id)
        if task is None:
            continue
        is_changed = task.updated_at != task.created_at or task.status != "open"
        if is_changed or (task_id == stored["epic"] and remaining):
            remaining.append(task.title)
        else:
            service.delete(db, service.Actor(task.resource_id, thread_id, now, thread_id), task_id, force=True)
            deleted.append(task_id)
    undone: Json = {"deleted": deleted, "mode": mode}
    thread_store.update_metadata(db, thread_id, {KEY: {**stored, UNDONE: undone}})
    return PlanChange(stored["before"], tuple(remaining))


def bring_back(db: Database, thread_id: str, now: int) -> PlanChange | None:
    """Restore the tasks that `take_back` deleted; None if no plan of the thread was taken back."""
    thread = thread_store.get(db, thread_id)
    stored: Json = (thread.metadata.get(KEY) if thread is not None else None) or {}
    undone: Json | None = stored.get(UNDONE)
    if undone is None:
        return None
    remaining: list[str] = []
    for task_id in reversed(undone["deleted"]):
        place = questions.find_place(db, task_id)
        if place is None or questions.get(db, task_id) is not None:
            continue  # removed for good, or restored by hand
        try:
            with db.atomic():  # pyright: ignore[reportUnknownMemberType]  peewee has no types
                service.restore(db, service.Actor(place[0], thread_id, now, thread_id), task_id)
        except TaskError:
            remaining.append(place[1])
    thread_store.update_metadata(db, thread_id, {KEY: {k: v for k, v in stored.items() if k != UNDONE}})
    return PlanChange(undone["mode"], tuple(remaining))


def select_carried_metadata(metadata: Json) -> Json:
    """Return the metadata of a plan that a thread brought along from the one that approved it."""
    if PLANNED_IN not in metadata:
        return {}
    keys = KEY, PLANNED_IN, thread_store.PINNED_PLAN, fork.CARRY_OVER_KEY
    return {key: metadata[key] for key in keys if key in metadata}


def make_undo_metadata(thread: Thread) -> Json:
    """Return the metadata of the empty thread in which `thread` goes on after an undo of its first turn."""
    return select_carried_metadata(thread.metadata) | {thread_store.UNDO_OF: thread.id}


def make_successor(stored: Json, planned_in: str) -> Json:
    """Return the metadata of a fresh thread that begins with a plan of another one and nothing else."""
    brought: Json = {**stored, "index": -1}  # no message of the fresh thread
    return {KEY: brought, **pin(brought), PLANNED_IN: planned_in, fork.CARRY_OVER_KEY: ""}


def find_plan(metadata: Json) -> ProposedPlan | None:
    """Return the plan of a thread, None if it has none."""
    stored: Any = metadata.get(KEY)
    return read_plan(stored) if stored else None


def find_title(metadata: Json) -> str:
    """Return the title of the plan that a thread carries out; "" without one."""
    plan = find_plan(metadata)
    return plan.title if plan is not None else ""


def read_plan(stored: Json) -> ProposedPlan:
    """Return a plan as it was stored."""
    steps = convert(stored["steps"], tuple[PlanStep, ...])
    return ProposedPlan(stored["title"], stored["summary"], steps)
