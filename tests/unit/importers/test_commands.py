"""The shell's commands about imported history, from the import to its observation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sakti.cli.start import run_cli
from sakti.store.database import Store
from sakti.store.threads import threads
from tests.fakes.histories import write_codex

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    workspace = tmp_path / "w"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))

    def run(*args: str, code: int = 0) -> Any:
        ended: Any = 0
        try:
            run_cli([*args])
        except SystemExit as e:
            ended = e.code
        out, err = capsys.readouterr()
        assert ended == code, out + err
        return json.loads(out) if "--json" in args else out + err

    return run


def test_imported_threads_are_observed_when_asked_and_once(call: Call, tmp_path: Path) -> None:
    for name in ("a" * 36, "b" * 36):
        write_codex(
            tmp_path / "codex",
            name,
            [f"the till of {name[:3]} starts at 1001", "and counts in cents"],
            cwd=str(tmp_path / "w"),
        )
    call("import", "codex", str(tmp_path / "codex"))
    assert len(call("threads", "list", "--json")["threads"]) == 2
    assert len(call("threads", "list", "--origin", "codex", "--json")["threads"]) == 2
    assert call("threads", "list", "--origin", "pi", "--json")["threads"] == []
    refused = call("memory", "observe", "--imported", "--model", "anthropic/claude-haiku-4-5", code=1)
    assert "2 threads" in refused and "2 calls of anthropic/claude-haiku-4-5: about $" in refused
    assert "Nothing was observed" in refused
    assert "takes PROVIDER" in call("memory", "observe", "--imported", "--model", "haiku", code=2)
    observed = call("memory", "observe", "--imported", "--json")
    assert (observed["threads"], observed["observed"], observed["price"]["cost_usd"]) == (2, 2, 0.0)
    assert "starts at 1001" in call("memory", "log", "--thread", "aaa")
    assert "Nothing to observe" in call("memory", "observe", "--imported")
    base = {"forked_from_id": "a" * 36, "history_base": {"thread_id": "a" * 36, "end_ordinal_exclusive": 6}}
    spawn = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "a" * 36}}}}
    workspace = str(tmp_path / "w")
    write_codex(tmp_path / "codex", "c" * 36, ["the fork counts in pence", "done?"], workspace, 6, **base)
    write_codex(tmp_path / "codex", "d" * 36, ["the child counts in yen", "done?"], workspace, **spawn)
    call("import", "codex", str(tmp_path / "codex"))
    again = call("memory", "observe", "--imported", "--json")
    assert (again["threads"], again["observed"]) == (1, 1), "the fork; a child is its parent's"
    log = call("memory", "log", "--thread", "(fork)")
    assert "counts in pence" in log and "starts at 1001" in log and "in yen" not in log

    async def continued() -> list[str]:
        store = await Store.open(tmp_path / "x.db")
        listed = await store.read(threads.list_recent, str(tmp_path / "w"), continued=True)
        await store.close()
        return [t.title for t in listed]

    assert asyncio.run(continued()) == []  # being observed is not being continued


def test_a_killed_import_is_listed_and_can_be_undone(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write_codex(tmp_path / "codex", name * 36, [f"the till of {name}"], cwd=str(tmp_path / "w"))
    assert "No import can be undone" in call("import", "--undo")

    def kill(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sakti.importers.service._ProgramImport.finish", kill)
        killed = call("import", "codex", str(tmp_path / "codex"), code=130).split()[1]
    assert call("import", "codex", str(tmp_path / "codex")).startswith("Import ")
    assert call("import", "--undo", "--json")["runs"] == [{"run": killed, "programs": ["codex"], "threads": 3}]
    listed = call("import", "--undo", "wrong", code=1)
    assert "There is no import wrong. There are:" in listed and "codex  3 threads" in listed
    call("import", "--undo", killed, "--yes")
    assert call("threads", "list", "--json")["threads"] == []
