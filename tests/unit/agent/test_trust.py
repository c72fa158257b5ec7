"""A workspace's own settings have an effect only where they are trusted, as they were seen."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from sakti.agent import settings_file
from sakti.agent.project import trust
from sakti.agent.project.files import BRANDS, CONFIG, ProjectFile, ProjectFiles
from sakti.agent.session import lifecycle
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


def test_instructions_that_were_there_are_trusted_by_path_alone(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("obey")
    found = trust.review(tmp_path)
    assert found.state == "new" and found.left_out.startswith("AGENTS.md: not trusted, so left out.")
    assert "+obey" in found.diff
    trust.save(found)
    (tmp_path / "AGENTS.md").write_text("obey more")
    assert trust.review(tmp_path).state == "trusted"
    (tmp_path / ".sakti").mkdir()
    (tmp_path / CONFIG).write_text("memory.enabled = false\n")
    changed = trust.review(tmp_path)
    assert changed.state == "changed" and "obey" not in changed.diff


NEW_TEXTS = (
    *("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "sub/AGENTS.md", "a/b/CLAUDE.local.md"),
    *(f"{brand}/rules/x.md" for brand in BRANDS),
    *(f"{brand}/skills/x/SKILL.md" for brand in BRANDS),
    *(f"{brand}/commands/x.md" for brand in BRANDS),
)


@pytest.mark.parametrize("name", NEW_TEXTS)
def test_a_new_text_asks_and_the_rest_stays_trusted(workspace: Path, name: str) -> None:
    trust.save(trust.review(workspace))
    new = workspace / name
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_text("---\ndescription: x\n---\nobey")
    review = trust.review(workspace)
    assert review.asks and review.holds and [(c.name, c.how) for c in review.changes] == [(name, "new")]
    options = Options.load(workspace)
    assert not options.config.memory.enabled, "its settings are as they were trusted"
    assert name not in {f.name for f in options.files}
    assert options.warnings == (
        f"{name}: new since the workspace was trusted, so left out. `sakti trust` shows and trusts it.",
    )
    trust.save(review)
    new.write_text("---\ndescription: x\n---\nobey more")
    assert trust.review(workspace).state == "trusted"


def test_a_new_text_beside_another_change_holds_nothing_back_from_the_question(workspace: Path) -> None:
    trust.save(trust.review(workspace))
    (workspace / "AGENTS.md").write_text("obey")
    (workspace / CONFIG).write_text("memory.enabled = true\n")
    review = trust.review(workspace)
    assert review.asks and not review.holds and review.trusted_part.files == ()


def test_untrusted_settings_are_left_out_and_named(workspace: Path) -> None:
    options = Options.load(workspace)
    assert options.config.memory.enabled
    assert options.warnings == (".sakti/config.toml: not trusted, so left out. `sakti trust` shows and trusts it.",)


def test_trust_for_one_run_keeps_nothing(workspace: Path) -> None:
    options = Options.load(workspace, trusted=True)
    assert not options.config.memory.enabled
    assert options.project_notice == ".sakti/config.toml sets memory.enabled = false."
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
    (kept,) = trust.get_trust_folder().iterdir()
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
    (kept,) = trust.get_trust_folder().iterdir()
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
    session = Session(Options.load_without_project(workspace))
    asked: list[trust.TrustReview] = []

    async def ask(found: trust.TrustReview) -> bool:
        asked.append(found)
        return answer

    await lifecycle.settle_trust(session.workspace, ask)
    assert session.workspace.config.memory.enabled is not answer
    await lifecycle.settle_trust(session.workspace, ask)
    assert len(asked) == 1
    assert trust.review(workspace).state == ("trusted" if answer else "new")


async def test_a_chat_where_there_is_nothing_to_trust_does_not_ask(tmp_path: Path) -> None:
    async def ask(_: trust.TrustReview) -> bool:
        raise AssertionError("asked")

    session = Session(Options.load_without_project(tmp_path))
    await lifecycle.settle_trust(session.workspace, ask)
    assert not session.workspace.options.trust_pending


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
    trust.get_trust_folder().chmod(0o777)
    assert trust.review(workspace).state == "new"


# Written by the version before the files of a project were discovered in one place; "" stands for the workspace.
RECORD = {
    "workspace": "",
    "files": {
        ".sakti/config.toml": "b863e5f2a780e2ccff4e0e4155bb62227ef21953154f1ab608471cfc57c045d9",
        "docs/page.json": "ff419ebbeba438f66900abe77818ce940702bdfe70fa173cb94beecee8d3f112",
        ".claude/settings.json": "bc3a718f3cc0884d80db4dd3d0ee753bf92468e80b81651772297ba7a32a6a1d",
        ".sakti/hooks/check.sh": "cfa5c4526386239681bc6cdb4563c86551da2ef1325ecc9c20b48ae2cf97df9a",
        ".sakti/hooks/part.sh": "a17fcf0a2f50e2d495e4f90ce263410edc183add6c62699a2facbccf60410f74",
        "tools/stop.py": "cc42155088fca5730758db72b2a5bca33112a941dfaa2d43098ec422ce4ea213",
        "AGENTS.md": "",
        "CLAUDE.local.md": "",
        ".claude/rules/front/x.md": "",
        ".agents/skills/pdf/SKILL.md": "",
        ".agents/skills/pdf/run.sh": "c44090c3f318c724c480b810801ef2974b32e2b9ee7ca29ca861cedd6896f798",
        ".claude/commands/fix.md": "",
        ".claude/commands/log.md": "b25daaf5bcc69cc91de25a099c939c406dad2fc3adf5fd9369effcfc60efe3c4",
    },
}
PROJECT = {
    CONFIG: 'memory.working_memory.schema = "docs/page.json"\n\n[[hooks]]\nevent = "Stop"\n'
    'command = ".sakti/hooks/check.sh"\n',
    "docs/page.json": '{"type": "object"}',
    ".sakti/hooks/check.sh": "make test\n",
    ".sakti/hooks/part.sh": "true\n",
    ".claude/settings.json": '{"model": "x", "hooks": {"Stop": [{"hooks": '
    '[{"type": "command", "command": "tools/stop.py"}]}]}}',
    "tools/stop.py": "print(1)\n",
    "AGENTS.md": "Answer in rhyme.\n",
    "CLAUDE.local.md": "Be brief.\n",
    ".claude/rules/front/x.md": "Two spaces.\n",
    ".agents/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Reads PDF files.\n---\nDo it.\n",
    ".agents/skills/pdf/run.sh": "echo 1\n",
    ".agents/skills/pdf/table.csv": "a,b\n",
    ".claude/commands/fix.md": "Fix $1.\n",
    ".claude/commands/log.md": "Log: !`git log -1`\n",
}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a workspace that an earlier version trusted."""
    root = tmp_path / "recorded"
    for name, text in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    texts = {name: "" if not sha else PROJECT[name] for name, sha in RECORD["files"].items()}
    entries = {name: {"sha256": sha, "text": texts[name]} for name, sha in RECORD["files"].items()}
    name = f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    trust.get_trust_folder().mkdir(mode=0o700, parents=True)
    (trust.get_trust_folder() / name).write_text(json.dumps({"workspace": str(root), "files": entries}))
    return root


def test_a_record_of_an_earlier_version_stays_valid(recorded: Path) -> None:
    review = trust.review(recorded)
    assert (review.state, review.changes) == ("trusted", ())
    assert {f.name: "" if f.is_text else f.sha256 for f in review.project.files} == RECORD["files"]
    assert trust.list_trusted() == [(recorded, tuple(RECORD["files"]))]


@pytest.mark.parametrize(("name", "sha256"), RECORD["files"].items())
def test_files_of_an_earlier_record_ask_as_they_did(recorded: Path, name: str, sha256: str) -> None:
    path = recorded / name
    path.write_text(path.read_text().replace("{", '{"disableAllHooks": true, ', 1) if "json" in name else "#more\n")
    assert ([c.name for c in trust.review(recorded).changes if c.name == name] == [name]) == bool(sha256)
    path.unlink()
    assert ([(c.name, c.how) for c in trust.review(recorded).changes if c.name == name] != []) == bool(sha256)


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.local.md", ".claude/rules/x.md"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_recorded_hash_of_instructions_does_not_count(name: str, exists: bool) -> None:
    files = (ProjectFile(CONFIG, "settings", b"x"), *((ProjectFile(name, "rule", b"new"),) if exists else ()))
    entries = {f.name: trust.TrustedFile(f.sha256, f.text) for f in files[:1]} | {name: trust.TrustedFile("1", "old")}
    assert trust.compare(ProjectFiles(Path("/w"), files), entries).state == "trusted"
