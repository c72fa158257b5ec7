"""Kill a turn with child threads and a background command at every write, and check what is left."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crash import child_talk

ROOT = Path(__file__).parents[2]


def play(folder: Path, points: Sequence[str]) -> None:
    """Play the turn once for each point, each in a folder of its own."""
    command = [sys.executable, "-m", "tests.crash.child_talk", str(folder), *points]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_all(step: int = 1) -> Iterator[tuple[str, str]]:
    """Yield every `step`-th point with what is wrong after it, "" if nothing is."""
    with tempfile.TemporaryDirectory(prefix="sakti-kills-") as name:
        folder = Path(name)
        play(folder, ["none"])
        seen = ast.literal_eval((folder / "none/seen").read_text())
        events = [f"{event}:{count}" for event, count in seen.items() if event not in ("write", "inside", "behind")]
        points = [*(f"{kind}:{n}" for n in range(2, seen["write"] + 1) for kind in ("inside", "behind")), *events]
        play(folder, points[::step])
        for point in points[::step]:
            yield point, _check(folder / point)


def _check(folder: Path) -> str:
    try:
        asyncio.run(child_talk.check(folder))
    except AssertionError as e:
        return str(e) or "an assertion failed"
    return ""
