"""Find the files whose content no command sees, and track them as the workspace changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.judge.secrets import secret_filter
from sakti.agent.judge.where import Place
from sakti.agent.project.files import DEPENDENCIES, TABLE

WALKED = 20_000  # entries of a workspace that are looked at
_KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))
MASKED = 2_000  # files that a command line can hide
REPOSITORIES = 100  # below the workspace; each takes some mounts
TEXTS = 500  # files and folders of instructions below the workspace; each takes a mount
_TEXT_NAMES = frozenset(location.path.partition("/")[0] for location in TABLE)
_BARE = ("HEAD", "objects", "refs")  # a folder with these is a repository to git


class _Folder(Struct, frozen=True):
    """What a folder held when it was last changed."""

    changed: tuple[int, int]  # st_mtime_ns and st_ctime_ns: a command can set the first one back
    entries: int
    folders: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    repository: str = ""  # the name of what git keeps here, "." for the folder itself
    texts: tuple[str, ...] = ()  # names of instructions, and of folders that may hold some
    inodes: tuple[tuple[int, str], ...] = ()


class Masks(Struct):
    """Secret files, folders of credentials and nested repositories of a workspace.

    `repositories` are what git takes for one: a folder or file `.git`, or a folder that holds what such a one holds.
    `texts` are the files and folders below the workspace that instruct an agent, or run code for one.
    `whole` tells whether all of the workspace was looked at. Folders of dependencies are passed over, but for
    `dependency_texts`: what there is for an agent in them, which no thread reads; it only must not appear there.
    """

    place: Place
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    whole: bool = True
    _known: dict[str, _Folder] = field(default_factory=dict[str, _Folder])
    _dependencies: dict[str, _Folder] = field(default_factory=dict[str, _Folder])

    def refresh(self) -> None:
        """Look at the folders that changed since; all of them at first."""
        root = str(self.place.workspace)
        seen, hidden, self.whole = self._walk(root)
        self._known, self.folders = seen, tuple(sorted(hidden))
        files = {Path(folder, name) for folder, f in seen.items() for name in f.secret}
        self.files = tuple(sorted(self._with_links(files)))
        below = [(folder, f) for folder, f in seen.items() if folder != root]
        self.repositories = tuple(sorted(Path(folder, f.repository) for folder, f in below if f.repository))
        self.texts = tuple(sorted(path for folder, f in below for path in _texts(folder, f.texts)))
        sizes = ((self.files, MASKED), (self.repositories, REPOSITORIES), (self.texts, TEXTS))
        self.whole = self.whole and all(len(paths) <= most for paths, most in sizes)
        self.files, self.texts = self.files[:MASKED], self.texts[:TEXTS]

    def dependency_texts(self) -> Iterator[Path]:
        """Yield what would instruct an agent in folders of dependencies, as far as they are looked at."""
        waiting = [f"{folder}/{name}" for folder, listing in self._known.items() for name in listing.passed]
        seen, entries = dict[str, _Folder](), 0
        while waiting and entries < WALKED:
            folder = waiting.pop()
            looked_at = self._look(folder, "", None, self._dependencies.get(folder))
            if looked_at is not None:
                seen[folder] = looked_at
                entries += looked_at.entries
                waiting += [f"{folder}/{name}" for name in (*looked_at.folders, *looked_at.passed)]
                yield from _texts(folder, looked_at.texts)
        self._dependencies = seen

    def _walk(self, root: str) -> tuple[dict[str, _Folder], list[Path], bool]:
        """Return the folders that were looked at, those of credentials, and whether these are all."""
        is_secret = secret_filter(self.place.workspace, self.place)
        seen, entries = dict[str, _Folder](), 0
        waiting, hidden = [root], list[Path]()
        while waiting and entries < WALKED:
            folder = waiting.pop()
            relative = os.path.relpath(folder, root).removeprefix(".").removeprefix("/")
            if relative and is_secret(relative):
                hidden.append(Path(folder))
                continue
            looked_at = self._look(folder, relative, is_secret, self._known.get(folder))
            if looked_at is None:
                continue
            seen[folder] = looked_at
            entries += looked_at.entries
            waiting += [f"{folder}/{name}" for name in looked_at.folders]
        return seen, hidden, not waiting

    def _look(
        self, folder: str, relative: str, is_secret: Callable[[str], bool] | None, known: _Folder | None
    ) -> _Folder | None:
        """Look at a folder unless it is as `known`; without `is_secret` only for folders and texts."""
        try:
            status = os.stat(folder)  # noqa: PTH116 - thousands of them
            changed = status.st_mtime_ns, status.st_ctime_ns
            if known is not None and known.changed == changed:
                return known
            with os.scandir(folder) as scanned:
                entries = list(scanned)
        except OSError:
            return None
        folders, passed, secret, inodes = list[str](), list[str](), list[str](), list[tuple[int, str]]()
        names = {e.name for e in entries}
        repository = ".git" if ".git" in names else "." if names.issuperset(_BARE) else ""
        for e in entries:
            if e.is_dir(follow_symlinks=False):
                if e.name != ".git":
                    (passed if e.name in DEPENDENCIES else folders).append(e.name)
                continue
            if is_secret is None:
                continue
            inodes.append((e.inode(), e.name))
            if is_secret(f"{relative}/{e.name}" if relative else e.name):
                secret.append(e.name)
        texts = tuple(sorted(names & _TEXT_NAMES))
        return _Folder(
            changed, len(entries), tuple(folders), tuple(passed), tuple(secret), repository, texts, tuple(inodes)
        )

    def _with_links(self, files: set[Path]) -> set[Path]:
        """Return secret files as mounted over: links followed, with their other names in the workspace."""
        out, several = set[Path](), set[tuple[int, int]]()
        for file in files:
            target = Path(os.path.realpath(file))
            try:
                seen = target.stat()
            except OSError:
                continue
            if not target.is_file() or any(target.is_relative_to(k) for k in _KERNEL):
                continue  # nothing can lie over what the kernel makes
            out.add(target)
            if seen.st_nlink > 1:
                several.add((seen.st_dev, seen.st_ino))
        numbers = {inode for _, inode in several}
        for folder, listing in self._known.items() if several else ():
            for inode, name in listing.inodes:
                if inode in numbers:
                    path = Path(folder, name)
                    seen = path.lstat()
                    if (seen.st_dev, seen.st_ino) in several:
                        out.add(path)
        return out


def _texts(folder: str, names: Iterable[str]) -> Iterator[Path]:
    """Yield the texts in a folder that are of the kinds at a workspace's root."""
    for location in TABLE if names else ():
        path = Path(folder, location.path)
        if location.path.partition("/")[0] in names and os.path.lexists(path):
            yield path
