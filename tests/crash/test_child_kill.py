"""Killed anywhere with children and a background command: nothing is lost, run twice or left running.

`python -m tests.bench kills` plays it for every write.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.bench import kills
from tests.crash import child_talk


async def test_a_kill_with_children_and_jobs_loses_nothing_and_leaves_no_process(tmp_path: Path) -> None:
    writes = random.Random(44).sample(range(8, 66), 4)
    points = [f"{kind}:{n}" for kind, n in zip(("inside", "behind") * 2, writes, strict=True)]
    kills.play(tmp_path, [*points, "child_tool_finished:1", "agent_finished:1"])
    for folder in sorted(tmp_path.iterdir()):
        assert not (folder / "seen").exists(), f"{folder.name} was not reached"
        await child_talk.check(folder)
