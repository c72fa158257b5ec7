"""Collect the figures of one replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field, structs, to_builtins

from tests.bench.invariants import Violation


class Run(Struct):
    """Figures of one conversation.

    `cpu`: milliseconds of thread time of each step, from the request to memory until its answer, with the database's;
    without counting, checking, the replay's own scheduling and what another thread computes meanwhile (marks and
    claims of new lines).
    """

    name: str
    seed: int | None
    turns: int = 0
    steps: int = 0
    conversation_tokens: int = 0
    observer_calls: int = 0
    observer_input_tokens: int = 0
    cached_share: float = 0.0
    activations: int = 0
    generations: int = 0
    blocked_steps: int = 0
    max_request_tokens: int = 0
    cpu: list[float] = field(default_factory=list[float])
    violations: list[Violation] = field(default_factory=list[Violation])
    kills: int = 0

    def as_json(self) -> dict[str, Any]:
        out = {name: v for name, v in structs.asdict(self).items() if name not in ("cpu", "kills")}
        ratio = self.observer_input_tokens / self.conversation_tokens if self.conversation_tokens else 0.0
        out["observer_input_ratio"] = round(ratio, 3)
        out["cached_share"] = round(self.cached_share, 4)
        out["step_cpu_ms"] = percentiles(self.cpu)
        out["violations"] = [to_builtins(v) for v in self.violations]
        return out


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and max of some milliseconds."""
    ordered = sorted(values) or [0.0]
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95)]
    return {"p50": round(at[0], 3), "p95": round(at[1], 3), "max": round(ordered[-1], 3)}
