"""A thread goes out of a log that others share in one short transaction, its rows a few at a time behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.agent.threads.reindexing import Indexing
from sakti.core.types import Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from sakti.store.maintenance import checks, purging, upkeep
from sakti.store.memory import group_rows
from sakti.store.memory.group_rows import Group, NewLine
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads

ROUNDS, LINES = 12, 4


class Killed(Exception):
    """Stands for the end of the process between two transactions."""


def lines(group: str, replaced: str = "") -> list[NewLine]:
    """Some lines of a group, the first of which says that it replaces some words."""
    metadata = {"replaces": [{"text": replaced, "date": "Jan 15, 2026", "time": "9:00"}]} if replaced else {}
    note = f" [replaces Jan 15, 9:00: {replaced}]" if replaced else ""
    first = NewLine(f"{group}-0", 0, 0, "Jan 16, 2026", "9:00", "high", f"line 0 of {group}{note}", metadata)
    return [
        first,
        *(
            replace(first, id=f"{group}-{n}", line=n, content=f"line {n} of {group}", metadata={})
            for n in range(1, LINES)
        ),
    ]


def shared_log(db: Database) -> None:
    """Two threads take turns; every fourth round a reflection stands for all before it."""
    db.execute_sql(
        "INSERT INTO observational_memory (id, lookup_key, scope, resource_id, created_at, updated_at)"
        " VALUES ('r', 'resource:/w', 'resource', '/w', 1, 1)"
    )
    standing: list[str] = []

    def add(group: str, thread: str, kind: Any, said: list[NewLine], merged: tuple[str, ...] = ()) -> None:
        text = "\n".join(f"* {line.content}" for line in said)
        made = Group(group, "r", thread, kind, "active", text, 1, merged_group_ids=merged, observation_tokens=10)
        group_rows.insert_group(db, made, said, "/w")
        for one in merged:
            db.execute_sql("UPDATE observation_groups SET state = 'superseded' WHERE id = ?", (one,))
        standing[:] = [*(s for s in standing if s not in merged), group]

    for n in range(ROUNDS):
        add(f"a{n}", "a", "observation", lines(f"a{n}"))
        add(f"b{n}", "b", "observation", lines(f"b{n}", f"line 1 of a{n}"))
        if n % 4 == 3:
            add(f"R{n}", "b", "reflection", lines(f"R{n}"), tuple(standing))


@pytest.fixture
async def shared(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with such a log, of which thread `a` is deleted; each transaction does one step."""
    monkeypatch.setattr(upkeep, "PIECE_S", 0)
    for name in "ab":
        await store.write(threads.create, Thread(name, "/w", name, 1, 1))
    await store.write(shared_log)
    await store.write(thread_removal.delete_thread, "a", 5)
    await upkeep.reindex(store)
    return store


def watch(store: Store, monkeypatch: pytest.MonkeyPatch, after: Callable[[], Any], killed: int = 1 << 30) -> None:
    """Call `after` when a transaction has ended; the process ends before the one numbered `killed`."""
    write, done = store.write, [0]

    async def counted(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if done[0] == killed:
            raise Killed
        done[0] += 1
        result = await write(fn, *args, **kwargs)
        await after()
        return result

    monkeypatch.setattr(store, "write", counted)


def rows(db: Database) -> int:
    return sum(
        db.execute_sql(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("search_docs", "observations", "observation_groups")
    )


def everything(db: Database) -> Any:
    return (
        db.execute_sql("SELECT id, thread_id, state, text FROM observation_groups ORDER BY id").fetchall(),
        db.execute_sql("SELECT id, content, metadata FROM observations ORDER BY id").fetchall(),
        db.execute_sql("SELECT kind, doc_id, text, prev FROM search_docs ORDER BY kind, doc_id").fetchall(),
        db.execute_sql("SELECT observation_token_count, generation_count FROM observational_memory").fetchall(),
    )


async def test_few_rows_go_at_a_time_and_no_group_is_seen_without_its_lines(shared: Store, monkeypatch) -> None:
    steps = [await shared.read(rows)]

    async def look() -> None:
        steps.append(await shared.read(rows))
        for group in await shared.read(group_rows.list_groups, "r", "active"):
            assert group.thread_id == "b" and group.kind == "observation"
            held = await shared.read(memory_log.select_lines, "g.id = ?", (group.id,))
            assert group.text == "\n".join(f"* {line.content}" for line, *_ in held)
            assert len(held) == LINES

    watch(shared, monkeypatch, look)
    await purging.purge_thread(shared, "a")
    assert max(before - after for before, after in pairwise(steps)) <= purging.ROWS
    assert steps[0] - steps[-1] > 10 * purging.ROWS
    assert "line 1 of a" not in json.dumps(await shared.read(everything))


@pytest.mark.parametrize("killed", [1, 2, 9, 17, 30, 45])
async def test_killed_the_next_session_comes_to_the_same_end(
    shared: Store, monkeypatch: pytest.MonkeyPatch, tmp_path, killed: int
) -> None:
    whole = await Store.open(tmp_path / "whole.db")
    await whole.write(lambda db: [threads.create(db, Thread(name, "/w", name, 1, 1)) for name in "ab"])
    await whole.write(shared_log)
    await whole.write(thread_removal.delete_thread, "a", 5)
    await upkeep.reindex(whole)
    await purging.purge_thread(whole, "a")
    expected = await whole.read(everything)
    await whole.close()

    async def nothing() -> None: ...

    with monkeypatch.context() as patch:
        watch(shared, patch, nothing, killed)
        with pytest.raises(Killed):
            await purging.purge_thread(shared, "a")
    assert await shared.read(everything) != expected or await shared.read(threads.get, "a") is not None
    work = Indexing()
    work.begin(shared)
    await work.wait()
    assert await shared.read(everything) == expected
    assert await shared.read(threads.get, "a") is None
    assert all(f.ok for f in await shared.read(checks.check))
