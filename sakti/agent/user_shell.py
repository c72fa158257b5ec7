"""Run the user's `!command` by the same tool, and give its output to the model as output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sakti.agent.tools.bash import OWN, bash
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import RAN, SaktiError, StoreError
from sakti.core.events import MessageSaved, ToolFinished, ToolOutput, ToolStarted
from sakti.core.tokens import count_parts, message_tokens
from sakti.core.types import Message, OutputPart, ToolCallPart, ToolResultPart
from sakti.store.secrets import masked
from sakti.store.threads import codec, messages

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread

KEPT = ("exit_code", "stopped", "duration_ms", "characters", "output_file")  # with the message: for the screen


async def _run_stoppable(run: ToolContext, command: str, printed: Sequence[str]) -> Outcome:
    """Run a command to its end, or until `stop_own_command` ends it: then with the output so far."""
    task = asyncio.ensure_future(bash(run, {"command": command, "outside": OWN}))
    run.state.own_commands[run.call_id] = task
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return Outcome("".join((*printed, "[stopped by the user]")), is_error=True, details={"stopped": True})
    finally:
        run.state.own_commands.pop(run.call_id, None)
        task.cancel()


async def run(thread: OpenThread, command: str, *, during: bool = False) -> None:
    """Run `command` in the thread's current folder, with the events of a tool call.

    Its outcome becomes a user message.

    `during`: an answer streams, which is stored later than this and stands above it.
    """
    ws, tools = thread.workspace, thread.toolbox.state
    store = ws.store
    call = ToolCallPart(store.ids.new(), "bash", {"command": command})
    thread.emit(ToolStarted(call, own=True))
    started = ws.clock.monotonic()
    printed: list[str] = []

    def stream(piece: str) -> None:
        printed.append(piece)
        thread.emit(ToolOutput(call.id, piece))

    context = tools.context(call.id, thread.id, "", stream)
    outcome = tools.limit_output(await _run_stoppable(context, command, printed), call.id)
    duration = round((ws.clock.monotonic() - started) * 1000)
    details = {**outcome.details, "duration_ms": duration}
    thread.emit(ToolFinished(ToolResultPart(call.id, "bash", outcome.content, outcome.is_error, details), duration))
    stored = {k: v for k, v in details.items() if k in KEPT} | {"failed": outcome.is_error}
    parts = codec.mask_parts((OutputPart(command, outcome.content),))
    counted = count_parts(ws.counter, parts)
    message = Message(
        store.ids.new(),
        thread.id,
        ws.resource_id,
        "user",
        parts,
        ws.clock.now(),
        tokens=message_tokens(counted),
        part_tokens=counted,
        token_counter=ws.counter.name,
        metadata={"shell": masked(command), "outcome": stored, **({"during": True} if during else {})},
    )
    try:
        saved = await store.write(messages.append, message)
    except StoreError as e:
        raise SaktiError(
            f"{e.message} The command ran, but the agent does not see its output.", title=e.title, code=RAN
        ) from e
    thread.engine.add(saved)
    thread.emit(MessageSaved(saved))
