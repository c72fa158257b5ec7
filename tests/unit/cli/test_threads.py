"""`sakti threads` and `sakti db purge`: what they say, what they do, and how they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sakti.cli import run_cli
from sakti.core.types import Message, TextPart, Thread
from sakti.store import messages, threads
from sakti.store.database import Store


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
    assert "is back" in run("threads", "restore", made["id"])
    assert "matches 0 deleted" in run("threads", "restore", made["id"], code=1)
    assert "No deleted thread" in run("db", "purge")
    assert "brings it back" in run("threads", "delete", made["id"])
    assert "Nothing was removed" in run("db", "purge")
    assert run("db", "purge", "--yes", "--days", "1", "--json")["threads"] == []
    assert "removed" in run("db", "purge", "--yes")
    assert listed(run, "--deleted") == []
    assert run("db", "check", "--json")["ok"]


def test_export(run, tmp_path):
    assert "paint the fence assistant" in run("threads", "export", "fence")
    page = tmp_path / "page.html"
    run("threads", "export", "fence", "--format", "html", "-o", str(page))
    assert "paint the fence" in page.read_text()
    assert "exists already" in run("threads", "export", "fence", "-o", str(page), code=1)
    run("threads", "export", "fence", "--format", "pdf", code=2)
    run("threads", "rename", "fence", " ", code=2)
