"""Databases of every schema, written by the program of that time, open and keep their rows.

Each file in `schemas` was written by the last commit on main at which its schema was the latest; schema 8 existed on a
branch only, and early-* are of commits that still edited the first and the third migration and did not have all of the
commands. A script started that
commit's own program against a scripted model server and did everything once that it could do: turns with tools, all
commands on tasks (each kind of event and dependency, labels, claims, links, undo, import), observations and
reflections with undo, pin, edit, forget, restore, pause, working memory, threads renamed, deleted, restored and
forked, a message deleted for good; in the chat a compaction, its undo and another compaction, an approval for good,
an unsent draft; at the end redaction and the archive. Then the write-ahead log was checkpointed and the file packed
with `xz -9e`. For a new schema: do the same with the last commit before the next migration is added.
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

from sakti.store import migrate
from sakti.store.database import Store
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import inspection, maintenance

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


async def test_every_row_is_kept(old: Path) -> None:
    before = rows(old)
    store = await Store.open(old)
    assert [f for f in await store.read(maintenance.check) if not f.ok] == []
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


def test_a_check_tries_the_migration_and_leaves_the_file_alone(old: Path) -> None:
    before = old.read_bytes()
    assert all(finding.ok for finding in inspection.inspect(old))
    assert old.read_bytes() == before


def test_killed_in_each_step_and_started_twice_it_keeps_rows_and_backup(old: Path) -> None:
    before, version = rows(old), version_of(old)
    steps = migrate.LATEST - version
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(old), str(steps)], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == [str(-signal.SIGKILL)] * steps + ["0", "0"]
    assert_kept(before, rows(old))
    assert all(finding.ok for finding in inspection.inspect(old) if finding.name != "space")
    if steps:
        backup = old.with_name(f"sakti.db.before-{migrate.LATEST:04d}")
        assert rows(backup) == before
