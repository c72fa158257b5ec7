"""Track which files the model knows: it may change those that it, or its commands, read or wrote.

A file is known as it was last read or written here. After a command of the agent, known files are compared (and the
model gets the difference); other files count as the command's where their status changed while it ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

TEXT_LIMIT = 200_000  # bytes of a file that is kept to show later what a command changed in it
TEXTS_LIMIT = 20_000_000  # bytes of all of them
HASH_LIMIT = 20_000_000  # bytes of a file whose content is compared, not only its size and times
COMMANDS = 200  # commands that are remembered


class FileSeen(Struct, frozen=True):
    """File as the model last saw it; `data` is None if it was too large to keep."""

    mtime_ns: int
    size: int
    digest: bytes = b""
    data: bytes | None = None


class AgentCommand(Struct, frozen=True):
    """Command of the agent, and when it ran (ns)."""

    text: str
    begin: int
    end: int


class SeenFiles(Struct):
    known: dict[Path, FileSeen] = field(default_factory=dict[Path, FileSeen])
    commands: list[AgentCommand] = field(default_factory=list[AgentCommand])
    _kept: int = 0

    def saw(self, path: Path, data: bytes | None = None) -> None:
        """Note the present state of `path`; `data` is its content where the caller has it."""
        stat = path.stat()
        if data is None and stat.st_size <= HASH_LIMIT:
            data = path.read_bytes()
        self._drop(path)
        keep = data if data is not None and len(data) <= TEXT_LIMIT else None
        digest = hashlib.sha256(data).digest() if data is not None else b""
        self.known[path] = FileSeen(stat.st_mtime_ns, stat.st_size, digest, keep)
        self._kept += len(keep or b"")
        self._drop_oldest()

    def forget(self, path: Path) -> None:
        """Drop a deleted file."""
        self._drop(path)

    def _drop(self, path: Path) -> None:
        before = self.known.pop(path, None)
        self._kept -= len(before.data or b"") if before else 0

    def _drop_oldest(self) -> None:
        """Drop the content of the oldest files while all of it is too much."""
        for path, seen in list(self.known.items()):
            if self._kept <= TEXTS_LIMIT:
                return
            self._kept -= len(seen.data or b"")
            self.known[path] = FileSeen(seen.mtime_ns, seen.size, seen.digest)

    def state(self, path: Path, *, whole: bool = False) -> Literal["known", "changed", "unknown"]:
        """Return whether the model knows the present content of `path`.

        `whole`: to replace all of it.
        """
        seen = self.known.get(path)
        if seen is not None:
            return "known" if self._same(path, seen) else "changed"
        return "known" if self._by_command(path, whole) else "unknown"

    @staticmethod
    def _same(path: Path, seen: FileSeen) -> bool:
        stat = path.stat()
        if stat.st_size != seen.size:
            return False
        if not seen.digest or stat.st_size > HASH_LIMIT:
            return stat.st_mtime_ns == seen.mtime_ns
        # equal size and times are no proof, and a new time alone is no change
        return hashlib.sha256(path.read_bytes()).digest() == seen.digest

    def _by_command(self, path: Path, whole: bool) -> bool:
        changed = path.stat().st_ctime_ns
        return any(c.begin <= changed <= c.end and (not whole or path.name in c.text) for c in self.commands)

    def unchanged(self) -> list[Path]:
        """Return the known files that are unchanged: what a command changes of them is its own effect."""
        return [path for path, seen in self.known.items() if self._looks_same(path, seen)]

    @staticmethod
    def _looks_same(path: Path, seen: FileSeen) -> bool:
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_mtime_ns, stat.st_size) == (seen.mtime_ns, seen.size)

    def ran(self, command: AgentCommand, before: Sequence[Path]) -> list[tuple[Path, bytes | None, bytes | None]]:
        """Note a command that has ended; return its changes of the files `before` it.

        Path, old and new content (None where it was or is too large to compare); deleted files are dropped.
        """
        self.commands = [*self.commands[-COMMANDS:], command]
        out: list[tuple[Path, bytes | None, bytes | None]] = []
        for path in before:
            seen = self.known[path]
            if self._looks_same(path, seen):
                continue
            try:
                data = path.read_bytes() if path.stat().st_size <= HASH_LIMIT else None
                self.saw(path, data)
            except OSError:
                self._drop(path)
                continue
            if data is None or self.known[path].digest != seen.digest:
                out.append((path, seen.data, data))
        return out
