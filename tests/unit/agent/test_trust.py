"""A workspace's own settings have an effect only where they are trusted, as they were seen."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sakti.agent import settings_file
from sakti.agent.project import trust
from sakti.agent.project.files import CONFIG, ProjectFile, ProjectFiles
from sakti.agent.session import trusting
from sakti.agent.session.session import Options, Session
from sakti.core.errors import ConfigError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / ".sakti").mkdir(parents=True)
    (folder / CONFIG).write_text("memory.enabled = false\n")
    return folder


def scripts(**texts: str) -> ProjectFiles:
    return ProjectFiles(Path("/w"), tuple(ProjectFile(name, "script", text.encode()) for name, text in texts.items()))


def record(**texts: str) -> dict[str, trust.TrustedFile]:
    return {f.name: trust.TrustedFile(f.sha256, f.text) for f in scripts(**texts).files}


@pytest.mark.parametrize(
    ("now", "before", "state", "changes"),
    [
        ({}, None, "nothing", []),
        ({}, {"a": "1"}, "nothing", []),
        ({"a": "1"}, None, "new", ["a new"]),
        ({"a": "1"}, {"a": "1"}, "trusted", []),
        ({"a": "2"}, {"a": "1"}, "changed", ["a changed"]),
        ({"a": "1", "b": "2"}, {"a": "1"}, "changed", ["b new"]),
        ({"a": "1"}, {"a": "1", "b": "2"}, "changed", ["b removed"]),
        ({"b": "3", "c": "4"}, {"a": "1", "b": "2"}, "changed", ["a removed", "b changed", "c new"]),
    ],
)
def test_trust_follows_the_difference_to_the_record(
    now: dict[str, str], before: dict[str, str] | None, state: str, changes: list[str]
) -> None:
    review = trust.compare(scripts(**now), None if before is None else record(**before))
    assert review.state == state
    assert [f"{c.name} {c.how}" for c in review.changes] == changes


def test_an_empty_folder_asks_nothing(tmp_path: Path) -> None:
    assert trust.review(tmp_path) == trust.TrustReview(ProjectFiles(tmp_path))


def test_instructions_are_trusted_by_path_alone(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("obey")
    found = trust.review(tmp_path)
    assert found.state == "new" and found.left_out.startswith("AGENTS.md: not trusted, so left out.")
    assert "+obey" in found.diff
    trust.save(found)
    (tmp_path / "AGENTS.md").write_text("obey more")
    (tmp_path / "CLAUDE.md").write_text("too")
    assert trust.review(tmp_path).state == "trusted"
    (tmp_path / ".sakti").mkdir()
    (tmp_path / CONFIG).write_text("memory.enabled = false\n")
    changed = trust.review(tmp_path)
    assert changed.state == "changed" and "obey" not in changed.diff


def test_untrusted_settings_are_left_out_and_named(workspace: Path) -> None:
    options = Options.load(workspace)
    assert options.config.memory.enabled
    assert options.warnings == (".sakti/config.toml: not trusted, so left out. `sakti trust` shows and trusts it.",)


def test_trust_for_one_run_keeps_nothing(workspace: Path) -> None:
    options = Options.load(workspace, trusted=True)
    assert not options.config.memory.enabled
    assert options.told == ".sakti/config.toml sets memory.enabled = false."
    assert trust.review(workspace).state == "new"


def test_a_change_asks_again_and_is_shown(workspace: Path) -> None:
    trust.save(trust.review(workspace))
    assert not Options.load(workspace).config.memory.enabled
    (workspace / CONFIG).write_text("memory.enabled = false\nagent.max_steps = 3\n")
    found = trust.review(workspace)
    assert found.state == "changed"
    assert "+agent.max_steps = 3" in found.diff
    assert Options.load(workspace).config.memory.enabled


def test_trust_belongs_to_a_resolved_path_and_is_private(workspace: Path, tmp_path: Path) -> None:
    trust.save(trust.review(workspace))
    (tmp_path / "link").symlink_to(workspace)
    assert trust.review(tmp_path / "link").state == "trusted"
    workspace.rename(tmp_path / "moved")
    assert trust.review(tmp_path / "moved").state == "new"
    (kept,) = trust.folder().iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not kept.is_relative_to(tmp_path / "moved")


def test_a_schema_is_part_of_it_and_must_be_in_the_workspace(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"token": 1}')
    (workspace / "link.json").symlink_to(tmp_path / "secret.json")
    for name in ("../secret.json", "link.json", str(tmp_path / "secret.json")):
        (workspace / CONFIG).write_text(f'[memory.working_memory]\nschema = "{name}"\n')
        options = Options.load(workspace, trusted=True)
        assert options.config.memory.working_memory.schema is None
        assert "must name a file in the workspace" in options.warnings[0]
    (workspace / "s.json").write_text('{"type": "object"}')
    (workspace / CONFIG).write_text('memory.working_memory.schema = "s.json"\n')
    trust.save(trust.review(workspace))
    assert Options.load(workspace).config.memory.working_memory.schema == "s.json"
    (workspace / "s.json").write_text('{"type": "array"}')
    assert trust.review(workspace).state == "changed"


def test_revoked_trust_and_damaged_trust_are_none(workspace: Path) -> None:
    trust.save(trust.review(workspace))
    assert trust.list_trusted() == [(workspace, (CONFIG,))]
    assert trust.revoke(workspace)
    assert not trust.revoke(workspace)
    trust.save(trust.review(workspace))
    (kept,) = trust.folder().iterdir()
    for text in ("", "[" * 20_000, '{"workspace": 3}', '{"files": []}'):
        kept.write_text(text)
        assert trust.review(workspace).state == "new"


def test_where_nothing_can_be_kept_that_is_said(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    with pytest.raises(ConfigError, match="not saved"):
        trust.save(trust.review(workspace))
    assert not trust.revoke(workspace)
    assert trust.list_trusted() == []


@pytest.mark.parametrize("answer", [True, False])
async def test_a_chat_asks_before_it_starts(workspace: Path, answer: bool) -> None:
    session = Session(Options.load_unasked(workspace))
    asked: list[trust.TrustReview] = []

    async def ask(found: trust.TrustReview) -> bool:
        asked.append(found)
        return answer

    await trusting.settle(session, ask)
    assert session.config.memory.enabled is not answer
    await trusting.settle(session, ask)
    assert len(asked) == 1
    assert trust.review(workspace).state == ("trusted" if answer else "new")


async def test_a_chat_where_there_is_nothing_to_trust_does_not_ask(tmp_path: Path) -> None:
    async def ask(_: trust.TrustReview) -> bool:
        raise AssertionError("asked")

    session = Session(Options.load_unasked(tmp_path))
    await trusting.settle(session, ask)
    assert not session.options.unasked


def test_what_the_user_writes_into_the_project_is_trusted(workspace: Path, tmp_path: Path) -> None:
    project, user = workspace / CONFIG, tmp_path / "user.toml"
    places = {"user_file": user, "project_file": project, "env": dict(os.environ)}
    with pytest.raises(ConfigError, match="not trusted"):
        settings_file.write(project, "agent.max_steps", 9, **places)
    assert settings_file.write(user, "agent.max_steps", 50, **places).config.memory.enabled
    project.unlink()
    settings_file.write(project, "agent.max_steps", 9, **places)
    assert trust.review(workspace).state == "trusted"


def test_trust_in_a_folder_that_others_may_write_counts_for_nothing(workspace: Path) -> None:
    trust.save(trust.review(workspace))
    assert trust.review(workspace).state == "trusted"
    trust.folder().chmod(0o777)
    assert trust.review(workspace).state == "new"
