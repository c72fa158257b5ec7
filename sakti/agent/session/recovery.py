"""Open a thread that a crash left in mid-turn: its calls get an answer, and its end is recorded."""

from __future__ import annotations

from sakti.core.ids import short
from sakti.core.tokens import Counter, count_parts, message_tokens
from sakti.core.types import Message, Thread, ToolCallPart, ToolResultPart
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks import rows
from sakti.store.threads import child_runs, messages

KILLED = "sakti was ended before the answer was complete. F5 asks again."


async def answer_open_calls(store: Store, thread: Thread, counter: Counter, owner: str) -> Message | None:
    """Append `interrupted` results where the last message's calls have none.

    So the history is valid for every API. Returns the message that was added. While another window than `owner` runs
    a turn the calls are its own, and nothing is done.
    """
    if not await store.read(_open_calls, thread.id):
        return None

    def answer(db: Database) -> Message | None:
        leases.clear_dead(db, thread.id)
        held = leases.list_leases(db, thread.id, store.clock.now())
        calls = _open_calls(db, thread.id)
        if not calls or any(lease.kind == "turn" and lease.owner != owner for lease in held):
            return None
        parts = tuple(_result_of(db, thread.id, c) for c in calls)
        counted = count_parts(counter, parts)
        message = messages.append(
            db,
            Message(
                store.ids.new(),
                thread.id,
                thread.resource_id,
                "tool",
                parts,
                store.clock.now(),
                tokens=message_tokens(counted),
                part_tokens=counted,
                token_counter=counter.name,
            ),
        )
        child_runs.deliver_results(db, message)
        return message

    return await store.write(answer)


async def was_killed(store: Store, thread: Thread) -> bool:
    """Return whether the process of the thread's last turn ended before the turn did."""
    turns = [x for x in await store.read(leases.list_leases, thread.id, 0) if x.kind == "turn"]
    return any(not leases.alive(turn.owner) for turn in turns)


async def keep_interruption(store: Store, thread: Thread) -> bool:
    """Store that the last turn was killed, if its answer is missing: it is shown, and no model is told."""

    def keep(db: Database) -> bool:
        leases.clear_dead(db, thread.id)
        last = messages.page(db, thread.id, limit=1)
        if not last or last[0].role == "assistant" or "ended" in last[0].metadata:
            return False
        messages.add_metadata(db, last[0].id, {"ended": {"status": "interrupted", "text": KILLED}})
        return True

    return await store.write(keep)


async def take_back_claims(store: Store, thread: Thread, owner: str) -> None:
    """Go on holding the tasks of a thread whose process is gone: from now on this one works on them."""
    if await store.read(rows.orphaned_tasks, thread.resource_id, thread.id):
        await store.write(rows.adopt_claims, thread.resource_id, thread.id, owner)


def _open_calls(db: Database, thread_id: str) -> tuple[ToolCallPart, ...]:
    last = messages.page(db, thread_id, limit=1)
    return last[0].tool_calls if last and last[0].role == "assistant" else ()


def _result_of(db: Database, thread_id: str, call: ToolCallPart) -> ToolResultPart:
    """Return the result of a call that a crash left open; of a child thread its report, or its name."""
    run = child_runs.of_call(db, thread_id, call.id) if call.name == child_runs.TOOL else None
    if run is None:
        return interrupted_result(call)
    if run.report is not None:
        details = {child_runs.CHILD: run.child_id, "marks": run.report["marks"]}
        return ToolResultPart(call.id, call.name, run.report["block"], details=details)
    text = f"interrupted: the child thread {short(run.child_id)} did not finish; name it in `resume` to continue it"
    return ToolResultPart(call.id, call.name, text, True)


def interrupted_result(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, "interrupted: this call did not finish; its effect is unknown", True)
