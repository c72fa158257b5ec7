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

from sakti.core.errors import TaskError
from sakti.core.ids import TimeIds
from sakti.store.database import Store
from sakti.tasks import queries, service
from sakti.tasks.service import Actor
from tests.fakes.clock import FakeClock

NAMES = "abcdef"
name = st.sampled_from(NAMES)
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


@dataclass
class Model:
    """What a board is, told in the plainest way. Raises KeyError(code) for what is refused."""

    tasks: dict[str, Fact] = field(default_factory=dict)
    edges: set[tuple[str, str, str]] = field(default_factory=set)
    past: list[Callable[[], None]] = field(default_factory=list)  # how to take back each change

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

    def reaches(self, start: str, end: str) -> bool:
        return start == end or any(self.reaches(t, end) for t in self.targets(start, "blocks", "parent-child"))

    def cyclic(self, t: str, on: str, k: str) -> bool:
        return k != "related" and self.reaches(on, t)

    def ready(self) -> list[str]:
        found = [
            t for t, f in self.tasks.items()
            if not f.deleted and f.status == "open" and not self.held(t) and not self.children(t)
        ]  # fmt: skip
        return sorted(found, key=lambda t: (self.tasks[t].priority, self.tasks[t].order))

    def change(self, t: str, **values: Any) -> None:
        before = copy.copy(self.tasks[t])
        self.tasks[t] = replace(before, **values)
        # deletion is a change of its own and is not touched by others
        self.past.append(lambda: self.tasks.update({t: replace(before, deleted=self.tasks[t].deleted)}))


@settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
class Board(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sakti-machine-"))
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.model = Model()
        self.copies = 0
        self.store = self.do(self.open(self.folder / "0.db"))

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

    @rule(t=name, priority=st.integers(0, 4), on=st.lists(name, max_size=2, unique=True), parent=st.none() | name)
    def create(self, t: str, priority: int, on: list[str], parent: str | None) -> None:
        if t in self.model.tasks:
            return

        def model() -> None:
            for other in (*on, *([parent] if parent else [])):
                if other != t:
                    self.model.task(other)
            if t in on or t == parent:
                raise KeyError("cycle")
            self.model.tasks[t] = Fact(len(self.model.tasks), priority=priority)
            self.model.edges |= {(t, o, "blocks") for o in on} | ({(t, parent, "parent-child")} if parent else set())
            self.model.past.append(lambda: setattr(self.model.tasks[t], "deleted", True))

        if any(o not in self.model.tasks or self.model.tasks[o].deleted for o in (*on, parent or t) if o != t):
            on, parent = [], None  # which of several refusals comes first says nothing
        self.both(
            lambda db: service.create(
                db, self.actor(), f"task-{t}", t, priority=priority, depends_on=[f"task-{o}" for o in on],
                parent=f"task-{parent}" if parent else None,
            ),
            model,
        )  # fmt: skip

    @rule(t=name, force=st.booleans())
    def close(self, t: str, force: bool) -> None:
        def model() -> None:
            fact = self.model.task(t)
            if fact.status == "closed":
                raise KeyError("closed")
            if not force and self.model.held(t):
                raise KeyError("blocked")
            if not force and self.model.children(t):
                raise KeyError("open_children")
            self.model.change(t, status="closed", holder=None)

        freed: list[str] = []

        def real(db: Any) -> None:
            _, moved = service.close(db, self.actor(), f"task-{t}", "completed", "done", force=force)
            freed.extend(m.title for m in moved)

        held = {x for x in self.model.tasks if self.model.live(x) and self.model.held(x)}
        self.both(real, model)
        assert set(freed) == {x for x in held if self.model.live(x) and not self.model.held(x)}

    @rule(t=name)
    def reopen(self, t: str) -> None:
        def model() -> None:
            if self.model.task(t).status != "closed":
                raise KeyError("invalid")
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
            if fact.holder != session and fact.until >= self.clock.now():
                raise KeyError("already_claimed")
            self.model.change(t, status="open", holder=None)

        self.both(lambda db: service.release(db, self.actor(session), f"task-{t}"), model)

    @rule(t=name, priority=st.integers(0, 4), labels=st.lists(st.sampled_from("xyz"), unique=True))
    def update(self, t: str, priority: int, labels: list[str]) -> None:
        def model() -> None:
            self.model.task(t)
            self.model.change(t, priority=priority, labels=tuple(sorted(labels)))

        values = {"priority": priority, "labels": labels}
        self.both(lambda db: service.update(db, self.actor(), f"task-{t}", values), model)

    @rule(t=name, on=name, k=kind)
    def connect(self, t: str, on: str, k: str) -> None:
        def model() -> None:
            self.model.task(t), self.model.task(on)
            if t == on or self.model.cyclic(t, on, k):
                raise KeyError("cycle")
            if (t, on, k) not in self.model.edges:
                self.model.edges.add((t, on, k))
                self.model.past.append(lambda: self.model.edges.remove((t, on, k)))

        self.both(lambda db: service.depend(db, self.actor(), f"task-{t}", f"task-{on}", k), model)

    @rule(t=name, on=name, k=kind)
    def disconnect(self, t: str, on: str, k: str) -> None:
        def model() -> None:
            self.model.task(t), self.model.task(on)
            if (t, on, k) not in self.model.edges:
                raise KeyError("not_found")
            self.model.edges.remove((t, on, k))

            def back() -> None:
                if self.model.cyclic(t, on, k):
                    raise KeyError("cycle")
                self.model.edges.add((t, on, k))

            self.model.past.append(back)

        self.both(lambda db: service.depend(db, self.actor(), f"task-{t}", f"task-{on}", k, add=False), model)

    @rule(t=name)
    def delete(self, t: str) -> None:
        def model() -> None:
            self.model.task(t).deleted = True
            self.model.past.append(lambda: self.bring_back(t))

        self.both(lambda db: service.delete(db, self.actor(), f"task-{t}"), model)

    def bring_back(self, t: str) -> None:
        self.model.tasks[t].deleted = False
        if any(self.model.reaches(on, t) for on in self.model.targets(t, "blocks", "parent-child")):
            self.model.tasks[t].deleted = True
            raise KeyError("cycle")

    @rule(t=name)
    def restore(self, t: str) -> None:
        def model() -> None:
            if t not in self.model.tasks:
                raise KeyError("not_found")
            if not self.model.tasks[t].deleted:
                raise KeyError("invalid")
            self.bring_back(t)

        self.both(lambda db: service.restore(db, self.actor(), f"task-{t}"), model)

    @rule()
    def undo(self) -> None:
        def model() -> None:
            if not self.model.past:
                raise KeyError("nothing_to_undo")
            self.model.past[-1]()
            self.model.past.pop()

        self.both(lambda db: service.undo(db, self.actor()), model)

    @rule()
    def claims_end(self) -> None:
        self.clock.advance(service.CLAIM_MS + 1)

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
                    service.delete(db, self.actor(), f"task-{t}")
                case _:
                    service.undo(db, self.actor())
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
        board = self.do(self.store.read(queries.board, "/w", 0))
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

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.do(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)


TestBoard = Board.TestCase
