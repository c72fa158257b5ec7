"""Boundary of a command as values: the paths that it writes, only reads, or does not see.

Nothing here runs anything. `draw_boundary` looks at the file system, so that a boundary is true for one command only.
`Masks` finds the files whose content no command sees, and tracks them as the workspace changes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge import repositories as judge_repositories
from sakti.agent.judge.workspace_view import LevelName, WorkspaceView, load_lists, make_secret_filter
from sakti.agent.project.files import DEPENDENCIES, TABLE
from sakti.core import resources


class BoundaryLists(Struct, frozen=True, forbid_unknown_fields=True):
    """Paths that the sandbox protects or hides; schema of `boundary.toml`, which explains them."""

    protected: tuple[str, ...]
    hidden: tuple[str, ...]
    hidden_in_library: tuple[str, ...]
    emptied: tuple[str, ...]
    system: tuple[str, ...]
    sockets: tuple[str, ...]


LISTS = load_lists(Path(__file__).with_name("boundary.toml"), BoundaryLists)
# Files that run code later or instruct the agent: existing ones are read-only, new ones set aside.
PROTECTED = (
    *LISTS.protected,
    *(location.path.rstrip("/") for location in TABLE if not location.path.startswith(".sakti/")),
)
TEMPORARY = (Path("/tmp"), Path("/run"))
_KERNEL = (Path("/dev"), Path("/proc"), Path("/sys"))

WALKED = 20_000  # entries of a workspace that are scanned
MASKED = 2_000  # files that a command line can hide
REPOSITORIES = 100  # below the workspace; each takes some mounts
TEXTS = 500  # files and folders of instructions below the workspace; each takes a mount
_BARE = ("HEAD", "objects", "refs")  # a folder with these is a repository to git


class Level(Struct, frozen=True):
    """Level of enclosure for commands. `reason` says why it is not "sandboxed", `remedy` what to do.

    `own_network`: commands have a network of their own, in which hosts can be opened to them.
    """

    name: LevelName
    reason: str = ""
    remedy: str = ""
    own_network: bool = True

    @property
    def holds(self) -> bool:
        """Return whether commands may run without a question, which needs a complete sandbox."""
        return self.name == "sandboxed"

    @property
    def text(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


class Boundary(Struct, frozen=True):
    """Paths that one command may reach, absolute and resolved.

    `write` are the folders that it may change, `pinned` those that must keep their place, `read_only` the protected
    paths in them and those shown inside temporary folders. The contents of `masked` files and `hidden` folders are
    invisible, except `shown` paths. `emptied` files exist without their content, because a program that cannot read its
    settings fails. New, empty folders replace the `temporary` ones.
    """

    write: tuple[Path, ...]
    pinned: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = TEMPORARY
    shown: tuple[Path, ...] = ()
    emptied: tuple[Path, ...] = ()

    def sees(self, folder: Path) -> bool:
        """Return whether `folder` exists inside."""
        shown = (*self.write, *self.read_only)
        away = (*self.temporary, *self.hidden)
        return not any(folder.is_relative_to(a) for a in away) or any(
            folder.is_relative_to(s) and not any(a.is_relative_to(s) and folder.is_relative_to(a) for a in away)
            for s in shown
        )

    def without_writing(self, kept: Sequence[Path]) -> Boundary:
        """Return the boundary of a command that only reads: it may write the folders `kept`.

        git's filter for large files works in a folder of its own, and gets a new one.
        """
        roots = tuple(root for root in self.write if root not in kept)
        elsewhere = (p for p in self.read_only if not any(p.is_relative_to(root) for root in roots))
        large = (folder for git in self.pinned if (folder := git / "lfs").is_dir())
        return replace(
            self,
            write=tuple(kept),
            pinned=(),
            read_only=(*roots, *elsewhere),
            hidden=(*self.hidden, *large),
        )


def explain_impossible(workspace: Path) -> str:
    """Return why no boundary can be drawn around a workspace, or ""."""
    if workspace == Path(workspace.anchor):
        return "the workspace is the root of the file system"
    if workspace in TEMPORARY or any(workspace.is_relative_to(k) for k in _KERNEL):
        return f"the workspace is {workspace}"
    return ""


def list_hidden_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of a home folder that no command sees."""
    return tuple(home / name for name in (*LISTS.hidden, *(f"Library/{name}" for name in LISTS.hidden_in_library)))


class OpenFolders(Struct, frozen=True):
    """Folders that a command may use: the workspace, and those that were opened besides.

    `added` folders are treated as the workspace is, others in `write` may be written; `shown` ones may be read although
    the folder that holds them is hidden.
    """

    workspace: Path
    added: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = TEMPORARY


class ProtectedPaths(Struct, frozen=True):
    """Paths in open folders that a command cannot use freely.

    Files with secrets (`masked`), the folders and files `.git` of nested repositories, and texts that instruct an
    agent.
    """

    masked: tuple[Path, ...] = ()
    gits: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()


NOTHING_PROTECTED = ProtectedPaths()


def draw_boundary(
    folders: OpenFolders,
    protected_paths: ProtectedPaths = NOTHING_PROTECTED,
    *,
    home: Path,
    own: Iterable[Path] = (),
) -> Boundary:
    """Return the boundary of a command that starts now; `own` are sakti's paths besides the usual ones."""
    opened = (folders.workspace, *folders.added)
    roots = (*opened, *filter(Path.exists, folders.write))
    masked, temporary = protected_paths.masked, folders.temporary
    read_only, git_folders = list[Path](), list[Path]()
    for root in opened:
        nested = (g for g in protected_paths.gits if g.is_relative_to(root))
        git_paths = [g for g in (root / ".git", *nested) if not g.is_symlink()]
        repositories = _list_git_folders(git_paths, root, folders.workspace)
        read_only += _list_read_only(root, git_paths, repositories, protected_paths.texts)
        git_folders += repositories
    closed = [*list_hidden_folders(home), *own, *(p for p in map(Path, LISTS.system) if os.access(p, os.R_OK))]
    protected = tuple(dict.fromkeys(_list_existing(read_only, (*roots, *git_folders))))
    above = _list_parents((*protected, *masked), opened)
    return Boundary(
        write=roots,
        pinned=tuple(sorted({*git_folders, *above}, key=lambda p: len(p.parts))),
        read_only=tuple(dict.fromkeys((*protected, *_list_own_paths((*roots, *temporary), roots)))),
        masked=(*masked, *filter(Path.is_file, closed)),
        emptied=tuple(f.resolve() for name in LISTS.emptied if (f := home / name).is_file()),
        hidden=tuple(dict.fromkeys(f.resolve() for f in closed if f.is_dir())),
        temporary=temporary,
        shown=tuple(filter(Path.exists, folders.shown)),
    )


def _list_git_folders(git_paths: Sequence[Path], root: Path, workspace: Path) -> list[Path]:
    """Folders that hold the repositories of a root, the common one of a worktree too."""
    folders = list(
        dict.fromkeys(k for g in git_paths if (k := judge_repositories.find_git_folder(g, root)) is not None)
    )
    if root == workspace and (common := judge_repositories.find_common_folder(workspace)) is not None:
        folders.append(common)
    return folders


def _list_read_only(
    root: Path, git_paths: Sequence[Path], folders: Sequence[Path], texts: Sequence[Path]
) -> Iterator[Path]:
    """Yield the paths below a root that a command only reads."""
    yield from (root / name for name in PROTECTED)
    yield from (g for g in git_paths if g.is_file())  # they name the folder of a worktree or submodule: none else
    yield from (t for t in texts if t.is_relative_to(root))
    for git in folders:
        yield from judge_repositories.list_protected(git, root)


def _list_parents(paths: Sequence[Path], opened: Sequence[Path]) -> list[Path]:
    """Folders between one of the `opened` and a path in it: moving one would move the path."""
    parents = dict.fromkeys(f for path in paths for f in path.parents)
    return [f for f in parents if f not in opened and any(f.is_relative_to(root) for root in opened)]


def _list_existing(paths: Iterable[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the existing protected paths in folders that a command may write, links followed."""
    for path in paths:
        if os.path.lexists(path):
            resolved = Path(os.path.realpath(path))
            if resolved.exists() and any(resolved.is_relative_to(r) for r in roots):
                yield resolved


def _list_own_paths(places: Sequence[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield Python, sakti and its data if a command could change or would miss them."""
    ours = (Path(sys.prefix), Path(sys.base_prefix), resources.PACKAGE, *map(Path, _list_data_folders()))
    for path in dict.fromkeys(Path(os.path.realpath(p)) for p in ours):
        if any(r.is_relative_to(path) for r in roots):
            continue  # it holds the workspace: nothing could be written
        if path.exists() and any(path.is_relative_to(p) for p in places):
            yield path


def _list_data_folders() -> Iterator[Path]:
    for kind in ("prompts", "themes"):
        yield from (f for f in resources.iter_folders(kind) if not f.is_relative_to(resources.config_home()))


_TEXT_NAMES = frozenset(location.path.partition("/")[0] for location in TABLE)


class ScannedFolder(Struct, frozen=True):
    """Contents of a folder when it was last changed."""

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

    `repositories` are the paths that git takes for one: a folder or file `.git`, or a folder with the contents of one.
    `texts` are the files and folders below the workspace that instruct an agent, or run code for one. `is_complete`:
    all of the workspace was scanned. Folders of dependencies are passed over, but for `dependency_texts`: texts for an
    agent in them. No thread reads these; they only must not appear there.
    """

    place: WorkspaceView
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    is_complete: bool = True
    _known: dict[str, ScannedFolder] = field(default_factory=dict[str, ScannedFolder])
    _dependencies: dict[str, ScannedFolder] = field(default_factory=dict[str, ScannedFolder])

    def refresh(self) -> None:
        """Scan the folders that changed since the last scan; all of them at first."""
        root = str(self.place.workspace)
        seen, hidden, self.is_complete = self._walk(root)
        self._known, self.folders = seen, tuple(sorted(hidden))
        files = {Path(folder, name) for folder, f in seen.items() for name in f.secret}
        self.files = tuple(sorted(self._add_links(files)))
        below = [(folder, f) for folder, f in seen.items() if folder != root]
        self.repositories = tuple(sorted(Path(folder, f.repository) for folder, f in below if f.repository))
        self.texts = tuple(sorted(path for folder, f in below for path in _list_texts(folder, f.texts)))
        sizes = ((self.files, MASKED), (self.repositories, REPOSITORIES), (self.texts, TEXTS))
        self.is_complete = self.is_complete and all(len(paths) <= most for paths, most in sizes)
        self.files, self.texts = self.files[:MASKED], self.texts[:TEXTS]

    def dependency_texts(self) -> Iterator[Path]:
        """Yield texts that would instruct an agent in folders of dependencies, as far as scanned."""
        waiting = [f"{folder}/{name}" for folder, listing in self._known.items() for name in listing.passed]
        seen, entries = dict[str, ScannedFolder](), 0
        while waiting and entries < WALKED:
            folder = waiting.pop()
            looked_at = self._scan_folder(folder, "", None, self._dependencies.get(folder))
            if looked_at is not None:
                seen[folder] = looked_at
                entries += looked_at.entries
                waiting += [f"{folder}/{name}" for name in (*looked_at.folders, *looked_at.passed)]
                yield from _list_texts(folder, looked_at.texts)
        self._dependencies = seen

    def _walk(self, root: str) -> tuple[dict[str, ScannedFolder], list[Path], bool]:
        """Return the folders that were scanned, those of credentials, and whether these are all."""
        is_secret = make_secret_filter(self.place.workspace, self.place)
        seen, entries = dict[str, ScannedFolder](), 0
        waiting, hidden = [root], list[Path]()
        while waiting and entries < WALKED:
            folder = waiting.pop()
            relative = os.path.relpath(folder, root).removeprefix(".").removeprefix("/")
            if relative and is_secret(relative):
                hidden.append(Path(folder))
                continue
            looked_at = self._scan_folder(folder, relative, is_secret, self._known.get(folder))
            if looked_at is None:
                continue
            seen[folder] = looked_at
            entries += looked_at.entries
            waiting += [f"{folder}/{name}" for name in looked_at.folders]
        return seen, hidden, not waiting

    def _scan_folder(
        self, folder: str, relative: str, is_secret: Callable[[str], bool] | None, known: ScannedFolder | None
    ) -> ScannedFolder | None:
        """Scan a folder unless it is unchanged since `known`; without `is_secret` only for folders and texts."""
        try:
            status = os.stat(folder)  # noqa: PTH116 - thousands of them
            changed = status.st_mtime_ns, status.st_ctime_ns
            if known is not None and known.changed == changed:
                return known
            with os.scandir(folder) as scanned:
                entries = list(scanned)
        except OSError:
            return None
        names = {e.name for e in entries}
        repository = ".git" if ".git" in names else "." if names.issuperset(_BARE) else ""
        folders, passed, secret, inodes = _sort_entries(entries, relative, is_secret)
        texts = tuple(sorted(names & _TEXT_NAMES))
        return ScannedFolder(
            changed, len(entries), tuple(folders), tuple(passed), tuple(secret), repository, texts, tuple(inodes)
        )

    def _add_links(self, files: set[Path]) -> set[Path]:
        """Return secret files as mounted over: links followed, with their other names in the workspace."""
        out, several = set[Path](), set[tuple[int, int]]()
        for file in files:
            target = Path(os.path.realpath(file))
            try:
                seen = target.stat()
            except OSError:
                continue
            if not target.is_file() or any(target.is_relative_to(k) for k in _KERNEL):
                continue  # nothing can be mounted over files of the kernel
            out.add(target)
            if seen.st_nlink > 1:
                several.add((seen.st_dev, seen.st_ino))
        return out | set(self._find_links(several)) if several else out

    def _find_links(self, files: set[tuple[int, int]]) -> Iterator[Path]:
        """Yield the paths in the workspace of files that are named by device and inode."""
        numbers = {inode for _, inode in files}
        for folder, listing in self._known.items():
            for inode, name in listing.inodes:
                if inode in numbers:
                    path = Path(folder, name)
                    status = path.lstat()
                    if (status.st_dev, status.st_ino) in files:
                        yield path


def _list_texts(folder: str, names: Iterable[str]) -> Iterator[Path]:
    """Yield the texts in a folder that are of the kinds at a workspace's root."""
    for location in TABLE if names else ():
        path = Path(folder, location.path)
        if location.path.partition("/")[0] in names and os.path.lexists(path):
            yield path


def _sort_entries(
    entries: Iterable[os.DirEntry[str]], relative: str, is_secret: Callable[[str], bool] | None
) -> tuple[list[str], list[str], list[str], list[tuple[int, str]]]:
    """Return folders, folders of dependencies, secret files and the inodes of files.

    Without `is_secret` only folders are scanned.
    """
    folders, passed, secret, inodes = list[str](), list[str](), list[str](), list[tuple[int, str]]()
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
    return folders, passed, secret, inodes
