"""`sakti trust`: shows, trusts, lists, revokes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.shell import code


def test_from_untrusted_to_trusted_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "ws"
    (workspace / ".sakti").mkdir(parents=True)
    monkeypatch.chdir(workspace)
    assert code("trust") == 0
    assert "Nothing to trust" in capsys.readouterr().out
    (workspace / ".sakti" / "config.toml").write_text("agent.max_steps = 7\n")
    assert code("trust") == 1
    assert "agent.max_steps = 7  (default 200)" in capsys.readouterr().out
    code("config", "agent.max_steps", "--json")
    assert json.loads(capsys.readouterr().out)["agent.max_steps"]["value"] == 200
    assert code("trust", "--yes") == 0
    capsys.readouterr()
    code("config", "agent.max_steps", "--json")
    assert json.loads(capsys.readouterr().out)["agent.max_steps"]["value"] == 7
    code("trust", "--list", "--json")
    assert [w["workspace"] for w in json.loads(capsys.readouterr().out)] == [str(workspace)]
    assert code("trust", "--revoke") == 0
    assert code("trust") == 1
    assert code("trust", "--yes", "--list") == 2


def test_a_new_skill_of_the_project_names_the_trust_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    assert code("skills", "new", "review") == 0
    assert "then run `sakti trust --yes`: until then it is left out." in capsys.readouterr().out
    assert code("skills", "new", "draft", "--user") == 0
    assert "/skills lists it" in capsys.readouterr().out
