"""Run a hook's command inside the sandbox, and end all that it started at its end or its timeout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from sakti.agent.project.hooks.answers import Ran
from sakti.agent.project.hooks.settings import PROJECT_DIRS, Hook
from sakti.agent.sandbox import environment
from sakti.agent.sandbox import sandbox as enclosing
from sakti.agent.tools.processes import Process, ProcessTree, spawn
from sakti.core.programs import find_program

MOST = 1_000_000  # bytes of each output that are read
CHUNK = 1 << 16
PAUSE = 0.002  # seconds between two reads of an output that is too long to be kept
LEFT = 0.2  # seconds that an output may still come in after the end


class HookSurroundings(Struct, frozen=True):
    """Surroundings of hooks: workspace, current folder, variables, sandbox (None: no sandbox).

    `own_env` is the user's environment, of which commands without a sandbox get what reaches a network; `read` are
    files and folders that are shown although what holds them is hidden; `home` is the user's.
    """

    workspace: Path
    cwd: Path
    env: Mapping[str, str]
    sandbox: enclosing.Sandbox | None = None
    own_env: Mapping[str, str] = field(default_factory=dict[str, str])
    read: tuple[Path, ...] = ()
    home: Path = field(default_factory=Path.home)


async def run(hook: Hook, data: bytes, place: HookSurroundings) -> Ran:
    """Run one hook to its end or its time; raises nothing but a cancellation, which ends it too."""
    try:
        argv = command(hook, place)
        with tempfile.TemporaryFile(prefix="sakti-hook-") as stdin:
            stdin.write(data)
            stdin.seek(0)
            process = _start(argv, hook, place, stdin)
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        return Ran(hook, failed=f"cannot be started: {why}.")
    assert process.stderr is not None
    out, errors, tree = _HookOutput(process.stdout), _HookOutput(process.stderr), ProcessTree(process)
    try:
        async with asyncio.timeout(hook.timeout):
            await tree.wait_for_exit()
        await tree.end(grace=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFT):
                await out.closed.wait()
                await errors.closed.wait()
    except TimeoutError:
        return Ran(hook, failed=f"stopped after {hook.timeout:g} s, with every process that it started.")
    finally:
        await tree.end(grace=0)
        out.close()
        errors.close()
    return Ran(hook, process.code, out.text(), errors.text())


def command(hook: Hook, place: HookSurroundings) -> list[str]:
    """Return the command that starts a hook. Raises `ValueError` where its program is missing."""
    if hook.args is None:
        shell = find_program("bash", place.workspace, place.env.get("PATH"))
        if shell is None:
            raise ValueError("bash was not found on PATH outside the workspace")
        return [shell, "-c", hook.command]
    words = [_with_folder(word, place.workspace) for word in (hook.command, *hook.args)]
    if "/" not in words[0]:
        program = find_program(words[0], place.workspace, place.env.get("PATH"))
        if program is None:
            raise ValueError(f"{words[0]} was not found on PATH")
        words[0] = program
    return words


def _with_folder(word: str, workspace: Path) -> str:
    for name in PROJECT_DIRS:
        word = word.replace(f"${{{name}}}", str(workspace)).replace(f"${name}", str(workspace))
    return word


def variables(place: HookSurroundings) -> dict[str, str]:
    """Return a hook's environment: what commands get, never a key, and the folder of the project."""
    more = environment.network_variables(place.own_env) if place.sandbox is None else {}
    return {**place.env, **more, **dict.fromkeys(PROJECT_DIRS, str(place.workspace))}


def _start(argv: Sequence[str], hook: Hook, place: HookSurroundings, stdin: IO[bytes]) -> Process:
    cwd = place.cwd if place.cwd.is_dir() else place.workspace
    with _enclose(argv, cwd, hook, place) as enclosed:
        return spawn(
            enclosed.argv, enclosed.cwd, variables(place), enclosed.descriptors, stdin=stdin, stderr=subprocess.PIPE
        )


@contextmanager
def _enclose(
    argv: Sequence[str], cwd: Path, hook: Hook, place: HookSurroundings
) -> Generator[enclosing.SandboxedCommand]:
    if place.sandbox is None:
        yield enclosing.SandboxedCommand(tuple(argv), cwd)
        return
    write = () if hook.project else enclosing.given_folders(hook.write, place.home)
    with place.sandbox.enclose(argv, cwd, write, place.read) as enclosed:
        yield enclosed


class _HookOutput:
    """One output of a process: read as it comes, its beginning kept, the rest dropped."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._number, self._data = pipe, pipe.fileno(), bytearray()
        self.closed = asyncio.Event()
        os.set_blocking(self._number, False)
        self._start_reading()

    def _start_reading(self) -> None:
        if not self.closed.is_set():
            asyncio.get_running_loop().add_reader(self._number, self._on_data)

    def _on_data(self) -> None:
        loop = asyncio.get_running_loop()
        if self._read() and len(self._data) >= MOST:
            loop.remove_reader(self._number)
            loop.call_later(PAUSE, self._start_reading)

    def _read(self) -> bool:
        """Read the available output; return False if there is no more."""
        try:
            data = os.read(self._number, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._release()
            return False
        self._data += data[: MOST - len(self._data)]
        return True

    def close(self) -> None:
        """Read the remaining output, and stop."""
        for _ in range(MOST // CHUNK + 1):
            if self.closed.is_set() or not self._read():
                break
        self._release()

    def _release(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            asyncio.get_running_loop().remove_reader(self._number)
            self._pipe.close()

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")
