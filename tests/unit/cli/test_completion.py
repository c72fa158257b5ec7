"""Completion of lines in a shell, and its installation. Real shells: tests/e2e/test_completion.py."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from sakti.agent.threads.export import FORMATS
from sakti.cli import offers, options, shell
from sakti.core.config import APPROVAL_MODES, iter_names
from sakti.core.types import Thread
from sakti.store.database import Store
from sakti.store.tasks import deadlocks
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads
from sakti.tasks import changes
from tests.fakes.shell import sakti


def offered(line: str) -> list[str]:
    """What fish is told that `line` can go on with, each word with its description behind a tab."""
    with pytest.MonkeyPatch.context() as env:
        env.setenv("_SAKTI_COMPLETE", "complete_fish")
        env.setenv("COLUMNS", "80")
        env.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        env.setenv("_TYPER_COMPLETE_ARGS", f"sakti {line}")
        return sakti().stdout.splitlines()


def words(line: str) -> list[str]:
    return [w.partition("\t")[0] for w in offered(line) if w]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a task and two threads, one of them deleted; and no network."""
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def fill() -> None:
        store = await Store.open(tmp_path / "x.db", synchronous="NORMAL")
        for n, title in enumerate(("fix the login", "paint the fence", "paint \x1b[31m the door")):
            await store.write(threads.create, Thread(f"thread-{n}", str(folder), title, n, n))
        await store.write(thread_removal.delete_thread, "thread-0", 5)
        await store.close()

    asyncio.run(fill())
    assert sakti("tasks", "create", "mend the gate").exit_code == 0

    def refused(*_: object) -> None:
        raise AssertionError("completion asked the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    return folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("th", ["threads"]),
        ("tasks re", ["ready", "release", "reopen", "restore"]),
        ("tasks list --st", ["--status"]),
        ("tasks list --status ", ["open", "ready", "blocked", "in_progress", "closed", "all"]),
        ("tasks list --status=cl", ["closed"]),
        ("tasks list --status open --st", []),
        ("search --kind task --ki", ["--kind"]),
        ("-m an", ["anthropic/"]),
        ("-c --deb", ["--debug"]),
        ("--approval a", ["ask", "auto"]),
        ("run --effort ", ["off", "low", "medium", "high"]),
        ("--mode de", ["debugging", "default"]),
        ("--install-completion ", list(options.SHELLS)),
        ("doctor --", ["--json", "--help"]),
        ("config ui.no", ["ui.notify"]),
        ("-o memory.read", ["memory.read_only="]),
        ("threads export x -o no", []),  # a file
        ("tasks import ", []),
    ],
)
def test_what_may_stand_at_the_cursor(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_every_command_is_offered_with_its_description() -> None:
    assert set(words("")) == set(shell.list_words())
    assert "tasks\tThe task board" in offered("")


def test_names_of_this_workspace_are_offered(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("threads show ")[1] == "thread-1\tpaint the fence"
    assert "\x1b" not in "".join(offered("threads show "))
    assert words("-r ") == ["thread-2", "thread-1"]
    assert words("threads restore ") == ["thread-0"]
    assert words("memory log --thread=thread-1") == ["thread-1"]
    (handle,) = words("tasks show ")
    assert words("tasks create x --parent ") == [handle]
    monkeypatch.setenv("SAKTI_DB", str(workspace / "none.db"))
    assert words("threads show ") == words("tasks show ") == []
    assert not (workspace / "none.db").exists()


def test_bash_and_zsh_are_answered_in_their_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SAKTI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("COMP_WORDS", "sakti tasks re")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert sakti().stdout.split() == ["ready", "release", "reopen", "restore"]
    monkeypatch.setenv("_SAKTI_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "sakti tasks expl")
    assert '"explain":"Show the shortest chain' in sakti().stdout


def test_values_of_settings_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ui.theme=sakti-dark" in words("-o ui.theme=") and "approval.mode=edits" in words("-o approval.mode=e")
    assert words("-o ui.plain=t") == ["ui.plain=true"]
    monkeypatch.setenv("_SAKTI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "sakti -o ui.theme = sakti-d")  # bash takes = for a word
    monkeypatch.setenv("COMP_CWORD", "4")
    assert sakti().stdout.split() == ["sakti-dark"]


def test_what_is_offered_is_what_is_taken() -> None:
    def listed(command: str, flag: str) -> tuple[str, ...]:
        found = shell.find_subject(command.split()[0])
        assert found is not None
        (action,) = (a for a in found.actions if a.shell == command)
        (a,) = (a for a in action.args if flag in a.flags)
        return a.choices or a.offers  # type: ignore[return-value]

    assert listed("tasks create", "--type") == changes.TYPES
    assert listed("tasks close", "--reason") == changes.REASONS
    assert set(listed("tasks dep", "--type")) == set(deadlocks.EDGE_TYPES)
    assert listed("threads export", "--format") == FORMATS
    assert set(words("config ")) == set(iter_names())
    assert set(APPROVAL_MODES) <= set(words("--approval "))


def test_every_kind_of_name_can_be_looked_up() -> None:
    actions = [a for word in shell.list_words() if (s := shell.find_subject(word)) for a in s.actions]
    every = [*options.CHAT, *(x for a in actions for x in a.args)]
    assert {a.offers for a in every if isinstance(a.offers, str)} == set(offers._LOOKUPS)


# --- installing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", options.SHELLS)
def test_installing_writes_the_script_once(name: str, home: Path) -> None:
    told = sakti("--install-completion", name)
    assert told.exit_code == 0 and told.stdout.endswith(f": open a new {name}.\n")
    path = Path(told.stdout.removeprefix("Written to ").rpartition(": ")[0])
    assert path.is_relative_to(home) and path.read_text().strip() == script(name).strip()
    before = start_up_lines(home)
    assert sakti("--install-completion", name).stdout == told.stdout
    assert start_up_lines(home) == before


def start_up_lines(home: Path) -> list[str]:
    files = (p for p in (home / ".bashrc", home / ".zshrc") if p.exists())
    return [line for path in files for line in path.read_text().splitlines() if line]


def script(name: str) -> str:
    return sakti("--show-completion", name).stdout


def test_the_shell_is_the_users_own_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert script("fish") == sakti("--show-completion").stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    wrong = sakti("--install-completion")
    assert (
        wrong.exit_code == 2
        and "tcsh is not a shell" in wrong.stderr
        and "--install-completion` with bash" in wrong.stderr
    )
    monkeypatch.delenv("SHELL")
    assert "SHELL is not set" in sakti("--install-completion").stderr
    assert sakti("--install-completion", "tcsh").exit_code == 2


def test_a_script_that_cannot_be_written_is_one_sentence(home: Path) -> None:
    (home / ".bash_completions").write_text("a file in the place of the folder")
    told = sakti("--install-completion", "bash")
    assert told.exit_code == 1 and "cannot be written" in told.stderr and "--show-completion bash" in told.stderr
