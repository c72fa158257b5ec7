"""The program as a shell runs it, in this process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sakti.cli.start import run_cli
from tests.bench import __main__ as benchmarks


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class _Out(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    def text(self) -> str:
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode("utf-8", "replace")


def sakti(*arguments: str) -> Ended:
    """Run `sakti ARGUMENTS`."""
    return _run(run_cli, arguments)


def bench(*arguments: str) -> Ended:
    """Run `python -m tests.bench ARGUMENTS`."""
    return _run(benchmarks.main, arguments)


def _run(program: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> Ended:
    out, err, code = _Out(), _Out(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program(arguments)
        except SystemExit as e:
            code = int(e.code or 0)
    return Ended(code, out.text(), err.text())


def code(*argv: str) -> int:
    """Run a command and return its exit code; what it prints goes where the test's own output goes."""
    try:
        run_cli(argv)
    except SystemExit as e:
        return int(e.code or 0)
    return 0
