"""Report a thread's memory in words, for the pane, `/memory` and `sakti memory status`. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sakti.core.events import Backlog, CompactionFinished, Gauge, MemoryStatus, StaleLeases
from sakti.core.text import count_k, format_count
from sakti.core.types import Spent, Usage

if TYPE_CHECKING:
    from sakti.store.log.events import MemoryEvent
    from sakti.store.log.lines import Figures

GENERATIONS = 10  # newest ones that are listed


def format_sizes(before: int, after: int) -> str:
    """Format tokens of what went in and came out: `18.1k → 1.9k (10%)`."""
    share = f" ({after / before:.0%})" if before else ""
    return f"{count_k(before)} → {count_k(after)}{share}"


def describe_stale_leases(event: StaleLeases) -> str:
    """Describe work left by an ended window: `observing, begun at 14:02 by host:123, had not finished`."""
    began = datetime.fromtimestamp(event.started_at / 1000).strftime("%H:%M")
    kinds = ", ".join(event.kinds)
    return f"{kinds}, started at {began} by {event.owner}, did not finish; it runs again when it is due"


def format_backlog(backlog: Backlog, unit: str = " tokens left") -> str:
    """Format remaining work: `84.0k tokens left · 3 calls · ~$0.12`; `unit` follows the number."""
    parts = ["paused"] if backlog.paused else []
    parts.append(f"{count_k(backlog.tokens)}{unit}")
    if backlog.calls:
        parts.append(format_count(backlog.calls, "call"))
    if backlog.calls and backlog.cost_usd is not None:
        parts.append(f"~${backlog.cost_usd:.2f}")
    return " · ".join(parts)


RESTS = ("suspended", "paused", "off", "read-only")  # phases in which memory does nothing by itself
# What a forecast may say, in turns: in between the nearest stands, so that it does not move with every turn.
STEPS = (1, 2, 3, 5, 10, 20, 50)


def format_forecast(status: MemoryStatus, turn_tokens: int | None, streaming: int = 0) -> str:
    """Format the next move of memory: `frees 15.4k · in about 2 turns`, or `observes in about 3 turns`.

    Based on the tokens of recent turns and the estimate for the running step; empty if nothing is known or memory does
    nothing by itself.
    """
    if status.backlog is not None or status.retry_at or status.phase in RESTS:
        return ""
    tokens, threshold = status.messages.tokens + streaming, status.messages.threshold
    freed = status.buffered_observations.projected_message_removal if status.buffered_observations.chunks else 0
    if freed:
        frees = f"frees {ABOUT if status.approximate else ''}{count_k(freed)}"
        turns = _describe_turns(threshold - tokens, turn_tokens)
        return f"{frees} · {turns}" if turns else frees
    at = status.next_buffer_at or threshold
    if status.buffered_observations.status == "running" or at <= tokens:
        return ""
    turns = _describe_turns(at - tokens, turn_tokens)
    return f"observes {turns}" if turns else ""


def _describe_turns(tokens: int, turn_tokens: int | None) -> str:
    if tokens <= 0:
        return "at the next step"
    if not turn_tokens:
        return ""
    exact = tokens / turn_tokens
    turns = min(STEPS, key=lambda step: max(exact, 1) / step if exact > step else step / max(exact, 1))
    return f"in about {format_count(turns, 'turn')}"


def describe_ready_observations(status: MemoryStatus, figures: Figures | None) -> str:
    """Format observations that are not in the prompt yet: `5 observations will free 24.6k`; or empty."""
    buffered = status.buffered_observations
    if not buffered.chunks:
        return ""
    count = figures.ready_lines if figures is not None else 0
    about = ABOUT if status.approximate else ""
    lines = format_count(count, "observation") if count else "observations"
    freed = 0 if status.phase in RESTS else buffered.projected_message_removal
    return f"{lines} will free {about}{count_k(freed)}" if freed else f"{lines} ready"


ABOUT = "≈"  # before estimated tokens


def format_gauge(gauge: Gauge, *, about: bool = False) -> str:
    """Format `21.4k of 30k`."""
    return f"{ABOUT if about else ''}{count_k(gauge.tokens)} of {count_k(gauge.threshold).replace('.0k', 'k')}"


def get_sent_gauges(status: MemoryStatus, streaming: int = 0) -> tuple[Gauge, Gauge]:
    """Return the windows of messages and observations as they are sent, with the running step."""
    messages, log = status.messages, status.observations
    return (
        Gauge(messages.tokens - status.unsent + streaming, messages.threshold),
        Gauge(log.tokens - status.unsent_observations, log.threshold),
    )


def describe_unsent(status: MemoryStatus) -> str:
    """Describe the messages that the next request leaves out, and the way out; "" without any."""
    if not status.unsent:
        return ""
    if status.backlog is not None and not status.backlog.paused:
        return f"{count_k(status.unsent)} not sent until observed"
    resume = "/memory resume" if status.phase == "paused" else "/compact"
    return f"{count_k(status.unsent)} not sent: no room. {resume} observes them"


def describe_unsent_observations(status: MemoryStatus) -> str:
    """Describe the observations that the next request leaves out; "" without any."""
    count = status.unsent_observations
    return f"{count_k(count)} not sent: the oldest; search finds them" if count else ""


def format_window(status: MemoryStatus, streaming: int = 0) -> str:
    """Format the message window for a narrow line: `15.4k/30k`, or `6.5k/8k +24.6k not sent`."""
    sign = ABOUT if status.approximate or streaming else ""
    threshold = count_k(status.messages.threshold).replace(".0k", "k")
    unsent = f" +{count_k(status.unsent)} not sent" if status.unsent else ""
    return f"{sign}{count_k(get_sent_gauges(status, streaming)[0].tokens)}/{threshold}{unsent}"


def name_current_work(status: MemoryStatus) -> str:
    """Return the current work of memory in a word; empty when it is idle."""
    if status.buffered_reflection.status == "running":
        return "reflecting"
    if status.buffered_observations.status == "running":
        return "observing"
    words = {"idle": "", "buffering": "observing", "waiting": "observing", "suspended": "paused by undo"}
    return words.get(status.phase, status.phase)


def format_context(tokens: int, window: int | None, *, about: bool = False) -> str:
    """Format the use of a window: `context 24.0k of 200k`; `about`: a part is estimated."""
    of = f" of {count_k(window).replace('.0k', 'k')}" if window else ", limit unknown"
    return f"context {ABOUT if about else ''}{count_k(tokens)}{of}"


def summarize_doubts(figures: Figures) -> str:
    """Summarize the faithfulness guard's doubts about the log in a few words; "" without doubts."""
    dropped, marked = figures.dropped_lines + figures.dropped_paths, figures.marked_lines
    counts = (f"{marked} unverified" if marked else "", f"{dropped} dropped" if dropped else "")
    return " · ".join(x for x in counts if x)


def describe_compaction(done: CompactionFinished) -> list[tuple[str, str]]:
    """Return (name, text) rows about the result of a compaction; no rows without a result."""
    if not done.messages:
        return []
    saved = done.tokens_before - done.tokens_after
    freed = f"{count_k(saved)} freed" if saved > 0 else "none freed: the observations are as long as their messages"
    log = done.tokens_after - done.kept_tokens
    result = f"{format_count(done.lines, 'line')}; the log has {count_k(max(0, log))} tokens now"
    doubtful = (
        f"{format_count(done.doubtful, 'new line')} with unverified claims: filter the observations by ? to see them"
    )
    named_rows = [
        (
            "Removed",
            f"{format_count(done.messages, 'message')}, {count_k(done.gone_tokens)} tokens;"
            " each is kept, /search finds it",
        ),
        (
            "Kept",
            f"{format_count(done.kept, 'message')} word for word, {count_k(done.kept_tokens)} tokens"
            if done.kept
            else "",
        ),
        ("Observations", result),
        ("Pinned", f"{format_count(done.pinned, 'line')}, always kept" if done.pinned else ""),
        ("Doubtful", doubtful if done.doubtful else ""),
        ("Tokens", f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)} in both windows, {freed}"),
        ("Diff", "/compact diff shows the log before and after"),
        ("Undo", "/compact undo restores the messages"),
    ]
    return [(name, text) for name, text in named_rows if text]


def describe_uncompaction(done: CompactionFinished) -> str:
    """Say in a sentence what undoing a compaction did."""
    return (
        f"{format_count(done.messages, 'message')} {'is' if done.messages == 1 else 'are'} in the window again,"
        f" unchanged: {count_k(done.tokens_after)} tokens."
    )


def describe_event(event: MemoryEvent, retry_at: int | None = None) -> str:
    """Say what happened in a few words; `retry_at` (Unix ms) is known of the newest failure alone."""
    sizes_ = f"{count_k(event.tokens_before)} → {count_k(event.tokens_after)}"
    lines = format_count(event.lines, "line")
    match event.kind:
        case "observed" | "activated" if event.text:
            return f"{event.kind} report of {event.text} → {lines}, {count_k(event.tokens_after)}"
        case "observed" | "activated":
            return f"{event.kind} {format_count(event.messages, 'message')} → {lines}, {sizes_}"
        case "reflected":
            return f"reflected {sizes_}"
        case "taken_over":
            return f"generation {event.generation} in use, {sizes_}"
        case "taken_back":
            return f"generation {event.generation} undone"
        case "compacted":
            return f"compacted {format_count(event.messages, 'message')}, {sizes_}"
        case "undone":
            return f"compaction undone, {format_count(event.messages, 'message')} back"
        case "stopped":
            return event.text
        case "failed":
            again = f", again at {datetime.fromtimestamp(retry_at / 1000):%H:%M:%S} at the latest" if retry_at else ""
            return f"{event.text}{again}"


def list_figures(figures: Figures) -> list[tuple[str, str]]:
    """Return (name, text) of every figure that there is."""
    out: list[tuple[str, str]] = []
    if last := figures.observation:
        out.append(
            (
                "Last run",
                f"observation {format_sizes(last.tokens_before, last.tokens_after)} by {last.model or 'unknown'}",
            )
        )
    out += [
        (f"Generation {g.generation}", f"{format_sizes(g.input_tokens, g.tokens)} by {g.model or 'unknown'}")
        for g in figures.generations[-GENERATIONS:]
    ]
    if figures.marked_lines:
        lines = format_count(figures.marked_lines, "line")
        out.append(("Unverified", f"{lines} with {format_count(figures.claims, 'claim')} without a source"))
    if figures.dropped_lines + figures.dropped_paths:
        lost = (
            f"{format_count(figures.dropped_lines, 'important line')} and {format_count(figures.dropped_paths, 'path')}"
        )
        out.append(("Dropped", f"{lost} are not in the reflections; search finds them"))
    return out


def list_spent(spent: Spent) -> list[tuple[str, str]]:
    """Return (name, text) of a thread's tokens and price, as the provider reported them."""
    usage, memory = spent.actor, spent.memory
    cost, search = (usage + memory + spent.search).cost_usd, spent.search
    share = f" ({usage.cached_tokens / usage.input_tokens:.0%} from the cache)" if usage.input_tokens else ""
    observed = f"{memory.input_tokens:,} tokens read, {memory.output_tokens:,} written"
    return [
        ("input", f"{usage.input_tokens:,} tokens{share}"),
        ("output", f"{usage.output_tokens:,} tokens"),
        *([("memory", observed)] if memory.input_tokens else []),
        *([("web search", _describe_search(search))] if search.input_tokens else []),
        ("price", f"${cost:.4f}" if cost is not None else "not known for this model"),
    ]


def _describe_search(usage: Usage) -> str:
    price = f", ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    return f"{usage.input_tokens:,} tokens read, {usage.output_tokens:,} written{price}"


def list_status(status: MemoryStatus, figures: Figures | None) -> list[tuple[str, str]]:
    """Return (name, text) of the windows and the jobs that work at them, without empty ones."""
    buffered, reflection = status.buffered_observations, status.buffered_reflection
    messages, observations = get_sent_gauges(status)
    condensed = f"{count_k(reflection.input_observation_tokens)} → {count_k(reflection.observation_tokens)} tokens"
    buffered_sizes = f"{count_k(buffered.message_tokens)} → {count_k(buffered.observation_tokens)} tokens"
    named_rows = [
        ("Messages", f"{format_gauge(messages, about=status.approximate)} tokens before messages leave it"),
        ("Left out", describe_unsent(status)),
        ("Observations", f"{format_gauge(observations, about=status.approximate)} tokens before a reflection"),
        ("Left out", describe_unsent_observations(status)),
        ("Ready", f"{describe_ready_observations(status, figures)} ({buffered_sizes})" if buffered.chunks else ""),
        ("Observation", "running" if buffered.status == "running" else ""),
        ("Reflection", {"idle": "", "running": "running"}.get(reflection.status, f"ready, {condensed}")),
        ("Backlog", format_backlog(status.backlog) if status.backlog else ""),
        ("Generation", str(status.generation_count) if status.generation_count else ""),
        *(list_figures(figures) if figures is not None else ()),
        ("Observer", f"{status.observer} ({status.reason})" if status.reason else status.observer),
        ("Reflector", status.reflector),
        ("Note", status.note),
    ]
    return [(name, text) for name, text in named_rows if text]
