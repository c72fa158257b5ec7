"""Rules over words, not over text: what they cover, and when they end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.agent.judge import execution, policy
from sakti.agent.judge.workspace_view import WorkspaceView
from tests.unit.agent.judge.conftest import Ask

PUSHES = [
    "git push",
    '"git" push',
    r"g\it push",
    "$'git' push",
    "git -C . push",
    "git -c a=b push origin",
    "git --no-pager push",
    'sh -c "git push"',
    "/usr/bin/git push",
    "env A=b git push",
    "ls && git push",
    "echo $(git push)",
    "x=`git push`",
    "timeout 3 git push",
    "nice -n 3 git push",
    "if true; then git push; fi",
    "git push # x",
]


@pytest.mark.parametrize("rule", ["bash: git push", "bash(git push*)"])
def test_a_denial_beats_quoting_options_and_every_other_rule(bash: Ask, rule: str) -> None:
    allow = ("bash: git push", "bash: git", "bash: sh")
    for mode in ("plan", "ask", "edits", "auto"):
        assert [c for c in PUSHES if bash(c, mode, deny=(rule,), allow=allow).verdict != "deny"] == []


def test_a_denial_covers_nothing_else(bash: Ask) -> None:
    for command in ("git log push", "git commit -m push", "git status", "echo git push"):
        assert bash(command, "auto", deny=("bash: git push",)).verdict == "allow", command


def test_a_bare_name_denies_all(bash: Ask) -> None:
    for command in ("ls", "x=1", "", "for i in 1; do :; done"):
        assert bash(command, "auto", deny=("bash",)).verdict == "deny", command


ESCAPES = [
    ("git diff", "git diff --output=F"),
    ("git diff", "git diff --outp=F"),
    ("git diff", "git diff --ext-diff"),
    ("git rebase", "git rebase -x id HEAD"),
    ("git rebase", "git rebase --exec=id HEAD"),
    ("git fetch", "git fetch --upload-pack=id x"),
    ("tar", "tar --checkpoint-action=exec=id"),
    ("sed", "sed 1e a.py"),
    ("sed", "sed -i s/a/b/ a.py"),
    ("find", "find . -execdir id"),
    ("find", "find . -fprint x"),
    ("rg", "rg --pre id x"),
    ("rg", "rg -z x"),
    ("sort", "sort -o x y"),
    ("sort", "sort -ofoo y"),
    ("sort", "sort --compress-program=id y"),
    ("ls", "lsof"),
    ("ls", "lsattr"),
    ("npm install", "npm install x; evil"),
    ("npm install", "npm install $(id)"),
    ("npm install", "npm install > /etc/x"),
]


def test_a_permission_covers_no_option_that_does_more(bash: Ask) -> None:
    free = [c for rule, c in ESCAPES if bash(c, "ask", allow=(f"bash: {rule}",)).verdict != "ask"]
    assert free == []


def test_what_older_versions_allowed_is_asked_once_more(bash: Ask) -> None:
    assert bash("npm install x", allow=("bash(npm install*)",)).verdict == "ask"
    asked = bash("npm install x")
    assert asked.rules == ("bash: npm install x",)
    assert bash("npm install x", allow=asked.rules).verdict == "allow"


def test_each_part_of_a_command_gets_the_narrowest_rule(bash: Ask) -> None:
    found = bash("npm ci && pip install -r r.txt && frobnicate --all now && ls")
    assert found.rules == ("bash: npm ci", "bash: pip install -r r.txt", "bash: frobnicate --all now")
    assert bash("npm ci && pip install -r r.txt && ls", allow=found.rules).verdict == "allow"
    assert bash("frobnicate --all", allow=found.rules).verdict == "ask"
    assert bash("npm ci > out.txt").rules == (), "a file is written, too"


def test_a_rule_for_a_script_ends_when_the_script_changes(bash: Ask, place: WorkspaceView) -> None:
    script = place.workspace / "run.sh"
    script.write_text("echo 1\n")
    for command in ("sh run.sh", "./run.sh", "make deploy-docs"):
        saved = bash(command).rules
        assert len(saved) == 1 and "#" in saved[0], saved
        assert bash(command, allow=saved).verdict == "allow"
        (place.workspace / "Makefile").write_text(f"# {command}\n")
        script.write_text(f"echo {command}\n")
        assert bash(command, allow=saved).verdict == "ask", command


def test_what_was_changed_here_asks_before_it_runs(bash: Ask, place: WorkspaceView) -> None:
    conftest = place.workspace / "conftest.py"
    changed = replace(place, changed={conftest: "+import os"})
    for mode in ("ask", "edits", "auto"):
        found = bash("pytest -q", mode, changed)
        assert (found.verdict, found.diff) == ("ask", "+import os")
        assert "conftest.py" in found.reason
    assert bash("ls", "auto", changed).verdict == "allow"
    assert bash("pytest -q", "auto").verdict == "allow"


WORDS = st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4)


@example(["git", "commit", "-m", "fix # 3"], {})
@given(WORDS, st.dictionaries(st.from_regex(r"[\w./]{1,9}", fullmatch=True), st.just("ab12"), max_size=2))
def test_a_rule_that_is_written_is_read_as_it_was(words: list[str], hashes: dict[str, str]) -> None:
    read = policy.parse_command_rule(policy.format_rule("bash", words, hashes), "bash")
    assert read is not None
    assert (read.words, dict(read.hashes)) == (tuple(words), hashes)


def test_a_permission_covers_what_the_command_is_there_to_change(bash: Ask) -> None:
    assert bash("touch z", "ask").rules == ("bash: touch z",)
    for command, verdict in [
        ("touch z", "allow"),
        ("touch src/z", "allow"),
        ("touch z > y", "ask"),
        ("touch z > z", "ask"),
        ("touch ../z", "ask"),
        ("touch .git/hooks/pre-commit", "ask"),
    ]:
        assert bash(command, "ask", allow=("bash: touch",)).verdict == verdict, command


@pytest.mark.parametrize(
    ("rule", "described"),
    [
        ("bash: git fetch", "`git fetch …`"),
        ("bash: python -m pytest # pyproject.toml=eb2c04", "`python -m pytest …`, until pyproject.toml changes"),
        ("bash: make t # Makefile=1a run.sh=2b", "`make t …`, until Makefile or run.sh changes"),
        ("bash: 'a b' c", "`'a b' c …`"),
        ("bash(git push*)", "`git push …`"),
        ("bash", "bash"),
        ("read(/etc/*)", "read(/etc/*)"),
    ],
)
def test_a_question_describes_its_rule_without_hashes(rule: str, described: str) -> None:
    assert policy.describe_rule(rule) == described


OTHER_CODE = [
    ("make test", "make test -f/tmp/evil.mk"),
    ("make test", "make test --eval=x"),
    ("make test", "make test SHELL=./evil"),
    ("make test", "make test -C /tmp/evil"),
    ("make", "make deploy"),
    ("pytest", "pytest /tmp/evil_test.py"),
    ("pytest", "pytest ../evil_test.py::x"),
    ("pytest", "pytest -p evil"),
    ("pytest", "pytest -c /tmp/e.ini"),
    ("pytest", "pytest @list"),
    ("python -m pytest", "python -m pytest -p evil"),
    ("uv run", "uv run evil"),
    ("uv run pytest", "uv run pytest --rootdir=/tmp"),
    ("npm test", "npm test --prefix /tmp"),
    ("npm run build", "npm run build -- --config /tmp/x"),
    ("cargo test", "cargo test --config x"),
    ("eslint", "eslint --rulesdir /tmp ."),
    ("./run.sh", "./run.sh x"),
    ("pip install", "pip install evil"),
    ("pip install", "pip install --index-url http://x y"),
    ("pip install x", "pip install x git+https://y"),
    ("npm install", "npm install evil"),
    ("npm install x", "npm install x y"),
    ("npx", "npx evil"),
    ("apt install", "apt install evil"),
]


@pytest.mark.parametrize(("rule", "command"), OTHER_CODE)
@pytest.mark.parametrize("level", ["unsandboxed", "sandboxed"])
def test_a_rule_covers_no_other_code(bash: Ask, place: WorkspaceView, rule: str, command: str, level: str) -> None:
    (place.workspace / "run.sh").write_text("x")
    files = execution.hash_files_run(tuple(command.split()), place)
    saved = policy.format_rule("bash", rule.split(), files)
    assert bash(command, "ask", replace(place, level=level), allow=(saved,)).verdict == "ask"


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("pytest -q", "pytest tests/test_a.py::test_x -x -k 'a and b' --tb=short"),
        ("python -m pytest", "python -m pytest -q src"),
        ("uv run pytest", "uv run pytest -x"),
        ("make test", "make test -j4"),
        ("ruff check .", "ruff check --fix src"),
        ("cargo test", "cargo test --release -p x"),
    ],
)
def test_a_rule_covers_listed_options_and_files_of_the_workspace(bash: Ask, command: str, also: str) -> None:
    saved = bash(command).rules
    assert bash(also, allow=saved).verdict == "allow", saved


def test_a_rule_for_an_install_ends_when_its_list_changes(bash: Ask, place: WorkspaceView) -> None:
    (place.workspace / "r.txt").write_text("x\n")
    (place.workspace / "package.json").write_text("{}")
    (place.workspace / "package-lock.json").write_text("{}")
    for command, file in (("pip install -r r.txt", "r.txt"), ("npm ci", "package-lock.json")):
        saved = bash(command).rules
        assert bash(command, allow=saved).verdict == "allow"
        (place.workspace / file).write_text("y\n")
        assert bash(command, allow=saved).verdict == "ask", command


OUTSIDE = [
    ("git commit", "git commit -F /etc/passwd"),
    ("git commit", "git commit -F/etc/passwd"),
    ("git commit", "git commit -aF/etc/passwd"),
    ("git commit", "git commit --file=/etc/passwd"),
    ("git commit", "git commit --file out"),
    ("git commit", "git commit -aFout"),
    ("git commit", "git commit -t ~/x"),
    ("git commit", "git commit --template=../x"),
    ("git commit", "git commit --pathspec-from-file ../x"),
    ("git commit", "cd src && git commit -F ../../x"),
    ("git tag", "git tag -F out v1"),
    ("git merge", "git merge -F /etc/passwd x"),
    ("gh pr", "gh pr create -F /etc/passwd"),
    ("frobnicate", "frobnicate --in=/etc/passwd"),
    ("frobnicate", "frobnicate @/etc/passwd"),
]


def test_a_rule_covers_no_file_outside_the_workspace(bash: Ask, place: WorkspaceView) -> None:
    (place.workspace / "out").symlink_to("/etc/passwd")
    free = [c for rule, c in OUTSIDE if bash(c, allow=(f"bash: {rule}",)).verdict != "ask"]
    assert free == []
    for command in ("git commit -F a.py", "git commit -am 'fix: a/b'", "frobnicate --in=src/b.py > /dev/null"):
        assert bash(command, allow=("bash: git commit", "bash: frobnicate")).verdict == "allow", command
    assert bash("frobnicate /etc/passwd", allow=bash("frobnicate /etc/passwd").rules).verdict == "allow"


def test_options_that_read_a_file_read_no_secrets(bash: Ask, secretive: WorkspaceView) -> None:
    for command in (
        "git commit -F .env",
        "git commit -aFlink",
        "git add --pathspec-from-file=.env",
        "git tag -F hard v1",
    ):
        assert bash(command, "auto", secretive).verdict == "deny", command
    assert bash("git commit -m .env", allow=("bash: git commit",)).verdict == "allow"


def test_a_hidden_command_is_covered_by_a_rule_with_all_its_words(bash: Ask, place: WorkspaceView) -> None:
    (place.workspace / "run.sh").write_text("echo 1\n")
    deny = ("bash: git push",)
    for command in ("sh run.sh", "./run.sh", "python3 -c 'print(1)'"):
        asked = bash(command, deny=deny)
        assert asked.verdict == "ask" and len(asked.rules) == 1, command
        for mode in ("ask", "auto", "full"):
            assert bash(command, mode, deny=deny, allow=asked.rules).verdict == "allow", command
    assert bash("./run.sh", "full", deny=deny).verdict == "deny"
    saved = bash("./run.sh", deny=deny).rules
    (place.workspace / "run.sh").write_text("git push\n")
    assert bash("./run.sh", "full", deny=deny, allow=saved).verdict == "deny"


def test_a_rule_does_not_cover_what_a_command_gets_as_input(bash: Ask) -> None:
    for command in ("echo x | xargs env", "cat a.py | python3 -", "sh < a.py", "echo x > y.sh; sh y.sh"):
        asked = bash(command, deny=("bash: git push",))
        assert (asked.verdict, asked.rules) == ("ask", ()), command


def test_a_program_is_known_under_the_name_that_a_link_leads_to(bash: Ask, place: WorkspaceView) -> None:
    (place.workspace / "g").symlink_to("/usr/bin/git")
    assert bash("./g push", "full", deny=("bash: git push",)).verdict == "deny"
