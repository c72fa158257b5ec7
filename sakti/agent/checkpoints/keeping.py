"""Keep files that no checkpoint covers.

Before a command these are the files that it names, after it those that it moved.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from sakti.agent.checkpoints import places
from sakti.agent.checkpoints.objects import FILE, Objects
from sakti.agent.checkpoints.plan import PathEntry
from sakti.agent.checkpoints.uncovered import Moment, Moves
from sakti.core.text import byte_size, counted

MOST_KEPT = 50_000  # files that are kept for one command
LARGEST = 2_000_000_000  # bytes of all files kept as a whole, and of those that one command may have copied
SPARE = 500_000_000  # bytes that stay free on the disk of the checkpoints


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
    linked, copied = (
        set(_find_uncovered(workspace, removed, covered)),
        set(_find_uncovered(workspace, written, covered)),
    )
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


def keep_moved(workspace: Path, moves: Moves, before: Moment, after: Moment, objects: Objects) -> dict[str, PathEntry]:
    """Keep files that a command moved, under the paths at which they were; return their entries there."""
    targets = {path: place for path, place in moves.files.items() if place not in after.covered}
    keeping = plan_keeping(workspace, [workspace / p for p in targets.values()], (), after.covered, objects)
    entries = {
        path: PathEntry(before.look.files[path].st_mode, after.covered[place].oid)
        for path, place in moves.files.items()
        if place in after.covered
    }
    for path, place in targets.items() if not keeping.refused else ():
        oid = places.file_id(path, before.look.files[path])
        with contextlib.suppress(OSError, places.BlockedPath), places.parent(workspace, place) as (here, name):
            objects.keep(oid, name, here, link=True)
            entries[path] = PathEntry(before.look.files[path].st_mode, oid)
    return entries


def keep(workspace: Path, keeping: Keeping, objects: Objects) -> dict[str, PathEntry]:
    """Keep files before a command; return their entries, without those that cannot be kept."""
    entries: dict[str, PathEntry] = {}
    for path in (*keeping.linked, *keeping.copied):
        try:
            with places.parent(workspace, path) as (here, name):
                status = os.lstat(name, dir_fd=here)
                if stat.S_ISLNK(status.st_mode):
                    oid = objects.put(os.fsencode(os.readlink(name, dir_fd=here)), sync=False)
                else:
                    oid = places.file_id(path, status)
                    objects.keep(oid, name, here, link=path in keeping.linked)
                entries[path] = PathEntry(status.st_mode, oid)
        except (OSError, places.BlockedPath):
            continue
    return entries


def _find_uncovered(workspace: Path, paths: Iterable[Path], covered: Container[str]) -> Iterator[str]:
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
