"""See files that the scanner leaves out: ignored, large and secret ones, pipes, modes of folders.

Only facts of them are noted. A file is kept before a command that names it, so that an undo restores it;
any other that a command removes or changes is named afterwards.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.checkpoints import places
from sakti.agent.checkpoints.objects import FILE, Objects
from sakti.agent.checkpoints.plan import Change, Entry, has_same_mode, same
from sakti.agent.tools.changes import current_umask
from sakti.core.text import byte_size, counted

MOST = 20_000  # files that are noted
MOST_KEPT = 50_000  # files that are kept for one command
LARGEST = 2_000_000_000  # bytes of all files kept as a whole, and of those that one command may have copied
SPARE = 500_000_000  # bytes that stay free on the disk of the checkpoints
NAMED = 20  # names of what was lost
# Folders that programs fill, and fill again: only the folder itself is noted.
_FILLED = frozenset(("node_modules", ".venv", "venv"))
_CACHE = "__pycache__"
_TAG = "CACHEDIR.TAG"  # says that a folder is a cache


class Surroundings(Struct, frozen=True):
    """Facts at one time: permissions of folders, and files that are not covered.

    `gits` are the paths of all `.git`, `unseen` folders that were not looked into.
    """

    folders: Mapping[str, int] = field(default_factory=dict[str, int])
    files: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    gits: tuple[str, ...] = ()
    unseen: frozenset[str] = frozenset()


class _Walk:
    """Walk a workspace, nearest folders first."""

    def __init__(self, workspace: Path, covered: Container[str]) -> None:
        self.covered, self.top = covered, workspace
        self.folders: dict[str, int] = {}
        self.files: dict[str, os.stat_result] = {}
        self.gits: list[str] = []
        self.unseen: set[str] = set()
        self.waiting = deque([""])

    def run(self) -> Surroundings:
        while self.waiting:
            folder = self.waiting.popleft()
            try:
                with os.scandir(f"{self.top}/{folder}") as rows:
                    entries = list(rows)
            except OSError:
                if not folder:
                    raise
                self.unseen.add(folder)
                continue
            if not any(e.name == _TAG for e in entries) or f"{folder}/{_TAG}" in self.covered:
                for entry in entries:
                    self._see(f"{folder}/{entry.name}" if folder else entry.name, entry)
        return Surroundings(self.folders, self.files, tuple(self.gits), frozenset(self.unseen))

    def _see(self, path: str, entry: os.DirEntry[str]) -> None:
        if entry.name == ".git":
            self.gits.append(path)
        elif entry.is_dir(follow_symlinks=False):
            self._see_folder(path, entry)
        elif path not in self.covered and len(self.files) < MOST:
            self.files[path] = entry.stat(follow_symlinks=False)

    def _see_folder(self, path: str, entry: os.DirEntry[str]) -> None:
        status = entry.stat(follow_symlinks=False)
        self.folders[path] = status.st_mode
        if len(self.files) >= MOST:
            self.unseen.add(path)
        elif entry.name in _FILLED:
            self.files[path] = status
        elif entry.name != _CACHE:
            self.waiting.append(path)


def look(workspace: Path, covered: Container[str]) -> Surroundings:
    """Look at all that is not covered. Raises OSError if the workspace cannot be read."""
    return _Walk(workspace, covered).run()


class Moment(Struct, frozen=True):
    """A workspace at one time: covered files, and what lies beside them."""

    covered: Mapping[str, Entry]
    look: Surroundings


class Changes(Struct, frozen=True):
    """Changes by a command: those that can be undone, and the paths of files that cannot be restored."""

    undoable: tuple[Change, ...]
    lost: tuple[str, ...]


def compare(
    workspace: Path, before: Moment, after: Moment, kept: Mapping[str, Entry], visible: Container[str]
) -> Changes:
    """Compare two moments; `kept` are files kept before the command, `visible` those left out unignored.

    A new file that is ignored is no change: nothing is lost by it.
    """
    old, new = before.covered, after.covered
    paths = {p for p in old.keys() | new.keys() if old.get(p) is not new.get(p)}
    above = {p[:at] for p in kept for at, sign in enumerate(p) if sign == "/"}
    changes: list[Change] = []
    lost: list[str] = []
    for path in sorted(paths | before.look.files.keys() | after.look.files.keys() | kept.keys()):
        was = old.get(path) or kept.get(path) or _entry(path, before.look.files.get(path))
        status = _status(workspace, path) if path in kept else after.look.files.get(path)
        now = new.get(path) or _entry(path, status)
        if _is_equal(was, now) or (now is None and _is_unseen(path, after.look.unseen)):
            continue
        if path in old or path in kept or _is_undoable(was, now, new=path in new or path in visible):
            changes.append(Change(path, was, now))
        elif was is not None and path not in above:
            lost.append(path)
    return Changes((*_folder_changes(before.look, after.look), *changes), tuple(lost))


def _is_equal(was: Entry | None, now: Entry | None) -> bool:
    if was is not None and now is not None and was.is_folder and now.is_folder:
        return True
    return same(was, now) and has_same_mode(was, now)


def _status(workspace: Path, path: str) -> os.stat_result | None:
    try:
        return os.lstat(workspace / path)
    except OSError:
        return None


def _entry(path: str, status: os.stat_result | None) -> Entry | None:
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        return Entry(status.st_mode, places.file_id(path, status))
    return Entry(status.st_mode, "" if stat.S_ISDIR(status.st_mode) else "other")


def _is_undoable(was: Entry | None, now: Entry | None, *, new: bool) -> bool:
    """Return whether no content is needed: permissions changed, a pipe is gone, or something is `new`."""
    if was is None:
        return new or (now is not None and stat.S_ISFIFO(now.mode))
    return stat.S_ISFIFO(was.mode) if now is None else same(was, now)


def _folder_changes(before: Surroundings, after: Surroundings) -> Iterator[Change]:
    """Yield the folders whose permissions changed, or that are gone with other ones than usual."""
    usual = 0o777 & ~current_umask()
    for path, mode in before.folders.items():
        now = after.folders.get(path)
        gone = now is None and stat.S_IMODE(mode) != usual and not _is_unseen(path, after.unseen)
        if gone or (now is not None and now != mode):
            yield Change(path, Entry(mode), Entry(now) if now is not None else None)


def _is_unseen(path: str, unseen: Container[str]) -> bool:
    while (path := path.rpartition("/")[0]) != "":
        if path in unseen:
            return True
    return False


# --- keeping files that a command names -----------------------------------------------------------------------------


class Keeping(Struct, frozen=True):
    """Files to keep before a command: by a link those that it removes, by a copy those that it writes.

    `refused` says why not all can be kept.
    """

    linked: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    refused: str = ""


def plan_keeping(
    workspace: Path, removed: Iterable[Path], written: Iterable[Path], covered: Container[str], objects: Objects
) -> Keeping:
    """Decide which files to keep before a command that names these paths; raises nothing."""
    linked, copied = set(_uncovered(workspace, removed, covered)), set(_uncovered(workspace, written, covered))
    linked -= copied
    inside = [p for p in (*removed, *written) if p.is_relative_to(workspace) and p.exists()]
    names = ", ".join(sorted({str(p.relative_to(workspace)) for p in inside})[:3])
    if len(linked) + len(copied) > MOST_KEPT:
        return Keeping(refused=f"{names}: more than {MOST_KEPT:,} files")
    folder = objects.folder_of(FILE)
    device, disk = folder.stat().st_dev, os.statvfs(folder)
    statuses = {path: os.lstat(workspace / path) for path in (*linked, *copied)}
    size = sum(s.st_size for s in statuses.values())
    by_copy = sum(s.st_size for path, s in statuses.items() if path in copied or s.st_dev != device)
    if size + objects.size_of(FILE) > LARGEST:
        return Keeping(refused=f"{names}: {byte_size(size)} in {counted(len(linked) + len(copied), 'file')}")
    if by_copy + SPARE > disk.f_bavail * disk.f_frsize:
        return Keeping(refused=f"{names}: there is no room for a copy of {byte_size(by_copy)}")
    return Keeping(tuple(sorted(linked)), tuple(sorted(copied)))


def keep(workspace: Path, keeping: Keeping, objects: Objects) -> dict[str, Entry]:
    """Keep files before a command; return their entries. What cannot be kept is left out."""
    entries: dict[str, Entry] = {}
    for path in (*keeping.linked, *keeping.copied):
        try:
            with places.parent(workspace, path) as (here, name):
                status = os.lstat(name, dir_fd=here)
                if stat.S_ISLNK(status.st_mode):
                    oid = objects.put(os.fsencode(os.readlink(name, dir_fd=here)), sync=False)
                else:
                    oid = places.file_id(path, status)
                    objects.keep(oid, name, here, link=path in keeping.linked)
                entries[path] = Entry(status.st_mode, oid)
        except (OSError, places.Blocked):
            continue
    return entries


def _uncovered(workspace: Path, paths: Iterable[Path], covered: Container[str]) -> Iterator[str]:
    """Yield uncovered files and links at and below paths; git's own are kept in another way."""
    top = f"{workspace}/"
    for start in paths:
        if not start.is_relative_to(workspace) or ".git" in start.relative_to(workspace).parts:
            continue
        for path in (p.removeprefix(top) for p in _at_and_below(start)):
            if path not in covered and _is_file_or_link(top + path):
                yield path


def _at_and_below(start: Path) -> Iterator[str]:
    if start.is_symlink() or not start.is_dir():
        yield str(start)
        return
    for folder, folders, names in os.walk(start):
        folders[:] = [f for f in folders if f != ".git"]
        yield from (f"{folder}/{name}" for name in (*names, *folders))


def _is_file_or_link(path: str) -> bool:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFLNK)
    except OSError:
        return False


def summarise(lost: Iterable[str]) -> list[str]:
    """Return names of lost files for people: folders with their number of files, or the file."""
    tops: dict[str, list[str]] = {}
    for path in lost:
        tops.setdefault(path.partition("/")[0], []).append(path)
    rows = [paths[0] if len(paths) == 1 else f"{_common(paths)}/ ({len(paths)} files)" for paths in tops.values()]
    return rows[:NAMED] + ([f"{len(rows) - NAMED} more"] if len(rows) > NAMED else [])


def _common(paths: list[str]) -> str:
    return os.path.commonpath(paths)
