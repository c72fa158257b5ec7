"""`sakti doctor`: what it finds is what the other commands would use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.shell import sakti

MINE = '[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What it says of the model, with a config file of this text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "sakti").mkdir(parents=True)

    def look(text: str) -> dict[str, Any]:
        (tmp_path / "config" / "sakti" / "config.toml").write_text(text)
        findings = json.loads(sakti("doctor", "--json").stdout)["findings"]
        return next(f for f in findings if f["name"] == "model")

    return look


def test_the_model_of_the_config_is_found(model: Any) -> None:
    found = model(f'model = "mine/m"\n{MINE}')
    assert found["ok"] and found["detail"] == "mine/m (from the configuration)"


def test_a_model_of_no_provider_is_told_with_what_fits(model: Any) -> None:
    found = model(f'model = "mien/m"\n{MINE}')
    assert not found["ok"] and "did you mean mine/m" in found["detail"]


def test_what_is_optional_is_no_problem_and_problems_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "sakti").mkdir(parents=True)
    config = tmp_path / "config" / "sakti" / "config.toml"
    config.write_text('model = "mien/m"\n')
    monkeypatch.setattr("sakti.agent.reports.doctor.find_ripgrep", lambda: None)
    found = sakti("doctor")
    signs = [line[0] for line in found.stdout.splitlines()]
    assert found.exit_code == 1 and signs == sorted(signs, key="✗!✓".index) and set(signs) == set("✗!✓")
    assert "! ripgrep: not installed" in found.stdout and "✗ model: " in found.stdout
    config.write_text(f'model = "mine/m"\n{MINE}')
    found = sakti("doctor")
    assert found.exit_code == 0 and found.stdout.startswith("! "), "what is not there and need not be"


def test_a_sound_database_is_one_line_and_each_problem_of_a_broken_one_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.db"
    monkeypatch.setenv("SAKTI_DB", str(path))
    assert sakti("tasks", "create", "one").exit_code == 0
    about = [line for line in sakti("doctor").stdout.splitlines() if " database" in line]
    assert about == [f"✓ database: {path}"]
    named = {f["name"] for f in json.loads(sakti("doctor", "--json").stdout)["findings"]}
    assert "database integrity" in named, "programs read every check"
    path.write_bytes(b"no database at all" * 100)
    about = [line for line in sakti("doctor").stdout.splitlines() if "database " in line]
    assert len(about) == 1 and about[0].startswith("✗ database integrity: file is not a database")


def test_servers_and_agents_of_the_project_are_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    assert "mcp:" not in sakti("doctor").stdout
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"git": {"command": "true"}, "old": {"type": "sse", "url": "https://a.example"}}}')
    agents = home / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "tester.md").write_text("---\nname: tester\ndescription: d\ncolor: red\n---\nTest.\n")
    for name, text in (("explore", "name: explore"), ("half", "- Read"), ("bad", "name: a b")):
        (agents / f"{name}.md").write_text(f"---\n{text}\n---\nx\n")
    lines = sakti("doctor").stdout.splitlines()
    why = "not trusted, so it does not start. `sakti trust` shows and trusts it."
    assert f"! mcp: git ({file}): {why}" in lines and f"! mcp: old ({file}): {why}" in lines
    assert "! agents: 1 custom agent: tester; 3 broken files" in lines
    reasons = ("explore is the name of a mode", "its frontmatter is not YAML", "'a b' is not a name")
    for name, reason in zip(("explore", "half", "bad"), reasons, strict=True):
        assert any(x.startswith("! agent: ") and f"{name}.md" in x and reason in x for x in lines), (name, lines)
    assert any(line.startswith("! agent: ") and "color is not used" in line for line in lines)

    assert sakti("trust", "--yes").exit_code == 0
    lines = sakti("doctor").stdout.splitlines()
    assert f"✓ mcp: git ({file})" in lines
    assert any(line.startswith(f"! mcp: old ({file}): ") and "use streamable HTTP" in line for line in lines)
    file.write_text("{")
    assert sakti("trust", "--yes").exit_code == 0
    assert any(line.startswith("✗ mcp: .mcp.json cannot be read") for line in sakti("doctor").stdout.splitlines())


def test_a_database_below_a_file_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_file").write_text("no folder")
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "a_file" / "x.db"))
    ended = sakti("db", "check")
    assert ended.exit_code == 1
    assert f"{tmp_path / 'a_file'} is not a folder, so nothing is saved" in ended.output
