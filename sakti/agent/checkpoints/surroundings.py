"""Track and store what the scanner skips: ignored, large and secret files, pipes, folder modes.

Only their metadata is recorded. A file is stored before a command that names it, or after one that moved it, so that an
undo restores it. Other files that a command removes or changes are reported afterwards.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.checkpoints import safe_paths
from sakti.agent.checkpoints.objects import FILE, Objects, compute_blob_id
from sakti.agent.checkpoints.plan import PathChange, PathEntry, has_same_mode, is_same
from sakti.agent.tools.changes import read_umask
from sakti.core.text import format_bytes, format_count

MOST = 20_000  # files that are noted
NAMED = 20  # names of what was lost
# Folders that programs fill, and fill again: only the folder itself is noted.
_FILLED = frozenset(("node_modules", ".venv", "venv"))
_CACHE = "__pycache__"
CLOSED = frozenset((*_FILLED, _CACHE, ".git"))  # folders in which nothing beyond the limit is examined
ROOT = "."  # the path of the workspace itself
TAG = "CACHEDIR.TAG"  # marks a folder as a cache

MOST_KEPT = 50_000  # files stored for one command
LARGEST = 2_000_000_000  # bytes of all entire files, and of those copied for one command
SPARE = 500_000_000  # bytes that stay free on the disk of the checkpoints


class Surroundings(Struct, frozen=True):
    """Metadata at one time of all folders, and of uncovered files.

    `links` are the targets of links that are not covered, `gits` the paths of all `.git`, `unseen` folders that were
    not looked into, `filled` those that programs fill, `skipped` those with more files than are noted ("": the top).
    """

    folders: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    files: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    gits: tuple[str, ...] = ()
    unseen: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()


class _Walk:
    """Walk a workspace, nearest folders first."""

    def __init__(self, workspace: Path, covered: Container[str]) -> None:
        self.covered, self.top = covered, workspace
        self.folders: dict[str, os.stat_result] = {"": workspace.stat()}
        self.files: dict[str, os.stat_result] = {}
        self.links: dict[str, str] = {}
        self.gits: list[str] = []
        self.unseen: set[str] = set()
        self.filled: set[str] = set()
        self.skipped: set[str] = set()
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
            if any(e.name == TAG for e in entries) and f"{folder}/{TAG}" not in self.covered:
                self.filled.add(folder)
                continue
            for entry in entries:
                self._add_entry(f"{folder}/{entry.name}" if folder else entry.name, entry)
        self.folders[ROOT] = self.folders.pop("")
        return Surroundings(
            self.folders, self.files, self.links, tuple(self.gits), frozenset(self.unseen), frozenset(self.filled),
            frozenset(self.skipped),
        )  # fmt: skip

    def _add_entry(self, path: str, entry: os.DirEntry[str]) -> None:
        if entry.name == ".git":
            self.gits.append(path)
        elif entry.is_dir(follow_symlinks=False):
            self._add_folder(path, entry)
        elif path in self.covered:
            return
        elif len(self.files) >= MOST:
            self.skipped.add(path.rpartition("/")[0])
        else:
            self.files[path] = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                self.links[path] = os.readlink(entry)  # noqa: PTH115 - as it is written

    def _add_folder(self, path: str, entry: os.DirEntry[str]) -> None:
        self.folders[path] = status = entry.stat(follow_symlinks=False)
        if entry.name in _FILLED:
            self.files[path] = status
            self.filled.add(path)
        elif entry.name == _CACHE:
            self.filled.add(path)
        elif len(self.files) >= MOST:
            self.unseen.add(path)
            self.skipped.add(path)
        else:
            self.waiting.append(path)


def list_surroundings(workspace: Path, covered: Container[str]) -> Surroundings:
    """Record the metadata of everything uncovered. Raises OSError if the workspace cannot be read."""
    return _Walk(workspace, covered).run()


class WorkspaceState(Struct, frozen=True):
    """A workspace at one time: covered files, and their surroundings."""

    covered: Mapping[str, PathEntry]
    look: Surroundings

    def entry(self, path: str) -> PathEntry | None:
        """Return the entry at a path; of a folder only if it is empty or filled by programs."""
        return self.covered.get(path) or _make_entry(path, self.look.files.get(path), self.look.links.get(path))

    def any_entry(self, path: str) -> PathEntry | None:
        status = self.look.folders.get(path)
        return self.entry(path) if status is None else PathEntry(status.st_mode)


class Changes(Struct, frozen=True):
    """Changes by a command: those that can be undone, and the paths of files that cannot be restored.

    `stays` are new files that git ignores; an undo keeps them, because they do no harm.
    """

    undoable: tuple[PathChange, ...]
    lost: tuple[str, ...]
    stays: tuple[str, ...] = ()


class Moves(Struct, frozen=True):
    """Moves of uncovered paths by a command: new paths by old ones, of files and of entire folders."""

    files: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Mapping[str, str] = field(default_factory=dict[str, str])

    def limited_to(self, kept: Container[str]) -> Moves:
        """Treat files that could not be stored like folders: an undo does not move them back."""
        lost = {path: place for path, place in self.files.items() if path not in kept}
        return Moves({p: q for p, q in self.files.items() if p in kept}, {**self.folders, **lost})


class _Comparison:
    """Compare two moments; `kept` are files kept before the command, `visible` those left out unignored.

    The contents of an entirely moved folder are left out: they may exist nowhere else.
    """

    def __init__(
        self,
        workspace: Path,
        before: WorkspaceState,
        after: WorkspaceState,
        kept: Mapping[str, PathEntry],
        moves: Moves,
    ) -> None:
        self.workspace, self.contents = workspace, kept
        self.before, self.after = before, after
        self.above = list_parents(kept)
        self.moved_folders = {path: place for path, place in moves.folders.items() if path not in self.above}
        self.undoable: list[PathChange] = []
        self.lost = [f"{path} (is now {place})" for path, place in self.moved_folders.items()]
        self.stays: list[str] = []
        self.replaced = set(_find_replaced(self.before, self.after))
        self.moved_files = set(moves.files.values())

    def run(self, visible: Container[str]) -> Changes:
        old, new = self.before.covered, self.after.covered
        covered = {p for p in old.keys() | new.keys() if old.get(p) is not new.get(p)}
        beside = self.before.look.files.keys() | self.after.look.files.keys()
        paths = covered | beside | self.contents.keys() | self.replaced
        for path in sorted(paths - self.moved_folders.keys()):
            change = self._find_change(path)
            if change is not None:
                self._sort(change, is_new=path in visible or self._is_new(path))
        folders = _list_folder_changes(self.before, self.after, {c.path for c in self.undoable})
        seen = self.before.look
        stays = [p for p in self.stays if len(seen.files) < MOST and not _is_unseen(p, seen.unseen)]
        return Changes((*folders, *self.undoable), tuple(self.lost), tuple(stays))

    def _find_change(self, path: str) -> PathChange | None:
        old, new = self.before.covered, self.after.covered
        was = old.get(path) or self.contents.get(path) or self.before.any_entry(path)
        now = self._find_entry(path)
        if _are_folders(was, now):
            was, now = old.get(path), new.get(path)  # an empty folder was filled, or a folder emptied
        unseen = now is None and _is_unseen(path, self.after.look.unseen - self.after.look.skipped)
        if unseen or _is_equal(was, now) or is_at_or_below(path, set(self.moved_folders.values())):
            return None
        return PathChange(path, was, now)

    def _find_entry(self, path: str) -> PathEntry | None:
        """Return a file's entry, from the disk if the second snapshot may have missed it."""
        look_again = path not in self.after.covered and (path in self.contents or self._is_beyond(path))
        return _read_entry(self.workspace, path) if look_again else self.after.any_entry(path)

    def _is_beyond(self, path: str) -> bool:
        """Return whether a file may exist although the second snapshot, which has a limit, lacks it."""
        return bool(self.after.look.skipped) and path not in self.after.look.files

    def _is_new(self, path: str) -> bool:
        return path in self.after.covered or path in self.moved_files or is_at_or_below(path, self.replaced)

    def _sort(self, change: PathChange, *, is_new: bool) -> None:
        path, is_filled = change.path, change.path in self.before.look.filled
        if path in self.before.covered or path in self.contents or _is_undoable(change, is_new=is_new):
            self.undoable.append(change)
            self.lost += [path] if is_filled else []
        elif change.before is None:
            self.stays.append(path)
        elif path not in self.above:
            self.lost.append(path)


def compare(
    workspace: Path,
    before: WorkspaceState,
    after: WorkspaceState,
    kept: Mapping[str, PathEntry],
    visible: Container[str],
    moves: Moves,
) -> Changes:
    """Compare two moments; `kept` are files kept before the command, `visible` those left out unignored."""
    return _Comparison(workspace, before, after, kept, moves).run(visible)


def find_moves(workspace: Path, before: WorkspaceState, after: WorkspaceState) -> Moves:
    """Find the new places of uncovered files and folders that left their paths."""
    return Moves(_find_moved_files(workspace, before, after), _find_moved_folders(before.look, after.look))


def _list_appeared(
    workspace: Path, before: WorkspaceState, after: WorkspaceState
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files that exist only after a command."""
    yield from ((p, s) for p, s in after.look.files.items() if p not in before.look.files)
    for path in after.covered.keys() - before.covered.keys():
        with contextlib.suppress(OSError):
            yield path, os.lstat(workspace / path)


def _find_moved_files(workspace: Path, before: WorkspaceState, after: WorkspaceState) -> dict[str, str]:
    old, new = before.look.files, after.look.files
    regular = (p for p, s in old.items() if stat.S_ISREG(s.st_mode))
    gone = [p for p in regular if p not in new and p not in after.covered]
    if not gone:
        return {}
    by_file = {identify(s): p for p, s in _list_appeared(workspace, before, after)}
    return {p: by_file[i] for p in gone if (i := identify(old[p])) in by_file}


def _find_moved_folders(old: Surroundings, new: Surroundings) -> dict[str, str]:
    """Return the new paths of folders whose files were not examined, except caches."""
    closed = [p for p in old.filled | old.unseen if p not in new.folders and p.rpartition("/")[2] != _CACHE]
    if not closed:
        return {}
    appeared = {(s.st_dev, s.st_ino): p for p, s in new.folders.items() if p not in old.folders}
    numbers = {p: (old.folders[p].st_dev, old.folders[p].st_ino) for p in closed if p in old.folders}
    return {p: appeared[number] for p, number in numbers.items() if number in appeared}


def identify(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _find_replaced(before: WorkspaceState, after: WorkspaceState) -> Iterator[str]:
    """Yield the paths where a folder became something else, or the reverse."""
    for path in before.look.folders:
        if path not in after.look.folders and after.entry(path) is not None:
            yield path
    for path in after.look.folders:
        if path not in before.look.folders and before.entry(path) is not None:
            yield path


def _are_folders(was: PathEntry | None, now: PathEntry | None) -> bool:
    return was is not None and now is not None and was.is_folder and now.is_folder


def _is_equal(was: PathEntry | None, now: PathEntry | None) -> bool:
    return _are_folders(was, now) or (is_same(was, now) and has_same_mode(was, now))


def _read_entry(workspace: Path, path: str) -> PathEntry | None:
    """Return the entry at a path, without following links in the path."""
    try:
        with safe_paths.open_parent(workspace, path) as (here, name):
            status = os.lstat(name, dir_fd=here)
            return _make_entry(path, status, os.readlink(name, dir_fd=here) if stat.S_ISLNK(status.st_mode) else None)
    except (OSError, safe_paths.BlockedPath):
        return None


def _make_entry(path: str, status: os.stat_result | None, target: str | None) -> PathEntry | None:
    if target is not None:
        return PathEntry(stat.S_IFLNK | 0o777, compute_blob_id(os.fsencode(target)))
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode):
        return PathEntry(status.st_mode, safe_paths.make_file_id(path, status))
    return PathEntry(status.st_mode, "" if stat.S_ISDIR(status.st_mode) else "other")


def _is_undoable(change: PathChange, *, is_new: bool) -> bool:
    """Return whether no content is needed, or it is known: permissions, a link or pipe, or something new."""
    was, now = change.before, change.after
    if was is None:
        return is_new or (now is not None and stat.S_ISFIFO(now.mode))
    if stat.S_ISLNK(was.mode) or stat.S_ISFIFO(was.mode):
        return True
    return now is not None and (was.is_folder or (was.kind, was.oid) == (now.kind, now.oid))


def _list_folder_changes(
    before: WorkspaceState, after: WorkspaceState, changed: Container[str]
) -> Iterator[PathChange]:
    """Yield changes of folders that an undo of `changed` would not undo: permissions, and empty ones."""
    old, new = before.look, after.look
    for path in old.folders.keys() & new.folders.keys():
        was, now = old.folders[path].st_mode, new.folders[path].st_mode
        if was != now:
            yield PathChange(path, PathEntry(was), PathEntry(now))
    usual = 0o777 & ~read_umask()
    empty = _find_empty_folders(before, after, changed)
    for path in old.folders.keys() - new.folders.keys():
        mode = old.folders[path].st_mode
        is_other = path not in changed and not _is_unseen(path, new.unseen) and stat.S_IMODE(mode) != usual
        if path in empty or is_other:
            yield PathChange(path, PathEntry(mode), None)
    for path in _find_empty_folders(after, before, changed):
        yield PathChange(path, None, PathEntry(new.folders[path].st_mode))


def _find_empty_folders(here: WorkspaceState, there: WorkspaceState, changed: Container[str]) -> set[str]:
    """Return the empty folders of one snapshot that another one lacks."""
    look, other = here.look, there.look
    only = look.folders.keys() - other.folders.keys()
    if not only:
        return set()
    holding = list_parents((*here.covered, *look.files, *look.gits)) | look.filled | look.unseen
    return {p for p in only - holding if p not in changed and not _is_unseen(p, other.unseen)}


def list_parents(paths: Iterable[str]) -> set[str]:
    """Return all folders above paths."""
    return {p[:at] for p in paths for at, sign in enumerate(p) if sign == "/"}


def _is_unseen(path: str, unseen: Container[str]) -> bool:
    return is_at_or_below(path.rpartition("/")[0], unseen)


def is_at_or_below(path: str, folders: Container[str]) -> bool:
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def summarize(lost: Iterable[str]) -> list[str]:
    """Return names of lost files for display: folders with their number of files, or the file."""
    tops: dict[str, list[str]] = {}
    for path in lost:
        top = path.rpartition("/")[0] if path.startswith("/") else path.partition("/")[0]
        tops.setdefault(top, []).append(path)
    rows = [
        paths[0] if len(paths) == 1 else f"{_find_common_folder(paths)}/ ({len(paths)} files)"
        for paths in tops.values()
    ]
    return rows[:NAMED] + ([f"{len(rows) - NAMED} more"] if len(rows) > NAMED else [])


def _find_common_folder(paths: list[str]) -> str:
    return os.path.commonpath(paths)


class KeepingPlan(Struct, frozen=True):
    """Files to store before a command: linked if it removes them, copied if it writes them.

    `refused` says why some cannot be stored.
    """

    linked: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    refused: str = ""


def _name_some(workspace: Path, paths: Iterable[Path]) -> str:
    inside = [p for p in paths if p.is_relative_to(workspace) and p.exists()]
    return ", ".join(sorted({str(p.relative_to(workspace)) for p in inside})[:3])


def plan_keeping(
    workspace: Path, removed: Iterable[Path], written: Iterable[Path], covered: Container[str], objects: Objects
) -> KeepingPlan:
    """Decide which files to store before a command that names these paths; raises nothing."""
    linked, copied = (
        set(_find_uncovered(workspace, removed, covered)),
        set(_find_uncovered(workspace, written, covered)),
    )
    linked -= copied
    names = _name_some(workspace, (*removed, *written))
    if len(linked) + len(copied) > MOST_KEPT:
        return KeepingPlan(refused=f"{names}: more than {MOST_KEPT:,} files")
    folder = objects.folder_of(FILE)
    device, disk = folder.stat().st_dev, os.statvfs(folder)
    statuses = {path: os.lstat(workspace / path) for path in (*linked, *copied)}
    size = sum(s.st_size for s in statuses.values())
    by_copy = sum(s.st_size for path, s in statuses.items() if path in copied or s.st_dev != device)
    if size + objects.size_of(FILE) > LARGEST:
        return KeepingPlan(
            refused=f"{names}: {format_bytes(size)} in {format_count(len(linked) + len(copied), 'file')}"
        )
    if by_copy + SPARE > disk.f_bavail * disk.f_frsize:
        return KeepingPlan(refused=f"{names}: there is no room for a copy of {format_bytes(by_copy)}")
    return KeepingPlan(tuple(sorted(linked)), tuple(sorted(copied)))


def keep_moved(
    workspace: Path, moves: Moves, before: WorkspaceState, after: WorkspaceState, objects: Objects
) -> dict[str, PathEntry]:
    """Store files that a command moved, under their old paths; return the entries there."""
    targets = {path: place for path, place in moves.files.items() if place not in after.covered}
    keeping = plan_keeping(workspace, [workspace / p for p in targets.values()], (), after.covered, objects)
    entries = {
        path: PathEntry(before.look.files[path].st_mode, after.covered[place].oid)
        for path, place in moves.files.items()
        if place in after.covered
    }
    for path, place in targets.items() if not keeping.refused else ():
        oid = safe_paths.make_file_id(path, before.look.files[path])
        with (
            contextlib.suppress(OSError, safe_paths.BlockedPath),
            safe_paths.open_parent(workspace, place) as (here, name),
        ):
            objects.keep(oid, name, here, link=True)
            entries[path] = PathEntry(before.look.files[path].st_mode, oid)
    return entries


def keep_files(workspace: Path, keeping: KeepingPlan, objects: Objects) -> dict[str, PathEntry]:
    """Store files before a command; return their entries, without those that cannot be stored."""
    entries: dict[str, PathEntry] = {}
    for path in (*keeping.linked, *keeping.copied):
        try:
            with safe_paths.open_parent(workspace, path) as (here, name):
                status = os.lstat(name, dir_fd=here)
                if stat.S_ISLNK(status.st_mode):
                    oid = objects.put(os.fsencode(os.readlink(name, dir_fd=here)), sync=False)
                else:
                    oid = safe_paths.make_file_id(path, status)
                    objects.keep(oid, name, here, link=path in keeping.linked)
                entries[path] = PathEntry(status.st_mode, oid)
        except (OSError, safe_paths.BlockedPath):
            continue
    return entries


def _find_uncovered(workspace: Path, paths: Iterable[Path], covered: Container[str]) -> Iterator[str]:
    """Yield uncovered files and links at and below paths; git's own are stored in another way."""
    top = f"{workspace}/"
    for start in paths:
        if not start.is_relative_to(workspace) or ".git" in start.relative_to(workspace).parts:
            continue
        for path in (p.removeprefix(top) for p in _list_below(start)):
            if path not in covered and _is_file_or_link(top + path):
                yield path


def _list_below(start: Path) -> Iterator[str]:
    if start.is_symlink() or not start.is_dir():
        yield str(start)
        return
    for folder, folders, names in os.walk(start):
        folders[:] = [f for f in folders if f != ".git"]
        yield from (f"{folder}/{name}" for name in (*names, *folders) if name != ".git")


def _is_file_or_link(path: str) -> bool:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFLNK)
    except OSError:
        return False
