"""Track what the checker knows of one window, from events, requests and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct, field

from sakti.core.config import MemorySettings
from sakti.core.events import MemoryOperation, MemoryStatus
from sakti.core.tokens import Counter
from sakti.memory.engine import MemoryEngine, Prepared
from tests.bench import oracle, request_checks
from tests.bench.oracle import Numbers
from tests.bench.snapshot import GroupRow, Ledger, Snapshot

LONGEST_BACKOFF = 8  # minutes, and intervals, after which what failed must have been tried again


class WindowView(Struct):
    """Knowledge about a window.

    `since`: the number of the first snapshot whose log its requests must show. `ready` and `was_running` as the step
    found them; `claimed`: the status reported a running observation before any event of it; `told`: the last
    observation with an event; `asked`: the memory when its Observer was last asked; `answered`: answers of its
    Observer that are not stored yet; `room`: the limit of a request since one was too long.
    """

    number: int
    engine: MemoryEngine
    thread_id: str
    record_id: str
    budget: int | None
    actor: str = ""
    catching_up: bool = False
    since: int = 0
    early: bool = False
    due_early: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    was_running: bool = False
    had_reflection: bool = False
    claimed: bool = False
    told: asyncio.Task[bool] | None = None
    operations: dict[str, MemoryOperation] = field(default_factory=dict[str, MemoryOperation])
    begun: list[MemoryOperation] = field(default_factory=list[MemoryOperation])
    checked: set[str] = field(default_factory=set[str])
    failures: int = 0
    failed_at: int = 0
    failed_pending: int = 0
    room: int | None = None
    stopped: bool = False
    asked: Snapshot | None = None
    answered: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    status: MemoryStatus | None = None
    removed: tuple[int, int] | None = None

    def running(self, type_: str = "observation", operation: str = "") -> list[str]:
        """Return the running operations, by type and purpose."""
        return [
            c
            for c, o in self.operations.items()
            if o.operation_type == type_ and (not operation or o.operation == operation)
        ]


def log_tokens(prepared: Prepared, counter: Counter) -> int:
    """Return the tokens of the log in a request."""
    return sum(counter.count(b.text) for b in request_checks.log_blocks(prepared))


def numbers(eye: WindowView, settings: MemorySettings, counter: Counter, prepared: Prepared | None = None) -> Numbers:
    """Return the thresholds in force in a window, at the size of the log in its request or now."""
    tokens = log_tokens(prepared or eye.engine.preview(), counter)
    return oracle.numbers(settings, tokens, eye.budget)


def may_observe(now: Snapshot, thread_id: str, ledger: Ledger) -> bool:
    """Return whether something could be observed: more than the last exchange, which always stays."""
    return len(oracle.exchanges(now.uncovered(thread_id, ledger))) >= 2


class Sizes:
    """Tokens of groups in a request: as seen there, else between two bounds."""

    SLACK = 24  # what the distance of a date, and a gap before it, may add
    FRAME = 60  # what a tag and dates add at most

    def __init__(self, counter: Counter, ledger: Ledger) -> None:
        self._counter, self._ledger = counter, ledger
        self._seen: dict[tuple[str, int], int] = {}

    def learn(self, now: Snapshot, prepared: Prepared) -> None:
        groups = [g for g in now.active if now.shown(g)]
        blocks = request_checks.log_blocks(prepared)
        if len(groups) == len(blocks):
            self._seen |= {
                (g.id, len("".join(now.shown(g)))): self._counter.count(b.text)
                for g, b in zip(groups, blocks, strict=True)
            }

    def bounds(self, now: Snapshot, entering: Sequence[GroupRow] = ()) -> tuple[int, int]:
        """Return the tokens of the log with the groups that are `entering` it, at least and at most."""
        low = high = 0
        for group in (*now.active, *entering):
            text = "".join(now.shown(group))
            if not text:
                continue
            seen = self._seen.get((group.id, len(text)))
            if seen is not None:
                low, high = low + seen - self.SLACK, high + seen + self.SLACK
            else:
                bare, whole = self._counter.count(text), self._counter.count(group.text)
                low, high = low + bare - len(now.shown(group)), high + max(bare, whole) + self.FRAME
        return max(0, low), high
