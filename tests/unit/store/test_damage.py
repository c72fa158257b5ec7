"""Whatever happened to the file: one clear sentence, nothing false in it, and every row that can be read comes back."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from sakti.core import resources
from sakti.core.clock import SystemClock
from sakti.core.errors import StoreError
from sakti.core.types import MarkerPart, Message, TextPart, Thread
from sakti.store import failures, files, migrate, opening, user_state
from sakti.store.connection import wrap_connection
from sakti.store.database import Store
from sakti.store.maintenance import checks, rebuild, recovery
from sakti.store.search.search import Scope, search
from sakti.store.tasks import questions
from sakti.store.threads import messages, threads
from sakti.tasks import service
from sakti.tasks.service import Actor
from tests.fakes.clock import FakeClock
from tests.unit.store.test_migrate import as_of

PAGE = 4096
TABLES = {"threads": "id", "messages": "id", "observation_groups": "id", "observations": "id", "tasks": "id",
          "task_events": "action", "prompt_history": "text"}  # fmt: skip


async def fill(path: Path) -> None:
    """A database with something in every table that holds a user's words, in about 170 pages."""
    store = await Store.open(path, clock=FakeClock(), synchronous="NORMAL")
    rng = random.Random(1)
    for t in range(3):
        await store.write(threads.create, Thread(f"t{t}", "/w", f"thread {t}", 1, 1))
        for n in range(12):
            text = f"message {t} {n} " + "some words of it " * rng.choice((1, 5, 300))
            await store.write(
                messages.append, Message(f"m{t}-{n}", f"t{t}", "/w", "user", (TextPart(text),), n, tokens=9)
            )
        await store.write(user_state.add_prompt, "/w", f"typed {t}", 1)
    for n in range(12):
        await store.write(
            service.create, Actor("/w", "s", n), service.NewTask(f"task{n}", f"do thing {n}", labels=["x"])
        )

    def observed(db) -> None:
        db.execute_sql(
            "INSERT INTO observational_memory (id, lookup_key, scope, thread_id, resource_id, created_at, updated_at)"
            " VALUES ('r', 'thread:t0', 'thread', 't0', '/w', 1, 1)"
        )
        for g in range(3):
            db.execute_sql(
                "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, first_index, last_index, text,"
                " created_at) VALUES (?, 'r', 't0', 'observation', 'active', ?, ?, '* said', 1)",
                (f"g{g}", g * 3, g * 3 + 2),
            )
            for n in range(9):
                db.execute_sql(
                    "INSERT INTO observations (id, group_id, thread_id, resource_id, line, content, created_at)"
                    " VALUES (?, ?, 't0', '/w', ?, ?, 1)",
                    (f"o{g}-{n}", f"g{g}", n, f"the user said {g} {n} " * 8),
                )

    await store.write(observed)
    await store.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import asyncio

    path = tmp_path_factory.mktemp("whole") / "s.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    shutil.copy(whole, tmp_path / "s.db")
    return tmp_path / "s.db"


def zero(path: Path, page: int, _: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(bytes(PAGE))


def noise(path: Path, page: int, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE + rng.randrange(PAGE - 64))
        file.write(rng.randbytes(64))


def cut(path: Path, page: int, _: random.Random) -> None:
    os.truncate(path, page * PAGE + 7)


def readable(path: Path) -> dict[str, set[str]]:
    """What a SELECT by rowid still returns, by table."""
    found: dict[str, set[str]] = {t: set() for t in TABLES}
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    for table, column in TABLES.items():
        for number in range(1, 120):
            try:
                rows = connection.execute(f"SELECT {column}, * FROM {table} WHERE rowid = ?", (number,)).fetchall()
            except (apsw.Error, UnicodeDecodeError):
                continue
            found[table].update(str(r[0]) for r in rows)
    connection.close()
    return found


def is_sound(path: Path) -> bool:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return [str(r[0]) for r in connection.execute("PRAGMA integrity_check")] == ["ok"]
    except apsw.Error:
        return False
    finally:
        connection.close()


async def use(path: Path) -> None:
    """What a window does, and what commands do. Only `StoreError` may come out of it."""
    store = await Store.open(path, synchronous="NORMAL")
    try:
        for work in (
            lambda: store.read(threads.list_summaries, "/w", 9),
            lambda: store.read(messages.list_page, "t1"),
            lambda: store.read(search, "thing", Scope("/w")),
            lambda: store.write(user_state.add_prompt, "/w", "more", 2),
            lambda: store.write(messages.append, Message("new", "t1", "/w", "user", (TextPart("more"),), 99)),
        ):
            try:
                await work()
            except StoreError as e:
                assert "Nothing was lost" not in e.message
    finally:
        await store.close()


def cases() -> Iterator[tuple[Callable[..., None], int]]:
    rng = random.Random(20)
    return iter([(kind, rng.randrange(1, 160)) for kind in (zero, zero, zero, zero, noise, noise, noise, cut)])


@pytest.mark.parametrize(("damage", "page"), [*cases(), (zero, 0)])
async def test_a_damaged_page(path: Path, damage: Callable[..., None], page: int) -> None:
    damage(path, page, random.Random(page))
    sound = is_sound(path)
    found = checks.inspect(path)
    assert sound or not all(f.ok for f in found)
    try:
        await use(path)
    except StoreError as e:
        assert not sound and "`sakti db recover`" in e.message
    before = readable(path)
    done = recovery.recover(path, SystemClock())
    assert done.damaged.read_bytes()[-PAGE:] and oct(done.damaged.stat().st_mode)[-3:] == "600"
    after = readable(path)
    for table in TABLES:
        assert before[table] <= after[table], table
    assert all(f.ok for f in checks.inspect(path)), [f for f in checks.inspect(path) if not f.ok]
    await use(path)


def schema_pages(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").fetchall()
    connection.close()
    return [int(str(n)) - 1 for (n,) in pages]


@pytest.mark.parametrize("which", ["all", "first", "others"])
async def test_a_lost_schema_is_found_again_by_the_rows(path: Path, which: str) -> None:
    pages = schema_pages(path)
    assert len(pages) > 3
    before = readable(path)
    for page in {"all": pages, "first": pages[:1], "others": pages[1:]}[which]:
        zero(path, page, random.Random(1))
    done = recovery.recover(path, SystemClock())
    assert recovery.FOUND_AGAIN in done.repaired
    assert readable(path) == before and all(before.values())
    assert all(f.ok for f in checks.inspect(path)), [f for f in checks.inspect(path) if not f.ok]
    store = await Store.open(path)
    assert {t.labels for t in await store.read(questions.list_live, "/w")} == {("x",)}
    await store.close()
    await use(path)


async def test_a_lost_schema_with_a_commit_in_the_write_ahead_log(path: Path, tmp_path: Path) -> None:
    pages, copy = schema_pages(path), tmp_path / "copy" / "s.db"
    store = await Store.open(path)
    await store.write(threads.create, Thread("late", "/w", "late", 1, 1))
    copy.parent.mkdir()
    for name in ("s.db", "s.db-wal"):
        shutil.copy(tmp_path / name, copy.parent / name)
    await store.close()
    for page in pages:
        zero(copy, page, random.Random(1))
    recovery.recover(copy, SystemClock())
    assert "late" in readable(copy)["threads"]


@pytest.mark.parametrize("lose", ["emptied", "overwritten", "cut"])
async def test_a_log_that_is_the_last_copy_is_read_and_kept(path: Path, tmp_path: Path, lose: str) -> None:
    lost = tmp_path / "lost" / "s.db"
    lost.parent.mkdir()
    store = await Store.open(path)
    for n in range(5):
        await store.write(messages.append, Message(f"late{n}", "t0", "/w", "user", (TextPart(f"late {n}"),), n))
    for name in ("s.db", "s.db-wal"):
        shutil.copy(tmp_path / name, lost.parent / name)
    await store.close()
    os.truncate(lost, 100 if lose == "cut" else 0)
    if lose == "overwritten":
        lost.write_bytes(random.Random(4).randbytes(50_000))
    log = lost.with_name("s.db-wal").read_bytes()
    done = recovery.recover(lost, SystemClock())
    assert {f"late{n}" for n in range(5)} <= readable(lost)["messages"]
    assert done.damaged.with_name(f"{done.damaged.name}-wal").read_bytes() == log
    await use(lost)


async def test_a_log_counts_to_its_last_commit_before_a_damaged_frame(path: Path, tmp_path: Path) -> None:
    store = await Store.open(path)
    sizes: list[int] = []
    for n in range(3):
        await store.write(threads.create, Thread(f"late{n}", "/w", "late", 1, 1))
        sizes.append(files.get_size(files.append_suffix(path, "-wal")))
    log = bytearray(files.append_suffix(path, "-wal").read_bytes())
    original = path.read_bytes()
    await store.close()
    log[sizes[1] - 5] ^= 1  # in the last frame of the second commit
    expected, read = tmp_path / "expected.db", tmp_path / "read.db"
    for copy in (expected, read):
        copy.write_bytes(original)
    files.append_suffix(expected, "-wal").write_bytes(log)
    connection = apsw.Connection(str(expected))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    files.append_suffix(tmp_path / "log", "-wal").write_bytes(log)
    assert recovery.write_log_pages(read, files.append_suffix(tmp_path / "log", "-wal"))
    assert read.read_bytes() == expected.read_bytes()


async def test_a_refused_recovery_leaves_the_log_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(path, 0)
    log = files.append_suffix(path, "-wal")
    log.write_bytes(b"all that is there" * 100)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(opening, "build", fail)
    with pytest.raises(StoreError, match="cannot be recovered: Input/output error"):
        recovery.recover(path, SystemClock())
    assert log.read_bytes() == b"all that is there" * 100
    assert not list(path.parent.glob("s.db.damaged-*"))


async def test_the_rest_is_searched_and_talked_on_in(path: Path) -> None:
    connection = apsw.Connection(str(path))
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'threads'").fetchall()[0]
    connection.close()
    zero(path, int(str(page)) - 1, random.Random(0))
    done = recovery.recover(path, SystemClock())
    assert done.rows["messages"] == (36, 0) and done.rows["threads"][0] == 0
    assert any("threads were lost but not their messages" in line for line in done.repaired)
    store = await Store.open(path)
    assert {t.title for t in await store.read(threads.list_recent, "/w")} == {"Recovered thread"}
    assert (await store.read(search, "thing 7", Scope("/w"))).hits[0].kind == "task"
    assert (await store.read(search, "user said", Scope("/w"))).total >= 27
    await store.close()


async def test_a_lost_message_leaves_a_note_in_its_place(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM messages WHERE id = 'm1-4'")
    connection.execute("DELETE FROM messages WHERE id = 'm1-0'")
    connection.close()
    recovery.recover(path, SystemClock())
    store = await Store.open(path)
    said = await store.read(messages.list_page, "t1")
    assert [m.index for m in said] == list(range(12))
    assert [m.index for m in said if m.state == "withheld"] == [0, 4]
    assert (await store.read(search, "could not be read", Scope("/w"))).total == 0
    await store.close()


async def test_values_that_mean_nothing_are_replaced_and_their_rows_kept(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA ignore_check_constraints = 1").fetchall()
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute("UPDATE messages SET parts = '[{\"t\": \"te', state = '' WHERE id = 'm0-1'")
    connection.execute("UPDATE messages SET raw_content = CAST(x'666fff6f' AS TEXT) WHERE id = 'm0-2'")
    connection.execute("UPDATE tasks SET updated_at = 'noon', metadata = '{' WHERE id = 'task3'")
    connection.close()
    assert not all(f.ok for f in checks.inspect(path))
    recovery.recover(path, SystemClock())
    assert all(f.ok for f in checks.inspect(path))
    store = await Store.open(path)
    one, two = await store.read(messages.get_many, ["m0-1", "m0-2"])
    assert one.parts == (MarkerPart("withheld", rebuild.LOST),) and one.state == "saved"
    rows = await store.read(lambda db: db.execute_sql("SELECT raw_content FROM messages WHERE id = 'm0-2'").fetchone())
    assert rows == ("fo\ufffdo",) and two.text.startswith("message 0 2 ")
    await store.close()


def checked_columns() -> list[tuple[str, str]]:
    """Every column of the schema whose words are checked, without those of leases, which are not copied."""
    connection = apsw.Connection(":memory:")
    migrate.apply_steps(wrap_connection(connection), SystemClock(), name="memory")
    tables = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    checks_of = {str(name): re.findall(r"CHECK \((\w+) IN", str(sql)) for name, sql in tables}
    return [(name, column) for name, columns in checks_of.items() for column in columns if name != "leases"]


async def test_unknown_words_are_replaced_in_every_checked_column(path: Path) -> None:
    store = await Store.open(path)
    await store.write(service.depend, Actor("/w", "s", 20), "task2", "task1")
    await store.close()
    connection = apsw.Connection(str(path))
    for option in ("ignore_check_constraints = 1", "foreign_keys = 0"):
        connection.execute(f"PRAGMA {option}").fetchall()
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute("INSERT INTO carry_over VALUES ('t0', 0, 'line', 'o0-1', 'what was said')")
    connection.execute("INSERT INTO task_messages VALUES ('task1', 'm0-1', 'output', 1)")
    for table, column in checked_columns():
        connection.execute(f"UPDATE {table} SET {column} = 'nonsense'")
    connection.close()
    recovered = recovery.recover(path, SystemClock())
    assert "rows had invalid values, replaced by the defaults" in " ".join(recovered.repaired)
    assert [f for f in checks.inspect(path) if f.name == "integrity" and not f.ok] == []
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT kind FROM carry_over").get == "thread"
    assert connection.execute("SELECT type FROM task_dependencies").get == "related"


async def test_counts_of_tasks_are_made_anew_and_are_no_rows_that_were_lost(path: Path) -> None:
    store = await Store.open(path)
    await store.write(service.depend, Actor("/w", "s", 20), "task2", "task1")
    await store.close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE task_counts SET count = 40")
    connection.execute("DELETE FROM tasks WHERE id = 'task1'")
    connection.execute("UPDATE tasks SET resource_id = CAST(x'2fff' AS TEXT) WHERE id = 'task5'")
    connection.execute("UPDATE tasks SET resource_id = CAST(x'2ffe' AS TEXT) WHERE id = 'task6'")
    connection.close()
    done = recovery.recover(path, SystemClock())
    assert "task_counts" not in done.rows
    assert all(f.ok for f in checks.inspect(path)), [f for f in checks.inspect(path) if not f.ok]
    store = await Store.open(path)
    assert (await store.read(questions.read_counts, "/w"))["ready"] == 9  # task2 waits for what is gone no longer
    assert (await store.read(questions.read_counts, "/\ufffd"))["ready"] == 2
    await store.close()


async def test_an_empty_file_is_never_taken_for_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch()
    with pytest.raises(StoreError, match="it is empty") as caught:
        await Store.open(path)
    assert caught.value.code == "damaged"
    (found,) = [f for f in checks.inspect(path) if f.name == "file"]
    assert not found.ok and found.detail.endswith("it is empty") and found.advice == failures.RECOVER
    done = recovery.recover(path, SystemClock())
    assert done.rows == {} and done.damaged.exists()
    await (await Store.open(path)).close()


async def test_a_link_to_nothing_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.symlink_to(tmp_path / "none.db")
    with pytest.raises(StoreError, match=r"s\.db is a link to .*none\.db, which does not exist"):
        await Store.open(path)
    (found,) = [f for f in checks.inspect(path) if f.name == "file"]
    assert not found.ok and found.advice == "Name another file with SAKTI_DB."
    assert [p.name for p in tmp_path.glob("*.db*")] == ["s.db"]


@pytest.mark.parametrize("length", [50, 100, 4096])
async def test_a_damaged_header_is_mended_in_a_copy(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.write(random.Random(3).randbytes(length))
    with pytest.raises(StoreError, match="is damaged"):
        await Store.open(path)
    damaged = path.read_bytes()
    done = recovery.recover(path, SystemClock())
    assert done.damaged.read_bytes() == damaged
    if length <= 100:
        assert done.rows["messages"] == (36, 0)
    await (await Store.open(path)).close()


async def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await Store.open(path)
    with pytest.raises(StoreError, match="not a file"):
        await Store.open(tmp_path)
    (found,) = [f for f in checks.inspect(path) if f.name == "file"]
    assert found.detail.endswith("another program") and found.advice == "Name another file with SAKTI_DB."
    with pytest.raises(StoreError, match="another program") as caught:
        recovery.recover(path, SystemClock())
    assert caught.value.code == "not_ours"
    assert path.read_bytes() == before and [p.name for p in tmp_path.glob("other.db*")] == ["other.db"]


@pytest.mark.parametrize("gone", ["PRAGMA application_id = 7", "DELETE FROM schema_migrations"])
async def test_a_file_whose_marks_are_lost_is_recovered_all_the_same(path: Path, gone: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(gone)
    connection.close()
    assert recovery.recover(path, SystemClock()).rows["messages"] == (36, 0)


async def test_nothing_is_recovered_under_an_open_window(path: Path) -> None:
    store = await Store.open(path)
    with pytest.raises(StoreError, match="open in another window"):
        recovery.recover(path, SystemClock())
    await store.close()
    with pytest.raises(StoreError, match="nothing to recover"):
        recovery.recover(path.with_name("none.db"), SystemClock())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.store.database import Store
from sakti.store import user_state

async def main():
    store = await Store.open(Path(sys.argv[1]))
    await store.write(user_state.add_prompt, "/w", "the last", 1)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def kill_a_window(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


async def test_damage_that_a_crash_left_stops_the_writing(path: Path) -> None:
    connection = apsw.Connection(str(path))
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'steps'").fetchall()[0]
    connection.close()
    kill_a_window(path)
    zero(path, int(str(page)) - 1, random.Random(0))
    store = await Store.open(path)
    assert "is damaged" in (store.not_saved or "") and failures.RECOVER in (store.not_saved or "")
    assert "the last" in await store.read(user_state.list_prompts, "/w", 9)
    with pytest.raises(StoreError, match="is damaged"):
        await store.write(user_state.add_prompt, "/w", "more", 1)
    await store.close()


async def test_without_a_crash_nobody_waits_for_a_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakti.store.failures.find_damage", lambda _: pytest.fail("it was looked for damage"))
    await (await Store.open(path)).close()
    kill_a_window(path)
    with pytest.raises(pytest.fail.Exception):
        await Store.open(path)


async def test_an_error_that_nobody_meant_is_looked_behind(path: Path) -> None:
    store = await Store.open(path)

    def trip(db) -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        await store.read(trip)
    store._checked_at = float("-inf")
    await store.write(lambda db: db.execute_sql("UPDATE messages SET parts = '[' WHERE id = 'm0-0'"))
    with pytest.raises(StoreError, match="is damaged"):
        await store.read(messages.list_page, "t0")
    await store.close()


# --- what is not writable --------------------------------------------------------------------------------


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "is_writable", lambda _: False)


async def test_what_may_not_be_written_is_read_as_it_was_left(path: Path, read_only: None) -> None:
    before = sorted(p.name for p in path.parent.iterdir()), path.read_bytes()
    store = await Store.open(path)
    assert "is not writable" in (store.read_only_reason or "") and store.not_saved == store.read_only_reason
    assert len(await store.read(messages.list_page, "t0")) == 12
    with pytest.raises(StoreError) as caught:
        await store.write(user_state.add_prompt, "/w", "x", 1)
    assert caught.value.code == "read_only"
    assert not all(f.ok for f in checks.inspect(path))
    assert all(f.ok for f in await store.read(checks.check))
    await store.close()
    assert (sorted(p.name for p in path.parent.iterdir()), path.read_bytes()) == before


async def test_a_chat_goes_on_in_a_copy_that_goes(path: Path, read_only: None) -> None:
    before = path.read_bytes()
    store = await Store.open(path, scratch=True)
    assert store.read_only_reason is None and "is not writable" in (store.not_saved or "")
    await store.write(user_state.add_prompt, "/w", "not for ever", 1)
    assert (await store.read(user_state.list_prompts, "/w", 9))[-1] == "not for ever"
    assert all(f.ok for f in await store.read(checks.check))
    assert store._file is not None and store._file.is_temporary
    await store.close()
    again = apsw.Connection(store._file.filename, flags=store._file.flags)
    assert again.execute("SELECT count(*) FROM sqlite_schema").get == 0, "the copy went with its last connection"
    assert path.read_bytes() == before


async def test_a_last_commit_in_the_write_ahead_log_is_seen_there_too(path: Path, read_only: None) -> None:
    kill_a_window(path)
    files.append_suffix(path, "-shm").unlink()
    store = await Store.open(path)
    assert await store.read(user_state.list_prompts, "/w", 1) == ["the last"]
    await store.close()


async def test_where_no_database_can_be_made_a_chat_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise opening.NotWritable("no room for it")

    monkeypatch.setattr(opening, "create", refuse)
    store = await Store.open(tmp_path / "s.db", scratch=True)
    await store.write(user_state.add_prompt, "/w", "x", 1)
    assert "no room for it" in (store.not_saved or "")
    await store.close()
    store = await Store.open(tmp_path / "s.db")
    assert await store.read(threads.list_recent, "/w") == []
    with pytest.raises(StoreError, match="no room for it"):
        await store.write(user_state.add_prompt, "/w", "x", 1)
    await store.close()
    assert list(tmp_path.glob("s.db*")) == []


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def gone() -> int:
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid


async def test_what_processes_that_are_gone_left_is_removed(path: Path, gone: int) -> None:
    left = [f"s.db.before-0003.{gone}", f"s.db.new-{gone}", f"s.db.part-{gone}-wal"]
    stays = [f"s.db.new-{os.getpid()}", "s.db.before-0003", "s.db.backup-1", "other.db.new-1"]
    for name in (*left, *stays):
        (path.parent / name).touch()
    assert sorted(p.name for p in files.find_leftovers(path)) == sorted(left)
    await (await Store.open(path)).close()
    assert sorted(p.name for p in path.parent.glob("*.db*")) == sorted([*stays, "s.db"])


MOUNTS = """proc /proc proc rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/disk ext4 rw 0 0
//box/share /mnt/a\\040share cifs rw 0 0
portal /run/user/1/doc fuse.portal rw 0 0
me@box: /mnt/box fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/var/x.db", None),
        ("/home/me/x.db", "nfs4"),
        ("/home/me/disk/x.db", None),
        ("/mnt/a share/x.db", "cifs"),
        ("/mnt/box/deep/x.db", "fuse.sshfs"),
        ("/run/user/1/doc/x.db", None),
        ("/homely/x.db", None),
    ],
)
def test_network_file_systems_are_known(tmp_path: Path, place: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert files.find_network_type(Path(place), mounts) == kind


async def test_there_is_no_write_ahead_log_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    await (await Store.open(path)).close()
    monkeypatch.setattr(files, "find_network_type", lambda _: "nfs4")
    store = await Store.open(path)
    await store.write(user_state.add_prompt, "/w", "x", 1)
    assert await store.read(lambda db: db.execute_sql("PRAGMA journal_mode").fetchone()) == ("delete",)
    assert await store.read(user_state.list_prompts, "/w", 9) == ["x"]
    await store.close()
    (finding,) = [f for f in checks.inspect(path) if not f.ok]
    assert "network file system (nfs4)" in finding.detail


async def test_a_file_of_the_users_own_that_others_can_read_is_made_private(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.chmod(0o666)
    assert "others may read" in next(f.detail for f in checks.inspect(path) if not f.ok)
    store = await Store.open(path)
    assert "(mode 666)" in store.notices[0] and oct(path.stat().st_mode)[-3:] == "600"
    await store.close()
    path.parent.chmod(0o777)
    monkeypatch.setattr(resources, "data_home", lambda: path.parent)
    store = await Store.open(path)
    assert any(f"{path.parent}" in n and "(mode 777)" in n for n in store.notices)
    assert oct(path.parent.stat().st_mode)[-3:] == "700"
    await store.close()
    monkeypatch.undo()
    path.parent.chmod(0o777)
    assert f"chmod 700 {path.parent}" in next(f.advice for f in checks.inspect(path) if not f.ok)


@pytest.mark.parametrize("version", range(1, 6))  # later ones change no rows
async def test_what_migrations_do_to_rows_is_done_to_an_older_one(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.db"
    as_of(path, version)
    db = apsw.Connection(str(path))
    key = "AKIA" + "ABCDEFGH12345678"
    db.execute("UPDATE threads SET title = ?, metadata = json_set(metadata, '$.carry_over', 'of old')", (key,))
    db.execute("UPDATE tasks SET own_blockers = 7, open_children = 5, held = 1 - held")
    db.close()
    recovery.recover(path, SystemClock())
    store = await Store.open(path)
    assert all(f.ok for f in await store.read(checks.check))
    claims = await store.read(
        lambda db: db.execute_sql("SELECT id, session_id FROM tasks WHERE status = 'in_progress'").fetchall()
    )
    assert dict(claims) == {"of-a-chat": "t", "of-a-shell": "shell:ann"}
    (thread,) = await store.read(threads.list_recent, "/w")
    assert key not in thread.title and "carry_over" not in thread.metadata
    await store.close()
