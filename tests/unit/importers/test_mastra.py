"""Databases of Mastra's memory come in with their log, and observed messages stay observed."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti import importers
from sakti.core.tokens import Estimator
from sakti.core.types import Message
from sakti.importers import service
from sakti.importers.service import ImportOptions, Service, SourceReport
from sakti.store import memory
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.memory import Group
from sakti.store.search import search
from sakti.store.threads import messages

MASTRA = Path(__file__).parents[4] / "shared" / "histories" / "mastra"
NAMES = ("resource-scope.db.xz", "S7-burst-over-threshold.db.xz")
LAYOUT = """
CREATE TABLE mastra_threads (id TEXT PRIMARY KEY, resourceId TEXT, title TEXT, metadata TEXT, createdAt TEXT);
CREATE TABLE mastra_messages (id TEXT PRIMARY KEY, thread_id TEXT, content TEXT, role TEXT, createdAt TEXT);
INSERT INTO mastra_threads VALUES ('t', 'r', 'Old', NULL, '2025-01-01T00:00:00Z');
"""


async def run(store: Store, path: Path, **more: Any) -> tuple[SourceReport, str]:
    importing = Service(store, ImportOptions(workspace=path.parent, home=path.parent, **more), Estimator())
    return await importing.import_program(importers.make_importer("mastra"), path), importing.run


def groups(db: Database, key: str) -> list[Group]:
    record = memory.get_record(db, key)
    assert record is not None
    states = ("superseded", "active", "buffered")
    return [g for state in states for g in memory.list_groups(db, record.id, state)]  # pyright: ignore[reportArgumentType]


def ids(db: Database, thread: str) -> dict[str, int]:
    """Mastra's messages of a thread, and the index of the last of ours that was made of each."""
    rows = db.execute_sql(
        "SELECT o.entry_id, m.message_index FROM origins o JOIN messages m ON m.id = o.message_id"
        " WHERE o.program = 'mastra' AND instr(o.entry_id, ?)",
        (f":{thread}:",),
    ).fetchall()
    out: dict[str, int] = {}
    for entry, index in rows:
        name = entry.partition(f":{thread}:")[2].removesuffix("#results")
        out[name] = max(index, out.get(name, -1))
    return out


@pytest.mark.skipif(not MASTRA.is_dir(), reason="the databases of the real program are not here")
async def test_the_real_databases_come_in_as_expected(store: Store, tmp_path: Path) -> None:
    expected = json.loads((MASTRA / "expected.json").read_text())
    runs: list[str] = []
    for name in NAMES:
        path = tmp_path / name.removesuffix(".xz")
        path.write_bytes(lzma.decompress((MASTRA / name).read_bytes()))
        before = (path.read_bytes(), path.stat().st_mtime_ns)
        report, made = await run(store, path)
        runs.append(made)
        told = expected[name]
        assert (report.threads, report.messages) == (told["threads"], told["messages"]["total"]), report.problems
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
        assert [p.name for p in tmp_path.glob(f"{path.name}-*")] == []
        await store.read(check_database, told, tmp_path)
        for probe in told["probes"]:
            assert (await store.search(search.search, probe["text"], search.Scope(None), limit=5)).hits, probe
        for secret in told.get("secrets", ()):
            stored = b"".join(p.read_bytes() for p in store.path.parent.glob(f"{store.path.name}*"))
            assert secret["key"].encode() not in stored
        written = store.written
        again, _ = await run(store, path)
        assert (again.new, again.unchanged, store.written) == (0, report.messages, written)
    assert [f for f in await store.read(checks.check) if not f.ok] == []
    for made in runs:
        assert await service.undo(store, await store.read(service.plan_undo, made)) == []
    for table in ("threads", "messages", "observation_groups", "observations", "working_memory", "search_docs"):
        (count,) = await store.read(lambda db, t=table: db.execute_sql(f"SELECT count(*) FROM {t}").fetchone())
        assert count == 0, table


def check_database(db: Database, told: dict[str, Any], workspace: Path) -> None:
    resources = told["resources"]
    places = {r: f"mastra:{r}" if len(resources) > 1 else str(workspace) for r in resources}
    ours: dict[str, str] = {}
    for thread in told["thread_list"]:
        sql = "SELECT id, resource_id, title, metadata FROM threads WHERE json_extract(metadata, '$.origin.id') LIKE ?"
        ours[thread["id"]], resource, title, metadata = db.execute_sql(sql, (f"%:{thread['id']}",)).fetchone()
        assert resource == places[thread["resource"]] and title.startswith(thread["title"])
        stored = json.loads(metadata)
        assert stored["current_task"] == thread["current_task"]
        assert stored["suggested_response"] == thread["suggested_response"]
        assert stored.get("mastra", {}) == thread["metadata_other"]
        known = ids(db, thread["id"])
        assert len(known) == thread["messages"]
        shared = [r for r in told["records"] if r["scope"] == "resource" and r["resource"] == thread["resource"]]
        key = f"resource:{resource}" if shared else f"thread:{ours[thread['id']]}"
        record = memory.get_record(db, key)
        assert record is not None
        cursor = memory.find_cursor(db, record.id, ours[thread["id"]])
        assert sum(index <= cursor for index in known.values()) == thread["covered"], thread["id"]
    for record in told["records"]:
        owner = places[record["resource"]] if record["thread"] is None else ours[record["thread"]]
        made = [g for g in groups(db, f"{record['scope']}:{owner}") if g.text]
        log = sorted((g for g in made if g.state != "buffered"), key=lambda g: g.generation)
        for group, generation in zip(log, record["generations"], strict=True):
            assert (group.state, group.generation) == (generation["state"], generation["generation"])
            assert hashlib.sha256(group.text.encode()).hexdigest()[:16] == generation["sha256_16"]
            assert sum(line.startswith("*") for line in group.text.split("\n")) == generation["observation_lines"]
            assert (group.model, group.prompt_hash, group.metadata["origin"]) == ("", "", "mastra")
        buffered = [g for g in made if g.state == "buffered"]
        for group, chunk in zip(buffered, record["chunks"], strict=True):
            assert hashlib.sha256(group.text.encode()).hexdigest()[:16] == chunk["sha256_16"]
    pages = db.execute_sql("SELECT content FROM working_memory").fetchall()
    assert {p["text"] for p in told["working_memory"]} <= {content for (content,) in pages}
    for probe in told["probes"]:
        sql = "SELECT DISTINCT thread_id FROM messages WHERE instr(sakti_text(raw_content, parts), ?)"
        where = {t for (t,) in db.execute_sql(sql, (probe["text"],)).fetchall()}
        # what Mastra's memory noted of itself in a message (parts `data-om-*`) is left out
        assert where <= {ours[t] for t in probe["threads"]} and bool(where) == bool(probe["threads"])


def make(path: Path, *contents: tuple[str, str]) -> Path:
    db = apsw.Connection(str(path))
    db.execute(LAYOUT)
    for number, (role, content) in enumerate(contents):
        row = (f"m{number}", "t", content, role, f"2025-01-01T00:00:{number:02d}Z")
        db.execute("INSERT INTO mastra_messages VALUES (?, ?, ?, ?, ?)", row)
    db.close()
    return path


async def test_databases_with_equal_ids_do_not_mix_and_older_layouts_are_read(store: Store, tmp_path: Path) -> None:
    call = [{"type": "tool-call", "toolCallId": "c", "toolName": "ls", "args": {}}]
    result = [{"type": "tool-result", "toolCallId": "c", "toolName": "ls", "result": {"files": 3}}]
    pair = ("assistant", json.dumps(call)), ("tool", json.dumps(result))
    first = make(tmp_path / "one.db", ("user", "from one"), *pair)
    second = make(tmp_path / "two.db", ("user", '{"broken": '), ("system", "be kind"), ("assistant", "[]"))
    (tmp_path / "three.db").write_bytes(b"SQLite format 3\0")
    assert (await run(store, first))[0].messages == 3
    assert (await run(store, second, renamed=(("r", "/srv/shop"),)))[0].messages == 2
    assert (await run(store, tmp_path / "three.db"))[0].problems

    def read(db: Database) -> list[tuple[str, list[Message]]]:
        rows = db.execute_sql("SELECT id, resource_id FROM threads ORDER BY pk").fetchall()
        return [(resource, messages.list_after(db, i, -1)) for i, resource in rows]

    (place, one), (mapped, two) = await store.read(read)
    assert (place, mapped) == (str(tmp_path), "/srv/shop")
    assert [m.role for m in one] == ["user", "assistant", "tool"] and one[0].text == "from one"
    assert [m.text for m in two] == ['{"broken": ', ""]
    moved = first.rename(tmp_path / "moved.db")
    assert (await run(store, moved, renamed=((str(moved), str(first)),)))[0].new == 0
