"""Lists of commands, judged in every mode: none that harms is free, none that is ordinary asks."""

from __future__ import annotations

import pytest

from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.core.config import APPROVAL_MODES
from tests.unit.agent.judge.cases import HARD, HARMFUL, NAMES, READS, SECRETS, WORK
from tests.unit.agent.judge.conftest import Ask

# A rule that allows the first word of everything: what is hard asks all the same.
ALLOWED = tuple(
    f"bash: {word}"
    for word in "rm find git chmod chown kill mv sudo dd npm python kubectl docker aws psql gh sh env su".split()
)


HIDDEN = ("ls" + " " * 600 + "; rm -rf ~", "; ".join(["true"] * 31), "echo " + "x" * 8_001)


def test_what_harms_is_free_in_no_mode(bash: Ask) -> None:
    free = [(m, c) for c in (*HARMFUL, *HIDDEN) for m in APPROVAL_MODES if bash(c, m).verdict == "allow"]
    assert free == []


def test_what_cannot_be_undone_is_asked_under_any_rule(bash: Ask) -> None:
    for command in HARD:
        for mode in ("ask", "edits", "auto"):
            found = bash(command, mode, allow=ALLOWED)
            assert (found.verdict, found.rules) == ("ask", ()), found
            assert found.reason not in ("", "Runs a command"), found


def test_what_shows_a_secret_is_free_in_no_mode(bash: Ask, secretive: WorkspaceView) -> None:
    free = [(m, c) for c in SECRETS for m in APPROVAL_MODES if bash(c, m, secretive).verdict == "allow"]
    assert free == []


def test_the_content_of_a_secret_file_is_refused(bash: Ask, secretive: WorkspaceView) -> None:
    for command in ("cat .env", "cat link", "cat hard", "cat < .env", "git show HEAD:.env", "cp .env x"):
        found = {bash(command, m, secretive, allow=("bash: cat", "bash: cp")).verdict for m in APPROVAL_MODES}
        assert found == {"deny"}, command


def test_the_name_of_a_secret_file_is_no_secret(bash: Ask, secretive: WorkspaceView) -> None:
    assert [(m, c) for c in NAMES for m in ("ask", "auto") if bash(c, m, secretive).verdict == "deny"] == []


def test_ordinary_reads_are_free(bash: Ask) -> None:
    assert [(m, c) for c in READS for m in APPROVAL_MODES if bash(c, m).verdict != "allow"] == []


def test_ordinary_work_is_free_in_auto_only(bash: Ask) -> None:
    for command in WORK:
        found = [bash(command, mode).verdict for mode in APPROVAL_MODES]
        assert (found[0], found[1], found[3]) == ("deny", "ask", "allow"), command


def test_reads_outside_the_project_ask(bash: Ask) -> None:
    for command in (
        "cat /etc/hosts",
        "ls ~",
        "ls ..",
        "cat ../x",
        "cat < /etc/hosts",
        "git diff /etc/hosts a.py",
        "cd .. && ls",
    ):
        assert bash(command, "ask").verdict == "ask", command
    assert bash("ls /usr/include", "auto").verdict == "allow"


def test_behind_cd_paths_are_judged_where_they_lead(bash: Ask, secretive: WorkspaceView) -> None:
    assert bash("cd sub && cat x", "ask", secretive).verdict == "allow"
    assert bash("cd sub && cat .env", "ask", secretive).verdict == "deny"
    assert bash("cd sub && cat ../../outside", "ask", secretive).verdict == "ask"
    assert bash("cd sub & cat ../x", "ask", secretive).verdict == "ask", "cd may not have been where that runs"


@pytest.mark.parametrize(
    "setting",
    [
        "[diff]\n\texternal = evil",
        '[diff "x"]\n\ttextconv = evil',
        '[DIFF "x"] textConv = evil',
        '[filter "x"]\n\tclean = evil',
        "[core]\n\tfsmonitor = evil",
        "[core]\n\thooksPath = evil",
        "[alias]\n\tlog = !evil",
        "[include]\n\tpath = evil",
        '[includeIf "gitdir:x"]\n\tpath = evil',
        '[remote "o"]\n\tpromisor = true',
        "[pager]\n\tlog = evil",
        "[gpg]\n\tprogram = evil",
    ],
)
def test_git_reads_only_where_the_repository_names_no_program(bash: Ask, place: WorkspaceView, setting: str) -> None:
    assert bash("git diff").verdict == "allow"
    (place.workspace / ".git" / "config").write_text(f"{setting}\n")
    assert [bash("git diff", m).verdict for m in ("ask", "auto")] == ["ask", "ask"]
    assert "setting" in bash("git diff").reason


def test_the_settings_of_a_worktree_count(bash: Ask, place: WorkspaceView) -> None:
    inner = place.workspace / "inner"
    inner.mkdir()
    (inner / ".git").write_text(f"gitdir: {place.workspace}/.git/worktrees/inner\n")
    linked = place.workspace / ".git" / "worktrees" / "inner"
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n")
    assert bash("cd inner && git status").verdict == "allow"
    (linked / "config.worktree").write_text("[core]\n\tpager = evil\n")
    assert bash("cd inner && git status").verdict == "ask"


def test_the_settings_of_the_user_are_the_users(bash: Ask, home) -> None:  # type: ignore[no-untyped-def]
    (home / ".gitconfig").write_text("[alias]\n\tst = status\n[core]\n\tpager = less\n[credential]\n\thelper = store\n")
    assert bash("git status").verdict == "allow"


def test_the_question_names_what_would_be_removed(bash: Ask, place: WorkspaceView) -> None:
    for number in range(7):
        (place.workspace / f"x{number}.tmp").write_text("")
    assert bash("rm -rf *.tmp").reason == "Removes x0.tmp, x1.tmp, x2.tmp, x3.tmp and 3 more files: cannot be undone"
