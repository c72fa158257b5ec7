"""Opening a thread that a crash may have left in mid-turn: every tool call gets an answer."""

from __future__ import annotations

from sakti.core.tokens import Counter, count_parts, message_tokens
from sakti.core.types import Message, Thread, ToolCallPart, ToolResultPart
from sakti.store import messages
from sakti.store.database import Store


async def answer_open_calls(store: Store, thread: Thread, counter: Counter) -> Message | None:
    """Where the last message calls tools and nothing answers, append `interrupted` results, so that the history
    is valid for every API. Returns the message that was added."""
    last = await store.read(messages.page, thread.id, limit=1)
    if not last or last[0].role != "assistant" or not last[0].tool_calls:
        return None
    parts = tuple(interrupted_result(c) for c in last[0].tool_calls)
    counted = count_parts(counter, parts)
    return await store.write(
        messages.append,
        Message(store.ids.new(), thread.id, thread.resource_id, "tool", parts, store.clock.now(),
                tokens=message_tokens(counted), part_tokens=counted, token_counter=counter.name),
    )


def interrupted_result(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, "interrupted: this call did not finish; its effect is unknown", True)
