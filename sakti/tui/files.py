"""The files of a workspace, for completing `@path`: what git knows of, else a walk that obeys .gitignore."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from sakti.core.text import sanitise

LIMIT = 50_000
FRESH = 20.0  # seconds that a list is good for
# our own look at a repository must not run what its configuration names
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class FileList:
    """Paths below `root`, relative, with `/`; read when first wanted and again when they are old."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: list[str] = []
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def paths(self) -> list[str]:
        """At most `LIMIT` paths. Names with control characters are left out: they could not be typed."""
        async with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                found = await _git_files(self._root)
                if found is None:
                    found = await asyncio.to_thread(_walk, self._root)
                self._paths = [p for p in found[:LIMIT] if p and sanitise(p) == p and "\n" not in p]
                self._read_at = time.monotonic()
            return self._paths


async def _git_files(root: Path) -> list[str] | None:
    try:
        process = await asyncio.create_subprocess_exec(
            *_GIT,
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--deduplicate",
            cwd=root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(10):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return out.decode("utf-8", "replace").split("\0") if process.returncode == 0 else None


def _walk(root: Path) -> list[str]:
    import pathspec

    try:
        rules = (root / ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        rules = []
    ignore = pathspec.GitIgnoreSpec.from_lines(rules)
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root).as_posix()
        prefix = "" if here == "." else f"{here}/"
        folders[:] = sorted(f for f in folders if f != ".git" and not ignore.match_file(f"{prefix}{f}/"))
        found += [prefix + name for name in sorted(names) if not ignore.match_file(prefix + name)]
        if len(found) >= LIMIT:
            break
    return found
