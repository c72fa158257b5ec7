"""Run the user's own `!command` by the same tool, and tell the model what it printed: as output, not as words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sakti.agent.session import build
from sakti.agent.tools.base import Outcome, ToolRun
from sakti.agent.tools.bash import OWN, bash
from sakti.core.errors import RAN, SaktiError, StoreError
from sakti.core.events import MessageSaved, ToolFinished, ToolOutput, ToolStarted
from sakti.core.tokens import count_parts, message_tokens
from sakti.core.types import Message, OutputPart, ToolCallPart, ToolResultPart
from sakti.store.secrets import masked
from sakti.store.threads import masking, messages

if TYPE_CHECKING:
    from sakti.agent.session.state import State

KEPT = ("exit_code", "duration_ms", "characters", "output_file")  # of the outcome, with the message: for the screen


async def _ended(state: State, work: ToolRun, command: str, printed: Sequence[str]) -> Outcome:
    """Run a command to its end, or until `stop` ends it: then with the output so far."""
    task = asyncio.ensure_future(bash(work, {"command": command, "outside": OWN}))
    state.own_commands.append(task)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return Outcome("".join((*printed, "[stopped by the user]")), is_error=True)
    finally:
        state.own_commands.remove(task)
        task.cancel()


def stop(state: State) -> bool:
    """Stop the newest command of the user, with all that it started; false if none runs."""
    return bool(state.own_commands) and state.own_commands[-1].cancel()


async def run(state: State, command: str, *, during: bool = False) -> None:
    """Run `command` in the workbench's folder; its events are those of a tool call, its outcome a user message.

    `during`: an answer streams, which is stored later than this and stands above it.
    """
    thread, store, bench = state.thread, state.store, build.toolbox(state).bench
    assert thread is not None
    call = ToolCallPart(store.ids.new(), "bash", {"command": command})
    state.emit(ToolStarted(call, own=True))
    started = state.clock.monotonic()
    printed: list[str] = []

    def stream(piece: str) -> None:
        printed.append(piece)
        state.emit(ToolOutput(call.id, piece))

    work = ToolRun(bench, call.id, thread.id, "", stream)
    outcome = bench.bounded(await _ended(state, work, command, printed), call.id)
    duration = round((state.clock.monotonic() - started) * 1000)
    details = {**outcome.details, "duration_ms": duration}
    state.emit(ToolFinished(ToolResultPart(call.id, "bash", outcome.content, outcome.is_error, details), duration))
    kept = {k: v for k, v in details.items() if k in KEPT} | {"failed": outcome.is_error}
    parts = masking.parts((OutputPart(command, outcome.content),))
    counted = count_parts(state.counter, parts)
    message = Message(
        store.ids.new(),
        thread.id,
        state.resource_id,
        "user",
        parts,
        state.clock.now(),
        tokens=message_tokens(counted),
        part_tokens=counted,
        token_counter=state.counter.name,
        metadata={"shell": masked(command), "outcome": kept, **({"during": True} if during else {})},
    )
    try:
        saved = await store.write(messages.append, message)
    except StoreError as e:
        raise SaktiError(
            f"{e.message} The command ran, but the agent does not see its output.", title=e.title, code=RAN
        ) from e
    state.engine.add(saved)
    state.emit(MessageSaved(saved))
