"""Set aside files that a command created under protected names.

They could run code or instruct the agent later.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from sakti.agent.checkpoints import safe_paths
from sakti.agent.checkpoints.plan import PathEntry
from sakti.agent.judge import repositories
from sakti.agent.sandbox.boundary import PROTECTED
from sakti.core.errors import SaktiError

NAMES = (".git", *PROTECTED)
MOST = 100  # names that are tried for a path that is set aside
_BARE = ("HEAD", "objects", "refs")  # contents by which git takes a folder for a repository

# For each protected name: None if missing, the target of a link, "" for anything else.
Seen: TypeAlias = Mapping[str, str | None]
_Content: TypeAlias = tuple[PathEntry, bytes]
_SET_ASIDE = ".set-aside-"


def _list_none() -> tuple[Path, ...]:
    return ()


class Watch(Struct):
    """Files under the protected names of a workspace while commands run there.

    `gits` finds the `.git` of repositories in the folders below it; `texts` returns the files and folders there that
    instruct an agent. A command in the background may leave something at any time, so the list from before it applies
    until it has ended. `compares`: commands could change the hooks and the configuration of a repository that was
    there, so that their contents are compared, and put back.
    """

    workspace: Path
    gits: Callable[[], Iterable[Path]] = _list_none
    texts: Callable[[], Iterable[Path]] = _list_none
    compares: bool = False
    _before: Seen | None = None
    _known: frozenset[Path] = frozenset()
    _job: bool = False
    _instructing: frozenset[Path] = frozenset()
    _places: tuple[Path, ...] = ()
    _programs: dict[str, _Content] = field(default_factory=dict[str, "_Content"])
    moved: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # old and new names, to be asked about

    def begin(self, *, running: bool) -> list[tuple[str, str]]:
        """Look before a command; `running`: another one still runs.

        Returns the old and new names of paths set aside.
        """
        moved = self.look() if self._job else []
        if self._before is None or not running:
            self._known = frozenset(self._list_folders())
            self._before = list_present(self.workspace, self._known)
            self._instructing = frozenset(self.texts())
            self._programs = self._read_programs() if self.compares else {}
        self._job = running
        return moved

    def look(self) -> list[tuple[str, str]]:
        """Set aside paths that appeared since `begin`; return old and new names."""
        if self._before is None:
            return []
        moved = set_aside(self.workspace, self._before)
        for git in self._list_folders():
            if git not in self._known:  # a command created it: only the parts that run code are removed
                moved += _move_all(self.workspace, repositories.list_running_files(git))
        new = (text for text in self.texts() if text not in self._instructing)
        moved += _move_all(self.workspace, (text for text in new if text.is_relative_to(self.workspace)))
        moved += self._put_back() if self.compares else []
        self.moved += [(old, new) for old, new in moved if new not in ("", old)]
        return moved

    def job(self) -> None:
        """Note that the command continues in the background."""
        self._job = True

    def _read_programs(self) -> dict[str, _Content]:
        """Read hooks and configurations of repositories, and the files that linked hooks name."""
        root = self.workspace
        places = {
            path
            for git in self._known
            for path in repositories.list_named_files(git, root)
            if path.is_relative_to(root)
        }
        self._places = tuple(sorted(places))
        programs = self._read_contents(self._list_programs())
        links = [root / name for name in programs if (root / name).is_symlink()]
        targets = [t for link in links if (t := Path(os.path.realpath(link))).is_relative_to(root)]
        return programs | self._read_contents(targets)

    def _list_programs(self) -> list[Path]:
        return [f for git in self._known for f in repositories.list_programs(git, self._places)]

    def _read_contents(self, files: Iterable[Path]) -> dict[str, _Content]:
        names = (f.relative_to(self.workspace).as_posix() for f in files if _SET_ASIDE not in f.name)
        return {name: content for name in names if (content := _read_content(self.workspace, name)) is not None}

    def _put_back(self) -> list[tuple[str, str]]:
        """Set aside changed hooks and configurations, and write those from before in their places.

        Missing ones are written, too, unless their repository is gone.
        """
        root, moved = self.workspace, list[tuple[str, str]]()
        now = self._read_contents((*self._list_programs(), *(root / name for name in self._programs)))
        for name, content in now.items():
            if self._programs.get(name) != content and repositories.runs_program(root / name):
                moved.append((name, _move(root, name)))
        moved += [(name, name) for name in self._list_missing_programs()]
        for old, new in moved:
            if new and old in self._programs:
                with contextlib.suppress(OSError, SaktiError):
                    safe_paths.write(root, old, *self._programs[old])
        return moved

    def _list_missing_programs(self) -> list[str]:
        if not any((git / "HEAD").exists() for git in self._known):
            return []
        return [name for name in self._programs if not os.path.lexists(self.workspace / name)]

    def _list_folders(self) -> list[Path]:
        git_folders = (repositories.find_git_folder(g, self.workspace) for g in (self.workspace / ".git", *self.gits()))
        return [f for git in dict.fromkeys(git_folders) if git is not None for f in _list_with_worktrees(git)]


def _list_with_worktrees(git: Path) -> list[Path]:
    git_folders = repositories.list_git_folders(git)
    return [*git_folders, *(tree for f in git_folders for tree in repositories.list_folders(f / "worktrees"))]


def describe_moves(moved: Sequence[tuple[str, str]]) -> str:
    """Tell the model about the paths set aside; "" if there are none."""
    if not moved:
        return ""
    names = ", ".join(describe_move(old, new) for old, new in moved)
    return (
        f"[set aside, as it runs code or gives instructions later: {names}."
        " Write it with the write tool, or run the command outside of the sandbox: the user is asked.]"
    )


def describe_move(old: str, new: str) -> str:
    if not new:
        return f"{old} could not be moved"
    return f"{old} is now {new}" if new != old else f"{old} was rewritten"


def list_present(workspace: Path, gits: Iterable[Path] = ()) -> Seen:
    """Return the present files under the protected names, and those of the repositories in `gits`."""
    names = [*NAMES, *(_BARE if not os.path.lexists(workspace / ".git") else ())]
    for git in sorted(gits):
        protected = repositories.IN_WORKTREE if git.parent.name == "worktrees" else repositories.IN_REPOSITORY
        names += [(git / name).relative_to(workspace).as_posix() for name in protected]
    return {name: _find_existing(workspace, name) for name in dict.fromkeys(names)}


def set_aside(workspace: Path, before: Seen) -> list[tuple[str, str]]:
    """Rename paths that are new since the command or were links elsewhere; return old and new names.

    Raises nothing: a path that cannot be renamed gets the new name "".
    """
    moved: list[tuple[str, str]] = []
    for name, was in before.items():
        now = _find_existing(workspace, name)
        if now is None or now == was or any(name.startswith(f"{m}/") for m, _ in moved):
            continue
        if name in _BARE and not all(os.path.lexists(workspace / part) for part in _BARE):
            continue
        moved += _move_all(workspace, [workspace / (now.partition("\0")[0] or name)])
    return moved


def _find_existing(workspace: Path, name: str) -> str | None:
    """Return the path that exists there.

    If a folder on the way is a link, that link: its target belongs to others.
    """
    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        path = "/".join(parts[:end])
        try:
            if stat.S_ISLNK((workspace / path).lstat().st_mode):
                return f"{path}\0{os.readlink(workspace / path)}"  # noqa: PTH115 - as it is written
        except OSError:
            return None
    return ""


def put_back(workspace: Path, name: str, aside: str) -> bool:
    """Restore the name of a file that was set aside; False if another file has it."""
    with contextlib.suppress(OSError, SaktiError), safe_paths.open_parent(workspace, name) as (here, last):
        if last not in os.listdir(here):  # noqa: PTH208 - of a descriptor
            os.rename(aside.rpartition("/")[2], last, src_dir_fd=here, dst_dir_fd=here)
            return True
    return False


def _read_content(workspace: Path, name: str) -> _Content | None:
    """Return the content at a path, links not followed; None if it is a folder or cannot be read."""
    try:
        entry, data = safe_paths.read_entry(workspace, name)
    except (OSError, SaktiError):
        return None
    return None if entry is None or entry.is_folder else (entry, data)


def _move_all(workspace: Path, paths: Iterable[Path]) -> list[tuple[str, str]]:
    names = [p.relative_to(workspace).as_posix() for p in paths]
    return [(name, _move(workspace, name)) for name in names]


def _move(workspace: Path, name: str) -> str:
    """Rename a path without following a link that a command has put on the way meanwhile."""
    with contextlib.suppress(OSError, SaktiError), safe_paths.open_parent(workspace, name) as (here, last):
        taken = set(os.listdir(here))  # noqa: PTH208 - of a descriptor
        end = next((e for n in range(1, MOST) if last + (e := f"{_SET_ASIDE}{n}") not in taken), "")
        if end:
            os.rename(last, last + end, src_dir_fd=here, dst_dir_fd=here)
            return name + end
    return ""
