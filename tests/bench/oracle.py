"""Compute a second time what memory should do: thresholds, boundaries, exchanges, words.

Nothing here is shared with `sakti.memory`: a number that both get wrong must be got wrong twice. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from decimal import ROUND_HALF_UP, Decimal

from msgspec import Struct

from sakti.core.config import MemorySettings
from sakti.core.types import Message, join_plain_text

MINUTE = 60_000
BACKLOG = 2  # times `block_after` pending when a thread is opened: it is caught up with in the background
TAIL_SHARE = 0.4  # of what is observed: so much of the log before it an Observer sees at most
IDLE = {"5m": 5 * MINUTE, "1h": 60 * MINUTE}
OTHER_TTL = ("anthropic", "google", "gemini", "openai", "deepseek", "groq")  # keep prompts for times of their own


# --- numbers ------------------------------------------------------------------------------------------------


class Numbers(Struct, frozen=True):
    """Thresholds in tokens.

    The message threshold, the interval of background observation (None: there is none), pending tokens above which a
    step waits, raw messages that stay; and the log's threshold, its share for the background, its own limit for
    waiting.
    """

    threshold: int
    interval: int | None
    block_after: int
    floor: float
    reflect_at: int
    reflect_from: int | None
    reflect_block_after: int


def numbers(settings: MemorySettings, log_tokens: int, budget: int | None) -> Numbers:
    """Return the thresholds at a size of the log, for a model whose window leaves `budget` tokens (None: enough)."""
    observation, reflection = settings.observation, settings.reflection
    messages, log = observation.message_tokens, reflection.observation_tokens
    if budget is not None:
        messages, log = min(messages, max(budget, 7) * 3 // 7), min(log, max(budget, 7) * 4 // 7)
    total = messages + log if settings.share_token_budget else messages
    threshold = max(messages, total - log_tokens, 1)
    interval = _interval(settings, total, threshold)
    block = observation.block_after
    if block < 100:
        block_after = _half_up(threshold, block)
    elif messages < observation.message_tokens:
        block_after = int(threshold * block / observation.message_tokens)
    else:
        block_after = int(block)
    keep = observation.buffer_activation
    if keep < 1000:
        floor = threshold * (1 - keep)
    elif keep < threshold:
        floor = keep
    else:
        floor = threshold * min(1.0, keep / observation.message_tokens)
    wait = reflection.block_after
    return Numbers(
        threshold,
        interval,
        max(threshold, block_after),
        floor,
        log,
        None if interval is None else max(1, int(log * reflection.buffer_activation)),
        max(log, _half_up(log, wait) if wait < 100 else int(wait)),
    )


def _interval(settings: MemorySettings, total: int, threshold: int) -> int | None:
    buffer = settings.observation.buffer_tokens
    if buffer is False:
        return None
    interval = _half_up(total, buffer) if buffer < 1 else buffer
    if interval >= threshold:  # a window too small for it: the same share of what there is
        share = min(interval / max(1, settings.observation.message_tokens), 0.5)
        interval = threshold * share
    return max(1, int(interval))


def _half_up(value: int, factor: float) -> int:
    return int(Decimal(value * factor + 0.0).quantize(Decimal(1), ROUND_HALF_UP))


def idle_after(settings: MemorySettings, provider: str) -> float | None:
    """Return the milliseconds after which a prompt is no longer cached.

    Infinite where idle time activates nothing, None where this oracle cannot tell.
    """
    value = settings.activate_after_idle
    if value is False:
        return float("inf")
    if value == "auto":
        return None if provider.startswith(OTHER_TTL) else 5 * MINUTE
    return IDLE.get(value) if isinstance(value, str) else value


def boundary(groups: Sequence[int], floor: float, pending: int) -> int:
    """Return how many groups, oldest first, are activated to leave about `floor` of `pending` raw."""
    target = pending - floor
    if target <= 0:
        return 0
    ends = [sum(groups[: n + 1]) for n in range(len(groups))]
    reaching = next((n for n, end in enumerate(ends) if end >= target), len(ends))
    if reaching < len(ends):
        too_far = ends[reaching] - target > 0.95 * floor or pending - ends[reaching] < min(1000, floor)
        if not too_far or not any(ends[:reaching]):
            return reaching + 1
    below = max(ends[:reaching], default=0)
    return ends.index(below) + 1 if below else 0  # groups without tokens behind it wait


# --- exchanges ----------------------------------------------------------------------------------------------


def exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into exchanges: calls with their results; every other message is alone.

    Unanswered calls are over where another message follows.
    """
    out: list[list[Message]] = []
    waiting: set[str] = set()
    for message in messages:
        results = {r.call_id for r in message.tool_results}
        if message.role == "tool" and out and waiting:
            out[-1].append(message)
            waiting -= results
        else:
            out.append([message])
            waiting = set()
        waiting |= {c.id for c in message.tool_calls}
    return out


def complete(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without a last exchange whose calls still run."""
    found = exchanges(messages)
    if found and (calls := {c.id for m in found[-1] for c in m.tool_calls}):
        answered = {r.call_id for m in found[-1] for r in m.tool_results}
        if calls - answered:
            found.pop()
    return [m for one in found for m in one]


# --- words --------------------------------------------------------------------------------------------------

_WORD = re.compile(r"\bz[0-9a-z]{6}\b")
_REPEATED = re.compile(r"\[replaces [^\]\n]*\]")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def word(*facts: object) -> str:
    """Make a word that only these facts give, and that does not occur by chance."""
    number = int.from_bytes(hashlib.sha256("/".join(map(str, facts)).encode("utf-8", "surrogatepass")).digest()[:8])
    out = ""
    for _ in range(6):
        number, digit = divmod(number, 36)
        out += _DIGITS[digit]
    return f"z{out}"


def tag(message: Message) -> str:
    """Return the word that an observation of this message contains."""
    return word(message.thread_id, message.index, message.role, join_plain_text(message.parts))


def words(text: str, known: Collection[str]) -> list[str]:
    """Return the words of `known` in a text, in order.

    Quotations of older lines in notes on what a line replaces do not count.
    """
    return [w for w in _WORD.findall(_REPEATED.sub("", text)) if w in known]
