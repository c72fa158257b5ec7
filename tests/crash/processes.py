"""One forked process for each point where it is to die, two at a time."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from sakti.agent.tools import catalog
from sakti.core.lazy import LazyModule, load


def load_all() -> None:
    """Execute what was imported lazily, once for all the processes to come."""
    catalog.list_workspace_tools()
    while waiting := [m for m in sys.modules.values() if type(m) is LazyModule]:
        for module in waiting:
            load(module)
    gc.collect()
    gc.freeze()


Play = Callable[[Path, str], Coroutine[Any, Any, None]]


def for_each(points: Sequence[str], folder: Path, play: Play) -> None:
    """Run `play(folder / point, point)` in a process of its own for each of `points`."""
    load_all()
    running: list[int] = []
    for point in points:
        running.append(_forked(play, folder / point, point))
        if len(running) == 2:
            os.waitpid(running.pop(0), 0)
    for pid in running:
        os.waitpid(pid, 0)


def one_after_the_other(points: Sequence[str], folder: Path, play: Play) -> None:
    """Run `play(folder, point)` in a process of its own for each of `points`, each when the last one has died."""
    load_all()
    for point in points:
        os.waitpid(_forked(play, folder, point), 0)


def _forked(play: Play, folder: Path, point: str) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(play(folder, point))
            code = 0
        finally:
            os._exit(code)
    return pid
