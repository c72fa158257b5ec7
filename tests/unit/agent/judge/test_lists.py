"""Lists in files: hostile commands are never free, everyday ones are as free as their list says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import LevelName, WorkspaceView
from tests.unit.agent.judge.conftest import Ask

HERE = Path(__file__).parent
EVERYWHERE, UNSANDBOXED, PUSHES, HARD = (
    [re.sub(r"\\(u[0-9a-f]{4}|[rnt])", lambda m: m[0].encode().decode("unicode_escape"), line) for line in part]
    for part in (
        part.strip().split("\n")[1:] for part in (HERE / "hostile.txt").read_text("utf-8").split("\n# ") if part
    )
)
EVERYDAY = [line.split("\t") for line in (HERE / "everyday.tsv").read_text("utf-8").splitlines()[1:]]
LEVELS: tuple[LevelName, ...] = ("unsandboxed", "partial", "sandboxed")
MODES = ("plan", "ask", "edits")


@pytest.fixture
def trapped(secretive: WorkspaceView) -> WorkspaceView:
    """Links to the outside and into the depth, a list of names, folders to compare."""
    root = secretive.workspace
    (root / "deep" / "b" / "c").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "l").symlink_to("deep/b/c")
    (root / "out").symlink_to("/etc")
    (root / "src" / "evil.txt").symlink_to("/etc/hostname")
    names = ("list", "b.py", "run.sh", "package.json", "tests/test_a.py", ".env.example", ".venv/pyvenv.cfg")
    for name in (*names, ".venv/bin/activate", "artisan", "manage.py", "script.py", "script.js", "script.rb"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text("a.py\n")
    for name in (".venv/bin/python", ".venv/bin/pytest", "node_modules/.bin/jest", "node_modules/.bin/tsc"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text("#!/usr/bin/env node\n")
    return secretive


def test_the_list_of_hostile_commands_is_long() -> None:
    assert len({*EVERYWHERE, *UNSANDBOXED, *HARD}) > 900


@pytest.mark.parametrize("level", LEVELS)
def test_hostile_commands_are_never_free(bash: Ask, trapped: WorkspaceView, level: LevelName) -> None:
    place = replace(trapped, level=level)
    commands = EVERYWHERE if level == "sandboxed" else (*EVERYWHERE, *UNSANDBOXED)
    modes = ("ask", "edits") if level == "sandboxed" else MODES
    assert [(c, m) for c in commands for m in modes if bash(c, m, place).verdict == "allow"] == []


def test_of_hostile_commands_plan_mode_runs_git_and_tests_where_they_cannot_write(
    bash: Ask, trapped: WorkspaceView
) -> None:
    place = replace(trapped, level="sandboxed")
    free = [c for c in (*EVERYWHERE, *HARD) if bash(c, "plan", place).verdict == "allow"]
    assert {c.split()[0] for c in free} == {"git", "npm"} and len(free) == 10
    assert not any(bash(c, "plan", place).hosts for c in free)


@pytest.mark.parametrize("level", LEVELS)
def test_a_rule_against_a_command_holds_for_what_hides_it(bash: Ask, trapped: WorkspaceView, level: LevelName) -> None:
    place = replace(trapped, level=level)
    deny = ("bash: git push",)
    assert [c for c in PUSHES if bash(c, "full", place, deny=deny).verdict != "deny"] == []
    for mode in ("plan", "ask", "edits", "auto"):
        free = [c for c in PUSHES if bash(c, mode, place, deny=deny, allow=("bash",)).verdict == "allow"]
        assert free == [], mode


def test_commands_are_not_compared_with_rules_that_do_not_exist(bash: Ask, trapped: WorkspaceView) -> None:
    sandboxed = replace(trapped, level="sandboxed")
    for command in ("x=1; make $x", "npm run build | sh", "git st"):
        assert bash(command, "full", deny=("edit(a.py)", "reach: example.org")).verdict == "allow"
    assert bash("x=1; make $x", "auto", sandboxed, deny=("edit(a.py)",)).verdict == "allow"
    assert bash("x=1; make $x", "auto", sandboxed, deny=("bash: git push",)).verdict == "ask"
    assert bash("x=1; make $x", "full", ask=("bash: git push",)).verdict == "ask"


@pytest.mark.parametrize("level", ["unsandboxed", "sandboxed"])
def test_no_rule_and_no_mode_answers_what_cannot_be_undone(bash: Ask, trapped: WorkspaceView, level: LevelName) -> None:
    place = replace(trapped, level=level)
    for mode in ("ask", "edits", "auto"):
        judged = {c: bash(c, mode, place, allow=("bash", "bash: git")) for c in HARD}
        assert [c for c, found in judged.items() if found.verdict != "ask" or found.rules] == [], mode


def test_everyday_commands_ask_as_little_as_listed(bash: Ask, trapped: WorkspaceView) -> None:
    place = replace(trapped, level="sandboxed")
    verdicts = {"free": "allow"}
    differs: list[tuple[str, ...]] = []
    for command, *listed in EVERYDAY:
        judged = [bash(command, mode, place).verdict for mode in ("auto", "edits", "full")]
        judged.append(bash(command, "full", place, deny=("bash: git push",)).verdict)
        if judged != [verdicts.get(word, word) for word in (*listed[:2], "free", listed[2])]:
            differs.append((command, *judged))
    assert differs == []


FREE = [
    "ls src/*.py",
    "cat src/*.py | head -5",
    "ls src/[ab].py",
    "cat src/[a-c]*.py",
    "wc -l src/**/*.py *.py",
    "for f in *.py; do wc -l $f; done",
    'for f in a.py src/b.py; do echo "== $f"; head -3 "$f"; done',
    "for d in src tests; do ls -la $d; done",
    "if [ -f a.py ]; then cat a.py; else ls; fi",
    "[[ -d src && -f a.py ]] && echo yes",
    "(cd src && ls)",
    "{ ls; pwd; }",
    "! grep -q x a.py",
    "grep -c x <<< 'x y'",
    "cat <<'EOF'\n$(rm x)\nEOF",
    'echo "today: $(date)"',
    '[ "$(cat a.py)" = x ] && ls',
    "time ls",
    "timeout 5 grep x a.py",
    "find tests -name '*.py' | xargs wc -l",
    "find tests -type f | sort | head -5 | xargs grep -n x",
    "find tests -name '*.py' -exec grep -l foo {} +",
    "find tests -name '*.py' -print0 | xargs -0 -n 1 head -2",
    "find . -name '*.py' | xargs -I{} head -1 {}",
    "git ls-files | head",
    "awk -F: '{print $1, $NF}' a.py",
    "awk '$3 > 5 && /def/ {sum += $3} END {print sum / NR}' a.py",
    "jq -r '.scripts | keys[]' package.json",
    "sed -n '/^def/,/^$/p' a.py",
    "cd src && cd .. && ls",
    "cd src; ls; cd ..; ls",
    "cd src && cd - && ls",
    "git stash list; git status",
    "git -P log --oneline -3",
    'while read -r f; do echo "$f"; done < list',
    'git ls-files | while IFS= read -r f; do echo "== $f"; done',
    "while read -r a b; do echo $b; done < <(sort a.py)",
    "until grep -q x a.py; do sleep 1; done",
    "find . -name '*.py' -print0 | while IFS= read -r -d '' f; do echo \"$f\"; done",
    "case a.py in *.py) head -3 a.py;; *) ls;; esac",
    'case "$1" in a|b) ls;; esac',
    "diff <(sort a.py) <(sort -u b.py)",
    "comm -12 <(sort a.py) <(git ls-files)",
    "for ((i=0; i<3; i++)); do echo $i; done",
    "for i in {1..3}; do echo $i; done",
    "for i in $(seq 1 3); do echo $i; done",
    "(( 2 > 1 )) && echo $((6 * 7))",
    "for d in src tests; do (cd src && ls); done",
    'while read -r f; do if [ "$f" = x ]; then ls; fi; done < list',
]


@pytest.mark.parametrize("command", FREE)
def test_compounds_of_reads_are_free(bash: Ask, trapped: WorkspaceView, command: str) -> None:
    assert [m for m in MODES if bash(command, m, trapped).verdict != "allow"] == []


def test_code_and_subcommands_are_no_files(bash: Ask, trapped: WorkspaceView) -> None:
    sandboxed = replace(trapped, level="sandboxed")
    for command in ("node -p process.env", "node --eval process.env", "npm link", "python -c 'import os; os.env'"):
        assert bash(command, "ask", trapped).verdict == "ask", command
        assert bash(command, "auto", sandboxed).verdict == "allow", command
    assert bash("node prod.env", "auto", sandboxed).verdict == "deny"


def test_a_copy_into_a_secret_file_asks_and_one_of_it_is_refused(bash: Ask, trapped: WorkspaceView) -> None:
    for mode in ("ask", "edits", "auto"):
        assert bash("cp .env.example .env", mode, trapped).verdict == "ask"
        assert bash("cp .env .env2", mode, trapped).verdict == "deny"
    assert bash("cp .env.example .env", "plan", trapped).verdict == "deny"
