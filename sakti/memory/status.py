"""The windows in numbers: the same ones as in the request."""

from __future__ import annotations

from sakti.core.events import BufferedObservations, BufferedReflection, Gauge, MemoryStatus
from sakti.memory import policy
from sakti.memory.flow import Flow


def status(flow: Flow, step: int, observer: str, reflector: str, *, approximate: bool) -> MemoryStatus:
    window, numbers = flow.window, flow.numbers()
    ready = window.ready()
    chunks = [g.message_tokens for g in ready]
    running = flow.running() is not None
    reflecting = flow.reflecting.running() is not None
    reflection = window.reflection
    merged = set(reflection.merged_group_ids) if reflection else set[str]()
    return MemoryStatus(
        window.record.id, window.thread.id, step, window.record.generation_count,
        Gauge(window.pending, numbers.threshold), Gauge(flow.observation_tokens(), numbers.reflect_at),
        BufferedObservations(
            len(ready), sum(chunks),
            policy.calculate_projected_message_removal(
                chunks, numbers.activation, numbers.threshold, window.pending),
            sum(g.observation_tokens for g in ready),
            "running" if running else "complete" if ready else "idle",
        ),
        BufferedReflection(
            sum(g.observation_tokens for g in window.active if g.id in merged),
            reflection.observation_tokens if reflection else 0,
            "running" if reflecting else "complete" if reflection else "idle",
        ),
        observer, reflector, approximate,
        next_boundary(window.pending, flow.buffered_at, numbers), flow.note or numbers.why,
    )


def next_boundary(pending: int, last: int, numbers: policy.Numbers) -> int | None:
    """Pending tokens at which the next background observation begins."""
    if numbers.buffer is None:
        return None
    step = numbers.buffer / 2 if pending >= numbers.threshold - numbers.buffer * 1.1 else numbers.buffer
    last = 0 if last > pending else last
    return int((max(last, 0) // step + 1) * step)
