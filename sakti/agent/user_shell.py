"""Run the user's own `!command` by the same tool, and tell the model what it printed: as output, not as words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent.tools.bash import OWN, bash
from sakti.core.errors import RAN, SaktiError, StoreError
from sakti.core.events import MessageSaved, ToolFinished, ToolOutput, ToolStarted
from sakti.core.tokens import count_parts, message_tokens
from sakti.core.types import Message, OutputPart, ToolCallPart, ToolResultPart
from sakti.store.secrets import masked
from sakti.store.threads import masking, messages

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread

KEPT = ("exit_code", "duration_ms", "characters", "output_file")  # of the outcome, with the message: for the screen


async def run(thread: OpenThread, command: str, *, during: bool = False) -> None:
    """Run `command` in the thread's current folder; its events are those of a tool call, its outcome a user message.

    `during`: an answer streams, which is stored later than this and stands above it.
    """
    ws, tools = thread.workspace, thread.toolbox.state
    store = ws.store
    call = ToolCallPart(store.ids.new(), "bash", {"command": command})
    thread.emit(ToolStarted(call, own=True))
    started = ws.clock.monotonic()
    run = tools.context(call.id, thread.id, "", lambda piece: thread.emit(ToolOutput(call.id, piece)))
    outcome = tools.bounded(await bash(run, {"command": command, "outside": OWN}), call.id)
    duration = round((ws.clock.monotonic() - started) * 1000)
    details = {**outcome.details, "duration_ms": duration}
    thread.emit(ToolFinished(ToolResultPart(call.id, "bash", outcome.content, outcome.is_error, details), duration))
    kept = {k: v for k, v in details.items() if k in KEPT} | {"failed": outcome.is_error}
    parts = masking.parts((OutputPart(command, outcome.content),))
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
        metadata={"shell": masked(command), "outcome": kept, **({"during": True} if during else {})},
    )
    try:
        saved = await store.write(messages.append, message)
    except StoreError as e:
        raise SaktiError(
            f"{e.message} The command ran, but the agent does not see its output.", title=e.title, code=RAN
        ) from e
    thread.engine.add(saved)
    thread.emit(MessageSaved(saved))
