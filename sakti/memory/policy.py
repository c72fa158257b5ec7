"""Compute thresholds, boundaries, intervals, and which messages may be buffered. Pure.

The functions named in the golden vectors return the same values, IEEE doubles included. They accept invalid settings,
which are refused when the configuration is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.config import MemorySettings, ObservationSettings
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import count_k, show_value
from sakti.core.types import Message

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class SharedThreshold(Struct, frozen=True):
    """Message threshold with a shared budget: `max` tokens while the log is empty, never below `min`."""

    min: int
    max: int


Threshold: TypeAlias = int | float | SharedThreshold


def get_max_threshold(threshold: Threshold) -> int | float:
    return threshold.max if isinstance(threshold, SharedThreshold) else threshold


def calculate_dynamic_threshold(threshold: Threshold, observation_tokens: float) -> int | float:
    """Return the message threshold at this size of the log.

    It is the shared budget minus the log, rounded half up, and not below the minimum.
    """
    if not isinstance(threshold, SharedThreshold):
        return threshold
    return math.floor(max(threshold.max - observation_tokens, threshold.min) + 0.5)


def resolve_buffer_tokens(buffer: float | bool | None, threshold: Threshold) -> int | float | None:
    """Return the tokens between two background observations; None: no buffering.

    A fraction refers to the (total) threshold.
    """
    if buffer is None or buffer is False:
        return None
    if 0 < buffer < 1:
        return math.floor(get_max_threshold(threshold) * buffer + 0.5)
    return buffer


def resolve_block_after(block_after: float | None, threshold: Threshold) -> int | float | None:
    """Return the pending tokens above which a step waits; 1 ≤ x < 100 multiplies the threshold."""
    if block_after is None:
        return None
    if 1 <= block_after < 100:
        return math.floor(get_max_threshold(threshold) * block_after + 0.5)
    return block_after


def resolve_retention_floor(activation: float, threshold: float) -> float:
    """Return the tokens of raw messages that stay after an activation."""
    if activation >= 1000:
        return activation
    return threshold * (1 - max(0, min(1, activation)))


OVERSHOOT_SHARE = 0.95  # share of the floor: the most that an activation may remove of it
SMALLEST_REST = 1000


def choose_boundary(chunk_tokens: Sequence[int], activation: float, threshold: float, pending: float) -> int:
    """Return how many buffered groups, oldest first, an activation takes.

    This is the first boundary at or above `pending` − floor. If it overshoots by more than 95 % of the floor, or
    leaves less than min(1000, floor), the nearest one below is chosen, if there is one.
    """
    floor = resolve_retention_floor(activation, threshold)
    target = max(0.0, pending - floor)
    if not chunk_tokens or target == 0:
        return 0
    total, below, above, above_total = 0, 0, 0, 0
    below_total = 0
    for number, tokens in enumerate(chunk_tokens, 1):
        total += tokens
        if total >= target:
            above, above_total = number, total
            break
        if total > below_total:
            below, below_total = number, total
    if not above:
        return below
    overshoots = above_total - target > OVERSHOOT_SHARE * floor
    leaves_too_little = pending - above_total < min(SMALLEST_REST, floor)
    if (overshoots or leaves_too_little) and below:
        return below
    return above


def calculate_projected_message_removal(
    chunk_tokens: Sequence[int], activation: float, threshold: float, pending: float
) -> int:
    """Return the message tokens that the next activation removes, as `choose_boundary` decides."""
    return sum(chunk_tokens[: choose_boundary(chunk_tokens, activation, threshold, pending)])


def has_crossed_interval(tokens: float, last_boundary: float, buffer: float, threshold: float) -> bool:
    """Return whether background observation is due: the tokens crossed a multiple of `buffer`.

    Near the threshold the interval is halved, so that something is buffered when it is reached; a boundary above the
    context (which has shrunk since) counts as none.
    """
    if buffer <= 0:
        return False
    if tokens >= threshold - buffer * 1.1:
        buffer /= 2
    if last_boundary > tokens:
        last_boundary = 0
    return math.floor(tokens / buffer) > math.floor(last_boundary / buffer)


RETRY_AFTER_MS = MINUTE
LONGEST_RETRY = 8  # longest distance between retries, in units of the interval and of the first delay


class Backoff(Struct, frozen=True):
    """Next attempt after `failures` in a row: at `tokens` pending, or at `time` (Unix ms) at the latest.

    The distance doubles with each failure.
    """

    failures: int = 0
    tokens: int = 0
    time: int = 0

    def after(self, pending: int, now: int, interval: int) -> Backoff:
        """Return the backoff after one more failure at `pending` tokens."""
        step = min(LONGEST_RETRY, 2**self.failures)
        return Backoff(self.failures + 1, pending + interval * step, now + RETRY_AFTER_MS * step)

    def due(self, pending: int, now: int) -> bool:
        return not self.failures or pending >= self.tokens or now >= self.time


# --- idle time ------------------------------------------------------------------------------------------

_DURATION = lazy_pattern(
    r"(\d+(?:\.\d+)?)\s*"
    r"(milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|hr|h)",
    re.IGNORECASE,
)
_UNITS = {"ms": 1, "mi": MINUTE, "m": MINUTE, "s": 1000, "h": HOUR}


def parse_activation_ttl(value: str | float | bool | None, name: str) -> float | Literal["auto"] | None:
    """Parse a duration to milliseconds (a number, "5m", "1.5 h", "auto"); None if switched off.

    Raises `ConfigError` for anything else.
    """
    if value is None or value is False:
        return None
    if value == "auto":
        return "auto"
    if isinstance(value, int | float) and value is not True and math.isfinite(value) and value >= 0:
        return value
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        unit = match[2].lower()
        factor = 1 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
        return float(match[1]) * factor
    raise ConfigError(
        f'{name} = {show_value(value)} must be milliseconds (0 or more), or a duration such as "5m" or "1h".'
    )


# --- which messages ---------------------------------------------------------------------------------------


def open_calls(messages: Sequence[Message]) -> set[str]:
    """Return the ids of tool calls in `messages` that have no result among them."""
    calls = {c.id for m in messages for c in m.tool_calls}
    return calls - {r.call_id for m in messages for r in m.tool_results}


def select_safe_buffer_prefix(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the oldest messages not affected by a running tool call.

    A call without a result excludes its message and those after it as long as only results follow. Once anything else
    follows, the call is over.
    """
    waiting = open_calls(messages)
    for number, message in enumerate(messages):
        if any(c.id in waiting for c in message.tool_calls) and all(m.role == "tool" for m in messages[number + 1 :]):
            return tuple(messages[:number])
    return tuple(messages)


def list_safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Return the prefix lengths of `messages` that keep calls with their results, ascending from 0.

    Unanswered calls are over at the next message that is not a result.
    """
    cuts = [0]
    waiting: set[str] = set()
    for number, message in enumerate(messages, 1):
        if message.role != "tool":
            if waiting:
                cuts.append(number - 1)
            waiting = set()
        waiting |= {c.id for c in message.tool_calls}
        waiting -= {r.call_id for r in message.tool_results}
        if not waiting:
            cuts.append(number)
    return sorted(set(cuts))


def list_inner_cuts(messages: Sequence[Message]) -> list[int]:
    """Return the safe cuts that leave at least one message behind them."""
    return [cut for cut in list_safe_cuts(messages) if cut < len(messages)]


# --- effective numbers --------------------------------------------------------------------------------------


class Numbers(Struct, frozen=True):
    """Settings in force for one model and one size of the log, all in tokens.

    `buffer` and `reflect_from` are None without background work. `why` is the reason if they were lowered.
    """

    threshold: int
    buffer: int | None
    block_after: int
    activation: float
    reflect_at: int
    reflect_from: int | None
    reflect_block_after: int
    why: str = ""


def compute_effective_numbers(settings: MemorySettings, observation_tokens: int, budget: int | None) -> Numbers:
    """Return the thresholds for a model whose window leaves `budget` tokens for log and messages.

    None: no limit is known. A budget smaller than the sum of both thresholds is split 3 : 4 between messages and log.
    """
    observation, reflection = settings.observation, settings.reflection
    messages, log = configured = observation.message_tokens, reflection.observation_tokens
    if budget is not None:
        room = max(budget, 7)
        messages, log = min(messages, room * 3 // 7), min(log, room * 4 // 7)
    shared: Threshold = SharedThreshold(messages, messages + log) if settings.share_token_budget else messages
    threshold = max(1, math.floor(calculate_dynamic_threshold(shared, observation_tokens)))
    buffer = resolve_buffer_tokens(observation.buffer_tokens, shared)
    if buffer is not None:
        buffer = _fit_interval(buffer, observation.message_tokens, threshold)
    activation = observation.buffer_activation
    if activation >= 1000 and activation >= threshold:
        activation = max(0.0, 1 - activation / observation.message_tokens)
    reflect_block = resolve_block_after(reflection.block_after, log) or log
    return Numbers(
        threshold=threshold,
        buffer=buffer,
        block_after=max(threshold, int(_fit_block_after(observation, messages, threshold))),
        activation=activation,
        reflect_at=log,
        reflect_from=None if buffer is None else max(1, int(log * reflection.buffer_activation)),
        reflect_block_after=max(log, int(reflect_block)),
        why=_explain_lowered(configured, (messages, log), budget),
    )


def _explain_lowered(configured: tuple[int, int], fitted: tuple[int, int], budget: int | None) -> str:
    """Describe which thresholds a small window lowered, why, and how to raise them; "" if none."""
    names = ("messages", "observations")
    lowered = [
        f"{name} {count_k(before)} → {count_k(now)}"
        for name, before, now in zip(names, configured, fitted, strict=True)
        if now < before
    ]
    if budget is None or not lowered:
        return ""
    why = f"the model's window leaves {count_k(budget)} for both"
    return f"Lower limits: {', '.join(lowered)}, as {why}. A model with a larger window (/model) raises them."


def _fit_block_after(observation: ObservationSettings, messages: int, threshold: int) -> float:
    """Return the tokens above which a step waits; an absolute number shrinks with the threshold."""
    if observation.block_after >= 100 and messages < observation.message_tokens:
        return threshold * observation.block_after / observation.message_tokens
    return resolve_block_after(observation.block_after, threshold) or threshold


def _fit_interval(interval: float, configured_threshold: int, threshold: int) -> int:
    """Return the interval of buffering in tokens, at least one.

    An absolute interval that no longer fits a small window keeps its proportion to the threshold.
    """
    if interval < threshold:
        return max(1, int(interval))
    share = interval / max(1, configured_threshold)
    return max(1, math.floor(threshold * min(share, 0.5)))
