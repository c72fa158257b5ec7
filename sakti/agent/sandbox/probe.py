"""Test whether the sandbox holds on this machine, once until the machine restarts."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from sakti.agent.sandbox.boundary import Boundary

LIMIT = 10.0  # seconds
_BOOT = Path("/proc/sys/kernel/random/boot_id")

# Each line tries one thing and prints a word where it could be done; the last one shows that the command ran.
_SCRIPT = """\
(: > "$1/outside/new") 2>/dev/null && echo outside
(: > .git/hooks/new) 2>/dev/null && echo hooks
read -r line 2>/dev/null < .env && echo secret
(exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && echo network
mv .git moved 2>/dev/null && echo moved
: > new && echo ran
"""
_MEANING = {
    "outside": "commands can write outside of the workspace",
    "hooks": "commands can write git's hooks",
    "secret": "commands can read files with secrets",
    "network": "commands can reach the network",
    "moved": "commands can move git's folder",
}
ALL = frozenset(_MEANING)

Start: TypeAlias = Callable[[Boundary, Sequence[str], Path], "subprocess.CompletedProcess[bytes]"]


def key(program: str) -> str:
    """Name what a result holds for: this start of the machine, this kernel, this program, this user."""
    try:
        seen = Path(program).stat()
        boot = _BOOT.read_text("ascii").strip()
    except OSError:
        return ""
    return f"{boot} {platform.release()} {program} {seen.st_size} {seen.st_mtime_ns} {os.getuid()}"


def read_result(file: Path, key: str) -> str | None:
    """Return the stored result of `key`, "" if the sandbox held; None without a result."""
    try:
        stored = json.loads(file.read_text("utf-8"))
        return str(stored["result"]) if key and stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(file: Path, key: str, result: str) -> None:
    """Store a result; if that fails, the sandbox is tested again at the next start."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as f:
            json.dump({"key": key, "result": result}, f)
        Path(f.name).replace(file)
    except OSError:
        return


def try_start(start: Start, folder: Path, held: Collection[str] = ALL) -> str:
    """Return why the sandbox does not hold, or "".

    `start` runs a command in a boundary and folder; `folder` must be one that the sandbox shows. `held` is what must
    not be possible: outside, hooks, secret, network, moved. Without a boundary all of it must be possible: a test that
    cannot fail proves nothing.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="probe-", dir=folder)).resolve()
    except OSError as e:
        return f"{folder} cannot be written ({e.strerror})"
    try:
        return _run_test(start, place, held)
    except subprocess.TimeoutExpired:
        return "it did not answer"
    except OSError as e:
        return e.strerror or str(e)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run_test(start: Start, place: Path, held: Collection[str]) -> str:
    can_tell = _words(_attempt(_start_plainly, place / "control"))
    if missing := sorted(set(held) - can_tell):
        return f"it cannot tell whether commands are confined ({', '.join(missing)})"
    done = _attempt(start, place / "held")
    words = _words(done)
    if "ran" not in words or not (place / "held" / "workspace" / "new").exists():
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    holes = [text for word, text in _MEANING.items() if word in words and word in held]
    if (place / "held" / "outside" / "new").exists() and _MEANING["outside"] not in holes:
        holes.append(_MEANING["outside"])
    return " and ".join(holes)


def _attempt(start: Start, place: Path) -> subprocess.CompletedProcess[bytes]:
    """Let a command try everything forbidden, in a separate workspace."""
    workspace, outside = place / "workspace", place / "outside"
    hooks, secret = workspace / ".git" / "hooks", workspace / ".env"
    hooks.mkdir(parents=True)
    outside.mkdir()
    secret.write_text("KEY=value\n", "utf-8")
    boundary = Boundary((workspace,), (workspace / ".git",), (hooks,), (secret,))
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = ["bash", "-c", _SCRIPT, "bash", str(place), str(server.getsockname()[1])]
        return start(boundary, command, workspace)


def _start_plainly(_boundary: Boundary, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.defpath}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=LIMIT, check=False)


def _words(done: subprocess.CompletedProcess[bytes]) -> set[str]:
    return set(done.stdout.decode("utf-8", "replace").split())
