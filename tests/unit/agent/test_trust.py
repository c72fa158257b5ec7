"""A workspace's own settings have an effect only where they are trusted, as they were seen."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sakti.agent import settings_file, trust
from sakti.agent.session import trusting
from sakti.agent.session.session import Options, Session
from sakti.core.errors import ConfigError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / ".sakti").mkdir(parents=True)
    (folder / trust.CONFIG).write_text("memory.enabled = false\n")
    return folder


def files(**texts: str) -> tuple[trust.File, ...]:
    return tuple(trust.File(name, text.encode()) for name, text in texts.items())


def known(**texts: str) -> dict[str, trust.Known]:
    return {f.name: trust.Known(f.sha256, f.text) for f in files(**texts)}


def test_what_is_asked() -> None:
    assert trust.decide((), None) == "nothing"
    assert trust.decide((), known(a="1")) == "nothing"
    assert trust.decide(files(a="1"), None) == "new"
    assert trust.decide(files(a="1"), known(a="1")) == "trusted"
    assert trust.decide(files(a="2"), known(a="1")) == "changed"
    assert trust.decide(files(a="1", b="2"), known(a="1")) == "changed"
    assert trust.decide(files(a="1"), known(a="1", b="2")) == "changed"


def test_an_empty_folder_asks_nothing(tmp_path: Path) -> None:
    assert trust.look(tmp_path) == trust.Look(tmp_path)


def test_instructions_are_trusted_by_path_alone(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("obey")
    found = trust.look(tmp_path)
    assert found.state == "new" and found.left_out.startswith("AGENTS.md: not trusted, so left out.")
    assert "+obey" in trust.diff(found)
    trust.save(found)
    (tmp_path / "AGENTS.md").write_text("obey more")
    (tmp_path / "CLAUDE.md").write_text("too")
    assert trust.look(tmp_path).state == "trusted"
    (tmp_path / ".sakti").mkdir()
    (tmp_path / trust.CONFIG).write_text("memory.enabled = false\n")
    changed = trust.look(tmp_path)
    assert changed.state == "changed" and "obey" not in trust.diff(changed)


def test_untrusted_settings_are_left_out_and_named(workspace: Path) -> None:
    options = Options.load(workspace)
    assert options.config.memory.enabled
    assert options.warnings == (".sakti/config.toml: not trusted, so left out. `sakti trust` shows and trusts it.",)


def test_trust_for_one_run_keeps_nothing(workspace: Path) -> None:
    options = Options.load(workspace, trusted=True)
    assert not options.config.memory.enabled
    assert options.told == ".sakti/config.toml sets memory.enabled = false."
    assert trust.look(workspace).state == "new"


def test_a_change_asks_again_and_is_shown(workspace: Path) -> None:
    trust.save(trust.look(workspace))
    assert not Options.load(workspace).config.memory.enabled
    (workspace / trust.CONFIG).write_text("memory.enabled = false\nagent.max_steps = 3\n")
    found = trust.look(workspace)
    assert found.state == "changed"
    assert "+agent.max_steps = 3" in trust.diff(found)
    assert Options.load(workspace).config.memory.enabled


def test_trust_belongs_to_a_resolved_path_and_is_private(workspace: Path, tmp_path: Path) -> None:
    trust.save(trust.look(workspace))
    (tmp_path / "link").symlink_to(workspace)
    assert trust.look(tmp_path / "link").state == "trusted"
    workspace.rename(tmp_path / "moved")
    assert trust.look(tmp_path / "moved").state == "new"
    (kept,) = trust.folder().iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not kept.is_relative_to(tmp_path / "moved")


def test_a_schema_is_part_of_it_and_must_be_in_the_workspace(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"token": 1}')
    (workspace / "link.json").symlink_to(tmp_path / "secret.json")
    for name in ("../secret.json", "link.json", str(tmp_path / "secret.json")):
        (workspace / trust.CONFIG).write_text(f'[memory.working_memory]\nschema = "{name}"\n')
        options = Options.load(workspace, trusted=True)
        assert options.config.memory.working_memory.schema is None
        assert "must name a file in the workspace" in options.warnings[0]
    (workspace / "s.json").write_text('{"type": "object"}')
    (workspace / trust.CONFIG).write_text('memory.working_memory.schema = "s.json"\n')
    trust.save(trust.look(workspace))
    assert Options.load(workspace).config.memory.working_memory.schema == "s.json"
    (workspace / "s.json").write_text('{"type": "array"}')
    assert trust.look(workspace).state == "changed"


def test_revoked_trust_and_damaged_trust_are_none(workspace: Path) -> None:
    trust.save(trust.look(workspace))
    assert trust.trusted() == [(workspace, (trust.CONFIG,))]
    assert trust.revoke(workspace)
    assert not trust.revoke(workspace)
    trust.save(trust.look(workspace))
    (kept,) = trust.folder().iterdir()
    for text in ("", "[" * 20_000, '{"workspace": 3}', '{"files": []}'):
        kept.write_text(text)
        assert trust.look(workspace).state == "new"


def test_where_nothing_can_be_kept_that_is_said(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    with pytest.raises(ConfigError, match="not saved"):
        trust.save(trust.look(workspace))
    assert not trust.revoke(workspace)
    assert trust.trusted() == []


@pytest.mark.parametrize("answer", [True, False])
async def test_a_chat_asks_before_it_starts(workspace: Path, answer: bool) -> None:
    session = Session(Options.load_unasked(workspace))
    asked: list[trust.Look] = []

    async def ask(found: trust.Look) -> bool:
        asked.append(found)
        return answer

    await trusting.settle(session.workspace, ask)
    assert session.workspace.config.memory.enabled is not answer
    await trusting.settle(session.workspace, ask)
    assert len(asked) == 1
    assert trust.look(workspace).state == ("trusted" if answer else "new")


async def test_a_chat_where_there_is_nothing_to_trust_does_not_ask(tmp_path: Path) -> None:
    async def ask(_: trust.Look) -> bool:
        raise AssertionError("asked")

    session = Session(Options.load_unasked(tmp_path))
    await trusting.settle(session.workspace, ask)
    assert not session.workspace.options.unasked


def test_what_the_user_writes_into_the_project_is_trusted(workspace: Path, tmp_path: Path) -> None:
    project, user = workspace / trust.CONFIG, tmp_path / "user.toml"
    places = {"user_file": user, "project_file": project, "env": dict(os.environ)}
    with pytest.raises(ConfigError, match="not trusted"):
        settings_file.write(project, "agent.max_steps", 9, **places)
    assert settings_file.write(user, "agent.max_steps", 50, **places).config.memory.enabled
    project.unlink()
    settings_file.write(project, "agent.max_steps", 9, **places)
    assert trust.look(workspace).state == "trusted"


def test_trust_in_a_folder_that_others_may_write_counts_for_nothing(workspace: Path) -> None:
    trust.save(trust.look(workspace))
    assert trust.look(workspace).state == "trusted"
    trust.folder().chmod(0o777)
    assert trust.look(workspace).state == "new"
