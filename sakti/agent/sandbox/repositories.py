"""Find git repositories, and the files in them that run programs as soon as their user runs git there.

It is kept from changes where it is, and set aside where it appears.

`commondir` and `config.worktree` are files that are usually not there: the first lets git read another configuration
in the repository's stead, the second adds to it. The folders of submodules and of linked worktrees have them, too, and
`git status` of the repository around them reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from sakti.agent.judge import repository_config
from sakti.core.lazy import lazy_pattern

# Of a folder that git keeps.
KEPT = ("hooks", "config", "info", "config.worktree", "commondir")
# Of what git keeps of a linked worktree.
OF_WORKTREE = ("commondir", "gitdir", "config.worktree")
MOST = 500  # folders of submodules and worktrees that are looked at
_LARGEST = 100_000  # bytes of a configuration

# What a repository that a command made must not name: git runs it unasked. A submodule's has `core.worktree`.
_RUN = lazy_pattern(
    r"core\.(?:fsmonitor|pager|editor|sshcommand|hookspath|gitproxy|askpass)|pager\..*|alias\..*|gpg\..*"
    r"|diff\.external|diff\..*\.(?:command|textconv)|filter\..*\.(?:clean|smudge|process)|merge\..*\.driver"
    r"|credential\..*|include\..*|includeif\..*|interactive\..*|sequence\..*|trailer\..*\.(?:command|cmd)"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs)|submodule\..*\.update"
)
# What `git lfs install` sets is no program of the repository's.
_LFS = lazy_pattern(
    r"filter\.lfs\.(?:clean=git-lfs clean -- %f|smudge=git-lfs smudge(?: --skip)? -- %f"
    r"|process=git-lfs filter-process(?: --skip)?)"
)
_NAMED = lazy_pattern(r"core\.hookspath|include(?:if\..*)?\.path")


def folders(git: Path) -> list[Path]:
    """Return a repository's folder and those of its submodules."""
    out, waiting = [git], [git / "modules"]
    while waiting and len(out) < MOST:
        for folder in below(waiting.pop()):
            if (folder / "HEAD").is_file():
                out.append(folder)
                waiting.append(folder / "modules")
            else:
                waiting.append(folder)
    return out


def list_protected(git: Path, workspace: Path) -> Iterator[Path]:
    """Yield what a command must not change of a repository, whether it is there or not."""
    for folder in folders(git):
        yield from (folder / name for name in KEPT)
        yield from (hook for hook in _hooks(folder / "hooks") if hook.is_symlink())  # what it names runs
        for tree in below(folder / "worktrees")[:MOST]:
            yield from (tree / name for name in OF_WORKTREE)
    yield from named(git, workspace)


def named(git: Path, workspace: Path) -> Iterator[Path]:
    """Yield the folder of hooks and the further configuration that a repository's own configuration names."""
    for name, value in repository_config.pairs(read_text(git / "config")):
        if _NAMED.fullmatch(name):
            for folder in (workspace, git):
                path = Path(os.path.normpath(folder / value.strip('"')))
                if not workspace.is_relative_to(path) and not git.is_relative_to(path):
                    yield path


def find_git_folder(git: Path, workspace: Path) -> Path | None:
    """Return the folder that a `.git` is or names; None if it is not in the workspace."""
    folder = named_by(git)
    return folder if folder is not None and folder.is_relative_to(workspace) else None


def named_by(git: Path) -> Path | None:
    """Return the folder that a `.git` is, or names as a link or file, or None."""
    folder = git
    if git.is_file():
        match = re.match(r"gitdir: (.+)\n?", read_text(git)[:4_096])
        if match is None:
            return None
        folder = git.parent / match[1].rstrip("\r\n")
    folder = Path(os.path.realpath(folder))
    return folder if folder.is_dir() else None


def runs(git: Path) -> list[Path]:
    """Return the files and folders by which a repository that a command made would run programs."""
    out = [f for f in (git / "config", git / "config.worktree") if _names_programs(f)]
    if _hooks(git / "hooks"):
        out.append(git / "hooks")
    common = git / "commondir"
    if os.path.lexists(common) and not _is_own(git, common):
        out.append(common)
    return out


def programs(git: Path, places: Iterable[Path]) -> list[Path]:
    """Return the hooks of a repository and its configurations, whether these name programs or not.

    `places` are the folders and files that its configuration names.
    """
    hooks = _hooks(git / "hooks")
    for path in places:
        hooks += _hooks(path) if path.is_dir() else [path]
    return [f for f in (*hooks, git / "config", git / "config.worktree") if os.path.lexists(f)]


def runs_program(file: Path) -> bool:
    """Return whether one of `programs` makes git run something."""
    return file.name not in ("config", "config.worktree") or _names_programs(file)


def _hooks(folder: Path) -> list[Path]:
    return [f for f in _entries(folder) if not f.name.endswith(".sample")]


def _is_own(git: Path, common: Path) -> bool:
    """Return whether a worktree's folder names the repository that it lies in."""
    if git.parent.name != "worktrees" or common.is_symlink():
        return False
    return Path(os.path.normpath(git / read_text(common).strip())) == git.parent.parent


def _names_programs(file: Path) -> bool:
    if file.is_symlink():
        return True
    pairs = repository_config.pairs(read_text(file))
    return any(_RUN.fullmatch(name) and not (_LFS.fullmatch(f"{name}={value}")) for name, value in pairs)


def below(folder: Path) -> list[Path]:
    """Return the folders in a folder, links left out."""
    return [p for p in _entries(folder) if p.is_dir() and not p.is_symlink()]


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(e.path) for e in entries)
    except OSError:
        return []


def read_text(file: Path) -> str:
    """Return the text of a small file; empty if it cannot be read."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(number, "rb") as f:
        try:
            return f.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            return ""


def find_common_folder(workspace: Path) -> Path | None:
    """Return the `.git` folder that a linked worktree shares with its repository, or None.

    The repository must name the worktree in turn: a file that came with the workspace could name any folder.
    """
    file = workspace / ".git"
    if not file.is_file() or file.is_symlink():
        return None
    named = _first_line(file).removeprefix("gitdir:").strip()
    if not named:
        return None
    folder = (workspace / named).resolve()
    back, shared = _first_line(folder / "gitdir"), _first_line(folder / "commondir")
    if not back or not shared or (folder / back).resolve() != file.resolve():
        return None
    common = (folder / shared).resolve()
    confirmed = (
        (common / "HEAD").is_file() and (common / "objects").is_dir() and folder.is_relative_to(common / "worktrees")
    )
    return common if confirmed else None


def _first_line(file: Path) -> str:
    """Return the first line of a small file, or "" if it cannot be read."""
    try:
        with file.open("rb") as f:
            return f.read(4_096).decode("utf-8", "replace").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""
