"""List the files of a workspace for completing `@path`.

They come from git, else from a walk that obeys .gitignore.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from sakti.agent.judge.workspace_view import WorkspaceView, secret_filter
from sakti.agent.reports.overview import overview
from sakti.agent.repository import git
from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitise

with lazy_imports:
    from sakti.agent.tools import files

LIMIT = 50_000
PATIENCE = 3.0  # seconds that a first message waits for the list of its workspace
FRESH = 20.0  # seconds that a list is good for


class FileList:
    """Paths below `root`, relative, with `/`, without secret ones (`own` are sakti's folders).

    Read when first wanted and again when they are old; git is asked where `trusted` says so.
    """

    def __init__(self, root: Path, own: tuple[Path, ...] = (), *, trusted: Callable[[], bool] = lambda: True) -> None:
        self._root, self._trusted = root, trusted
        self._place = WorkspaceView(root, root, own)
        self._paths: list[str] = []
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def paths(self) -> list[str]:
        """At most `LIMIT` paths.

        Names with control characters are left out: they could not be typed.
        """
        async with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                names = await _git_files(self._root) if self._trusted() else None
                if names is None:
                    names = await _walk(self._root)
                is_secret = secret_filter(self._root, self._place)
                typed = (p for p in names if p and not is_secret(p) and sanitise(p) == p and "\n" not in p)
                self._paths = list(itertools.islice(typed, LIMIT))
                self._read_at = time.monotonic()
            return self._paths


async def overview_of(root: Path, *, trusted: bool) -> str:
    """Describe a workspace's files (see `overview`); "" if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            return overview(await FileList(root, trusted=lambda: trusted).paths())
    except TimeoutError:
        return ""


async def _git_files(root: Path) -> list[str] | None:
    listed = await git(
        root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", timeout=10
    )
    return None if listed is None else listed.split("\0")


async def _walk(root: Path) -> list[str]:
    return (await files.listing(root, WorkspaceView(root, root))).paths
