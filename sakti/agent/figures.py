"""How a thread's memory does, in words: the same for the pane, `/memory` and `sakti memory status`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.core.events import Backlog, MemoryStatus
from sakti.core.text import count_k

if TYPE_CHECKING:
    from sakti.store.memory_figures import Figures

GENERATIONS = 10  # newest ones that are listed


def sizes(before: int, after: int) -> str:
    """`18.1k → 1.9k (10%)`: tokens of what went in and of what came out."""
    share = f" ({after / before:.0%})" if before else ""
    return f"{count_k(before)} → {count_k(after)}{share}"


def in_words(backlog: Backlog, unit: str = " tokens left") -> str:
    """`84.0k tokens left · 3 calls · ≈$0.12`; `unit` stands behind the number."""
    parts = ["paused"] if backlog.paused else []
    parts.append(f"{count_k(backlog.tokens)}{unit}")
    if backlog.calls:
        parts.append(f"{backlog.calls} call{'s' * (backlog.calls != 1)}")
    if backlog.calls and backlog.cost_usd is not None:
        parts.append(f"≈${backlog.cost_usd:.2f}")
    return " · ".join(parts)


def forecast(status: MemoryStatus, turn_tokens: int | None) -> str:
    """`observes in about 3 turns`, from what a turn brought lately; empty where nobody can say."""
    at = status.next_buffer_at or status.messages.threshold
    waits = status.backlog is not None or status.buffered_observations.status == "running" or status.retry_at
    if not turn_tokens or waits or at <= status.messages.tokens:
        return ""
    turns = -(-(at - status.messages.tokens) // turn_tokens)
    return f"observes in about {turns} turn{'s' * (turns != 1)}"


def guarded(figures: Figures) -> str:
    """What the faithfulness guard found in the log, in a few words; empty where it found nothing."""
    dropped = figures.dropped_lines + figures.dropped_paths
    found = (f"{figures.marked_lines} marked" if figures.marked_lines else "", f"{dropped} dropped" if dropped else "")
    return " · ".join(x for x in found if x)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """(name, text) of every figure that there is."""
    out: list[tuple[str, str]] = []
    if last := figures.observation:
        out.append(("last", f"observation {sizes(last.tokens_before, last.tokens_after)} by {last.model or 'unknown'}"))
    out += [
        (f"gen {g.generation}", f"{sizes(g.input_tokens, g.tokens)} by {g.model or 'unknown'}")
        for g in figures.generations[-GENERATIONS:]
    ]
    if figures.marked_lines:
        lines = f"{figures.marked_lines} line{'s' * (figures.marked_lines != 1)}"
        out.append(("guard", f"{lines} with {figures.claims} claims that their source does not have"))
    if figures.dropped_lines + figures.dropped_paths:
        lost = f"{figures.dropped_lines} important lines and {figures.dropped_paths} paths"
        out.append(("dropped", f"{lost} are not in the reflections; search finds them"))
    return out
