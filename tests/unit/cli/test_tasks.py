"""`sakti tasks`: the objects of the tools, and real exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sakti.cli.tasks import app


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))

    def call(*args: str, code: int = 0, stdin: str | None = None) -> Any:
        result = CliRunner().invoke(app, list(args), input=stdin)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in args else result.stdout

    return call


def test_a_task_from_its_making_to_its_end(run: Any) -> None:
    first = run("create", "first", "-p", "1", "-l", "one", "--json")["task"]
    second = run("create", "second", "--depends-on", first["handle"], "--json")["task"]
    assert [t["title"] for t in run("ready", "--json")["tasks"]] == ["first"]
    assert run("show", second["handle"], "--json")["blockingTasks"] == [first["handle"]]
    assert [s["title"] for s in run("explain", second["handle"], "--json")["chain"]] == ["second", "first"]
    assert run("ready", "--claim", "--as", "ann", "--json")["task"]["claimedBy"] == "shell:ann"
    refused = run("claim", first["handle"], "--as", "bob", "--json", code=1)
    assert (refused["success"], refused["code"]) == (False, "already_claimed")
    run("release", first["handle"], "--as", "bob", code=1)
    run("release", first["handle"], "--as", "ann")
    done = run("close", first["handle"], "-s", "moved the xylophone", "--json")
    assert [t["title"] for t in done["unblocked"]] == ["second"]
    assert [t["title"] for t in run("search", "xylophone", "--json")["tasks"]] == ["first"]
    assert run("undo", "--json")["undone"][0]["action"] == "close"
    assert run("list", "--label", "one", "--json")["total"] == 1
    run("label", first["handle"], "two")
    run("label", first["handle"], "one", "--remove")
    assert run("list", "--json")["tasks"][0]["labels"] == ["two"]
    assert "Blocked  1" in run("board")
    run("dep", second["handle"], first["handle"], "--remove")
    run("dep", second["handle"], first["handle"], "--remove", code=1)
    run("delete", second["handle"])
    run("show", second["handle"], code=1)
    run("restore", second["handle"])
    assert "second" in run("list")


def test_wrong_usage_is_two_and_a_refusal_one(run: Any) -> None:
    run("create", "x", "-p", "9", code=2)
    run("create", "x", "-t", "wish", code=1)
    run("list", "--status", "blocked", code=2)
    run("update", "t", code=2)
    run("undo", code=1)
    run("import", "nowhere.jsonl", code=2)
    run("import", "-", code=1, stdin="not json\n")
    run("link", "nothing", "nothing", code=1)


def test_an_export_comes_back_in_another_workspace(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("create", "first", "--json")["task"]
    run("create", "second", "--depends-on", first["id"])
    run("export", str(tmp_path / "out.jsonl"))
    assert (tmp_path / "out.jsonl").read_text() == run("export")
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "other.db"))
    done = run("import", str(tmp_path / "out.jsonl"), "--json")
    assert (done["tasks"], done["dependencies"], done["known"]) == (2, 1, 0)
    assert run("ready", "--json")["blockedCount"] == 1
    assert run("import", str(tmp_path / "out.jsonl"), "--json")["known"] == 2
