"""The files of a project are discovered once, within bounds; trust and every reader go by that discovery."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakti.agent.project import instructions, skills, trust
from sakti.agent.project.files import CONFIG, DEEPEST, HOOKS, MOST, TABLE, Location, discover, list_files

SKILL = "---\nname: x\ndescription: d\n---\n"
NAMES = (
    *(location.path for location in TABLE if not location.path.endswith("/")),
    *(f"{location.path}{name}" for location in TABLE if location.path.endswith("/") for name in ("x.md", "x.sh")),
    *(f"{location.path}x/SKILL.md" for location in TABLE if location.kind == "skill"),
    *("tools/run.sh", "page.json", "README.md"),
)
TEXTS = (
    *("hello", f"{SKILL}Do it.", f"{SKILL}!`id`", "!`git log`", "#!/bin/sh\necho", ""),
    'memory.working_memory.schema = "page.json"\n[[hooks]]\nevent = "Stop"\ncommand = "tools/run.sh"\n',
    '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": ".claude/hooks/x.sh"}]}]}}',
    *("{", "[" * 20_000),
)
trees = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), max_size=8)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@settings(max_examples=60, deadline=None)
@given(trees)
def test_readers_use_no_file_that_trust_has_not_reviewed(tree: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = write(Path(folder).resolve(), tree)
        project = discover(workspace)
        names = {f.name for f in project.files}
        read = {s.source for s in skills.load(workspace, project=True).skills}
        read |= {r.name for r in instructions.read_project_rules(workspace, [])}
        read |= {s.name for s in instructions.find(workspace, workspace, project=True).sources}
        assert project.problem or {name for name in read if not name.startswith("~")} <= names


@settings(max_examples=60, deadline=None)
@given(trees, trees)
def test_trust_holds_until_a_file_changes_that_is_more_than_text(before: dict[str, str], after: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = write(Path(folder).resolve(), before)
        first = trust.review(workspace)
        trust.save(first)
        assert trust.review(workspace).state == ("trusted" if first.project.files else "nothing")
        second = trust.review(write(workspace, after))
        old, new = ({f.name: f.sha256 for f in r.project.files if not f.is_text} for r in (first, second))
        if not first.project.files or not second.project.files:
            return  # never trusted, or nothing to trust any more
        added = {f.name for f in second.project.files} - {f.name for f in first.project.files}
        different = {n for n in {*old, *new} if old.get(n) != new.get(n)}
        assert second.asks == bool(different | added)
        assert {c.name for c in second.changes} == different | added
        assert second.holds == (different <= added and not any(n in new for n in added))


@pytest.mark.parametrize("location", TABLE)
def test_a_file_of_each_kind_is_discovered_with_its_kind(tmp_path: Path, location: Location) -> None:
    name = f"{location.path}a.md" if location.path.endswith("/") else location.path
    hook = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"sh {name}"}]}]}})
    source = HOOKS[0] if name not in HOOKS else name
    write(tmp_path, {name: "# a comment\n", **({source: hook} if location.kind in ("script", "hooks") else {})})
    assert [f.kind for f in discover(tmp_path).files if f.name == name] == [location.kind]


def test_links_out_fifos_large_and_deep_files_are_left_out(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "w", tmp_path / "outside"
    write(outside, {"x.md": "private", "skills/a/SKILL.md": SKILL})
    write(workspace, {"CLAUDE.local.md": "x" * 1_000_001, ".claude/skills/big/run.sh": "x" * 1_000_001})
    write(workspace, {f".claude/rules/{'d/' * (DEEPEST + 1)}deep.md": "deep", ".claude/rules/node_modules/n.md": "n"})
    (workspace / "AGENTS.md").symlink_to(outside / "x.md")
    (workspace / ".claude/rules/link.md").symlink_to(outside / "x.md")
    (workspace / ".claude/rules/folder").symlink_to(outside)
    (workspace / ".agents").symlink_to(outside)
    os.mkfifo(workspace / "CLAUDE.md")
    os.mkfifo(workspace / ".claude/skills/big/data")
    os.mkfifo(workspace / ".claude/skills/big/SKILL.md")
    assert discover(workspace).files == ()


def test_no_more_files_are_listed_than_the_bound(tmp_path: Path) -> None:
    write(tmp_path, {f".claude/commands/{n:04}.md": "x" for n in range(MOST + 3)})
    assert [f.path.name for f in list_files(tmp_path, "skill", "command")][-1] == f"{MOST - 1:04}.md"


def test_a_script_that_a_hook_runs_is_trusted_with_its_content_whatever_its_name(tmp_path: Path) -> None:
    hook = '[[hooks]]\nevent = "Stop"\ncommand = "sh .claude/skills/x/notes.md"\n'
    write(tmp_path, {CONFIG: hook, ".claude/skills/x/notes.md": "echo 1\n"})
    trust.save(trust.review(tmp_path))
    assert trust.review(tmp_path).state == "trusted"
    write(tmp_path, {".claude/skills/x/notes.md": "echo 2\n"})
    (change,) = trust.review(tmp_path).changes
    assert (change.name, change.kind, change.how) == (".claude/skills/x/notes.md", "script", "changed")
    assert "-echo 1\n+echo 2" in change.diff


def test_a_page_that_is_a_file_of_instructions_is_trusted_by_path(tmp_path: Path) -> None:
    write(tmp_path, {CONFIG: 'memory.working_memory.template = "AGENTS.md"\n', "AGENTS.md": "one"})
    trust.save(trust.review(tmp_path))
    write(tmp_path, {"AGENTS.md": "two"})
    assert [(f.name, f.kind) for f in discover(tmp_path).files] == [(CONFIG, "settings"), ("AGENTS.md", "instructions")]
    assert trust.review(tmp_path).state == "trusted"


def test_a_command_that_runs_nothing_any_more_is_shown_as_changed(tmp_path: Path) -> None:
    write(tmp_path, {".claude/commands/x.md": "!`id`\n"})
    trust.save(trust.review(tmp_path))
    write(tmp_path, {".claude/commands/x.md": "hello\n"})
    (change,) = trust.review(tmp_path).changes
    assert change.how == "changed" and "-!`id`\n+hello" in change.diff
