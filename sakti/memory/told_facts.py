"""Decide which volatile facts go along with a message. Pure.

They are sent once, with the turn's prompt, and again with a result only where they changed: so a request's prefix
stays as it was, and the newest user message is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sakti.core.types import ContextPart, Message
from sakti.store.secrets import masked_value

NOW = "now"  # the fact that changes by itself
# First words of facts that are long: sent only where they changed, in a new turn, too.
ONCE = frozenset({"instructions", "hooks", "skills", "skill", "mode", "plan", "job", "report", "mcp"})
STALE_MS = 10 * 60_000  # so old the time may be within a turn


def due_next(messages: Sequence[Message], facts: Mapping[str, str], now: int) -> dict[str, str]:
    """Return the facts that the next request adds.

    They go with the newest message, or after an answer with the user's next one.
    """
    last = messages[-1] if messages else None
    if last is not None and last.role != "assistant":
        return due(messages, facts, now, begins=False)
    thread_id, resource_id = (last.thread_id, last.resource_id) if last is not None else ("", "")
    prompt = Message("", thread_id, resource_id, "user", (), now)
    return due((*messages, prompt), facts, now, begins=True)


def due(messages: Sequence[Message], facts: Mapping[str, str], now: int, *, begins: bool) -> dict[str, str]:
    """Return the facts to send with the last of `messages`, secrets masked: they are stored with it.

    `begins`: it begins a turn, so that all but the long ones are sent again; else those that changed since they were
    sent last. Empty after an answer, which takes no facts.
    """
    facts = masked_value(dict(facts))
    last = messages[-1] if messages else None
    if last is None or last.role == "assistant":
        return {}
    current: dict[str, str] = {}
    time = 0
    for message in messages:
        for part in message.parts:
            if isinstance(part, ContextPart):
                current |= part.facts
                time = message.created_at if NOW in part.facts else time
    changed = {name: fact for name, fact in facts.items() if current.get(name) != fact}
    here = {name for p in last.parts if isinstance(p, ContextPart) for name in p.facts}
    if begins and last.role == "user" and not here & facts.keys():
        return {name: fact for name, fact in facts.items() if name.partition(" ")[0] not in ONCE or name in changed}
    if NOW in current and now - time < STALE_MS:
        changed.pop(NOW, None)
    return changed
