"""Judge a repair by the hidden tests, run where only the repaired sources come from the run.

A test program gets a secret word on standard input and ends with `WORD PASSED TOTAL`: sources that leave the program
early, whatever exit code they choose, do not pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from sakti.core.resources import search_path
from tests.bench.repair.catalog import RUNNERS, Repair

TIME_LIMIT_S = 30.0
OUTPUT_BYTES = 200_000
END_S = 1.0  # how long a pipe is read after its program has ended


class Verdict(Struct, frozen=True):
    """Number of hidden tests passed; `reason` says briefly why not all, `output` what was printed."""

    passed: int
    total: int
    reason: str
    output: str

    @property
    def solved(self) -> bool:
        return not self.reason


class Ended(Struct, frozen=True):
    """End of a program; `code` is None where it was stopped at the time limit."""

    code: int | None
    output: str


async def judge(repair: Repair, folder: Path, programs: Mapping[str, str]) -> Verdict:
    """Run the hidden tests in `folder` (see `copies.to_judge`) with the tool chain's `programs`."""
    word = secrets.token_hex(12)
    env = _environment(folder, programs)
    ended = Ended(0, "")
    for command in _commands(repair, folder, programs):
        ended = await run_program(command, folder, env, f"{word}\n")
        if ended.code is None:
            return Verdict(0, repair.tests, f"the hidden tests took more than {TIME_LIMIT_S:.0f} s", ended.output)
        if ended.code:
            break
    return _verdict(repair, word, ended)


def _verdict(repair: Repair, word: str, ended: Ended) -> Verdict:
    ends = [line.split() for line in ended.output.splitlines() if line.startswith(f"{word} ")]
    last = ends[-1] if ends else ()
    shown = ended.output.replace(word, "").strip()
    if len(last) != 3 or not (last[1].isdigit() and last[2].isdigit()):
        return Verdict(0, repair.tests, "it does not build, or the hidden tests did not reach their end", shown)
    passed, total = int(last[1]), int(last[2])
    if total != repair.tests or ended.code:
        return Verdict(min(passed, repair.tests), repair.tests, "not all hidden tests were run", shown)
    failed = total - passed
    return Verdict(passed, total, f"{failed} of {total} hidden tests fail" if failed else "", shown)


def _commands(repair: Repair, folder: Path, programs: Mapping[str, str]) -> list[list[str]]:
    """Return the commands to run in order, each by its absolute path; the last is the test program."""
    workspace, hidden = folder / "workspace", folder / "hidden"
    match repair.language:
        case "python":
            # -I and -S: nothing of the environment, no start files, and the standard library before the workspace
            options = ("-I", "-S", "-B")
            return [[programs["python3"], *options, str(RUNNERS / "tests.py"), str(workspace), str(hidden / "test.py")]]
        case "javascript":
            return [[programs["node"], str(RUNNERS / "tests.cjs"), str(hidden / "test.cjs")]]
        case "c":
            out = folder / "hidden-test"
            units = [str(p) for p in sorted((workspace / "src").rglob("*.c")) if p.name != "main.c"]
            include = ["-I", str(RUNNERS), "-I", str(workspace / "src")]
            return [
                [programs["cc"], "-std=gnu11", "-O1", "-w", "-o", str(out), *include, str(hidden / "test.c"), *units],
                [str(out)],
            ]
        case "java":
            classes = folder / "classes"
            units = [str(p) for p in sorted((workspace / "src").rglob("*.java"))]
            quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            own = [str(RUNNERS / "Check.java"), str(hidden / "HiddenTest.java")]
            compiler = [programs["javac"], *(f"-J{o}" for o in quick), "-proc:none", "-nowarn", "-encoding", "UTF-8"]
            return [
                [*compiler, "-d", str(classes), *own, *units],
                [programs["java"], *quick, "-cp", str(classes), "HiddenTest"],
            ]
        case _:
            return [[programs["bash"], "--noprofile", "--norc", str(hidden / "test.sh")]]


def _environment(folder: Path, programs: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a hidden test: the system's programs, an own home, no variables of a language."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = {
        "PATH": search_path(folder) or os.defpath,
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C",
        "LC_ALL": "C",
        "TZ": "UTC",
        "WORKSPACE": str(folder / "workspace"),
        "CHECK": str(RUNNERS / "check.sh"),
    }
    if "bash" in programs:
        env["BASH_PROGRAM"] = programs["bash"]
    return env


async def run_program(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], given: str, *, limit_s: float = TIME_LIMIT_S
) -> Ended:
    """Run a program in its own process group, which ends with it, with `given` on standard input."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    kept = bytearray()
    reader = asyncio.create_task(_read(process, kept))
    code: int | None = None
    try:
        async with asyncio.timeout(limit_s):
            with contextlib.suppress(ConnectionError):
                assert process.stdin is not None
                process.stdin.write(given.encode())
                process.stdin.close()
            code = await process.wait()
    except TimeoutError:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.wait({reader}, timeout=END_S)
        reader.cancel()
    return Ended(code, kept.decode("utf-8", "replace"))


async def _read(process: asyncio.subprocess.Process, kept: bytearray) -> None:
    """Read all that is printed; only its end is kept."""
    assert process.stdout is not None
    while data := await process.stdout.read(1 << 16):
        kept += data
        del kept[:-OUTPUT_BYTES]
