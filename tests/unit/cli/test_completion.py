"""What a line of the shell is completed to, and what installs that. Real shells: tests/e2e/test_completion.py."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from sakti.agent.threads.export import FORMATS
from sakti.cli import complete, completion, offers, options, place, shell
from sakti.core.config import APPROVAL_MODES, names
from sakti.core.types import Thread
from sakti.store.database import Store
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads
from sakti.tasks import fields, graph
from tests.fakes.shell import sakti


def words(*line: str, shell: str = "zsh") -> list[str]:
    """What `line` can go on with."""
    return [found.partition("\t")[0] for found in sakti("--complete", shell, *line).stdout.splitlines()]


def bash(line: str, replaced: str, kind: str = "9") -> list[str]:
    return sakti("--complete", "bash", kind, replaced, line).stdout.splitlines()


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
        await store.write(thread_removal.delete, "thread-0", 5)
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
        (("th",), ["threads"]),
        (("tasks", "re"), ["ready", "release", "reopen", "restore"]),
        (("tasks", "list", "--st"), ["--status"]),
        (("tasks", "list", "--status", ""), ["open", "ready", "blocked", "in_progress", "closed", "all"]),
        (("tasks", "list", "--status=cl"), ["--status=closed"]),
        (("tasks", "list", "--status", "open", "--st"), []),
        (("search", "--kind", "task", "--ki"), ["--kind"]),
        (("-m", "an"), ["anthropic/"]),
        (("-c", "th"), []),
        (("--approval", ""), list(APPROVAL_MODES)),
        (("-p", "hello", "--out"), ["--output"]),
        (("-p", "hello", "--output", "s"), ["stream-json"]),
        (("run", "--effort", ""), ["off", "low", "medium", "high"]),
        (("--mode", "de"), ["debugging", "default"]),
        (("--install-completion", ""), list(options.SHELLS)),
        (("--", "th"), []),
        (("fix the bug", "th"), []),
        (("nonsense", ""), []),
        (("tasks", "nonsense", ""), []),
        (("doctor", ""), ["--json", "--help"]),
        (("config", "ui.no"), ["ui.notify"]),
        (("threads", "export", "x", "-o", "no"), [""]),  # a file
        (("tasks", "import", ""), [""]),
        (("bench", "repair", "--only", "no such"), []),
    ],
)
def test_what_may_stand_at_the_cursor(line: tuple[str, ...], expected: list[str]) -> None:
    assert words(*line) == expected


def test_every_command_is_offered_with_what_it_does() -> None:
    told = sakti("--complete", "fish", "").stdout.splitlines()
    assert [t.partition("\t")[0] for t in told] and {t.partition("\t")[0] for t in told} == set(shell.words())
    assert "tasks\tThe task board" in told


def test_names_of_this_workspace_are_offered(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words("threads", "show", "") == ["thread-2", "thread-1"]
    assert words("-r", "") == ["thread-2", "thread-1"]
    assert words("threads", "show", "pai") == ["paint the fence"]  # the other title has signs that no shell shows
    assert words("threads", "restore", "") == ["thread-0"]
    assert words("memory", "log", "--thread=thread-1") == ["--thread=thread-1"]
    (handle,) = words("tasks", "show", "")
    assert words("tasks", "create", "x", "--parent", "") == [handle]
    assert bash("sakti tasks show ", "") == [handle]
    told = bash("sakti threads show ", "")
    assert told[1] == "thread-1  (paint the fence)" and "\x1b" not in told[0]
    assert bash("sakti threads show ", "", "37") == ["thread-2", "thread-1"]  # one after the other is put in
    monkeypatch.setenv("SAKTI_DB", str(workspace / "none.db"))
    assert words("threads", "show", "") == words("tasks", "show", "") == []
    assert not (workspace / "none.db").exists()


def test_bash_takes_what_it_can_put_in() -> None:
    assert bash("sakti tasks list --status=cl", "cl") == ["closed"]
    assert bash("sakti tasks list --status=", "=") == words("tasks", "list", "--status", "")
    assert bash("sakti -o memory.read", "memory.read") == ["memory.read_only=", "\tnospace"]
    assert bash("sakti threads export x -o ", "") == ["\tfiles"]
    assert bash("sakti '", "'") == sorted(shell.words())


def test_a_title_is_quoted_for_bash(workspace: Path) -> None:
    assert bash("sakti threads show pai", "pai") == ["paint\\ the\\ fence"]
    assert bash("sakti threads show paint\\ t", "paint\\ t") == ["paint\\ the\\ fence"]
    assert bash('sakti threads show "pai', '"pai') == ["paint the fence"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sakti ", ([""], "")),
        ("sakti  a b", (["a", "b"], "b")),
        ("sakti a\\ b 'c d", (["a b", "c d"], "'c d")),
        ('sakti "a \\" b" ', (['a " b', ""], "")),
        ("sakti --x=y", (["--x=y"], "--x=y")),
        ("sakti ''", ([""], "''")),
    ],
)
def test_lines_are_split_as_bash_does(line: str, expected: tuple[list[str], str]) -> None:
    assert complete.split(line) == expected


def test_what_is_offered_is_what_is_taken() -> None:
    def offered(command: str, flag: str) -> tuple[str, ...]:
        found = shell.subject(command.split()[0])
        assert found is not None
        (action,) = (a for a in found.actions if a.shell == command)
        return next(place.values(a) for a in action.args if flag in a.flags)  # type: ignore[return-value]

    assert offered("tasks create", "--type") == fields.TYPES
    assert offered("tasks close", "--reason") == fields.REASONS
    assert set(offered("tasks dep", "--type")) == set(graph.EDGE_TYPES)
    assert offered("threads export", "--format") == FORMATS
    assert set(words("config", "")) == set(names())


def test_whatever_is_looked_up_is_known() -> None:
    actions = [a for word in shell.words() if (s := shell.subject(word)) for a in s.actions]
    every = [*options.CHAT, *(x for a in actions for x in a.args)]
    looked_up = {a.offers for a in every if isinstance(a.offers, str)} - {"files"}
    assert looked_up == set(offers._LOOKUPS)
    assert place.values(options.INSTALL) == options.SHELLS


@pytest.mark.parametrize("asked", [(), ("tcsh", "x"), ("bash",), ("bash", "9", ""), ("zsh",)])
def test_what_no_script_asks_is_not_answered(asked: tuple[str, ...]) -> None:
    assert sakti("--complete", *asked).stdout == ""


# --- installing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", options.SHELLS)
def test_installing_twice_changes_nothing(name: str, home: Path) -> None:
    said = sakti("--install-completion", name)
    path = completion.place_of(name, {"XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config")})
    assert said.exit_code == 0 and said.stdout.startswith("Written to ~/") and path.read_text() == script(name)
    before = path.stat()
    again = sakti("--install-completion", name)
    assert again.stdout.startswith("Installed already in ~/") and again.stdout.count("\n") == 1
    assert path.stat() == before
    path.write_text("of an older version")
    assert sakti("--install-completion", name).stdout == said.stdout and path.read_text() == script(name)


def script(name: str) -> str:
    return sakti("--show-completion", name).stdout


def test_the_start_up_file_needs_one_line_once(home: Path) -> None:
    said = sakti("--install-completion", "zsh").stdout
    assert "to ~/.zshrc and open a new zsh." in said
    (home / ".zshrc").write_text(f"setopt autocd\n{said.split('`')[1]}\n")
    assert sakti("--install-completion", "zsh").stdout.endswith("completion.zsh: open a new zsh.\n")
    assert (home / ".zshrc").read_text().count("source") == 1


def test_the_shell_is_the_one_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setattr(completion, "_parent", lambda: "fish")
    assert script("fish") == sakti("--show-completion").stdout
    monkeypatch.setattr(completion, "_parent", lambda: "make")
    assert script("zsh") == sakti("--show-completion").stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    wrong = sakti("--install-completion")
    assert (
        wrong.exit_code == 2 and "tcsh is not a shell" in wrong.stderr and "--install-completion bash" in wrong.stderr
    )
    monkeypatch.delenv("SHELL")
    monkeypatch.setattr(completion, "_parent", lambda: "")
    assert "the shell is not known" in sakti("--install-completion").stderr
    assert sakti("--install-completion", "tcsh").exit_code == 2


def test_what_cannot_be_written_is_said(home: Path) -> None:
    (home / "data").write_text("a file where a folder has to be")
    said = sakti("--install-completion", "bash")
    assert said.exit_code == 1 and "cannot be written" in said.stderr and "--show-completion bash" in said.stderr
