"""Watch every commit of every window, and every question to memory's models, and report violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, structs

from sakti.core.config import MemorySettings
from sakti.core.events import Event, MemoryActivation, MemoryOperation, MemoryStatus
from sakti.core.types import Message, TextPart, ToolResultPart
from sakti.memory.engine import MemoryEngine
from sakti.memory.protocol import ObserveInput, ReflectInput
from sakti.store.connection import Database
from tests.bench import invariants, oracle, raw_rows, shared_checks, snapshot
from tests.bench.bench_store import ACT, Act, BenchClock, KnownCounter
from tests.bench.corrections import Corrections
from tests.bench.eyes import Sizes, WindowView, numbers
from tests.bench.invariants import Undo
from tests.bench.raw_rows import GroupRow
from tests.bench.shared_checks import Answer, Finding
from tests.bench.snapshot import Ledger, Snapshot

OF_A_TURN = ("begin", "step", "end")  # acts that nobody asked for by hand
KEPT = 60  # answers of Reflectors that are remembered


class Hold(Struct, frozen=True):
    """Wait after an undo: no automatic observation below `least` pending tokens, none required below `most`."""

    least: int
    most: int
    act: Act


class Checker:
    """Checker of a replay.

    `find` takes findings. `at` holds the newest snapshot of a record, `history` all of this turn's.
    """

    def __init__(
        self,
        settings: MemorySettings,
        ledger: Ledger,
        counter: KnownCounter,
        clock: BenchClock,
        find: Callable[[Iterable[Finding]], None],
    ) -> None:
        self.settings, self.ledger, self.counter, self.clock, self.find = settings, ledger, counter, clock, find
        self.at: dict[str, Snapshot] = {}
        self.history: dict[str, list[Snapshot]] = {}
        self.eyes: dict[int, WindowView] = {}
        self.corrections = Corrections()
        self.sizes = Sizes(counter, ledger)
        self.forbidden: dict[str, str] = {}
        self.own_texts: dict[str, str] = {}
        self.paused: dict[str, int] = {}  # since which act a record is
        self.makers: dict[str, str] = {}  # the act that each group was made for
        self.fault: Exception | None = None
        self._answers: list[Answer] = []
        self._made: dict[int, tuple[set[str], set[str]]] = {}  # by act: groups made, and put into the log
        self._compactions: dict[str, Undo] = {}
        self._holds: dict[tuple[str, str], Hold] = {}
        self._condensed_from: dict[str, int] = {}
        self._known: dict[str, set[Finding]] = {}

    # --- commits ------------------------------------------------------------------------------------------

    def committed(self, db: Database, act: Act) -> None:
        """Check the state after a transaction of an action."""
        try:
            for record_id in list(self.at):
                self.look(db, record_id, act)
        except Exception as e:  # memory would take it for a failure of the disk: the player raises it
            self.fault = self.fault or e

    def look(self, db: Database, record_id: str, act: Act | None = None) -> None:
        """Take a snapshot of a memory, and check the changes since the last one."""
        before = self.at.get(record_id)
        by_hand = act is None or act.name not in OF_A_TURN
        after = snapshot.take(db, record_id, before, window=act.window if act else None, whole=by_hand)
        if after is None or after is before:
            return
        self.at[record_id] = after
        self.history.setdefault(record_id, []).append(after)
        if before is not None:
            act = act or Act(-1, "", -1)
            if after.log != before.log and act.window in self.eyes:
                self.eyes[act.window].since = after.number
            self.find(self._commit(db, record_id, before, after, act))
        wrong = {
            *invariants.coverage(after, self.ledger),
            *invariants.stale_inputs(after),
            *invariants.figures(after),
        }
        self.find(sorted(wrong - self._known.get(record_id, set())))  # what stays wrong is told once
        self._known[record_id] = wrong

    def at_the_end(self, db: Database, record_id: str) -> None:
        """Check everything once more, and what search knows of it."""
        self.look(db, record_id)
        self.find(invariants.searchable(self.at[record_id], raw_rows.searched(db, record_id), self.ledger))

    def _commit(self, db: Database, record_id: str, before: Snapshot, after: Snapshot, act: Act) -> Iterator[Finding]:
        undo = self._undo(record_id, before, after, act)
        yield from invariants.moves(before, after, undo)
        yield from self.corrections.check(act.window, act.name, before, after)
        new = [g for i, g in after.groups.items() if i not in before.groups]
        entered = [g for g in after.groups.values() if g.state == "active" and _state(before, g) == "buffered"]
        observed = [g for g in new if g.kind == "observation"]
        self.makers |= {g.id: act.name for g in new}
        for group in observed:
            eye = self.eyes.get(act.window)
            yield from invariants.observation(group, before, after, self.ledger, eye.asked if eye else None)
            yield from self._sealed(db, group)
            self._stored(act.window, group)
        for group in new:
            if group.kind == "reflection":
                yield from invariants.reflection(group, after, self.ledger, self._answers, self.counter.count)
                yield from self._condensed_again(record_id, before, act)
        self._own(act, observed, [g for g in entered if g.kind == "observation"], before, after)
        if not (undo.made or undo.ready or undo.reflection):
            yield from self._entered(before, entered, act)
            yield from self._held(record_id, before, [*observed, *entered], act)

    def _undo(self, record_id: str, before: Snapshot, after: Snapshot, act: Act) -> Undo:
        """Return what this commit undoes."""
        if act.name == "unreflect":
            self._condensed_from[record_id] = _stored_tokens(after)
            return Undo(reflection=True)
        gone = [i for i in before.compactions if i not in after.compactions]
        if act.name != "uncompact" or not gone:
            return invariants.NOTHING
        undo = self._compactions.get(gone[-1], invariants.NOTHING)
        self._hold(act, record_id, undo.thread_id, after)
        return undo

    def _own(
        self, act: Act, observed: list[GroupRow], entered: list[GroupRow], before: Snapshot, after: Snapshot
    ) -> None:
        """Note the groups that each compaction made."""
        if act.name != "compact":
            return
        made, ready = self._made.setdefault(act.number, (set(), set()))
        made |= {g.id for g in observed}
        ready |= {g.id for g in entered}
        for new in after.compactions:
            if new not in before.compactions:
                thread = self.eyes[act.window].thread_id
                self._compactions[new] = Undo(frozenset(made - ready), frozenset(ready), thread)

    def _sealed(self, db: Database, group: GroupRow) -> Iterator[Finding]:
        if group.first_index is None or group.last_index is None:
            return
        if not self.ledger.knows(group.thread_id, group.first_index):
            return
        if loose := raw_rows.unsealed(db, group.thread_id, group.first_index, group.last_index):
            yield 2, f"messages {loose[:6]} were observed and may still change: they are not sealed"

    def _entered(self, before: Snapshot, entered: list[GroupRow], act: Act) -> Iterator[Finding]:
        """Check 4 and 5: groups activated automatically are due, and as large as projected."""
        for group in entered:
            if group.kind == "reflection" and act.name in OF_A_TURN:
                _, most = self.sizes.bounds(before, [g for g in entered if g.kind == "observation"])
                if most < self.settings.reflection.observation_tokens and self._budget(act) is None:
                    yield 8, f"a reflection entered the log at {most} observed tokens, before its time"
        groups = sorted((g for g in entered if g.kind == "observation"), key=lambda g: g.first_index or 0)
        if not groups:
            return
        thread = groups[0].thread_id
        ready = before.ready(thread, self.ledger)
        if [g.id for g in ready[: len(groups)]] != [g.id for g in groups]:
            yield 2, f"groups of {thread} entered the log out of order"
            return
        if act.name not in OF_A_TURN:
            return
        eye, pending = self.eyes[act.window], before.pending(thread, self.ledger)
        bounds = self.sizes.bounds(before)
        some = [oracle.numbers(self.settings, size, eye.budget) for size in bounds]
        if act.name == "step" and pending < min(n.threshold for n in some):
            yield 5, f"observations entered the log at {pending} pending tokens, before their time"
        if act.name == "begin" and not eye.early:
            yield 5, "observations entered the log before the threshold, with the cache warm"
        sizes = [g.message_tokens for g in ready]
        if len(groups) not in {oracle.boundary(sizes, n.floor, pending) for n in some}:
            due = oracle.boundary(sizes, some[0].floor, pending)
            yield 4, f"{len(groups)} groups entered the log, {due} should have"

    def _budget(self, act: Act) -> int | None:
        return self.eyes[act.window].budget if act.window in self.eyes else None

    # --- what waits after an undo ---------------------------------------------------------------------------

    def _hold(self, act: Act, record_id: str, thread_id: str, now: Snapshot) -> None:
        """Note that a compaction was undone: nothing is observed automatically until one more interval is pending."""
        some = [oracle.numbers(self.settings, 0, budget) for budget in (None, self.eyes[act.window].budget)]
        pending = now.pending(thread_id, self.ledger)
        least = pending + min(n.interval or 0 for n in some)
        self._holds[record_id, thread_id] = Hold(least, pending + max(n.interval or n.threshold for n in some), act)

    def _held(self, record_id: str, before: Snapshot, groups: list[GroupRow], act: Act) -> Iterator[Finding]:
        for group in groups:
            hold = self._holds.get((record_id, group.thread_id))
            pending = before.pending(group.thread_id, self.ledger)
            if hold is None or act.name not in OF_A_TURN or act.number < hold.act.number or pending >= hold.least:
                continue
            if group.kind == "observation":
                yield invariants.observed_by_itself(group, hold.least, pending)
        for group in groups:  # what enters the log ends the wait
            if group.kind == "observation" and group.state == "active":
                self._holds.pop((record_id, group.thread_id), None)

    def held(self, record_id: str, thread_id: str) -> bool:
        """Return whether so little is pending that a window may hold; one that has seen more before need not."""
        hold = self._holds.get((record_id, thread_id))
        return hold is not None and self.at[record_id].pending(thread_id, self.ledger) < hold.most

    def drop_selection(self, record_id: str, thread_id: str) -> None:
        """End the wait after an undo if a step finds enough pending."""
        hold = self._holds.get((record_id, thread_id))
        if hold is not None and self.at[record_id].pending(thread_id, self.ledger) >= hold.least:
            # memory may observe now, and what it does lowers what is pending
            self._holds[record_id, thread_id] = structs.replace(hold, least=0)

    def _condensed_again(self, record_id: str, before: Snapshot, act: Act) -> Iterator[Finding]:
        """Check 11: nothing is condensed automatically right after a reflection was undone."""
        least = self._condensed_from.get(record_id)
        if least is None:
            return
        if act.name in OF_A_TURN and _stored_tokens(before) <= least:
            yield 11, "the log was condensed again right after a reflection was taken back"
        del self._condensed_from[record_id]

    # --- windows --------------------------------------------------------------------------------------------

    def opened(self, db: Database, window: int, engine: MemoryEngine, thread_id: str) -> None:
        """Note that a window shows a thread."""
        self.look(db, engine.record_id)
        eye = WindowView(window, engine, thread_id, engine.record_id, None)
        self.eyes[window] = eye
        now = self.at[eye.record_id]
        eye.since = now.number
        eye.actor = str(now.record.metadata.get("actor") or "")
        block = numbers(eye, self.settings, self.counter).block_after
        eye.catching_up = now.pending(thread_id, self.ledger) > oracle.BACKLOG * block

    def forget(self, record_id: str) -> None:
        """Drop the history of a memory; the next look begins anew."""
        self.at.pop(record_id, None)
        self.history.pop(record_id, None)

    def closed(self, window: int) -> None:
        """Drop what a closed window had not stored."""
        self.eyes[window].answered.clear()
        self.eyes[window].operations.clear()

    def forbid(self, word: str, what: str) -> None:
        """Forbid a word in questions to an Observer, and in blocks of a request."""
        self.forbidden[word] = what

    def allow(self, word: str) -> None:
        self.forbidden.pop(word, None)

    def happened(self, window: int, event: Event) -> None:
        eye, act = self.eyes.get(window), ACT.get()
        if eye is None:
            return
        if act is not None and act.name not in OF_A_TURN:
            eye.status = eye.removed = None
        match event:
            case MemoryOperation():
                self._operation(eye, event)
            case MemoryStatus():
                if eye.removed is not None and event.messages.tokens != eye.removed[0] - eye.removed[1]:
                    before, by = eye.removed
                    self.find([(4, f"pending fell from {before} to {event.messages.tokens}, not by {by}")])
                eye.removed, eye.status = None, event
            case MemoryActivation(operation_type="observation") if act is None or act.name in OF_A_TURN:
                shown = eye.status.buffered_observations.projected_message_removal if eye.status else None
                if event.tokens_activated != shown:
                    self.find([(4, f"{shown} tokens were projected, {event.tokens_activated} were removed")])
                if eye.status is not None:
                    eye.removed = eye.status.messages.tokens, event.tokens_activated
            case _:
                pass

    def _operation(self, eye: WindowView, event: MemoryOperation) -> None:
        if event.operation_type == "observation":
            eye.claimed, eye.told = False, eye.engine.observation.task
        if event.kind != "start":
            eye.operations.pop(event.cycle_id, None)
            if event.operation_type == "observation":
                self._ended(eye, event)
            return
        eye.operations[event.cycle_id] = event
        eye.begun.append(event)
        act = ACT.get()
        since = self.paused.get(eye.record_id)
        if act is not None and act.name in OF_A_TURN and since is not None and act.number > since:
            self.find([(6, f"{event.operation} of {event.operation_type}s began although memory is paused")])
        if (event.operation, event.operation_type) == ("buffering", "observation"):
            behind = eye.catching_up or self.may_catch_up(eye, numbers(eye, self.settings, self.counter))
            if self.settings.observation.buffer_tokens is False and not behind:
                self.find([(6, "an observation began in the background, which the settings forbid")])

    def may_catch_up(self, eye: WindowView, ends: oracle.Numbers) -> bool:
        """Return whether so much is pending that failed or held work is done in the background."""
        held = (eye.record_id, eye.thread_id) in self._holds
        pending = self.at[eye.record_id].pending(eye.thread_id, self.ledger)
        return bool(eye.failures or held) and pending > oracle.BACKLOG * ends.block_after

    def _ended(self, eye: WindowView, event: MemoryOperation) -> None:
        if event.kind == "end":
            eye.failures = 0
            return
        eye.failures += 1
        eye.failed_at = self.clock.now()
        eye.failed_pending = self.at[eye.record_id].pending(eye.thread_id, self.ledger)

    # --- memory's models ------------------------------------------------------------------------------------

    def asked(self, window: int, request: ObserveInput, prompt: str) -> None:
        """Check 3 and 12: an Observer gets unobserved messages, the log before them, and nothing of our own."""
        eye = self.eyes[window]
        now = eye.asked = self.at[eye.record_id]
        first, last = request.messages[0].index, request.messages[-1].index
        said = {m.id: m for m in self.ledger.between(eye.thread_id, first, last)}
        for message in request.messages:
            known = said.get(message.id)
            if known is None or known.parts != message.parts or not invariants.observable(known):
                self.find([(12, f"the Observer was given message {message.index}, which is not the conversation's")])
            elif lacking := [w for w in _beginnings(message) if w not in prompt]:
                self.find([(1, f"the Observer's question has no word of message {message.index}: {lacking[0][:40]!r}")])
        for name in {self.forbidden[w] for w in oracle.words(prompt, self.forbidden)}:
            self.find([(12, f"the Observer was given {name}")])
        for name, text in self.own_texts.items():
            if text in prompt:
                self.find([(12, f"the Observer was given {name}")])
        done = [g for g in now.groups.values() if g.kind == "observation" and g.state != "discarded"]
        if any(
            g.thread_id == eye.thread_id and (g.first_index or 0) <= last and (g.last_index or 0) >= first for g in done
        ):
            self.find([(3, f"the Observer was asked about {first}–{last}, which are observed")])
        self.find(self._log_before(eye, request, prompt, first))

    def _log_before(self, eye: WindowView, request: ObserveInput, prompt: str, first: int) -> Iterator[Finding]:
        shown = oracle.words(request.log, self.ledger.words)
        since = [s for s in self.history.get(eye.record_id, ()) if s.number >= eye.since] or [self.at[eye.record_id]]

        waiting = [g for g in self.at[eye.record_id].buffered(eye.thread_id) if (g.last_index or 0) < first]

        def due(now: Snapshot) -> list[str]:
            groups = {g.id: g for g in (*now.active, *waiting)}  # its own work a window knows, others' from its turn on
            return [w for g in groups.values() for w in shared_checks.own_words(g, now, self.ledger, eye.thread_id)]

        if not any(sorted(shown) == sorted(due(s)) for s in reversed(since)):
            yield 3, f"the Observer of {first} was shown {len(shown)} lines of the log, there are {len(due(since[-1]))}"
        size = sum(m.tokens for m in request.messages)
        limit = min(self.settings.observation.previous_observer_tokens, int(size * oracle.TAIL_SHARE))
        newest = request.log.rstrip().rpartition("\n")[2]
        if shown and self.counter.count(newest) + 1 <= limit and newest not in prompt:
            yield 3, "the Observer was not shown the end of the log"

    def answered(self, window: int, request: ObserveInput) -> None:
        """Note that an Observer has answered: its observations must be stored."""
        self.eyes[window].answered.append((request.thread_id, request.messages[0].index, request.messages[-1].index))

    def _stored(self, window: int, group: GroupRow) -> None:
        eye = self.eyes.get(window)
        if eye is not None:
            first, last = group.first_index or 0, group.last_index or 0
            eye.answered = [(t, a, b) for t, a, b in eye.answered if t != group.thread_id or a < first or b > last]

    def condensed(self, request: ReflectInput, text: str) -> None:
        """Note a Reflector's answer."""
        self._answers = [*self._answers, Answer(dict(request.groups), text)][-KEPT:]


def _state(before: Snapshot, group: GroupRow) -> str:
    return before.groups[group.id].state if group.id in before.groups else ""


def _stored_tokens(now: Snapshot) -> int:
    return sum(g.observation_tokens for g in now.active)


def _beginnings(message: Message) -> list[str]:
    """Return the beginnings of a message's texts."""
    texts = [
        p.text if isinstance(p, TextPart) else p.content
        for p in message.parts
        if isinstance(p, TextPart | ToolResultPart)
    ]
    return [t.strip().split("\n")[0][:40].strip() for t in texts]
