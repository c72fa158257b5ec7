"""Detect a model that goes in circles: equal calls, or repeated sequences of two to four. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct, field

from sakti.core.types import ToolCallPart, ToolResultPart

LONGEST = 4  # calls of a pattern
TOLD_AFTER, STOPPED_AFTER = 3, 5  # times that a pattern was seen
STOPPED_IN_VAIN = 8  # where its results differ: something may come of it


class Repetition(Struct):
    """Counter of equal calls in a row."""

    last: str = ""
    count: int = 0

    def see(self, call: ToolCallPart) -> int:
        signature = _signature(call) if call.arguments is not None else f"{call.name}:{call.raw}"
        self.count = self.count + 1 if signature == self.last else 1
        self.last = signature
        return self.count


class Circles(Struct):
    """Calls of a turn so far.

    `times` counts the repetitions of the pattern at their end, `period` is its length.
    """

    period: int = 0
    times: int = 0
    stopped: bool = False
    _calls: list[str] = field(default_factory=list[str])
    _results: list[str] = field(default_factory=list[str])

    def see(self, calls: Sequence[ToolCallPart], results: Sequence[ToolResultPart]) -> str:
        """Take in the calls of a step; what the model is to be told about them, if anything."""
        answers = {r.call_id: r for r in results}
        for call in calls:
            answer = answers.get(call.id)
            self._calls.append(_signature(call))
            self._results.append(answer.content if answer else "")
        self.period, self.times = _pattern(self._calls)
        self.stopped = self.times >= STOPPED_IN_VAIN or (self.times >= STOPPED_AFTER and self._in_vain())
        if self.times < TOLD_AFTER:
            return ""
        if self.period == 1:
            return f"[The arguments of the last {self.times} calls could not be read. Write them another way.]"
        return f"[The same {self.period} calls were made {self.times} times in a row. Do something else.]"

    def _in_vain(self) -> bool:
        """Return whether the last rounds also had the same results."""
        size = self.period
        last = self._results[-size:]
        rounds = range(1, STOPPED_AFTER)
        return self.period == 1 or all(self._results[-size * (n + 1) : -size * n] == last for n in rounds)


def _signature(call: ToolCallPart) -> str:
    if call.arguments is None:  # each is broken in a way of its own
        return f"{call.name} unreadable"
    return f"{call.name}:{json.dumps(call.arguments, sort_keys=True)}"


def _pattern(calls: Sequence[str]) -> tuple[int, int]:
    """Return (length, how often) of the pattern at the end of `calls`.

    Calls that are all the same are no pattern, except those that cannot be parsed.
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
