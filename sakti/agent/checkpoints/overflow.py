"""Find changes by commands in files that are not stored: in added folders, and beyond the file limit.

An undo cannot restore them, but names them. Metadata of added folders is compared before and after a command. Beyond
the limit, changes are detected by the time of the last change (ctime), which programs cannot set.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from sakti.agent.checkpoints import history, surroundings
from sakti.agent.checkpoints.objects import compute_index_id

MOST = 200_000  # files beyond the limit that are checked after a command
_COARSE = 5  # CLOCK_REALTIME_COARSE of Linux, the clock of file times
TICK_NS = 20_000_000  # the time of a file is that of the last tick of the system

Facts: TypeAlias = tuple[int | str, ...]


class AddedFolder(Struct, frozen=True):
    """Metadata of a folder beside the workspace at one time; `skipped` folders have too many files."""

    facts: Mapping[str, Facts] = field(default_factory=dict[str, Facts])
    skipped: frozenset[str] = frozenset()


def read_file_clock() -> int:
    """Return the time (ns) of the clock that dates file changes; no later change has an earlier time."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(_COARSE)
    return time.time_ns() - TICK_NS


def list_facts(folder: Path) -> AddedFolder:
    """Scan an added folder and the repositories in it; an unreadable folder counts as empty."""
    try:
        seen = surroundings.list_surroundings(folder, ())
    except OSError:
        return AddedFolder()
    facts = {path: _make_facts(status) for path, status in {**seen.folders, **seen.files}.items()}
    for git in seen.gits:
        for path, status in islice(history.list_below(f"{folder}/", git), surroundings.MOST):
            is_index = path.endswith("/index") and stat.S_ISREG(status.st_mode)
            facts[path] = _read_index_id(folder / path) if is_index else _make_facts(status)
    return AddedFolder(facts, seen.skipped)


def _make_facts(status: os.stat_result) -> Facts:
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns


def _read_index_id(path: Path) -> Facts:
    """Return the id of git's index, which even `git status` rewrites."""
    try:
        return (compute_index_id(path.read_bytes()),)
    except OSError:
        return ()


def compare(folder: Path, before: AddedFolder, after: AddedFolder, since_ns: int) -> tuple[list[str], list[str]]:
    """Return changed or removed paths of an added folder, and new ones."""
    old, new = before.facts, after.facts
    paths = [p for p in old.keys() | new.keys() if old.get(p) != new.get(p)]
    gone = _drop_parents(p for p in old.keys() & {*paths} if p in new or not os.path.lexists(folder / p))
    came = _drop_parents(p for p in new.keys() - old.keys() if not _is_in(p, before.skipped))
    gone += find_changed(folder, before.skipped, since_ns, old)
    return [f"{folder}/{p}" for p in gone], [f"{folder}/{p}" for p in came if not history.is_object(p)]


def _drop_parents(paths: Iterable[str]) -> list[str]:
    """Leave out folders if a path in them is named."""
    rows = sorted(paths)
    return [p for p, following in pairwise((*rows, "")) if not following.startswith(f"{p}/")]


def _format_folder(folder: str) -> str:
    return f"{folder or surroundings.ROOT}/"


def _is_in(path: str, folders: Container[str]) -> bool:
    return path.rpartition("/")[0] in folders or surroundings.is_at_or_below(path, folders)


def find_changed(
    top: Path, folders: Iterable[str], since_ns: int, seen: Container[str], explained: Iterable[str] = ()
) -> list[str]:
    """Return changes since a time in folders beyond the limit, without files tracked otherwise.

    From folders in `explained` such files were removed, so their own times say nothing. A folder with removed files, or
    too many files, is only named itself.
    """
    rows: list[str] = []
    missing = [f for f in folders if f and not os.path.lexists(top / f)]
    explained = surroundings.list_parents(missing) | {"" for _ in missing} | {*explained}
    waiting, visited, count = sorted(folders, reverse=True), set[str](), 0
    while waiting:
        folder = waiting.pop()
        if folder in visited:
            continue
        visited.add(folder)
        if count > MOST:
            rows.append(f"{_format_folder(folder)} (not looked at)")
            continue
        names, below, number = _list_changed(top, folder, since_ns, seen)
        count += number + 1
        rows += [n for n in names if not n.endswith("/") or folder not in explained or folder in missing]
        waiting += below
    return rows


def _list_changed(top: Path, folder: str, since_ns: int, seen: Container[str]) -> tuple[list[str], list[str], int]:
    """Return the changes in a folder, its subfolders, and the number of its files."""
    changed_itself = _is_changed(top / folder, since_ns)
    own_name = [_format_folder(folder)] if changed_itself else []
    entries = _list_entries(top / folder)
    if entries is None:  # removed, or unreadable before as well
        return own_name, [], 0
    prefix = f"{folder}/" if folder else ""
    folders = [f"{prefix}{e.name}" for e in entries if e.is_dir(follow_symlinks=False)]
    recent = [f"{prefix}{e.name}" for e in _list_recent(entries, since_ns)]
    names = [p for p in recent if p not in seen] if recent else own_name
    return names, folders, len(entries)


def _is_changed(folder: Path, since_ns: int) -> bool:
    try:
        return os.lstat(folder).st_ctime_ns >= since_ns
    except OSError:
        return True


def _list_entries(folder: Path) -> list[os.DirEntry[str]] | None:
    """List a folder without generated folders, a cache as empty; None if it cannot be read."""
    try:
        with os.scandir(folder) as rows:
            entries = [e for e in rows if e.name not in surroundings.CLOSED]
    except OSError:
        return None
    return [] if any(e.name == surroundings.TAG for e in entries) else entries


def _list_recent(files: Iterable[os.DirEntry[str]], since_ns: int) -> Iterator[os.DirEntry[str]]:
    for entry in files:
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and entry.stat(follow_symlinks=False).st_ctime_ns >= since_ns:
                yield entry
        except FileNotFoundError:
            continue
