"""A database of an earlier sakti is brought up to date, whatever happens meanwhile."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti.core.clock import SystemClock
from sakti.store import memory, migrate, opening
from sakti.store.database import Store
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import checks, recovery
from sakti.store.memory import integrity
from sakti.store.search import search
from sakti.store.tasks import questions
from sakti.store.threads import threads

# Four processes open a database at once; the exit code is the sum of theirs.
OPEN_FOUR_TIMES = """
import asyncio, os, sys
from pathlib import Path
from sakti.store.database import Store

async def open_and_close():
    await (await Store.open(Path(sys.argv[1]))).close()

pids = []
for _ in range(4):
    if not (pid := os.fork()):
        asyncio.run(open_and_close())
        os._exit(0)
    pids.append(pid)
sys.exit(sum(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids))
"""


def first_version(path: Path) -> None:
    """A database as the first schema made it, with a thread of three messages and some tasks."""
    script = resources.files("sakti.store.migrations").joinpath("0001_initial.sql").read_text("utf-8")
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = wal")
    db.execute("BEGIN")
    db.execute(
        "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
    )
    db.execute(script)
    db.execute("INSERT INTO schema_migrations VALUES (1, '0001_initial.sql', 1)")
    db.execute("INSERT INTO threads (id, resource_id, title, created_at, updated_at) VALUES ('t', '/w', 'Old', 1, 1)")
    for i, word in enumerate(("walrus", "zebra", "heron")):
        db.execute(
            "INSERT INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content, created_at)"
            " VALUES (?, 't', '/w', 'user', ?, ?, ?, ?)",
            (f"m{i}", i, f'[{{"t": "text", "text": "the {word} sings"}}]', f"the {word} sings", i),
        )
        db.execute(
            "INSERT INTO search_docs (kind, doc_id, resource_id, thread_id, position, created_at, text)"
            " VALUES ('message', ?, '/w', 't', ?, ?, ?)",
            (f"m{i}", i, i, f"the {word} sings"),
        )
    for name, status, session, thread, held, children in TASKS:
        db.execute(
            "INSERT INTO tasks (id, resource_id, handle, title, status, session_id, thread_id, claim_expires_at, held,"
            " own_blockers, open_children, created_at, updated_at)"
            " VALUES (?1, '/w', ?1, ?1, ?2, ?3, ?4, 9, ?5, ?5, ?6, 1, 1)",
            (name, status, session, thread, held, children),
        )
        db.execute("INSERT INTO task_words (rowid, title) SELECT pk, title FROM tasks WHERE id = ?", (name,))
    for edge in EDGES:
        db.execute("INSERT INTO task_dependencies VALUES (?, ?, ?, 1)", edge)
    db.execute("COMMIT")
    db.close()


# id, status, session, thread, held, open children: as the first two schemas kept them
TASKS = (
    ("free", "open", None, None, 0, 0),
    ("waiting", "open", None, None, 1, 0),
    ("epic", "open", None, None, 0, 2),
    ("of-a-chat", "in_progress", "01a20270-0000-7000-8000-000000000000", "t", 0, 0),
    ("of-a-shell", "in_progress", "shell:ann", "t", 0, 0),
    ("done", "closed", None, "t", 0, 0),
)
EDGES = (
    ("waiting", "free", "blocks"),
    ("of-a-chat", "epic", "parent-child"),
    ("of-a-shell", "epic", "parent-child"),
)


def as_of(path: Path, version: int) -> None:
    """The same as that schema left it."""
    first_version(path)
    names = sorted(f.name for f in resources.files("sakti.store.migrations").iterdir() if f.name.endswith(".sql"))
    for number, name in enumerate(names[1:version], 2):
        apply(path, number, name)


def apply(path: Path, number: int, name: str) -> None:
    """Apply one migration as it was when it was the newest."""
    db = apsw.Connection(str(path))
    with db:
        db.execute(resources.files("sakti.store.migrations").joinpath(name).read_text("utf-8"))
        db.execute("INSERT INTO schema_migrations VALUES (?, ?, ?)", (number, name, number))
    db.close()


@pytest.fixture(params=range(1, migrate.LATEST))
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    as_of(tmp_path / "s.db", request.param)
    assert version_of(tmp_path / "s.db") == request.param
    return tmp_path / "s.db"


def version_of(path: Path) -> int:
    db = apsw.Connection(str(path))
    (version,) = db.execute("SELECT max(version) FROM schema_migrations").fetchone()
    db.close()
    return version


async def whole(path: Path) -> Store:
    store = await Store.open(path)
    assert all(f.ok for f in await store.read(checks.check))
    for word in ("walrus", "zebra", "heron"):
        page = await store.read(search.search, word, search.Scope("/w"))
        assert [h.text for h in page.hits] == [f"the {word} sings"]
    assert [t.id for t in await store.read(threads.list_recent, "/w", 5)] == ["t"]
    listed, total = await store.read(questions.select, "/w", questions.TaskFilter("all"))
    assert total == len(listed) == len(TASKS)
    assert {t.id: t.state for t in listed} == {
        "free": "ready", "waiting": "blocked", "epic": "container", "of-a-chat": "in_progress",
        "of-a-shell": "in_progress", "done": "closed",
    }  # fmt: skip
    # a claim belongs to the chat that it was made in; a shell's stays its own
    assert {t.id: t.session_id for t in listed if t.session_id} == {"of-a-chat": "t", "of-a-shell": "shell:ann"}
    return store


def shape(path: Path) -> dict[str, str]:
    """Every table's columns, and what else there is, by name."""
    db = apsw.Connection(str(path))
    names = [n for (n,) in db.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
    out = {n: str(sorted(str(r[1:4]) for r in db.execute(f'PRAGMA table_info("{n}")'))) for n in names}
    db.close()
    return out


async def test_an_older_database_is_brought_up_to_date_and_copied_first(old: Path, tmp_path: Path) -> None:
    before = version_of(old)
    store = await whole(old)
    private, notice = store.notices
    assert "now only you can read it" in private and stat.S_IMODE(old.stat().st_mode) == 0o600
    copy = tmp_path / f"s.db.before-{migrate.LATEST:04d}"
    assert str(copy) in notice
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    await store.close()
    assert version_of(copy) == before
    await (await Store.open(tmp_path / "new.db")).close()
    assert shape(old) == shape(tmp_path / "new.db")
    again = await Store.open(old)
    assert again.notices == []
    await again.close()


@pytest.mark.parametrize("old", range(1, 5), indirect=True)  # the fifth counts them
async def test_what_was_kept_of_the_graph_is_counted_again(old: Path) -> None:
    db = apsw.Connection(str(old))
    db.execute("UPDATE tasks SET own_blockers = 1 - own_blockers, open_children = 5, held = 1 - held")
    db.execute("INSERT INTO task_dependencies VALUES ('done', 'waiting', 'parent-child', 1)")
    db.close()
    store = await whole(old)
    kept = await store.read(lambda db: db.execute_sql("SELECT id FROM tasks WHERE held = 1 ORDER BY id").fetchall())
    assert kept == [("done",), ("waiting",)]  # what is below waits too, though nothing shows it while it is closed
    await store.close()


async def test_a_copy_that_an_unfinished_migration_left_is_made_anew(old: Path, tmp_path: Path) -> None:
    stale = tmp_path / f"s.db.before-{migrate.LATEST:04d}"
    stale.write_text("of another day")
    before = opening.read_version(DatabaseFile(str(old)))
    await (await whole(old)).close()
    backup = apsw.Connection(str(stale))
    assert backup.execute("SELECT max(version) FROM schema_migrations").get == before
    backup.close()


def fail(connection: apsw.Connection) -> None:
    """Replace the function that the migrations to schema 6 and 8 call by one that always fails."""

    def masked(_text: str) -> str:
        raise TypeError("object of type 'NoneType' has no len()")

    connection.create_scalar_function("sakti_masked", masked, 1, deterministic=True)


@pytest.fixture
def failing() -> Iterator[None]:
    apsw.connection_hooks.append(fail)
    yield
    apsw.connection_hooks.remove(fail)


@pytest.mark.parametrize("old", [2, 7], indirect=True)
async def test_failed_migration_is_one_sentence_with_step_backup_and_remedy(
    old: Path, failing: None, tmp_path: Path
) -> None:
    before, backup = version_of(old), tmp_path / f"s.db.before-{migrate.LATEST:04d}"
    steps = {2: "0006_removed_for_good", 7: "0008_task_titles"}
    for _ in range(2):  # the second start finds the database at the failed step
        with pytest.raises(migrate.MigrationError) as caught:
            await Store.open(old)
        message = caught.value.message
        assert "\n" not in message
        for part in (str(old), steps[before], str(backup), "`sakti db recover`", "TypeError: object of type"):
            assert part in message
        assert version_of(backup) == before


@pytest.mark.parametrize("old", [2], indirect=True)
def test_check_reports_a_migration_that_would_fail(old: Path, failing: None) -> None:
    old.chmod(0o600)
    schema, *rest = checks.inspect(old)
    assert (schema.name, schema.ok) == ("schema", False)
    assert "0006_removed_for_good" in schema.detail and "`sakti db recover`" in schema.advice
    assert all(finding.ok for finding in rest)
    assert version_of(old) == 2


@pytest.mark.parametrize("old", [2], indirect=True)
async def test_recovery_reads_a_database_that_cannot_be_migrated(old: Path, tmp_path: Path) -> None:
    apsw.connection_hooks.append(fail)
    try:
        with pytest.raises(migrate.MigrationError):
            await Store.open(old)
    finally:
        apsw.connection_hooks.remove(fail)
    recovered = recovery.recover(old, SystemClock())
    assert recovered.lost_rows == 0
    await (await whole(old)).close()


async def test_backup_of_an_interrupted_migration_is_kept(tmp_path: Path) -> None:
    as_of(tmp_path / "s.db", 2)
    backup = tmp_path / f"s.db.before-{migrate.LATEST:04d}"
    shutil.copyfile(tmp_path / "s.db", backup)
    for number, script in ((3, "0003_memory_moves.sql"), (4, "0004_safe_keeping.sql")):
        apply(tmp_path / "s.db", number, script)
    original = backup.read_bytes()
    await (await whole(tmp_path / "s.db")).close()
    assert backup.read_bytes() == original


async def test_backup_of_another_database_is_replaced(tmp_path: Path) -> None:
    as_of(tmp_path / "other.db", 2)
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("UPDATE schema_migrations SET applied_at = 77")
    connection.close()
    backup = (tmp_path / "other.db").rename(tmp_path / f"s.db.before-{migrate.LATEST:04d}")
    as_of(tmp_path / "s.db", 4)
    await (await whole(tmp_path / "s.db")).close()
    assert version_of(backup) == 4


async def test_missing_step_before_the_latest_is_applied(tmp_path: Path) -> None:
    """A branch released schema 9 before schema 8."""
    as_of(tmp_path / "s.db", 7)
    apply(tmp_path / "s.db", 9, "0009_requests.sql")
    await (await whole(tmp_path / "s.db")).close()
    connection = apsw.Connection(str(tmp_path / "s.db"))
    rows = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
    connection.close()
    assert [version for (version,) in rows] == list(range(1, migrate.LATEST + 1))


def open_four_times(path: Path) -> None:
    subprocess.run([sys.executable, "-c", OPEN_FOUR_TIMES, str(path)], check=True, timeout=60)


async def test_started_many_times_at_once_it_is_done_once(old: Path) -> None:
    open_four_times(old)
    db = apsw.Connection(str(old))
    applied = [v for (v,) in db.execute("SELECT version FROM schema_migrations ORDER BY version")]
    db.close()
    names = (f.name for f in resources.files("sakti.store.migrations").iterdir())
    assert applied == sorted(int(n[:4]) for n in names if n.endswith(".sql"))
    await (await whole(old)).close()


# What two windows left behind in an earlier version: (kind, state, first, last, merged) of each thread's groups in the
# order in which they were made, the cursors, and what has to be in the log afterwards.
OBS, REF = "observation", "reflection"
DAMAGED = {
    "jumped over": (
        {"t": [(OBS, "buffered", 0, 1, ()), (OBS, "active", 2, 5, ()), (OBS, "buffered", 6, 6, ())]},
        {"t": 5},
        {"t": 5},
    ),
    "the cursor went back": ({"t": [(OBS, "active", 0, 1, ()), (OBS, "active", 2, 5, ())]}, {"t": 1}, {"t": 5}),
    "the reflection was discarded with a compaction": (
        {"t": [*((OBS, "superseded", n, n + 3, ()) for n in (0, 4, 8, 12)), (REF, "discarded", 0, 15, (0, 1, 2, 3))]},
        {"t": 15},
        {"t": 15},
    ),
    "another thread's groups were discarded with a compaction": (
        {
            "t": [(OBS, "active", 0, 3, ()), *((OBS, "discarded", n, n + 3, ()) for n in (4, 8, 12))],
            "u": [(OBS, "active", 0, 7, ())],
        },
        {"t": 15, "u": 7},
        {"t": 15, "u": 7},
    ),
}


def damaged(path: Path, groups: Any, cursors: dict[str, int], scope: str) -> None:
    """A database of the second schema with these groups and cursors."""
    first_version(path)
    db = apsw.Connection(str(path))
    script = resources.files("sakti.store.migrations").joinpath("0002_threads_levels_drafts.sql").read_text("utf-8")
    db.execute("BEGIN")
    db.execute(script)
    db.execute("INSERT INTO schema_migrations VALUES (2, '0002', 1)")
    db.execute("INSERT INTO threads (id, resource_id, title, created_at, updated_at) VALUES ('u', '/w', 'Other', 1, 1)")
    for thread, index in ((t, i) for t in ("t", "u") for i in range(20)):
        db.execute(
            "INSERT OR IGNORE INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content,"
            " token_count, created_at) VALUES (?, ?, '/w', 'user', ?, '[]', ?, 7, 1)",
            (f"{thread}{index}", thread, index, f"word{index}"),
        )
    key = "thread:t" if scope == "thread" else "resource:/w"
    db.execute(
        "INSERT INTO observational_memory (id, lookup_key, scope, thread_id, resource_id, created_at, updated_at)"
        " VALUES ('r', ?, ?, ?, '/w', 1, 1)",
        (key, scope, "t" if scope == "thread" else None),
    )
    for thread, made in groups.items():
        for n, (kind, state, a, b, merged) in enumerate(made):
            db.execute(
                "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, first_index, last_index, text,"
                " merged_group_ids, created_at) VALUES (?, 'r', ?, ?, ?, ?, ?, ?, ?, 1)",
                (f"{thread}-{n}", thread, kind, state, a, b, "* a line", json.dumps([f"{thread}-{i}" for i in merged])),
            )
    for thread, last in cursors.items():
        db.execute("INSERT INTO observation_cursors VALUES ('r', ?, ?)", (thread, last))
    db.execute("INSERT INTO leases VALUES ('r', 'buffering_observation', 'host:1:x', 'o', 't', 1, 1, 1)")
    db.execute("COMMIT")
    db.close()


@pytest.mark.parametrize("name", DAMAGED)
async def test_what_two_windows_damaged_opens_mended(name: str, tmp_path: Path) -> None:
    groups, cursors, expected = DAMAGED[name]
    scope = "resource" if "u" in groups else "thread"
    damaged(tmp_path / "m.db", groups, cursors, scope)
    store = await Store.open(tmp_path / "m.db")
    assert (await store.write(integrity.repair_states, "r", 5)) or name == "the cursor went back"
    assert not await store.read(integrity.find_wrong_states, "r")
    for thread, last in expected.items():
        assert await store.read(memory.find_cursor, "r", thread) == last
    active = [g for g in await store.read(memory.list_groups, "r", "active") if g.thread_id == "t"]
    assert {i for g in active for i in range(g.first_index or 0, (g.last_index or 0) + 1)} == set(
        range(expected["t"] + 1)
    )
    assert not await store.write(integrity.repair_states, "r", 6)
    await store.close()


async def test_a_fork_in_a_shared_log_is_not_observed_again(tmp_path: Path) -> None:
    damaged(tmp_path / "m.db", {"t": [(OBS, "active", 0, 7, ())]}, {"t": 7, "u": 7}, "resource")
    db = apsw.Connection(str(tmp_path / "m.db"))
    db.execute("""UPDATE threads SET metadata = '{"forked_from": "t", "forked_at": 5}' WHERE id = 'u'""")
    db.close()
    store = await Store.open(tmp_path / "m.db")
    assert await store.read(memory.find_cursor, "r", "u") == 5
    assert not await store.read(integrity.find_wrong_states, "r")
    await store.close()
