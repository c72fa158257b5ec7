"""Run the user's own `!command` by the same tool, and tell the model what it printed: as output, not as words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent.session import build
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


async def run(state: State, command: str, *, during: bool = False) -> None:
    """Run `command` in the thread's current folder; its events are those of a tool call, its outcome a user message.

    `during`: an answer streams, which is stored later than this and stands above it.
    """
    thread, store, tools = state.thread, state.store, build.toolbox(state).state
    assert thread is not None
    call = ToolCallPart(store.ids.new(), "bash", {"command": command})
    state.emit(ToolStarted(call, own=True))
    started = state.clock.monotonic()
    run = tools.context(call.id, thread.id, "", lambda piece: state.emit(ToolOutput(call.id, piece)))
    outcome = tools.bounded(await bash(run, {"command": command, "outside": OWN}), call.id)
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
