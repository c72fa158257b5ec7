"""See files that the scanner leaves out: ignored, large and secret ones, pipes, modes of folders.

Only facts of them are noted. A file is kept before a command that names it, so that an undo restores it;
any other that a command removes or changes is named afterwards.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.checkpoints import places
from sakti.agent.checkpoints.objects import FILE, Objects, blob_id
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
ROOT = "."  # the path of the workspace itself
_TAG = "CACHEDIR.TAG"  # says that a folder is a cache


class Surroundings(Struct, frozen=True):
    """Facts at one time: of all folders, and of files that are not covered.

    `links` are the targets of links that are not covered, `gits` the paths of all `.git`, `unseen` folders that were
    not looked into, `filled` those that programs fill.
    """

    folders: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    files: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    gits: tuple[str, ...] = ()
    unseen: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()


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
            if any(e.name == _TAG for e in entries) and f"{folder}/{_TAG}" not in self.covered:
                self.filled.add(folder)
                continue
            for entry in entries:
                self._see(f"{folder}/{entry.name}" if folder else entry.name, entry)
        self.folders[ROOT] = self.folders.pop("")
        return Surroundings(
            self.folders, self.files, self.links, tuple(self.gits), frozenset(self.unseen), frozenset(self.filled)
        )

    def _see(self, path: str, entry: os.DirEntry[str]) -> None:
        if entry.name == ".git":
            self.gits.append(path)
        elif entry.is_dir(follow_symlinks=False):
            self._see_folder(path, entry)
        elif path not in self.covered and len(self.files) < MOST:
            self.files[path] = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                self.links[path] = os.readlink(entry)  # noqa: PTH115 - as it is written

    def _see_folder(self, path: str, entry: os.DirEntry[str]) -> None:
        self.folders[path] = status = entry.stat(follow_symlinks=False)
        if len(self.files) >= MOST:
            self.unseen.add(path)
        elif entry.name in _FILLED:
            self.files[path] = status
            self.filled.add(path)
        elif entry.name == _CACHE:
            self.filled.add(path)
        else:
            self.waiting.append(path)


def look(workspace: Path, covered: Container[str]) -> Surroundings:
    """Look at all that is not covered. Raises OSError if the workspace cannot be read."""
    return _Walk(workspace, covered).run()


class Moment(Struct, frozen=True):
    """A workspace at one time: covered files, and what lies beside them."""

    covered: Mapping[str, Entry]
    look: Surroundings

    def entry(self, path: str) -> Entry | None:
        """Return what is at a path; of a folder only if it holds nothing, or programs fill it."""
        return self.covered.get(path) or _entry(path, self.look.files.get(path), self.look.links.get(path))

    def any_entry(self, path: str) -> Entry | None:
        status = self.look.folders.get(path)
        return self.entry(path) if status is None else Entry(status.st_mode)


class Changes(Struct, frozen=True):
    """Changes by a command: those that can be undone, and the paths of files that cannot be restored.

    `stays` are new files that git ignores: nothing is lost by them, so an undo leaves them.
    """

    undoable: tuple[Change, ...]
    lost: tuple[str, ...]
    stays: tuple[str, ...] = ()


class Moves(Struct, frozen=True):
    """Where a command moved what is not covered: new paths by old ones, of files, and of entire folders."""

    files: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Mapping[str, str] = field(default_factory=dict[str, str])

    def limited_to(self, kept: Container[str]) -> Moves:
        """Treat files that could not be kept like folders: an undo leaves them where they are now."""
        lost = {path: place for path, place in self.files.items() if path not in kept}
        return Moves({p: q for p, q in self.files.items() if p in kept}, {**self.folders, **lost})


def compare(
    workspace: Path,
    before: Moment,
    after: Moment,
    kept: Mapping[str, Entry],
    visible: Container[str],
    moves: Moves,
) -> Changes:
    """Compare two moments; `kept` are files kept before the command, `visible` those left out unignored.

    What a folder that was moved entirely holds is left out: it may be nowhere else.
    """
    old, new = before.covered, after.covered
    covered = {p for p in old.keys() | new.keys() if old.get(p) is not new.get(p)}
    replaced = set(_replaced(before, after))
    above = _above(kept)
    moves = Moves(moves.files, {path: place for path, place in moves.folders.items() if path not in above})
    moved_files, moved_folders = set(moves.files.values()), set(moves.folders.values())
    changes: list[Change] = []
    lost = [f"{path} (is now {place})" for path, place in moves.folders.items()]
    stays: list[str] = []
    for path in sorted(covered | before.look.files.keys() | after.look.files.keys() | kept.keys() | replaced):
        was = old.get(path) or kept.get(path) or before.any_entry(path)
        now = _entry_at(workspace, path) if path in kept and path not in new else after.any_entry(path)
        if was is not None and was.is_folder and now is not None and now.is_folder:
            was, now = old.get(path), new.get(path)  # that is: an empty folder was filled or a folder emptied
        if _is_equal(was, now) or (now is None and _is_unseen(path, after.look.unseen)):
            continue
        if _is_at_or_below(path, moved_folders) or path in moves.folders:
            continue
        is_new = path in new or path in visible or path in moved_files or _is_at_or_below(path, replaced)
        if path in old or path in kept or _is_undoable(was, now, new=is_new):
            changes.append(Change(path, was, now))
            lost += [path] if path in before.look.filled else []
        elif was is None:
            stays.append(path)
        elif path not in above:
            lost.append(path)
    if len(before.look.files) >= MOST:
        stays = []  # it may have been there, unseen
    stays = [p for p in stays if not _is_unseen(p, before.look.unseen)]
    return Changes((*_folder_changes(before, after, changes), *changes), tuple(lost), tuple(stays))


def find_moves(workspace: Path, before: Moment, after: Moment) -> Moves:
    """Find where files and folders went that are not covered and are no longer at their paths."""
    old, new = before.look, after.look
    regular = (p for p, s in old.files.items() if stat.S_ISREG(s.st_mode))
    gone = [p for p in regular if p not in new.files and p not in after.covered]
    files: dict[str, str] = {}
    if gone:
        appeared = {p: s for p, s in new.files.items() if p not in old.files}
        for path in after.covered.keys() - before.covered.keys():
            with contextlib.suppress(OSError):
                appeared[path] = os.lstat(workspace / path)
        by_file = {_identity(s): p for p, s in appeared.items()}
        files = {p: by_file[i] for p in gone if (i := _identity(old.files[p])) in by_file}
    closed = [p for p in (*old.filled, *old.unseen) if p not in new.folders and p in old.folders]
    folders: dict[str, str] = {}
    if closed:
        by_number = {(s.st_dev, s.st_ino): p for p, s in new.folders.items() if p not in old.folders}
        numbers = {p: (old.folders[p].st_dev, old.folders[p].st_ino) for p in closed}
        folders = {p: by_number[number] for p, number in numbers.items() if number in by_number}
    return Moves(files, {p: place for p, place in folders.items() if p.rpartition("/")[2] != _CACHE})


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _replaced(before: Moment, after: Moment) -> Iterator[str]:
    """Yield the paths at which a folder was and is something else, or the reverse."""
    for path in before.look.folders:
        if path not in after.look.folders and after.entry(path) is not None:
            yield path
    for path in after.look.folders:
        if path not in before.look.folders and before.entry(path) is not None:
            yield path


def _is_equal(was: Entry | None, now: Entry | None) -> bool:
    if was is not None and now is not None and was.is_folder and now.is_folder:
        return True
    return same(was, now) and has_same_mode(was, now)


def _entry_at(workspace: Path, path: str) -> Entry | None:
    """Return what is at a path, without following links on the way to it."""
    try:
        with places.parent(workspace, path) as (here, name):
            status = os.lstat(name, dir_fd=here)
            return _entry(path, status, os.readlink(name, dir_fd=here) if stat.S_ISLNK(status.st_mode) else None)
    except (OSError, places.Blocked):
        return None


def _entry(path: str, status: os.stat_result | None, target: str | None) -> Entry | None:
    if target is not None:
        return Entry(stat.S_IFLNK | 0o777, blob_id(os.fsencode(target)))
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode):
        return Entry(status.st_mode, places.file_id(path, status))
    return Entry(status.st_mode, "" if stat.S_ISDIR(status.st_mode) else "other")


def _is_undoable(was: Entry | None, now: Entry | None, *, new: bool) -> bool:
    """Return whether no content is needed or it is known: permissions, a link or pipe, or something `new`."""
    if was is None:
        return new or (now is not None and stat.S_ISFIFO(now.mode))
    if now is None or stat.S_ISLNK(was.mode) or stat.S_ISFIFO(was.mode):
        return not was.is_folder and not stat.S_ISREG(was.mode) and not stat.S_ISSOCK(was.mode)
    return was.is_folder or (was.kind, was.oid) == (now.kind, now.oid)


def _folder_changes(before: Moment, after: Moment, changes: Sequence[Change]) -> Iterator[Change]:
    """Yield the folders whose permissions changed, and those that an undo of files would not create or remove."""
    old, new = before.look, after.look
    changed = {c.path for c in changes}
    for path, status in old.folders.items():
        now = new.folders.get(path)
        if now is not None and now.st_mode != status.st_mode:
            yield Change(path, Entry(status.st_mode), Entry(now.st_mode))
    usual = 0o777 & ~current_umask()
    gone = [p for p in old.folders if p not in new.folders and p not in changed and not _is_unseen(p, new.unseen)]
    holding = _above((*before.covered, *old.files, *old.gits)) | old.filled | old.unseen if gone else ()
    for path in gone:
        mode = old.folders[path].st_mode
        if stat.S_IMODE(mode) != usual or path not in holding:
            yield Change(path, Entry(mode), None)
    appeared = [p for p in new.folders if p not in old.folders and p not in changed and not _is_unseen(p, old.unseen)]
    holding = _above((*after.covered, *new.files, *new.gits)) | new.filled | new.unseen if appeared else ()
    for path in appeared:
        if path not in holding:
            yield Change(path, None, Entry(new.folders[path].st_mode))


def _above(paths: Iterable[str]) -> set[str]:
    """Return all folders above paths."""
    return {p[:at] for p in paths for at, sign in enumerate(p) if sign == "/"}


def _is_unseen(path: str, unseen: Container[str]) -> bool:
    return _is_at_or_below(path.rpartition("/")[0], unseen)


def _is_at_or_below(path: str, folders: Container[str]) -> bool:
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
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


def keep_moved(workspace: Path, moves: Moves, before: Moment, after: Moment, objects: Objects) -> dict[str, Entry]:
    """Keep files that a command moved, under the paths at which they were; return their entries there."""
    targets = {path: place for path, place in moves.files.items() if place not in after.covered}
    keeping = plan_keeping(workspace, [workspace / p for p in targets.values()], (), after.covered, objects)
    entries = {
        path: Entry(before.look.files[path].st_mode, after.covered[place].oid)
        for path, place in moves.files.items()
        if place in after.covered
    }
    for path, place in targets.items() if not keeping.refused else ():
        oid = places.file_id(path, before.look.files[path])
        with contextlib.suppress(OSError, places.Blocked), places.parent(workspace, place) as (here, name):
            objects.keep(oid, name, here, link=True)
            entries[path] = Entry(before.look.files[path].st_mode, oid)
    return entries


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
        yield from (f"{folder}/{name}" for name in (*names, *folders) if name != ".git")


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
