"""Limits of a turn: room for an answer, time, cost, and repetition by the model. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct, field

from sakti.core.config import AgentSettings
from sakti.core.errors import ProviderError, SaktiError
from sakti.core.types import ModelInfo, ToolCallPart, ToolResultPart, Usage

DEFAULT_OUTPUT = 8_192  # tokens kept free of memory and messages, so that an answer has room
UNKNOWN_OUTPUT = 32_000  # tokens of an answer if the model's maximum is unknown
LEAST_OUTPUT = 256  # tokens: with less room, no useful answer is possible
SPARE, SPARE_SHARE = 64, 0.02  # share of the prompt that a server's template and tokenizer add to our count


def measure_room(model: ModelInfo, settings: AgentSettings, fixed: int) -> tuple[int, int | None]:
    """Return the tokens left for an answer, and for memory and messages.

    None if the model's window is unknown. `fixed` are the tokens of system prompt and tools.
    """
    window = model.context_window
    most = model.max_output or (DEFAULT_OUTPUT if window is None else min(UNKNOWN_OUTPUT, max(1, window // 2)))
    output = min(settings.max_output_tokens or most, most)
    if window is None:
        return output, None
    free = min(output, settings.max_output_tokens or DEFAULT_OUTPUT, window // 4)
    return output, max(0, window - free - fixed)


def limit_output(model: ModelInfo, wanted: int, prompt: int) -> int:
    """Return the tokens that the answer to a prompt of `prompt` tokens may have.

    This is the wanted number, limited by the rest of the window in the model's own tokens.
    """
    window = model.context_window
    if window is None:
        return wanted
    remaining = window - round(prompt * (model.tokens + SPARE_SHARE)) - SPARE
    least = max(1, min(LEAST_OUTPUT, window - prompt))
    return max(1, min(wanted, max(remaining, least)))


def require_fit(model: ModelInfo, tokens: int) -> None:
    """Refuse a request above the model's window before it is sent. Raises `ProviderError`.

    The embedded model shortens its requests by itself.
    """
    if model.context_window is not None and tokens > model.context_window and not model.small:
        assumed = f" (assumed: set providers.{model.provider}.context_window)" if model.assumed else ""
        raise ProviderError(
            f"The request has {tokens:,} tokens, {model.full_name} takes {model.context_window:,}{assumed}: it was not "
            "sent. Ask for less at once, or choose a model with a larger window with /model.",
            code="context_too_long",
        )


def find_reached_limit(settings: AgentSettings, usage: Usage, seconds: float) -> SaktiError | None:
    """Return the limit that a turn has reached, or None."""
    limits = (
        ("max_seconds", settings.max_seconds, seconds, "{:g} s"),
        ("max_tokens", settings.max_tokens, usage.input_tokens + usage.output_tokens, "{:,} tokens"),
        ("max_usd", settings.max_usd, usage.cost_usd or 0.0, "${:.2f}"),
    )
    for name, limit, used, form in limits:
        if limit is not None and used >= limit:
            return _limit_error(name, form.format(limit))
    return None


def time_limit_error(settings: AgentSettings) -> SaktiError:
    """Return the error for a turn that reached its time limit in the middle of a step."""
    return _limit_error("max_seconds", f"{settings.max_seconds or 0:g} s")


def _limit_error(name: str, limit: str) -> SaktiError:
    text = f'The limit of {limit} for a turn is reached (agent.{name}). Say "continue" to go on.'
    return SaktiError(text, title="Limit reached", code=name)


def compute_remaining_seconds(settings: AgentSettings, seconds: float) -> float | None:
    """Return the remaining seconds of a turn, or None if it has no limit."""
    return None if settings.max_seconds is None else max(0.0, settings.max_seconds - seconds)


LONGEST = 4  # calls of a pattern
TOLD_AFTER, STOPPED_AFTER = 3, 5  # times that a pattern was seen
STOPPED_IN_VAIN = 8  # if its results differ, since it may make progress


class Repetition(Struct):
    """Counter of equal calls in a row."""

    last: str = ""
    count: int = 0

    def see(self, call: ToolCallPart) -> int:
        signature = _make_signature(call) if call.arguments is not None else f"{call.name}:{call.raw}"
        self.count = self.count + 1 if signature == self.last else 1
        self.last = signature
        return self.count


class LoopDetector(Struct):
    """Calls of a turn so far.

    `times` counts the repetitions of the pattern at their end, `period` is its length.
    """

    period: int = 0
    times: int = 0
    stopped: bool = False
    _calls: list[str] = field(default_factory=list[str])
    _results: list[str] = field(default_factory=list[str])

    def see(self, calls: Sequence[ToolCallPart], results: Sequence[ToolResultPart]) -> str:
        """Add the calls of a step; return a note about repetition for the model, if needed."""
        answers = {r.call_id: r for r in results}
        for call in calls:
            answer = answers.get(call.id)
            self._calls.append(_make_signature(call))
            self._results.append(answer.content if answer else "")
        self.period, self.times = _find_pattern(self._calls)
        self.stopped = self.times >= STOPPED_IN_VAIN or (self.times >= STOPPED_AFTER and self._repeats_results())
        if self.times < TOLD_AFTER:
            return ""
        if self.period == 1:
            return f"[The arguments of the last {self.times} calls could not be read. Write them another way.]"
        return f"[The same {self.period} calls were made {self.times} times in a row. Do something else.]"

    def _repeats_results(self) -> bool:
        """Return whether the last rounds also had the same results."""
        size = self.period
        last = self._results[-size:]
        rounds = range(1, STOPPED_AFTER)
        return self.period == 1 or all(self._results[-size * (n + 1) : -size * n] == last for n in rounds)


def _make_signature(call: ToolCallPart) -> str:
    if call.arguments is None:  # each is broken in its own way
        return f"{call.name} unreadable"
    return f"{call.name}:{json.dumps(call.arguments, sort_keys=True)}"


def _find_pattern(calls: Sequence[str]) -> tuple[int, int]:
    """Return the length and the number of repetitions of the pattern at the end of `calls`.

    Identical calls are not a pattern, except those that cannot be parsed.
    """
    best = (0, 0)
    for size in range(1, LONGEST + 1):
        end = calls[-size:]
        if len(end) < size or (len(set(end)) == 1 and not (size == 1 and end[0].endswith(" unreadable"))):
            continue
        times = 1
        while calls[-size * (times + 1) : -size * times] == end:
            times += 1
        if times > 1 and times > best[1]:
            best = size, times
    return best
