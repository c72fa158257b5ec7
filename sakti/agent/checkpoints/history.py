"""Keep git's own files of a workspace: branches, reflogs, index, and the objects that they name.

All files of a `.git` folder are examined. Small ones are stored like those of the workspace. Objects are copied as
entire files: git names them by their content, so each is copied only once. Copying works without git, in any state of
the repository. The first copy of a 500 MB repository takes 0.4 s of CPU; `git fetch` into the shadow repository takes 4
s. Hard links would not survive a truncation, and binding objects read-only into the sandbox would break `git gc`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from sakti.agent.checkpoints import safe_paths
from sakti.agent.checkpoints.objects import HISTORY, Objects, compute_blob_id, compute_index_id
from sakti.agent.checkpoints.plan import PathChange, PathEntry, find_repository, is_same
from sakti.agent.checkpoints.scanner import LARGEST as COVERED
from sakti.agent.judge import repositories
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_bytes

LARGEST = 2_000_000_000  # bytes of objects that are copied; others are linked, which only survives a removal
SPARE = 500_000_000  # bytes left free on the disk of the checkpoints
COMPARED = 16_000_000  # bytes of an object that is compared completely; larger ones by samples
_SAMPLES, _SAMPLE = 256, 4_096
_OBJECT = lazy_pattern(r"(?:pack-)?[0-9a-f]{38,64}(?:\.[a-z]+)?", re.ASCII)
_TRANSIENT = lazy_pattern(r".*\.lock|gc\.pid|tmp_\w+|\.tmp-.*|fsmonitor--daemon.*")

Stamp: TypeAlias = tuple[int, int, int, int]


class GitFiles(Struct, frozen=True):
    """Files of git's folders at one time: small ones, with their contents kept, and facts of objects.

    `lost` are objects that could not be kept, `problem` says why; `outside` is a repository beside the workspace.
    """

    entries: Mapping[str, PathEntry] = field(default_factory=dict[str, PathEntry])
    objects: Mapping[str, os.stat_result] = field(default_factory=dict[str, os.stat_result])
    lost: frozenset[str] = frozenset()
    problem: str = ""
    outside: str = ""


class History(Struct):
    """Recorded entries by path; `objects` stores the contents.

    Records are only read again when their file has changed.
    """

    workspace: Path
    objects: Objects
    _read: dict[str, tuple[Stamp, PathEntry]] = field(default_factory=dict[str, tuple[Stamp, PathEntry]])
    _present: frozenset[str] | None = None  # ids of the objects in the last scan

    def look(self, gits: Sequence[str], *, keep: bool, outside: str = "") -> GitFiles:
        """Scan the `.git` of these relative paths, and `outside`.

        With `keep`, their objects are stored, too. Raises OSError.
        """
        outside = outside or str(repositories.find_common_folder(self.workspace) or self._find_separate() or "")
        entries: dict[str, PathEntry] = {}
        objects: dict[str, os.stat_result] = {}
        for name, status in self._list_files(gits, outside):
            if stat.S_ISDIR(status.st_mode):
                entries[name] = PathEntry(status.st_mode)
            elif stat.S_ISREG(status.st_mode) and is_object(name):
                objects[name] = status
            elif (entry := self._store_entry(name, status)) is not None:
                entries[name] = entry
        lost, problem = self._keep(objects) if keep else (frozenset[str](), "")
        return GitFiles(entries, objects, lost, problem, outside)

    def changes(self, before: GitFiles, after: GitFiles) -> tuple[list[PathChange], list[str]]:
        """Return the changes between two scans, and the paths of objects that are lost.

        New objects are left out, because they do no harm. If anything else changed, the position of the repository is
        recorded.
        """
        old, new = before.entries, after.entries
        paths = sorted(p for p in old.keys() | new.keys() if not _is_equal(old.get(p), new.get(p)))
        changes = [PathChange(p, old.get(p), new.get(p)) for p in paths]
        changed = {find_repository(p) for p in paths}
        same_place = old.keys() & new.keys() - set(paths)
        changes += [
            PathChange(p, old[p], old[p]) for p in same_place if find_repository(p) in changed and _names_commit(p)
        ]
        gone, lost = self._compare_objects(before, after)
        return [*changes, *gone], lost

    def _compare_objects(self, before: GitFiles, after: GitFiles) -> tuple[list[PathChange], list[str]]:
        changes, lost = list[PathChange](), list[str]()
        for path, was in before.objects.items():
            now = after.objects.get(path)
            if now is not None and not self._is_damaged(path, was, now):
                continue
            if path in before.lost:
                lost.append(path)
            else:
                remains = PathEntry(now.st_mode, safe_paths.make_file_id(path, now)) if now is not None else None
                changes.append(PathChange(path, PathEntry(was.st_mode, safe_paths.make_history_id(path, was)), remains))
        return changes, lost

    def forget(self, needed: set[str]) -> None:
        """Delete copies of objects that were missing in the last scan and that no record names."""
        if self._present is not None:
            self.objects.drop(self.objects.names_of(HISTORY) - self._present - needed)

    # --- files ------------------------------------------------------------------------------------------------

    def _list_files(self, gits: Sequence[str], outside: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files and empty folders of git's folders, also of the one outside of the workspace."""
        top = f"{self.workspace}/"
        for git in gits:
            status = _read_status(top + git)
            if status is not None and stat.S_ISDIR(status.st_mode):
                yield from list_below(top, git)
            elif status is not None:
                yield git, status
        if outside:
            yield from list_below("", outside)
        for folder in self._list_bare(gits):  # its small files are covered like others
            objects = list_below(top, (folder / "objects").as_posix())
            yield from ((path, status) for path, status in objects if is_object(path) and status.st_size > COVERED)

    def _list_bare(self, gits: Sequence[str]) -> list[Path]:
        """Return the repositories in the workspace other than `.git` folders: itself, or named by a `.git`."""
        named = (repositories.find_git_folder(self.workspace / git, self.workspace) for git in gits)
        bare = [folder.relative_to(self.workspace) for folder in named if folder and ".git" not in folder.parts]
        return [Path(), *bare] if ".git" not in gits and _is_repository(self.workspace) else bare

    def _find_separate(self) -> Path | None:
        """Return the repository outside of the workspace that its `.git` names, as a link or file."""
        folder = repositories.resolve_git(self.workspace / ".git")
        outside = folder is not None and not folder.is_relative_to(self.workspace)
        return folder if folder is not None and outside and _is_repository(folder) else None

    def _store_entry(self, name: str, status: os.stat_result) -> PathEntry | None:
        """Store a small file's content and return its entry.

        None for a missing path, or one that is neither a file nor a link.
        """
        stamp = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        seen = self._read.get(name)
        if seen is not None and seen[0] == stamp:
            return seen[1]
        if status.st_size > safe_paths.LARGEST:
            return None
        path = self.workspace / name
        try:
            if stat.S_ISLNK(status.st_mode):
                entry = PathEntry(stat.S_IFLNK | 0o777, self.objects.put(os.fsencode(path.readlink()), sync=False))
            elif stat.S_ISREG(status.st_mode):
                data = path.read_bytes()
                oid = compute_index_id(data) if path.name == "index" else compute_blob_id(data)
                entry = PathEntry(status.st_mode, self.objects.put(data, sync=False, oid=oid if ":" in oid else ""))
            else:
                return None
        except (FileNotFoundError, PermissionError):
            return None
        self._read[name] = stamp, entry
        return entry

    # --- objects ----------------------------------------------------------------------------------------------

    def _keep(self, files: Mapping[str, os.stat_result]) -> tuple[frozenset[str], str]:
        """Store the objects not stored yet; return those that cannot be stored, and why."""
        ids = {path: safe_paths.make_history_id(path, status) for path, status in files.items()}
        self._present = frozenset(ids.values())
        stored = self.objects.names_of(HISTORY)
        missing = [path for path, oid in ids.items() if oid not in stored]
        if not missing:
            return frozenset(), ""
        link = sum(s.st_size for s in files.values()) > LARGEST
        if why := self._explain_loss([files[p] for p in missing], link=link):
            return frozenset(missing), f"{why}: if a command removes them, /undo cannot restore them."
        lost: set[str] = set()
        for path in missing:
            try:
                with safe_paths.open_parent(self.workspace, path) as (here, name):
                    self.objects.keep(ids[path], name, here, link=link)
            except (OSError, safe_paths.BlockedPath):
                lost.add(path)
        return frozenset(lost), ""

    def _explain_loss(self, missing: Sequence[os.stat_result], *, link: bool) -> str:
        """Return why objects cannot be kept, "" if they can."""
        folder, size = self.objects.folder_of(HISTORY), sum(s.st_size for s in missing)
        if link and folder.stat().st_dev != missing[0].st_dev:
            return f"The repository's objects ({format_bytes(size)}) exceed the limit of copies to another disk"
        if not link and shutil.disk_usage(folder).free < size + SPARE:
            return f"There is no room for a copy of the repository's objects ({format_bytes(size)}) in {folder}"
        return ""

    def _is_damaged(self, path: str, was: os.stat_result, now: os.stat_result) -> bool:
        """Return whether an object's content changed; git only updates the time of an object it would rewrite."""
        if was.st_size != now.st_size:
            return True
        if (was.st_ctime_ns, was.st_ino) == (now.st_ctime_ns, now.st_ino):
            return False
        copy = self.objects.entire_file(safe_paths.make_history_id(path, was))
        return copy is not None and copy.exists() and not _have_same_bytes(copy, self.workspace / path, now.st_size)


def _read_status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def list_below(top: str, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and empty folders below a folder, without link targets and git's transient files."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(top + here) as rows:
                entries = list(rows)
            if not entries:
                yield here, os.lstat(top + here)
            for entry in entries:
                path = f"{here}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif not _TRANSIENT.fullmatch(entry.name):
                    yield path, entry.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # git removed it meanwhile, or its user closed it


def _names_commit(path: str) -> bool:
    """Return whether a file names the current commit of a repository."""
    return path.endswith(("/HEAD", "/index")) or "/refs/heads/" in path


def _is_repository(folder: Path) -> bool:
    return all((folder / part).exists() for part in ("HEAD", "objects", "refs"))


def is_object(name: str) -> bool:
    return "/objects/" in f"/{name}" and _OBJECT.fullmatch(name.rpartition("/")[2]) is not None


def _is_equal(one: PathEntry | None, other: PathEntry | None) -> bool:
    return is_same(one, other) and (one is None or other is None or one.mode == other.mode or one.is_folder)


def _have_same_bytes(one: Path, other: Path, size: int) -> bool:
    """Compare two files of equal size, large ones by samples and their ends."""
    step = 1 if size <= COMPARED else size // _SAMPLES
    try:
        with one.open("rb") as a, other.open("rb") as b:
            if step == 1:
                return a.read() == b.read()
            for at in (*range(0, size, step), size - _SAMPLE):
                a.seek(at)
                b.seek(at)
                if a.read(_SAMPLE) != b.read(_SAMPLE):
                    return False
    except OSError:
        return False
    return True
