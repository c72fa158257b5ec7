"""A workspace whose folder was moved is recognized, and what is stored under its old path can be adopted."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sakti.agent import moved_folder, repository
from sakti.agent.open_thread import OpenThread
from sakti.agent.options import Options
from sakti.agent.session.queries import Views
from sakti.agent.workspace import Workspace
from sakti.core.config import load
from sakti.core.tokens import Estimator
from sakti.core.types import Message, ModelInfo, TextPart, Thread
from sakti.memory.pages import Pages
from sakti.providers.scripted import Answer, ScriptedProvider
from sakti.store import user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.memory import records
from sakti.store.search.search import Scope, search
from sakti.store.tasks import questions
from sakti.store.threads import messages, threads
from sakti.store.user_state import Holdings, WorkspaceFolder
from sakti.tasks import queries, service
from sakti.tasks.service import Actor


def fill(db: Database, root: str, name: str, *, page: str = "") -> None:
    threads.create(db, Thread(f"{name}-thread", root, f"about {name}", 1, 1))
    messages.append(db, Message(f"{name}-m", f"{name}-thread", root, "user", (TextPart(f"the {name} heron"),), 1))
    actor = Actor(root, "user:you", 5)
    service.create(db, actor, service.NewTask(f"{name}-task", f"task of {name}", type="feature"))
    service.create(db, actor, service.NewTask(f"{name}-later", f"later of {name}", depends_on=[f"{name}-task"]))
    service.close(
        db, actor, service.create(db, actor, service.NewTask(f"{name}-old", "done")).id, "completed", "it works"
    )
    user_state.add_prompt(db, root, f"prompt of {name}", 1)
    user_state.save_rule(db, root, "bash(ls)", "allow", 1)
    if page:
        put_page(db, root, page)


def put_page(db: Database, root: str, content: str) -> None:
    before = records.read_working_memory(db, "resource", root)
    version = before[1] if before else 0
    more = {"tokens": 3, "actor": "user", "now": 1, "resource_id": root}
    page = records.PageVersion(f"{root}-{version}", scope="resource", owner_id=root, content=content, **more)
    records.put_working_memory(db, page, expected_version=version)


def rows_of(db: Database, root: str) -> dict[str, int]:
    tables = [name for (name,) in db.execute_sql("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    out: dict[str, int] = {}
    for table in tables:
        columns = [row[1] for row in db.execute_sql(f'PRAGMA table_info("{table}")').fetchall()]
        if "resource_id" in columns:
            sql = f'SELECT count(*) FROM "{table}" WHERE resource_id = ?'
            out[table] = db.execute_sql(sql, (root,)).fetchone()[0]
    counted = "SELECT coalesce(sum(count), 0) FROM task_counts WHERE resource_id = ?"
    out["task_counts"] = db.execute_sql(counted, (root,)).fetchone()[0]
    return {table: count for table, count in out.items() if count}


async def test_everything_but_rules_is_adopted(store: Store) -> None:
    await store.write(fill, "/old", "one", page="the page")
    before = await store.read(rows_of, "/old")
    moved = await store.write(user_state.adopt_workspace, "/old", "/new")
    assert (moved.threads, moved.tasks, moved.page) == (1, 3, True)
    assert await store.read(rows_of, "/old") == {"approval_rules": 1}
    assert await store.read(rows_of, "/new") == {t: n for t, n in before.items() if t != "approval_rules"}
    assert [t.id for t in await store.read(threads.list_recent, "/new", 5)] == ["one-thread"]
    assert [h.id for h in (await store.read(search, "heron", Scope("/new"))).hits] == ["one-m"]
    ready = await store.read(queries.list_ready, "/new", 5)
    assert ([t["id"] for t in ready["tasks"]], ready["readyCount"], ready["blockedCount"]) == (["one-task"], 1, 1)
    assert await store.read(records.read_working_memory, "resource", "/new") == ("the page", 1)
    assert [h.kind for h in (await store.read(search, "page", Scope("/new"))).hits] == ["working_memory"]
    assert [f for f in await store.read(checks.check) if not f.ok] == []


async def test_two_boards_and_pages_become_one(store: Store) -> None:
    await store.write(fill, "/old", "one", page="the old page")
    await store.write(fill, "/new", "two", page="the new page")
    same = "UPDATE tasks SET handle = 'tsame' WHERE id IN ('one-task', 'two-task')"
    await store.write(lambda db: db.execute_sql(same))
    await store.write(user_state.adopt_workspace, "/old", "/new")
    tasks = {t.id: t.handle for t in await store.read(questions.list_live, "/new")}
    assert len(tasks) == len(set(tasks.values())) == 6 and tasks["two-task"] == "tsame"
    content, version = await store.read(records.read_working_memory, "resource", "/new")
    assert (content, version) == ("the new page\n\nthe old page", 2)
    counts = await store.read(questions.read_counts, "/new")
    assert (counts["ready"], counts["blocked"], counts["closed"]) == (2, 2, 2)
    await store.write(put_page, "/new", "another")
    assert [f for f in await store.read(checks.check) if not f.ok] == []


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


async def look(
    store: Store, root: Path, *, trusted: bool = False, saved: bool = True, interactive: bool = True
) -> Sequence[Holdings]:
    return await moved_folder.find_earlier(store, root, trusted=trusted, saved=saved, interactive=interactive)


async def test_a_renamed_folder_is_recognized(store: Store, old: Path) -> None:
    assert await look(store, old) == []
    await store.write(fill, str(old), "one")
    new = old.rename(old.with_name("new"))
    (earlier,) = await look(store, new)
    assert earlier == Holdings(str(old), 1, 3, page=False)
    sentence = moved_folder.offer(earlier)
    assert sentence == f"This folder was {old}: `sakti threads adopt {old}` adopts its 1 thread and 3 tasks."
    await store.write(user_state.adopt_workspace, str(old), str(new))
    assert await look(store, new) == []


async def test_other_folders_are_not_offered(store: Store, old: Path) -> None:
    await look(store, old)
    await store.write(fill, str(old), "one")
    other = old.with_name("other")
    other.mkdir()
    assert await look(store, other) == [], "another inode"
    here = WorkspaceFolder(str(other), "other", *((s := old.stat()).st_dev, s.st_ino))
    assert [h.root for h in await store.read(user_state.find_same_folders, here)] == [str(old)]
    new = old.rename(old.with_name("new"))
    old.mkdir()
    assert await look(store, new) == [], "a folder has the old path again"
    old.rmdir()
    await store.write(fill, str(new), "two")
    assert await look(store, new, interactive=False) == [], "it has threads of its own"


async def test_a_chat_offers_a_moved_folder_that_only_runs_have_used(store: Store, old: Path) -> None:
    await look(store, old)
    await store.write(fill, str(old), "one")
    new = old.rename(old.with_name("new"))
    assert await look(store, new, interactive=False)
    await store.write(fill, str(new), "two")
    assert not await look(store, new, interactive=False)
    assert [h.root for h in await look(store, new)] == [str(old)]
    assert not await look(store, new), "it was offered"


def make_repository(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    me = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *me, *command], cwd=folder, check=True, capture_output=True)


def copy_repository(source: Path, target: Path) -> Path:
    subprocess.run(["git", "clone", "-q", str(source), str(target)], check=True, capture_output=True)
    return target


async def test_a_copied_repository_is_recognized_once_trusted(store: Store, tmp_path: Path) -> None:
    first = tmp_path / "a" / "project"
    make_repository(first)
    await look(store, first, trusted=True)
    await store.write(fill, str(first), "one")
    second = copy_repository(first, tmp_path / "b" / "project")
    assert await repository.find_first_commit(first) == await repository.find_first_commit(second) != ""
    first.rename(tmp_path / "gone")
    assert await look(store, second, trusted=False) == [], "git is not asked"
    assert [h.root for h in await look(store, second, trusted=True)] == [str(first)]
    third = copy_repository(second, tmp_path / "c" / "other-name")
    assert await look(store, third, trusted=True) == []


async def test_nothing_is_remembered_if_nothing_is_saved(store: Store, old: Path) -> None:
    await look(store, old, saved=False)
    assert await store.read(user_state.get_folder, str(old)) is None
    assert await look(store, old / "missing") == []


def add_worktree(main: Path, target: Path) -> Path:
    command = ("git", "worktree", "add", "-q", "--detach", str(target))
    subprocess.run(command, cwd=main, check=True, capture_output=True)
    return target


def make_workspace(store: Store, root: Path, *overrides: str) -> Workspace:
    config = load(overrides=("memory.model=extractive", *overrides)).config
    return Workspace(Options(root, config, env={}), clock=store.clock, counter=Estimator(), store=store)


async def test_linked_worktrees_share_board_and_page_if_set(store: Store, tmp_path: Path) -> None:
    main = tmp_path / "main"
    make_repository(main)
    linked = add_worktree(main, tmp_path / "linked")
    alone = make_workspace(store, linked)
    assert (alone.resource_id, alone.board_id) == (str(linked), str(linked))
    shared = make_workspace(store, linked, "store.share_worktrees=true")
    assert (shared.resource_id, shared.board_id) == (str(linked), str(main))
    assert make_workspace(store, main, "store.share_worktrees=true").board_id == str(main)
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {main}/.git/worktrees/linked\n")
    assert make_workspace(store, forged, "store.share_worktrees=true").board_id == str(forged)


async def test_a_session_in_a_linked_worktree_works_on_the_shared_board(store: Store, tmp_path: Path) -> None:
    main = tmp_path / "main"
    make_repository(main)
    linked = add_worktree(main, tmp_path / "linked")
    await store.write(fill, str(main), "one", page="the shared page")
    workspace = make_workspace(store, linked, "store.share_worktrees=true", "memory.working_memory.enabled=true")
    workspace.models.provider = ScriptedProvider(lambda request: Answer("done"))
    workspace.models.info = ModelInfo("demo", "scripted", context_window=200_000)
    await workspace.open()
    thread = OpenThread(workspace)
    await thread.open_new()
    assert thread.thread is not None and thread.thread.resource_id == str(linked)
    board = await Views(thread).board()
    assert [t.title for t in board.ready] == ["task of one"]
    pages = Pages(store, Estimator(), workspace.config.memory, workspace.board_id)
    assert any("the shared page" in text for text in await pages.read_for_request(thread.id))
