"""Tab in a real bash, with the file that `sakti --install-completion` writes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from sakti.core.types import Thread
from sakti.store.database import Store
from sakti.store.threads import threads
from tests.e2e.conftest import Place
from tests.e2e.terminal import Terminal

# A shell with jobs wants its terminal to itself.
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
PROMPT = "ready> "


@pytest.fixture
def shell(place: Place) -> Iterator[Terminal]:
    """A bash that was started after the installation, in a workspace with a task, a thread and a file."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    bin_ = place.home / "bin"
    bin_.mkdir()
    program = bin_ / "sakti"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sakti "$@"\n')
    program.chmod(0o755)
    place.env |= {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "INPUTRC": os.devnull, "ENV": ""}
    assert place.run("tasks", "create", "paint the fence").returncode == 0
    asyncio.run(with_thread(place, "mend the login"))
    (place.folder / "some notes.md").write_text("x")
    (place.home / ".bashrc").write_text(f"PS1='{PROMPT}'\n")
    told = place.run("--install-completion", "bash")
    assert (told.returncode, told.stderr) == (0, ""), told.stderr
    line = (sys.executable, "-c", OWN_TERMINAL, "bash", "--noprofile", "-i")
    with Terminal(place.folder, place.env, program=line) as terminal:
        terminal.until(lambda _: terminal.line.endswith(PROMPT.strip()), "the prompt")
        yield terminal


async def with_thread(place: Place, title: str) -> None:
    store = await Store.open(place.path, synchronous="NORMAL")
    await store.write(threads.create, Thread("thread-1", str(place.folder), title, 1, 1))
    await store.close()


def typed(terminal: Terminal, line: str, expected: str | tuple[str, ...]) -> None:
    """Type `line` and Tab, and see `expected`, or one of them, in its place; then empty the line."""
    terminal.keys(f"{line}\t")
    terminal.until(lambda _: terminal.line.endswith(expected), f"{line}<TAB> → {expected}")
    terminal.keys("\x15")
    terminal.until(lambda _: terminal.line.endswith(PROMPT.strip()), "an empty line")


def test_tab_completes(shell: Terminal, place: Place) -> None:
    (handle,) = (t["handle"] for t in place.json("tasks", "list")["tasks"])
    typed(shell, "sakti th", "sakti threads")
    typed(shell, "sakti tasks expl", "sakti tasks explain")
    typed(shell, "sakti tasks list --assi", "sakti tasks list --assignee")
    typed(shell, "sakti tasks list --status in_", "sakti tasks list --status in_progress")
    typed(shell, "sakti --approval ed", "sakti --approval edits")
    typed(shell, "sakti -o memory.read", "sakti -o memory.read_only=")
    typed(shell, "sakti tasks show ", f"sakti tasks show {handle}")
    typed(shell, "sakti threads show ", "sakti threads show thread-1")
    typed(shell, "sakti threads export x -o so", "some\\ notes.md")
    shell.keys("sakti tasks \t\t")
    shell.until(lambda text: all(word in text for word in ("claim", "reopen", "undo")), "the commands of tasks")
