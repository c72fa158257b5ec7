"""How a thread's memory does, in words: the same for the pane, `/memory` and `sakti memory status`. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sakti.core.events import Backlog, CompactionFinished, MemoryStatus, StaleLeases
from sakti.core.text import count_k

if TYPE_CHECKING:
    from sakti.agent.session.queries import Spent
    from sakti.store.log.events import MemoryEvent
    from sakti.store.log.figures import Figures

GENERATIONS = 10  # newest ones that are listed


def sizes(before: int, after: int) -> str:
    """`18.1k → 1.9k (10%)`: tokens of what went in and of what came out."""
    share = f" ({after / before:.0%})" if before else ""
    return f"{count_k(before)} → {count_k(after)}{share}"


def stale_leases(event: StaleLeases) -> str:
    """What a window that is gone left undone: `observing, begun at 14:02 by host:123, had not finished`."""
    began = datetime.fromtimestamp(event.started_at / 1000).strftime("%H:%M")
    kinds = ", ".join(event.kinds)
    return f"{kinds}, begun at {began} by {event.owner}, had not finished; it is done again when it is due"


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


def compacted(done: CompactionFinished) -> list[tuple[str, str]]:
    """(name, text) of what a compaction did; nothing where nothing came of it."""
    if not done.messages:
        return []
    saved = done.tokens_before - done.tokens_after
    said = "as it was said" if done.kept == 1 else "as they were said"
    freed = f"{count_k(saved)} freed" if saved > 0 else "none freed: the log is as long as what it stands for"
    doubtful = f"{_lines(done.doubtful, 'new line')} with claims that no message has: ? as the log's filter"
    found = [
        ("went", f"{_messages(done.messages)}, {count_k(done.gone_tokens)} tokens; each is kept, /search finds it"),
        ("kept", f"{_messages(done.kept)} {said}, {count_k(done.kept_tokens)} tokens" if done.kept else ""),
        ("log", _lines(done.lines, "new line")),
        ("pinned", f"{_lines(done.pinned)}, always kept" if done.pinned else ""),
        ("doubtful", doubtful if done.doubtful else ""),
        ("tokens", f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)}, {freed}"),
        ("diff", "/compact diff shows the log before and after"),
        ("undo", "/compact undo brings the messages back"),
    ]
    return [(name, text) for name, text in found if text]


def taken_back(done: CompactionFinished) -> str:
    """What undoing a compaction did, in a sentence."""
    return (
        f"{_messages(done.messages)} {'is' if done.messages == 1 else 'are'} in the window again, which is as it was:"
        f" {count_k(done.tokens_after)} tokens."
    )


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


def _lines(count: int, name: str = "line") -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def in_a_line(event: MemoryEvent, retry_at: int | None = None) -> str:
    """What happened, in a few words; `retry_at` (Unix ms) is known of the newest failure alone."""
    sizes_ = f"{count_k(event.tokens_before)} → {count_k(event.tokens_after)}"
    match event.kind:
        case "observed":
            return f"observed {_messages(event.messages)} → {_lines(event.lines)}, {sizes_}"
        case "activated":
            return f"activated {_messages(event.messages)} → {_lines(event.lines)}, {sizes_}"
        case "reflected":
            return f"reflected {sizes_}"
        case "taken_over":
            return f"generation {event.generation} in use, {sizes_}"
        case "taken_back":
            return f"generation {event.generation} taken back"
        case "compacted":
            return f"compacted {_messages(event.messages)}, {sizes_}"
        case "undone":
            return f"compaction undone, {_messages(event.messages)} back"
        case "failed":
            again = f", again at {datetime.fromtimestamp(retry_at / 1000):%H:%M:%S} at the latest" if retry_at else ""
            return f"{event.text}{again}"


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


def spent_rows(spent: Spent) -> list[tuple[str, str]]:
    """(name, text) of a thread's tokens and price, as the provider reported them."""
    usage, memory = spent.actor, spent.memory
    cost = (usage + memory).cost_usd
    share = f" ({usage.cached_tokens / usage.input_tokens:.0%} from the cache)" if usage.input_tokens else ""
    observed = f"{memory.input_tokens:,} tokens read, {memory.output_tokens:,} written"
    return [
        ("input", f"{usage.input_tokens:,} tokens{share}"),
        ("output", f"{usage.output_tokens:,} tokens"),
        *([("memory", observed)] if memory.input_tokens else []),
        ("price", f"${cost:.4f}" if cost is not None else "not known for this model"),
    ]


def status_rows(status: MemoryStatus, figures: Figures | None) -> list[tuple[str, str]]:
    """(name, text) of the windows and of everything that works at them; what is empty is left out."""
    buffered, reflection = status.buffered_observations, status.buffered_reflection
    about = "about " if status.approximate else ""
    found = [
        (
            "messages",
            f"{about}{status.messages.tokens:,} of {status.messages.threshold:,} tokens before they are observed",
        ),
        (
            "observations",
            f"{status.observations.tokens:,} of {status.observations.threshold:,} tokens before a reflection",
        ),
        (
            "buffered",
            f"{buffered.chunks} chunks: {buffered.message_tokens:,} tokens of messages as "
            f"{buffered.observation_tokens:,} of observations ({buffered.status})",
        ),
        ("activation", f"would free {buffered.projected_message_removal:,} tokens"),
        (
            "reflection",
            f"{reflection.input_observation_tokens:,} → {reflection.observation_tokens:,} ({reflection.status})",
        ),
        ("backlog", in_words(status.backlog) if status.backlog else ""),
        ("generation", str(status.generation_count)),
        *(rows(figures) if figures is not None else ()),
        ("observer", f"{status.observer} ({status.reason})" if status.reason else status.observer),
        ("reflector", status.reflector),
        ("note", status.note),
    ]
    return [(name, text) for name, text in found if text]
