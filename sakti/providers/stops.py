"""Classify the reasons with which servers end an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from sakti.core.patterns import lazy_pattern
from sakti.core.types import Part, ToolCallPart, Usage
from sakti.providers.protocol import Completed, StopReason

Stop: TypeAlias = StopReason | Literal["cut"]  # "cut": the server failed, the answer is to be asked for again

_ENDS = frozenset({"", "stop", "eos", "end_turn", "stop_sequence", "complete", "completed", "done"})
_LIKE_AN_END = lazy_pattern(r"(stop|eos|eot|end)(_\w+)?")  # "eos_token", "end_of_turn"
_CALLS = frozenset({"tool_use", "tool_call", "tool_calls", "function_call", "function_calls"})
_FILTERED = lazy_pattern(
    r"filter|safety|sensitive|refus|moderat|guardrail|prohibit|blocklist|recitation|spii|policy|flagged"
)
_LENGTH = lazy_pattern(r"length|max_.*tokens|context|token_?limit|window")
_FAILED = lazy_pattern(
    r"error|fail|abort|cancel|timeout|timed_out|interrupt|insufficient|overload|unavailable|disconnect|malformed"
)


def classify(reason: str) -> Stop:
    """Return how an answer ended; a reason that is not known is never taken for a complete answer."""
    name = reason.strip().lower()
    if name in _ENDS:
        return "end"
    if name in _CALLS:
        return "tool_use"
    if name == "pause_turn":
        return "pause"
    if _FILTERED.search(name):
        return "refusal"
    if _LENGTH.search(name):
        return "length"
    if _FAILED.search(name):
        return "cut"
    return "end" if _LIKE_AN_END.fullmatch(name) else "unknown"


def completed(reason: str, parts: Sequence[Part], usage: Usage, model: str, *, refused: bool = False) -> Completed:
    """Build the end of an answer that stopped for `reason`, which must not be "cut".

    Calls are run whatever an end says that is neither a limit nor a filter; `refused`: the answer is a refusal.
    """
    stop = classify(reason)
    assert stop != "cut"
    unknown = reason if stop == "unknown" else ""
    has_calls = any(isinstance(p, ToolCallPart) for p in parts)
    if stop in ("end", "tool_use", "unknown") and has_calls:
        stop = "tool_use"
    elif stop in ("end", "tool_use"):
        stop = "refusal" if refused else "end"
    return Completed(tuple(parts), stop, usage, model, unknown)
