"""Databases of every schema, written by the program of that time, open and keep their rows.

Each file in `schemas` was written by the last commit on main at which its schema was the latest; schema 8 existed on a
branch only, and early-* are of commits that still edited the first and the third migration and did not have all of the
commands. A script started that
commit's own program against a scripted model server and did everything once that it could do: turns with tools, all
commands on tasks (each kind of event and dependency, labels, claims, links, undo, import), observations and
reflections with undo, pin, edit, forget, restore, pause, working memory, threads renamed, deleted, restored and
forked, a message deleted for good; in the chat a compaction, its undo and another compaction, an approval for good,
an unsent draft; at the end redaction and the archive. Then the write-ahead log was checkpointed and the file packed
with `xz -9e`. 12 and 13 went on from 11: the program of 12 added child threads in every state, their delivered reports,
jobs in every state and a side question, that of 13 imported sessions, children, tasks, typed prompts and a database of
Mastra, that of 14 a search of the web, calls of an MCP server and rules about both. For a new schema: do the same with
the last commit before the next migration is added.
"""

from __future__ import annotations

import json
import lzma
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti.core.errors import StoreError
from sakti.core.types import Thread
from sakti.store import migrate
from sakti.store import rows as table_rows
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import checks
from sakti.store.memory import records
from sakti.store.models import ChildRunRow, JobRow, StepRow
from sakti.store.threads import threads

SCHEMAS = Path(__file__).parent / "schemas"
NAMES = sorted(p.name.removesuffix(".db.xz") for p in SCHEMAS.glob("*.db.xz"))

# Opens the database in children of its own: one is killed in each step of the migration, then two start at once.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.core.clock import SystemClock
from sakti.store.database import Store

class Dying(SystemClock):
    def __init__(self, at):
        self.left = at

    def now(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().now()

async def opened(at):
    await (await Store.open(Path(sys.argv[1]), clock=Dying(at))).close()

def start(at):
    if not (pid := os.fork()):
        asyncio.run(opened(at))
        os._exit(0)
    return pid

steps = int(sys.argv[2])
for number in range(steps):
    print(os.waitstatus_to_exitcode(os.waitpid(start(min(number + 1, 2)), 0)[1]), flush=True)
for pid in [start(0), start(0)]:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(params=NAMES)
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    for packed in SCHEMAS.glob(f"{request.param}.db*.xz"):
        name = packed.name.removesuffix(".xz").replace(f"{request.param}.db", "sakti.db")
        (tmp_path / name).write_bytes(lzma.decompress(packed.read_bytes()))
        (tmp_path / name).chmod(0o600)
    return tmp_path / "sakti.db"


Rows = dict[str, list[dict[str, Any]]]


def rows(path: Path) -> Rows:
    """Every row of every ordinary table."""
    db = DatabaseFile(str(path)).connect()
    try:
        tables = db.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
        ).fetchall()
        return {str(table): list(_dicts(db, str(table))) for (table,) in tables}
    finally:
        db.close()


def _dicts(db: apsw.Connection, table: str) -> Iterator[dict[str, Any]]:
    text = ", sakti_text(raw_content, parts) AS text, sakti_unpacked(parts) AS json" if table == "messages" else ""
    cursor = db.execute(f"SELECT *{text} FROM {table}")
    names: list[str] = []
    for row in cursor:
        names = names or [column[0] for column in cursor.getdescription()]
        yield dict(zip(names, row, strict=True))


# Tables and columns that a migration replaces by something else, and why.
GONE = {"observation_cursors", "leases", "packing", "task_counts", "search_docs"}
CHANGED = {
    "messages": {"raw_content", "parts"},  # packed: compared as text and JSON
    "observational_memory": {"metadata", "observed_message_ids"},
    "tasks": {"session_id", "claim_owner"},
    "threads": {"metadata"},
}


SECRET = re.compile(r"sk-proj-\w+|\[secret:api_key:\w+\]")


def comparable(table: str, row: dict[str, Any], columns: set[str]) -> str:
    """A row without what changes, its JSON in one spelling, and secrets as they are masked in titles since."""
    values = {c: row[c] for c in sorted(columns - CHANGED.get(table, set()))}
    if table == "task_events":
        values |= {c: json.loads(values[c] or "null") for c in ("before", "after")}
    return SECRET.sub("<key>", json.dumps(values, default=repr))


def assert_kept(before: Rows, after: Rows) -> None:
    for table in before.keys() - GONE:
        if not before[table]:
            continue
        columns = before[table][0].keys() & after[table][0].keys()
        new = {comparable(table, row, columns) for row in after[table]}
        missing = [row for row in before[table] if comparable(table, row, columns) not in new]
        assert not missing, (table, missing)
    indexed = {(row["kind"], row["doc_id"]) for row in after["search_docs"]}
    assert {(row["kind"], row["doc_id"]) for row in before["search_docs"]} <= indexed


def version_of(path: Path) -> int:
    db = apsw.Connection(str(path))
    try:
        return db.execute("SELECT max(version) FROM schema_migrations").get
    finally:
        db.close()


def columns(path: Path) -> set[tuple[str, str]]:
    """Every column of every table but SQLite's own."""
    db = DatabaseFile(str(path)).connect()
    try:
        return set(
            db.execute(
                "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c"
                " WHERE t.schema = 'main' AND t.name NOT GLOB 'sqlite_*'"
            ).fetchall()
        )
    finally:
        db.close()


async def test_it_has_the_tables_and_columns_of_a_new_database(old: Path, tmp_path: Path) -> None:
    await (await Store.open(tmp_path / "new.db")).close()
    await (await Store.open(old)).close()
    assert columns(old) == columns(tmp_path / "new.db")


async def test_its_memory_goes_on(old: Path) -> None:
    store = await Store.open(old)
    keys = await store.read(lambda db: db.execute_sql("SELECT lookup_key FROM observational_memory").fetchall())
    assert keys
    for (key,) in keys:
        record = await store.read(records.get_record, key)
        assert (
            record is not None
            and await store.read(records.read_revision, record.id, record.thread_id or "") is not None
        )
    await store.close()


async def test_it_takes_child_runs_jobs_side_questions_and_searches(old: Path) -> None:
    store = await Store.open(old)

    def add(db: Database) -> list[tuple[str, int]]:
        ((thread_id,),) = db.execute_sql("SELECT id FROM threads LIMIT 1").fetchall()
        before = {table: count(db, table) for table in ("child_runs", "jobs", "steps")}
        table_rows.insert(
            db, ChildRunRow, child_id=thread_id, parent_id=thread_id, call_id="c", goal="g", report={}, started_at=1
        )
        table_rows.insert(db, JobRow, thread_id=thread_id, number=99, command="make", started_at=1)
        for purpose in ("side", "search"):
            table_rows.insert(db, StepRow, id=purpose, thread_id=thread_id, purpose=purpose, model="m", created_at=1)
        return [(table, count(db, table) - number) for table, number in before.items()]

    assert await store.write(add) == [("child_runs", 1), ("jobs", 1), ("steps", 2)]
    with pytest.raises(Exception, match="CHECK"):
        await store.write(lambda db: db.execute_sql("UPDATE jobs SET state = 'forgotten'"))
    assert [f for f in await store.read(checks.check) if not f.ok] == []
    await store.close()


def count(db: Database, table: str) -> int:
    return db.execute_sql(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_a_new_database_has_as_many_columns_as_a_start_looks_for(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "new.db")
    assert await store.read(migrate.is_complete)
    await store.write(lambda db: db.execute_sql("ALTER TABLE tasks DROP COLUMN close_reason"))
    assert not await store.read(migrate.is_complete)
    await store.close()


@pytest.mark.parametrize("lost", ["observational_memory DROP COLUMN revision", "tasks DROP COLUMN close_reason"])
async def test_a_column_that_is_missing_in_the_latest_schema_is_reported_and_added(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "new.db"
    await (await Store.open(path)).close()
    before = columns(path)
    db = DatabaseFile(str(path)).connect()
    db.execute(f"ALTER TABLE {lost}")
    db.close()
    table, column = lost.split()[0], lost.split()[-1]
    (wrong,) = [finding for finding in checks.inspect(path) if not finding.ok]
    assert wrong.name == "schema" and f"lacks {table}.{column}" in wrong.detail
    await (await Store.open(path)).close()
    assert columns(path) == before
    assert all(finding.ok for finding in checks.inspect(path))


async def test_a_column_that_cannot_be_added_is_said_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    store = await Store.open(path)
    await store.write(threads.create, Thread("t1", "w", "talk", 0, 0))
    await store.close()
    db = DatabaseFile(str(path)).connect()
    db.execute("DROP INDEX IF EXISTS threads_by_resource; ALTER TABLE threads DROP COLUMN created_at")
    db.close()
    with pytest.raises(StoreError, match="could not be migrated.*`sakti db recover`"):
        await Store.open(path)


async def test_every_row_is_kept(old: Path) -> None:
    before = rows(old)
    store = await Store.open(old)
    assert [f for f in await store.read(checks.check) if not f.ok] == []
    await store.close()
    assert_kept(before, rows(old))


@pytest.mark.parametrize("old", [name for name in NAMES if not name.startswith("early")], indirect=True)
def test_every_kind_of_row_is_there(old: Path) -> None:
    """A database without some kind of row would not find a migration that fails on it."""
    tables = rows(old)
    actions = {row["action"] for row in tables["task_events"]}
    assert {"create", "update", "claim", "release", "close", "reopen", "dep", "delete", "restore", "undo", "link"} <= (
        actions
    )
    assert {row["type"] for row in tables["task_dependencies"]} >= {"blocks", "parent-child", "related"}
    assert {row["state"] for row in tables["observation_groups"]} >= {"active", "superseded", "discarded"}
    lines = tables["observations"]
    assert any(row["pinned"] for row in lines)
    for table in ("task_labels", "task_messages", "compaction_records", "working_memory", "prompt_history"):
        assert tables[table], table
    version = version_of(old)
    if version >= 12:
        assert {row["state"] for row in tables["child_runs"]} == {"running", "finished", "partial", "interrupted"}
        assert {row["state"] for row in tables["jobs"]} == {"running", "ended", "stopped", "lost"}
        purposes = {"actor", "observer", "reflector", "side", *(("search",) if version >= 14 else ())}
        assert {row["purpose"] for row in tables["steps"]} == purposes
    if version >= 13:
        programs = {"claude-code", "codex", "mastra"}
        assert {row["program"] for row in tables["origins"]} == {row["program"] for row in tables["import_sources"]}
        assert {row["program"] for row in tables["origins"]} == programs
        assert {row["origin"] for row in tables["observation_groups"]} == {"thread", "report", "import"}
    if version >= 14:
        rules = {str(row["rule"]).partition(" ")[0] for row in tables["approval_rules"]}
        assert {"mcp__fake__slow", "websearch(Brave"} <= rules
        assert any("mcp" in json.loads(row["metadata"]) for row in tables["threads"])


def test_a_check_tries_the_migration_and_leaves_the_file_alone(old: Path) -> None:
    before = old.read_bytes()
    assert all(finding.ok for finding in checks.inspect(old))
    assert old.read_bytes() == before


def test_killed_in_each_step_and_started_twice_it_keeps_rows_and_backup(old: Path) -> None:
    before, version = rows(old), version_of(old)
    steps = migrate.LATEST - version
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(old), str(steps)], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == [str(-signal.SIGKILL)] * steps + ["0", "0"]
    assert_kept(before, rows(old))
    assert all(finding.ok for finding in checks.inspect(old) if finding.name != "space")
    if steps:
        backup = old.with_name(f"sakti.db.before-{migrate.LATEST:04d}")
        assert rows(backup) == before
