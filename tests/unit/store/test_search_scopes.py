"""Search in a small part of a large store: all of it is looked at, however old, and in little time."""

from __future__ import annotations

import random

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Connection, Database
from sakti.store.database import Store
from sakti.store.memory import records
from sakti.store.search import filters, index, retrieve
from sakti.store.search.filters import Scope, place_of
from sakti.store.search.query import parse_query
from sakti.store.search.search import SearchPage, search
from sakti.store.tasks import rows as task_rows
from sakti.store.tasks.questions import Task
from sakti.store.threads import messages, threads

WORDS = "heron gimbal lantern solver overflow parser token buffer".split()


def fill(db: Database) -> None:
    """Three workspaces, of which one is old and small; texts of every kind, with and without a thread."""
    source = random.Random(3)
    for workspace, count in (("/old", 1), ("/mid", 3), ("/new", 6)):
        for number in range(count):
            thread = f"{workspace[1:]}-{number}"
            threads.create(db, Thread(thread, workspace, f"about {source.choice(WORDS)}", 1, 1))
            for n in range(30):
                text = " ".join(source.choices(WORDS, k=6))
                messages.append(db, Message(f"{thread}-{n}", thread, workspace, "user", (TextPart(text),), n))
            _task(db, f"{thread}-k", workspace, thread if number % 2 else None)
            _observation(db, f"{thread}-o", workspace, thread)
        _observation(db, f"{workspace}-shared", workspace, None)
        page = {"scope": "resource", "owner_id": workspace, "tokens": 2, "actor": "agent", "resource_id": workspace}
        version = records.PageVersion(workspace, content="the solver page", now=1, **page)
        records.put_working_memory(db, version, expected_version=0)


def _task(db: Database, id: str, workspace: str, thread: str | None) -> None:
    empty = dict.fromkeys(("assignee", "session_id", "claimed_at", "claim_expires_at", "close_reason", "summary"))
    named = {"handle": id, "title": "mend the solver", "description": "", "status": "open", "type": "task"}
    times = {"created_at": 1, "updated_at": 1, "closed_at": None, "priority": 2}
    task_rows.insert(db, Task(id=id, resource_id=workspace, thread_id=thread, **named, **empty, **times))


def _observation(db: Database, id: str, workspace: str, thread: str | None) -> None:
    index.put(
        db, kind="observation", doc_id=id, resource_id=workspace, thread_id=thread, created_at=1, text="a heron solver"
    )


@pytest.fixture
async def filled(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    await store.write(fill)
    for bound, value in (("AT_ONCE", 20), ("RANKED", 20), ("PASSED_AT_ONCE", 40)):
        monkeypatch.setattr(retrieve, bound, value)
    return store


async def found(store: Store, text: str, scope: Scope, *, first: bool = False) -> SearchPage:
    return await store.read(search, text, scope, limit=300, first=first, clock=lambda: 0.0)


@pytest.mark.parametrize("workspace", ["/old", "/mid", "/new", "/none"])
async def test_the_rows_of_a_workspace_are_known_whole(filled: Store, workspace: str) -> None:
    def both(db: Connection) -> tuple[object, list[int]]:
        place = place_of(db, parse_query("solver"), Scope(workspace), filters.LARGE + 1)
        every = db.execute_sql("SELECT pk FROM search_docs WHERE resource_id = ? ORDER BY pk", (workspace,))
        return place.keys, [key for (key,) in every]

    keys, every = await filled.read(both)
    assert keys == every and bool(every) == (workspace != "/none")


@pytest.mark.parametrize("text", ["solver", "heron gimbal", "what is the solver of the heron", "eron", "nothing of it"])
@pytest.mark.parametrize(
    ("scope", "filter"),
    [
        (Scope("/old"), ""),
        (Scope("/old", "old-0"), ""),
        (Scope("/new", "new-3"), ""),
        (Scope("/new"), "thread:new-2"),
        (Scope(), "thread:old"),
        (Scope("/mid"), "kind:task"),
        (Scope(kinds=("observation", "working_memory")), ""),
        (Scope("/none"), ""),
        (Scope("/old", "new-1"), ""),
    ],
)
async def test_a_small_scope_of_a_large_store_has_the_same_hits(
    filled: Store, monkeypatch: pytest.MonkeyPatch, text: str, scope: Scope, filter: str
) -> None:
    whole = await found(filled, f"{filter} {text}".strip(), scope)
    monkeypatch.setattr(filters, "LARGE", 0)
    known = await found(filled, f"{filter} {text}".strip(), scope)
    assert {h.id for h in known.hits} == {h.id for h in whole.hits} and known.total == whole.total
    assert not known.unread and known.elsewhere == whole.elsewhere


async def test_a_first_page_ends_in_time_and_says_that_it_is_not_all(filled: Store) -> None:
    late = iter(range(1_000_000))
    page = await filled.read(search, "solver heron", Scope("/old"), first=True, clock=lambda: float(next(late)))
    assert page.total == 0 and page.partial and page.unread, "the newest texts are of other workspaces"
    assert (await found(filled, "solver heron", Scope("/old"))).total > 0
