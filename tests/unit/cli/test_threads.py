"""`sakti threads` and `sakti db purge`: what they say, what they do, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sakti.cli.start import run_cli
from sakti.core.types import Message, TextPart, Thread
from sakti.store import files
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from tests.fakes.shell import sakti


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Any:
    workspace = tmp_path / "w"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))

    async def fill() -> None:
        store = await Store.open(tmp_path / "x.db", synchronous="NORMAL")
        for n, title in enumerate(("fix the login", "paint the fence")):
            await store.write(threads.create, Thread(f"thread-{n}", str(workspace), title, n, n))
            for i, role in enumerate(("user", "assistant")):
                said = Message(f"m{n}{i}", f"thread-{n}", str(workspace), role, (TextPart(f"{title} {role}"),), i)
                await store.write(messages.append, said)
        await store.close()

    asyncio.run(fill())

    def call(*args: str, code: int = 0) -> Any:
        ended = 0
        try:
            run_cli([*args])
        except SystemExit as e:
            ended = e.code
        out, err = capsys.readouterr()
        assert ended == code, out + err
        return json.loads(out) if "--json" in args else out + err

    return call


def listed(run, *more):
    return [
        t["title"] if "title" in t else t["thread"]["title"] for t in run("threads", "list", "--json", *more)["threads"]
    ]


def test_an_entire_title_wins_over_threads_that_contain_it(run):
    run("threads", "rename", "thread-1", "fix the login twice")
    assert run("threads", "show", "Fix the login", "--json")["thread"]["id"] == "thread-0"
    assert "matches 2 threads" in run("threads", "delete", "fix the", code=1)
    assert "'fix the login':" in run("threads", "delete", "fix the login")
    run("threads", "delete", "thread-1")
    assert "Restored 'fix the login'." in run("threads", "restore", "fix the login")


def test_a_thread_of_another_workspace_is_named_with_how_to_open_it(run, home, tmp_path, monkeypatch):
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    here = Path.cwd()
    other = tmp_path / "another folder"
    other.mkdir()
    monkeypatch.chdir(other)
    for line in (
        ("threads", "show", "thread-0"),
        ("threads", "rename", "thread-0", "x"),
        ("memory", "working", "--thread", "thread-0"),
        ("undo", "--thread", "thread-0"),
        ("diff", "--thread", "thread-0"),
        ("search", "login", "--thread", "thread-0"),
    ):
        assert f"`cd {shlex.quote(str(here))} && sakti -r thread-0` opens it" in sakti(*line).stderr, line
        unknown = sakti(*("nope" if word == "thread-0" else word for word in line))
        assert "No thread of this workspace matches 'nope'" in unknown.stderr
    resumed = ("run", "-r", "thread-0", "x"), ("run", "--fork", "thread-0", "x")
    for line in (*resumed, ("memory", "log", "--thread", "thread-0")):
        told = sakti(*line)
        assert told.exit_code == 2 and f"belongs to the workspace {here}" in told.stderr, line


def test_a_thread_from_its_fork_to_its_end(run):
    assert run("threads", "rename", "login", "mend the login", "--json")["thread"]["title_pinned"] is True
    made = run("threads", "fork", "login", "--json")["thread"]
    assert made["title"] == "mend the login (fork)"
    early = run("threads", "fork", "thread-0", "--upto", "0", "--json")["thread"]
    assert len(run("threads", "show", early["id"], "--json")["messages"]) == 1
    assert "matches 3 threads" in run("threads", "delete", "login", code=1)
    gone = run("threads", "delete", made["id"], "--json")
    assert (gone["messages"], gone["thread"]["id"]) == (2, made["id"])
    assert listed(run).count(made["title"]) == 1
    assert listed(run, "--deleted") == [made["title"]]
    assert "No thread of this workspace" in run("threads", "delete", made["id"], code=1)
    assert "Restored" in run("threads", "restore", made["id"])
    assert "matches 0 deleted" in run("threads", "restore", made["id"], code=1)
    assert "Nothing deleted to remove" in run("db", "purge")
    assert "restores it" in run("threads", "delete", made["id"])
    assert "Nothing was removed" in run("db", "purge")
    assert run("db", "purge", "--yes", "--days", "1", "--json")["threads"] == []
    assert "removed" in run("db", "purge", "--yes")
    assert listed(run, "--deleted") == []
    assert run("db", "check", "--json")["ok"]


def test_what_was_recovered_is_counted(run, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as db, db:
        db.execute("DELETE FROM threads WHERE id = 'thread-1'")
        db.execute("DELETE FROM messages WHERE thread_id = 'thread-1'")
    told = run("db", "recover")
    assert re.search(r"^messages +2 rows$", told, re.M) and re.search(r"^threads +1 row$", told, re.M), told


def test_nothing_is_purged_where_nothing_may_be_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "is_writable", lambda _: False)
    before = (tmp_path / "x.db").read_bytes()
    assert "Nothing deleted to remove" in run("db", "purge")
    said = run("db", "purge", "--yes", code=1)
    assert "x.db is not writable" in said and "Traceback" not in said
    assert (tmp_path / "x.db").read_bytes() == before


def test_export(run, tmp_path):
    assert "paint the fence assistant" in run("threads", "export", "fence")
    page = tmp_path / "page.html"
    run("threads", "export", "fence", "--format", "html", "-o", str(page))
    assert "paint the fence" in page.read_text()
    assert "already exists" in run("threads", "export", "fence", "-o", str(page), code=1)
    run("threads", "export", "fence", "--format", "pdf", code=2)
    run("threads", "rename", "fence", " ", code=2)


def test_a_message_is_removed_by_the_end_of_its_id(run):
    shown = run("threads", "show", "login")
    assert "── user · 1970-01-01" in shown and "· m00" in shown
    run("threads", "delete-message", "m00", code=2)
    found = run("threads", "delete-message", "000m00", code=1)
    assert "No message of this workspace" in found


def test_purge_shows_what_goes_and_vacuum_asks(run, tmp_path):
    run("tasks", "create", "a task")
    (tmp_path / "x.db.backup-1").write_bytes(b"a copy")
    assert "would be removed  copy" not in run("db", "purge")
    run("threads", "delete", "fence")
    run("tasks", "delete", run("tasks", "list", "--json")["tasks"][0]["handle"])
    told = run("db", "purge")
    assert (
        "would be removed  'paint the fence'" in told and "would be removed  task" in told and "x.db.backup-1" in told
    )
    assert (tmp_path / "x.db.backup-1").exists()
    done = run("db", "purge", "--yes", "--json")
    assert [t["title"] for t in done["tasks"]] == ["a task"] and done["left"] == ""
    assert not (tmp_path / "x.db.backup-1").exists()
    assert "--yes confirms it" in run("db", "vacuum", code=2)
    assert run("db", "vacuum", "--yes", "--json")["bytes_after"] > 0
    assert run("db", "check", "--json")["ok"]


def test_a_chat_names_a_missing_or_ambiguous_thread_before_it_opens(run):
    for words in (("-r", "nope"), ("--plain", "-r", "nope")):
        assert "No thread of this workspace matches 'nope'" in run(*words, code=2)
    assert re.search(r"\d threads match 'e': .*\. Name one by its id\.", run("-r", "e", code=2))
    assert "the chat needs a terminal" in run("-r", "thread-0", code=2)


def test_a_damaged_database_is_recovered(run, tmp_path):
    path = tmp_path / "x.db"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "✗ integrity" in run("db", "check", code=1)
    assert "is damaged" in run("threads", "list", code=1)
    assert "is damaged" in run("db", "backup", code=1)
    done = run("db", "recover", "--json")
    assert done["path"] == str(path) and (tmp_path / done["kept"]).read_bytes() == whole[: len(whole) // 2]
    assert run("db", "check", "--json")["ok"]
    path.write_bytes(b"")
    assert "it is empty" in run("db", "check", code=1)
    assert "No row of the file could be read" in run("db", "recover")
    assert run("threads", "list", "--json") == {"threads": []}


def test_exports_hold_no_secret(run, tmp_path):
    key = "AKIA" + "ABCDEFGH12345678"

    async def say() -> None:
        store = await Store.open(tmp_path / "x.db", synchronous="NORMAL")
        said = Message(
            "long-id-secret", "thread-0", str(tmp_path / "w"), "user", (TextPart(f'"password": "{key}\\""'),), 9
        )
        await store.write(messages.append, said)
        await store.close()

    asyncio.run(say())
    for form in ("md", "json", "html"):
        text = run("threads", "export", "login", "--format", form)
        assert key not in text and "[secret:aws:" in text
    json.loads(run("threads", "export", "login", "--format", "json"))
    assert key not in run("memory", "export", "--thread", "thread-0")
    assert run("threads", "delete-message", "id-secret", "--json")["message_ids"] == ["long-id-secret"]
    assert "secret" not in run("threads", "export", "login") + run("threads", "show", "login")


def test_threads_of_all_workspaces_are_listed_with_theirs(run, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert "No thread in this workspace" in run("threads", "list")
    said = run("threads", "list", "--all-workspaces").splitlines()
    assert [line.split("  ")[-1] for line in said] == [f"({tmp_path / 'w'})"] * 2
    assert listed(run, "--all-workspaces") == ["paint the fence", "fix the login"]
