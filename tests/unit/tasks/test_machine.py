"""Whatever is done, by two sessions, with crashes in between: the board is what a plain model says."""

from __future__ import annotations

import asyncio
import copy
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sakti.core.clock import TimeIds
from sakti.core.errors import TaskError
from sakti.store.database import Store
from sakti.store.tasks import graph
from sakti.store.tasks.deadlocks import find_deadlocks
from sakti.tasks import queries, service
from sakti.tasks.service import Actor
from tests.fakes.clock import FakeClock

MADE, LATER = "abcde", "fg"  # tasks that there are from the start, and others that are made on the way
name = st.sampled_from(MADE + LATER)
session = st.sampled_from(["s1", "s2"])
kind = st.sampled_from(["blocks", "blocks", "parent-child", "related"])


@dataclass
class Fact:
    order: int
    status: str = "open"
    priority: int = 2
    holder: str | None = None
    until: int = 0
    deleted: bool = False
    labels: tuple[str, ...] = ()
    epic: bool = False


@dataclass
class Model:
    """What a board is, told in the plainest way. Raises KeyError(code) for what is refused."""

    tasks: dict[str, Fact] = field(default_factory=dict)
    edges: set[tuple[str, str, str]] = field(default_factory=set)
    past: list[Callable[[], Any]] = field(default_factory=list)  # how to take back each change

    def task(self, t: str) -> Fact:
        if t not in self.tasks or self.tasks[t].deleted:
            raise KeyError("not_found")
        return self.tasks[t]

    def live(self, t: str) -> bool:
        return not self.tasks[t].deleted and self.tasks[t].status != "closed"

    def targets(self, t: str, *kinds: str) -> list[str]:
        return [b for a, b, k in self.edges if a == t and k in kinds and not self.tasks[b].deleted]

    def children(self, t: str) -> list[str]:
        return [a for a, b, k in self.edges if b == t and k == "parent-child" and self.live(a)]

    def held(self, t: str) -> bool:
        own = any(self.live(b) for b in self.targets(t, "blocks"))
        return own or any(self.held(p) for p in self.targets(t, "parent-child"))

    def waits(self, moment: tuple[str, bool]) -> list[tuple[str, bool]]:
        """What the begin (False) or the end (True) of a task comes after."""
        t, is_end = moment
        if is_end:
            parts = [a for a, b, k in self.edges if b == t and k == "parent-child" and not self.tasks[a].deleted]
            return [(t, False), *((c, True) for c in parts)]
        return [(b, True) for b in self.targets(t, "blocks")] + [(p, False) for p in self.targets(t, "parent-child")]

    def stuck(self) -> bool:
        """Whether something has to come before itself."""
        for start in self.edges and [(t, e) for t, f in self.tasks.items() if not f.deleted for e in (False, True)]:
            seen, todo = set(), self.waits(start)
            while todo:
                at = todo.pop()
                if at == start:
                    return True
                if at not in seen:
                    seen.add(at)
                    todo += self.waits(at)
        return False

    def connect(self, t: str, on: str, k: str) -> bool:
        """Add an edge; False where it is there. Raises KeyError(code)."""
        if t == on:
            raise KeyError("cycle")
        if (t, on, k) in self.edges:
            return False
        self.edges.add((t, on, k))
        if self.stuck():
            self.edges.remove((t, on, k))
            raise KeyError("cycle")
        if k == "parent-child" and self.tasks[t].epic and not self.tasks[on].epic:
            self.edges.remove((t, on, k))
            raise KeyError("bad_parent")
        if k == "parent-child" and self.tasks[on].epic and not self.live(on) and self.live(t):
            self.edges.remove((t, on, k))
            raise KeyError("closed")
        return True

    def parts(self, t: str) -> set[str]:
        """The open tasks that are a part of it, directly or through others."""
        children = self.children(t)
        return {*children, *(p for c in children for p in self.parts(c))}

    def is_open_under_closed(self) -> bool:
        """Whether a closed epic has an open child."""
        return any(
            f.epic and f.status == "closed" and not f.deleted and self.children(t) for t, f in self.tasks.items()
        )

    def refuse_held(self, t: str, session: str, now: int) -> None:
        fact = self.tasks[t]
        if fact.status == "in_progress" and fact.holder != session and fact.until >= now:
            raise KeyError("already_claimed")

    def ready(self) -> list[str]:
        found = [
            t for t, f in self.tasks.items()
            if not f.deleted and f.status == "open" and not self.held(t) and not self.children(t)
        ]  # fmt: skip
        return sorted(found, key=lambda t: (self.urgency(t), self.tasks[t].order))

    def blockers(self, t: str) -> set[str]:
        above = [b for p in self.targets(t, "parent-child") for b in self.blockers(p)]
        return {b for b in (*self.targets(t, "blocks"), *above) if self.live(b)}

    def urgency(self, t: str) -> int:
        """The most urgent priority among a task and those that wait for it."""
        waiting = [w for w in self.tasks if self.live(w) and t in {*self.blockers(w), *self.children(w)}]
        return min([self.tasks[t].priority, *map(self.urgency, waiting)])

    def change(self, t: str, **values: Any) -> None:
        """Only what it changes is taken back."""
        before = {k: getattr(self.tasks[t], k) for k, v in values.items() if getattr(self.tasks[t], k) != v}
        self.tasks[t] = replace(self.tasks[t], **values)
        if before:
            self.past.append(lambda: self.tasks.update({t: replace(self.tasks[t], **before)}))


@settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
class Board(RuleBasedStateMachine):
    @initialize(epics=st.sets(st.sampled_from(MADE), max_size=2))
    def begin(self, epics: set[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sakti-machine-"))
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.model = Model()
        self.copies = 0
        self.store = self.do(self.open(self.folder / "0.db"))
        for t in MADE:
            self.create(t, 2, [], None, t in epics)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def open(self, path: Path) -> Store:
        return await Store.open(path, clock=self.clock, ids=TimeIds(self.clock), synchronous="NORMAL")

    def actor(self, session: str = "s1") -> Actor:
        return Actor("/w", session, self.clock.now())

    def both(self, real: Callable[[Any], Any], model: Callable[[], Any]) -> None:
        """Do it to both: the same comes out, or the same refusal and nothing has changed."""
        self.clock.advance(1)
        kept = copy.deepcopy((self.model.tasks, self.model.edges)), len(self.model.past)
        try:
            model()
            expected = ""
        except KeyError as e:
            expected = str(e.args[0])
            assert (self.model.tasks, self.model.edges) == kept[0]
            assert len(self.model.past) == kept[1]
        try:
            self.do(self.store.write(real))
            got = ""
        except TaskError as e:
            got = e.code
        assert got == expected

    @rule(
        t=st.sampled_from(LATER), priority=st.integers(0, 4), on=st.lists(name, max_size=2, unique=True),
        parent=st.none() | name, epic=st.booleans(),
    )  # fmt: skip
    def create(self, t: str, priority: int, on: list[str], parent: str | None, epic: bool) -> None:
        if t in self.model.tasks:
            return

        def model() -> None:
            self.model.tasks[t] = Fact(len(self.model.tasks), priority=priority, epic=epic)
            kept = set(self.model.edges)
            try:
                if parent:
                    self.model.connect(t, parent, "parent-child")
                for other in on:
                    self.model.connect(t, other, "blocks")
            except KeyError:
                del self.model.tasks[t]
                self.model.edges = kept
                raise
            self.model.past.append(lambda: setattr(self.model.tasks[t], "deleted", True))

        if any(o not in self.model.tasks or self.model.tasks[o].deleted for o in (*on, parent) if o):
            on, parent = [], None  # which of several refusals comes first says nothing
        self.both(
            lambda db: service.create(
                db,
                self.actor(),
                service.NewTask(
                    f"task-{t}",
                    t,
                    priority=priority,
                    depends_on=[f"task-{o}" for o in on],
                    parent=f"task-{parent}" if parent else None,
                    type="epic" if epic else "task",
                ),
            ),
            model,
        )

    @rule(t=name, force=st.booleans(), session=session)
    def close(self, t: str, force: bool, session: str) -> None:
        def model() -> None:
            fact = self.model.task(t)
            if fact.status == "closed":
                raise KeyError("closed")
            if not force and self.model.held(t):
                raise KeyError("blocked")
            if not force and self.model.children(t):
                raise KeyError("open_children")
            if not force:
                self.model.refuse_held(t, session, self.clock.now())
            first = len(self.model.past)
            for part in [*self.model.parts(t), t] if fact.epic else [t]:
                self.model.change(part, status="closed", holder=None)
            steps = self.model.past[first:]
            self.model.past[first:] = [lambda: [step() for step in steps]]

        freed: list[str] = []

        def real(db: Any) -> None:
            _, moved = service.close(db, self.actor(session), f"task-{t}", "completed", "done", force=force)
            freed.extend(m.title for m in moved)

        held = {x for x in self.model.tasks if self.model.live(x) and self.model.held(x)}
        self.both(real, model)
        assert set(freed) == {x for x in held if self.model.live(x) and not self.model.held(x)}

    @rule(t=name)
    def reopen(self, t: str) -> None:
        def model() -> None:
            if self.model.task(t).status != "closed":
                raise KeyError("invalid")
            parents = self.model.targets(t, "parent-child")
            if any(self.model.tasks[p].epic and not self.model.live(p) for p in parents):
                raise KeyError("closed")
            self.model.change(t, status="open")

        self.both(lambda db: service.reopen(db, self.actor(), f"task-{t}"), model)

    @rule(t=name, session=session)
    def claim(self, t: str, session: str) -> None:
        self.both(lambda db: service.claim(db, self.actor(session), f"task-{t}"), lambda: self.model_claim(t, session))

    def model_claim(self, t: str, session: str) -> None:
        fact, now = self.model.task(t), self.clock.now()
        mine = fact.status == "in_progress" and fact.holder == session
        if fact.status == "closed":
            raise KeyError("closed")
        if self.model.held(t):
            raise KeyError("blocked")
        if fact.status == "in_progress" and not mine and fact.until >= now:
            raise KeyError("already_claimed")
        if mine:
            fact.until = now + service.CLAIM_MS  # a renewal is nothing to undo
        else:
            self.model.change(t, status="in_progress", holder=session, until=now + service.CLAIM_MS)

    @rule(session=session)
    def claim_next(self, session: str) -> None:
        def model() -> None:
            if not self.model.ready():
                raise KeyError("nothing_ready")
            self.model_claim(self.model.ready()[0], session)

        self.both(lambda db: service.claim_next(db, self.actor(session)), model)

    @rule(t=name, session=session)
    def release(self, t: str, session: str) -> None:
        def model() -> None:
            fact = self.model.task(t)
            if fact.status != "in_progress":
                raise KeyError("invalid")
            self.model.refuse_held(t, session, self.clock.now())
            self.model.change(t, status="open", holder=None)

        self.both(lambda db: service.release(db, self.actor(session), f"task-{t}"), model)

    @rule(
        t=name, priority=st.integers(0, 4), labels=st.lists(st.sampled_from("xyz"), unique=True), session=session,
        force=st.booleans(),
    )  # fmt: skip
    def update(self, t: str, priority: int, labels: list[str], session: str, force: bool) -> None:
        def model() -> None:
            self.model.task(t)
            if not force:
                self.model.refuse_held(t, session, self.clock.now())
            self.model.change(t, priority=priority, labels=tuple(sorted(labels)))

        values = {"priority": priority, "labels": labels}
        self.both(lambda db: service.update(db, self.actor(session), f"task-{t}", values, force=force), model)

    @rule(t=name, on=name, k=kind, session=session)
    def connect(self, t: str, on: str, k: str, session: str) -> None:
        def model() -> None:
            self.model.task(t), self.model.task(on)
            self.model.refuse_held(t, session, self.clock.now())
            if self.model.connect(t, on, k):
                self.model.past.append(lambda: self.model.edges.remove((t, on, k)))

        self.both(lambda db: service.depend(db, self.actor(session), f"task-{t}", f"task-{on}", k), model)

    @rule(t=name, on=name, k=kind, session=session)
    def disconnect(self, t: str, on: str, k: str, session: str) -> None:
        def model() -> None:
            self.model.task(t), self.model.task(on)
            self.model.refuse_held(t, session, self.clock.now())
            if (t, on, k) not in self.model.edges:
                raise KeyError("not_found")
            self.model.edges.remove((t, on, k))
            self.model.past.append(lambda: self.model.edges.add((t, on, k)))

        self.both(lambda db: service.depend(db, self.actor(session), f"task-{t}", f"task-{on}", k, add=False), model)

    @rule(t=name, session=session)
    def delete(self, t: str, session: str) -> None:
        def model() -> None:
            self.model.task(t)
            self.model.refuse_held(t, session, self.clock.now())
            self.model.tasks[t].deleted = True
            self.model.past.append(lambda: self.undelete(t))

        self.both(lambda db: service.delete(db, self.actor(session), f"task-{t}"), model)

    def undelete(self, t: str) -> None:
        self.model.tasks[t].deleted = False
        if self.model.stuck():
            self.model.tasks[t].deleted = True
            raise KeyError("cycle")
        if self.model.is_open_under_closed():
            self.model.tasks[t].deleted = True
            raise KeyError("closed")

    @rule(t=name)
    def restore(self, t: str) -> None:
        def model() -> None:
            if t not in self.model.tasks:
                raise KeyError("not_found")
            if not self.model.tasks[t].deleted:
                raise KeyError("invalid")
            self.undelete(t)
            self.model.past.append(lambda: setattr(self.model.tasks[t], "deleted", True))

        self.both(lambda db: service.restore(db, self.actor(), f"task-{t}"), model)

    @rule()
    def undo(self) -> None:
        def model() -> None:
            if not self.model.past:
                raise KeyError("nothing_to_undo")
            self.model.past[-1]()
            self.model.past.pop()

        self.both(lambda db: service.undo_changes(db, self.actor()), model)

    @rule()
    def claims_end(self) -> None:
        self.clock.advance(service.CLAIM_MS / 1000 + 1)

    @precondition(lambda self: self.model.tasks)
    @rule(t=name, how=st.sampled_from(["close", "delete", "undo"]))
    def crash(self, t: str, how: str) -> None:
        """In the middle of a change the machine stops: what is on the disk then is what the next start finds."""
        self.copies += 1
        path = self.folder / f"{self.copies}.db"

        def half(db: Any) -> None:
            match how:
                case "close":
                    service.close(db, self.actor(), f"task-{t}", "completed", "done", force=True)
                case "delete":
                    service.delete(db, self.actor(), f"task-{t}", force=True)
                case _:
                    service.undo_changes(db, self.actor())
            db.connection().cache_flush()
            for end in ("", "-wal"):
                source = Path(f"{self.store.path}{end}")
                if source.exists():
                    shutil.copy(source, f"{path}{end}")
            raise InterruptedError

        try:
            self.do(self.store.write(half))
        except InterruptedError:
            self.do(self.store.close())
            self.store = self.do(self.open(path))
        except TaskError:
            pass

    @invariant()
    def the_board_is_as_the_model_says(self) -> None:
        model = self.model
        board = self.do(self.store.read(queries.load_board, "/w", 0))
        assert [t.title for t in board.ready] == model.ready()
        assert {t.title for t in board.blocked} == {
            t for t, f in model.tasks.items() if not f.deleted and f.status == "open" and model.held(t)
        }
        assert {t.title: t.held_by for t in board.in_progress} == {
            t: f.holder for t, f in model.tasks.items() if not f.deleted and f.status == "in_progress"
        }
        listed = self.do(self.store.read(queries.list_tasks, "/w", status="all", limit=100))["tasks"]
        assert {(t["title"], t["priority"], tuple(t.get("labels", ()))) for t in listed} == {
            (t, f.priority, f.labels) for t, f in model.tasks.items() if not f.deleted
        }

    @invariant()
    def no_closed_epic_has_an_open_child(self) -> None:
        assert not self.do(self.store.read(graph.find_epics_to_reopen, "/w"))

    @invariant()
    def nothing_is_stuck(self) -> None:
        """From every open task a chain leads to one that can be begun or is worked on."""
        assert self.do(self.store.read(find_deadlocks)) == []
        for t, fact in self.model.tasks.items():
            if self.model.live(t) and fact.status == "open":
                chain = self.do(self.store.read(queries.explain, "/w", f"task-{t}"))["chain"]
                last = chain[-1]["title"]
                assert last in self.model.ready() or self.model.tasks[last].status == "in_progress"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.do(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)


TestBoard = Board.TestCase
