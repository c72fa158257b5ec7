"""Recover from a crash in mid-turn: calls get results, and the streamed text is kept with its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.clock import shorten_id
from sakti.core.errors import SaktiError
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import (
    Json,
    MarkerPart,
    Message,
    Part,
    Role,
    TextPart,
    Thread,
    ToolCallPart,
    ToolResultPart,
)
from sakti.store import files, leases, user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.secrets import MaskedStream
from sakti.store.tasks import rows
from sakti.store.threads import messages, runs

JOURNAL_S = 1.5  # seconds between two writes of an answer's text
KILLED = "sakti was ended before the answer was complete. F5 retries."


class TurnRecovery(Struct, frozen=True):
    """Completion of a turn: the messages that were added, and whether its end was stored."""

    messages: tuple[Message, ...] = ()
    was_killed: bool = False


async def recover(store: Store, thread: Thread, counter: Counter, owner: str) -> TurnRecovery:
    """Complete the last turn of a thread if its process ended before the turn did.

    Calls without a result get an `interrupted` one, so that the history is valid for every API; the text that its
    answer had is stored. While another window than `owner` runs a turn the calls are its own, and nothing is done.
    """
    if store.read_only_reason or not await store.read(_is_incomplete, thread, owner):
        return TurnRecovery()

    def complete(db: Database) -> TurnRecovery:
        is_killed = any(lease.kind == "turn" for lease in leases.clear_dead(db, thread.id))
        others = _list_other_turns(db, thread.id, owner)
        if any(lease.expires_at > store.clock.now() for lease in others):
            return TurnRecovery()
        newest = _find_newest_index(db, thread.id)
        if calls := _open_calls(db, thread.id):
            parts = tuple(_make_result(db, thread.id, c) for c in calls)
            results = messages.append(db, _make_message(store, thread, "tool", parts, counter))
            runs.deliver_results(db, results)
        ended = not others and _keep_interruption(db, store, thread, counter, is_killed=is_killed)
        return TurnRecovery(tuple(messages.list_after(db, thread.id, newest)), ended)

    return await store.write(complete)


def _find_newest_index(db: Database, thread_id: str) -> int:
    newest = messages.list_page(db, thread_id, limit=1)
    return newest[-1].index if newest else -1


def was_killed(db: Database, thread_id: str) -> bool:
    """Return whether the process of a thread's last turn ended before the turn did."""
    turns = [x for x in leases.list_leases(db, thread_id, 0) if x.kind == "turn"]
    return not all(files.is_owner_running(turn.owner) for turn in turns)


def _list_other_turns(db: Database, thread_id: str, owner: str) -> list[leases.Lease]:
    """Return the turn leases of other windows, also expired ones: their processes may have been suspended."""
    return [x for x in leases.list_leases(db, thread_id, 0) if x.kind == "turn" and x.owner != owner]


def _is_incomplete(db: Database, thread: Thread, owner: str) -> bool:
    if was_killed(db, thread.id) or _open_calls(db, thread.id):
        return True
    is_alone = not _list_other_turns(db, thread.id, owner)
    return is_alone and bool(user_state.read_answer(db, thread.resource_id, thread.id))


def _keep_interruption(db: Database, store: Store, thread: Thread, counter: Counter, *, is_killed: bool) -> bool:
    """Store that the last turn was killed, with the text that its answer had, if that is missing."""
    text = user_state.read_answer(db, thread.resource_id, thread.id)
    user_state.forget_answer(db, thread.resource_id, thread.id)
    last = messages.list_page(db, thread.id, limit=1)
    if not (is_killed or text) or not last or last[0].role == "assistant" or "ended" in last[0].metadata:
        return False
    ended: Json = {"ended": {"status": "interrupted", "text": KILLED}}
    if text.strip():
        partial = _make_message(store, thread, "assistant", (TextPart(text), MarkerPart("interrupted")), counter)
        messages.append(db, replace(partial, metadata=ended))
    else:
        messages.add_metadata(db, last[0].id, ended)
    return True


class AnswerJournal:
    """Stores the text of an answer while it streams, so that a crash loses no more than its last seconds.

    The writes run beside the stream; one that fails is repeated with the next piece of the text.
    """

    def __init__(self, store: Store, resource_id: str, thread_id: str) -> None:
        self._store, self._resource_id, self._thread_id = store, resource_id, thread_id
        self._masked = MaskedStream()
        self._taken = 0  # pieces of the stream that were masked
        self._text = ""  # masked text that is not stored
        self._is_first = True
        self._is_open = True
        self._due = store.clock.monotonic() + JOURNAL_S
        self._write: asyncio.Task[None] | None = None

    def follow(self, streamed: Sequence[str]) -> None:
        """Store the new part of the stream, if it is time."""
        now = self._store.clock.monotonic()
        if now < self._due or (self._write is not None and not self._write.done()):
            return
        self._due = now + JOURNAL_S
        self._text += self._masked.feed("".join(streamed[self._taken :]))
        self._taken = len(streamed)
        if self._text:
            self._write = asyncio.create_task(self._keep(self._text))

    async def _keep(self, text: str) -> None:
        def keep(db: Database) -> None:
            if not self._is_open:  # the answer itself is written now
                return
            if self._is_first:
                user_state.forget_answer(db, self._resource_id, self._thread_id)  # of an attempt that failed
            now = self._store.clock.now()
            user_state.append_answer(db, self._resource_id, self._thread_id, text, now)

        with contextlib.suppress(SaktiError):
            await self._store.write(keep)
            self._text, self._is_first = self._text[len(text) :], False

    def close(self) -> None:
        """Write nothing from now on: the answer ended, and its message is stored next."""
        self._is_open = False


async def take_back_claims(store: Store, thread: Thread, owner: str) -> None:
    """Take over the claims of a thread whose process is gone: from now on this one works on its tasks."""
    if await store.read(rows.find_orphaned_tasks, thread.resource_id, thread.id):
        await store.write(rows.adopt_claims, thread.resource_id, thread.id, owner)


def _make_message(store: Store, thread: Thread, role: Role, parts: tuple[Part, ...], counter: Counter) -> Message:
    counted = count_parts(counter, parts)
    return Message(
        store.ids.new(),
        thread.id,
        thread.resource_id,
        role,
        parts,
        store.clock.now(),
        tokens=sum_message_tokens(counted),
        part_tokens=counted,
        token_counter=counter.name,
    )


def _open_calls(db: Database, thread_id: str) -> tuple[ToolCallPart, ...]:
    last = messages.list_page(db, thread_id, limit=1)
    return last[0].tool_calls if last and last[0].role == "assistant" else ()


def _make_result(db: Database, thread_id: str, call: ToolCallPart) -> ToolResultPart:
    """Return the result of a call that a crash left open; of a child thread its report, or its name."""
    run = runs.get_by_call(db, thread_id, call.id) if call.name == runs.TOOL else None
    if run is None:
        return make_interrupted_result(call)
    if run.report is not None:
        details = {runs.CHILD: run.child_id, "marks": run.report["marks"], "state": run.state}
        return ToolResultPart(call.id, call.name, run.report["block"], details=details)
    text = (
        f"interrupted: the child thread {shorten_id(run.child_id)} did not finish; name it in `resume` to continue it"
    )
    return ToolResultPart(call.id, call.name, text, True, {runs.UNFINISHED: run.child_id})


def make_interrupted_result(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, "interrupted: this call did not finish; its effect is unknown", True)
