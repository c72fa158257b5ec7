"""Check a step: when it may wait and when it must, what its request shows, what it started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sakti.memory.engine import Prepared
from sakti.store.connection import Database
from tests.bench import oracle, raw_rows, request_checks
from tests.bench.checker import Checker
from tests.bench.eyes import LONGEST_BACKOFF, WindowView, log_tokens, may_observe, numbers
from tests.bench.invariants import Finding, observable
from tests.bench.oracle import MINUTE, Numbers
from tests.bench.request_checks import Asked
from tests.bench.snapshot import Snapshot

RESTS = ("held", "paused", "catching up", "backing off")  # phases in which a request need not take all that is pending


class StepChecks:
    """Checks of `checker`'s windows, step by step."""

    def __init__(self, checker: Checker) -> None:
        self._all = checker
        self._ledger, self._counter, self._settings = checker.ledger, checker.counter, checker.settings

    # --- before -------------------------------------------------------------------------------------------

    def begins(self, db: Database, window: int, actor: str, prompts: set[str], budget: int | None) -> None:
        """Note the begin of a turn: memory loads others' changes, and activates early where the cache is cold."""
        eye = self._all.eyes[window]
        self._all.look(db, eye.record_id)
        now = self._all.at[eye.record_id]
        eye.since = now.number
        records = {e.record_id for e in self._all.eyes.values()}
        for record in records & self._all.history.keys():
            oldest = min(e.since for e in self._all.eyes.values() if e.record_id == record)
            kept = self._all.history[record]
            self._all.history[record] = [s for s in kept if s.number >= oldest]
        pending = [m for m in self._ledger.after(eye.thread_id, now.cursor(eye.thread_id)) if m.state != "withheld"]
        before = [m for m in pending if m.id not in prompts]
        provider = actor.partition("/")[0]
        after = oracle.idle_after(self._settings, provider)
        idle = self._all.clock.now() - before[-1].created_at if before else 0
        changed = bool(eye.actor) and eye.actor != actor
        surely = (changed and eye.actor.partition("/")[0] != provider) or (after is not None and idle >= after)
        eye.early = changed or after is None or idle >= after
        eye.due_early = ()
        ready = now.ready(eye.thread_id, self._ledger)
        held = self._all.held(eye.record_id, eye.thread_id)
        if surely and ready and not held and not self._others_work(db, eye):
            ends = numbers(eye, self._settings, self._counter)
            count = oracle.boundary([g.message_tokens for g in ready], ends.floor, sum(m.tokens for m in pending))
            eye.due_early = tuple(g.id for g in ready[:count])
        eye.actor, eye.budget = actor, budget

    def step_begins(self, window: int) -> None:
        """Note the begin of a step and the state of memory."""
        eye = self._all.eyes[window]
        now = self._all.at[eye.record_id]
        if eye.due_early:
            if any(now.groups[i].state == "buffered" for i in eye.due_early):
                self._all.find([(5, "nothing entered the log although the prompt cache is cold")])
            eye.due_early = ()
        eye.catching_up |= self._all.may_catch_up(eye, numbers(eye, self._settings, self._counter))
        self._all.drop_selection(eye.record_id, eye.thread_id)
        under_way = eye.engine.observation.running() is not None
        if eye.claimed and not eye.begun and not eye.running() and not under_way:
            self._all.find([(6, "the status said that an observation runs, and none does")])
        eye.ready = tuple(g.id for g in now.ready(eye.thread_id, self._ledger))
        eye.was_running = bool(eye.running(operation="buffering")) or (eye.claimed and under_way)
        eye.claimed = False
        eye.had_reflection = bool(eye.running("reflection")) or bool(now.waiting_reflections())
        eye.begun.clear()
        eye.checked.clear()

    # --- while it waits -----------------------------------------------------------------------------------

    def waits(self, window: int) -> bool:
        """Check 6: a step is blocked until a model of memory answers. True the first time it waits for this."""
        eye = self._all.eyes[window]
        operations = {*eye.running(), *eye.running("reflection")}
        if not operations - eye.checked:
            return False
        eye.checked |= operations
        self._all.find(self._may_wait(eye))
        return True

    def _may_wait(self, eye: WindowView) -> Iterator[Finding]:
        now = self._all.at[eye.record_id]
        preview = eye.engine.preview()
        ends, size = numbers(eye, self._settings, self._counter, preview), log_tokens(preview, self._counter)
        pending = now.pending(eye.thread_id, self._ledger)
        ready = now.ready(eye.thread_id, self._ledger)
        nothing = not ready and not eye.running(operation="buffering")
        above = pending > ends.block_after or (pending >= ends.threshold and nothing)
        log_above = size > ends.reflect_block_after or (size >= ends.reflect_at and not eye.had_reflection)
        if not (above and eye.running()) and not (log_above and eye.running("reflection")):
            yield (
                6,
                f"a step waits at {pending} pending tokens (threshold {ends.threshold}, wait above {ends.block_after})"
                f" and {size} observed ones ({ends.reflect_at}, {ends.reflect_block_after})",
            )

    # --- after it -----------------------------------------------------------------------------------------

    def request(self, db: Database, window: int, prepared: Prepared, prompts: set[str]) -> None:
        """Check 1, 4, 5, 7 and 12: what one request shows."""
        eye = self._all.eyes[window]
        now = self._all.at[eye.record_id]
        ends, size = numbers(eye, self._settings, self._counter, prepared), log_tokens(prepared, self._counter)
        pending = now.pending(eye.thread_id, self._ledger)
        paused = eye.record_id in self._all.paused
        if self._all.may_catch_up(eye, ends):
            eye.catching_up = True
        behind = eye.catching_up or paused  # as the step began
        eye.catching_up = behind and pending > ends.block_after
        resting = behind or prepared.status.phase in RESTS
        rooms = [r for r in (oracle.BACKLOG * ends.block_after if resting else None, eye.room) if r is not None]
        asked = Asked(eye.thread_id, prompts, eye.budget, min(rooms, default=None), ends, size)
        since = [s for s in self._all.history.get(eye.record_id, ()) if s.number >= eye.since] or [now]
        found: list[Finding] = []
        for shown in reversed(since):
            new = [
                *request_checks.check(prepared, shown, self._ledger, asked),
                *request_checks.status(prepared, shown, self._ledger, asked),
            ]
            found = found or new
            if not new:
                found = []
                self._all.sizes.learn(shown, prepared)
                break
        self._all.find(found)
        self._all.find(request_checks.foreign(prepared, self._all.forbidden))
        for block in prepared.blocks:
            if block.tokens != self._counter.count(block.text):
                self._all.find([(4, f"a block of {block.kind} counts {block.tokens} tokens, not what it has")])
        if not found:
            excused = "catching up" if behind else self._excused(db, eye)
            self._all.find(self._after(excused, eye, now, prepared, ends, pending))
        if eye.answered and not eye.running():
            if not eye.stopped:
                thread, first, last = eye.answered[0]
                self._all.find([(2, f"the finished observation of {thread} {first}–{last} is nowhere")])
            eye.answered.clear()

    def _after(
        self, excused: str, eye: WindowView, now: Snapshot, prepared: Prepared, ends: Numbers, pending: int
    ) -> Iterator[Finding]:
        """Check 5 and 6: a step that continues with much pending may do so, and says why."""
        ready = [g.id for g in now.ready(eye.thread_id, self._ledger)]
        # an observation that was just begun is announced when it has the record to itself
        said = prepared.status.buffered_observations.status == "running"
        eye.claimed = said and eye.engine.observation.running() not in (None, eye.told)
        running = said or bool(eye.running())
        if pending >= ends.threshold:
            if left := [i for i in eye.ready if i in ready]:
                if not excused:
                    yield 5, f"{len(left)} groups could have entered the log at {pending} of {ends.threshold} tokens"
            elif not ready and not running:
                if not prepared.status.note:
                    yield 5, f"{pending} of {ends.threshold} tokens are pending, and the status does not say why"
                if not excused and may_observe(now, eye.thread_id, self._ledger):
                    yield 6, f"a step did not wait at {pending} of {ends.threshold} tokens with nothing under way"
        if pending > ends.block_after and not excused:
            if running:
                yield 6, f"a step did not wait at {pending} tokens, above {ends.block_after}, for what is under way"
            elif not ready and may_observe(now, eye.thread_id, self._ledger):
                yield 6, f"a step did not wait at {pending} tokens, above {ends.block_after}"
        yield from self._background(eye, now, prepared, ends, excused)

    def _background(
        self, eye: WindowView, now: Snapshot, prepared: Prepared, ends: Numbers, excused: str
    ) -> Iterator[Finding]:
        """Check 2.4: an interval's worth of observable messages is observed."""
        said = prepared.status.buffered_observations.status == "running"
        begun = eye.was_running or said or eye.running() or any(o.operation_type == "observation" for o in eye.begun)
        if ends.interval is None or excused or begun:
            return
        found = oracle.complete(now.uncovered(eye.thread_id, self._ledger))
        newest = self._ledger.newest(eye.thread_id)
        while found and found[-1].role == "user" and found[-1].index == newest:
            found.pop()
        tokens = sum(m.tokens for m in found)
        if tokens >= ends.interval and any(map(observable, found)):
            yield 6, f"{tokens} tokens, an interval of {ends.interval}, could be observed in the background and are not"

    def _excused(self, db: Database, eye: WindowView) -> Literal["", "undone", "failed", "others"]:
        """Return why memory may leave undone what it could have done."""
        if self._all.held(eye.record_id, eye.thread_id):
            return "undone"
        if eye.failures:
            waited = self._all.clock.now() - eye.failed_at
            if waited < LONGEST_BACKOFF * MINUTE or any(o.operation_type == "observation" for o in eye.begun):
                return "failed"
        return "others" if self._others_work(db, eye) else ""

    def _others_work(self, db: Database, eye: WindowView) -> bool:
        """Return whether another window, or an ended one, holds a lease of this record."""
        mine = f"-{eye.number}-"
        held = raw_rows.under_way(db, eye.record_id, self._all.clock.now())
        return any(mine not in owner for owner in held.values())
