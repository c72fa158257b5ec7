"""Killed anywhere with children and a background command: nothing is lost, run twice or left running.

`python -m tests.bench kills` plays it for every write.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.bench import kills
from tests.crash import child_talk


async def test_a_kill_with_children_and_jobs_loses_nothing_and_leaves_no_process(tmp_path: Path) -> None:
    first, second = random.Random(44).sample(range(8, 66), 2)
    points = (f"inside:{first}", f"behind:{second}", "tool_started:2", "child_tool_finished:1")
    kills.play(tmp_path / "killed", points)
    for point in points:
        folder = tmp_path / "killed" / point
        assert not (folder / "seen").exists(), f"{point} was not reached"
        await child_talk.check(folder)
