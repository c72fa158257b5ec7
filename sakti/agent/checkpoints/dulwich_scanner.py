"""Find changes in a workspace by dulwich if git is not installed: the same index and objects.

It walks the tree itself, some ten times slower than git, and uses dulwich's .gitignore rules. Not imported if git is
available.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dulwich.ignore import IgnoreFilterManager
from dulwich.index import Index, IndexEntry
from dulwich.objects import ObjectID
from msgspec import Struct, field

from sakti.agent.checkpoints import scanner
from sakti.agent.checkpoints.objects import Objects
from sakti.agent.checkpoints.plan import PathEntry
from sakti.agent.checkpoints.scanner import LARGEST, MOST, MOST_BYTES, TooLarge, WorkspaceSnapshot


class DulwichScanner(Struct):
    """Scanner by dulwich; `folder` holds the checkpoints of the workspace.

    `secret` returns whether a relative path is never covered.
    """

    workspace: Path
    folder: Path
    secret: Callable[[str], bool]
    objects: Objects
    _modes: dict[str, int] = field(default_factory=dict[str, int])

    def scan(self, *, modes: bool = False, rules: bool = True) -> WorkspaceSnapshot:  # both are read in any case
        file = self.folder / "git" / "index"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = file.stat().st_mtime_ns if file.exists() else 0
        index: Any = Index(file, read=file.exists())
        indexed: dict[str, Any] = {os.fsdecode(path): index[path] for path in index}
        left_out: set[str] = set()
        entries: dict[str, PathEntry] = {}
        size = 0
        for path, status in self._walk(indexed):
            if stat.S_ISDIR(status.st_mode):
                entries[path] = PathEntry(status.st_mode)
                continue
            kind = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if not kind or status.st_size > LARGEST or scanner.is_excluded(path, self.secret):
                left_out.add(path)
                continue
            entry = indexed.get(path)
            if entry is None or not _is_unchanged(entry, status, written):
                data = self._read(path, status)
                if data is None:
                    left_out.add(path)
                    continue
                size += len(data)
                entry = _make_index_entry(status, self.objects.put(data, sync=False))
                index[os.fsencode(path)] = entry
            entries[path] = PathEntry(status.st_mode, entry.sha.decode())
            if len(entries) > MOST or size > MOST_BYTES:
                raise TooLarge(scanner.explain_too_many(len(entries)))
        for path in indexed.keys() - entries.keys():
            del index[os.fsencode(path)]
        index.write()
        return WorkspaceSnapshot(entries, frozenset(left_out))

    def list_ignored(self, paths: Sequence[str], rules: Mapping[str, bytes]) -> set[str]:
        with tempfile.TemporaryDirectory(prefix="sakti-ignore-") as folder:
            scanner.write_rules(folder, rules)
            rule = IgnoreFilterManager(folder, [], False)
            return {p for p in paths if rule.is_ignored(p)}

    def _walk(self, known: Mapping[str, Any]) -> Iterator[tuple[str, os.stat_result]]:
        """Yield files and empty folders; ignored ones only if they are in the index already."""
        rule = IgnoreFilterManager(str(self.workspace), [], False)
        above = {p[:at] for p in known for at, sign in enumerate(p) if sign == "/"}

        def below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
            with os.scandir(self.workspace / folder) as entries:
                names = sorted(entries, key=lambda e: e.name)
            if not names and folder:
                yield folder, os.lstat(self.workspace / folder)
            for entry in names:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name == ".git":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if path in above or not rule.is_ignored(f"{path}/"):
                        yield from below(path)
                elif path in known or not rule.is_ignored(path):
                    yield path, entry.stat(follow_symlinks=False)

        return below("")

    def _read(self, path: str, status: os.stat_result) -> bytes | None:
        file = self.workspace / path
        try:
            return os.fsencode(file.readlink()) if stat.S_ISLNK(status.st_mode) else file.read_bytes()
        except OSError:
            return None


def _is_unchanged(entry: Any, status: os.stat_result, written: int) -> bool:
    """Return whether a file matches its index entry.

    A file that changed when the index was written is read again.
    """
    there = (_to_ns(entry.mtime), _to_ns(entry.ctime), entry.size, entry.ino, entry.mode)
    now = (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size & 0xFFFFFFFF,
        status.st_ino & 0xFFFFFFFF,
        _to_git_mode(status),
    )
    return there == now and status.st_mtime_ns < written


def _to_ns(time: Any) -> int:
    return time[0] * 10**9 + time[1] if isinstance(time, tuple) else round(time * 10**9)  # pyright: ignore


def _to_git_mode(status: os.stat_result) -> int:
    if stat.S_ISLNK(status.st_mode):
        return stat.S_IFLNK
    return stat.S_IFREG | (0o755 if status.st_mode & 0o100 else 0o644)


def _make_index_entry(status: os.stat_result, oid: str) -> Any:
    mtime, ctime = divmod(status.st_mtime_ns, 10**9), divmod(status.st_ctime_ns, 10**9)
    return IndexEntry(
        ctime, mtime, status.st_dev & 0xFFFFFFFF, status.st_ino & 0xFFFFFFFF, _to_git_mode(status),
        status.st_uid, status.st_gid, status.st_size & 0xFFFFFFFF, ObjectID(oid.encode()),
    )  # fmt: skip  # pyright: ignore
