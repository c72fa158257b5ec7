"""Git repositories, and the settings and files in them by which git runs programs.

Even a read-only git command runs programs that the configuration names. Existing files of this kind are protected from
changes; new ones made by a command are set aside.

`commondir` and `config.worktree` usually do not exist: the first makes git read another configuration instead of the
repository's, the second adds to it. The folders of submodules and of linked worktrees have them, too, and `git status`
of the repository around them reads them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from sakti.agent.judge.workspace_view import LISTS
from sakti.core.lazy import lazy_pattern

# Filters that `git lfs install` sets: these programs do not come from the repository.
LFS = {
    "filter.lfs.clean": ("git-lfs clean -- %f",),
    "filter.lfs.smudge": ("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"),
    "filter.lfs.process": ("git-lfs filter-process", "git-lfs filter-process --skip"),
}
_SECTION = lazy_pattern(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_KEY = lazy_pattern(r"\s*([a-zA-Z][\w-]*)(?:\s*=)?(.*)")
_GITLINK = b"\0\0\xe0\0"  # mode of a repository in the index of another one
MOST_FOLDERS = 20_000  # folders that are searched for nested repositories


class Repository(Struct, frozen=True):
    """Repository that git would use: `folder` holds its files, `git` its own data, `common` the settings."""

    folder: Path
    git: Path
    common: Path


def find_program_setting(folder: Path, hooks: Sequence[str] = ("post-index-change",)) -> str:
    """Return the first setting or hook around `folder` that names a program; empty if none does.

    Only its own configuration counts, not the user's. A file that cannot be read or parsed counts as a setting, too.
    Nested repositories named in it are checked as well, because git enters them.
    """
    for repository in _find_repositories(folder):
        if named := _find_program_name(repository, hooks):
            return named
        for nested in _list_nested(repository):
            if nested is None:
                return f"more than {MOST_FOLDERS:,} folders"
            if named := next((n for r in _find_at(nested) if (n := _find_program_name(r, hooks))), ""):
                return named
    return ""


def has_repository(folder: Path) -> bool:
    """Return whether git finds a repository from `folder`."""
    return any(_is_complete(r.git) for r in _find_repositories(folder))


def _find_repositories(folder: Path) -> Iterator[Repository]:
    """Yield the candidates for the repository of `folder`: at each level `.git`, then the folder itself."""
    for place in (folder, *folder.parents):
        found_complete = False
        for repository in _find_at(place):
            yield repository
            found_complete = found_complete or _is_complete(repository.git)
        if found_complete:
            return


def _find_at(place: Path) -> Iterator[Repository]:
    git = place / ".git"
    if os.path.lexists(git):
        folder = _find_git_data(git)
        yield Repository(place, folder, _find_common(folder) if git.is_file() else folder)
    if _is_complete(place):
        yield Repository(place, place, place)


def _is_complete(git: Path) -> bool:
    """Return whether git would treat a folder as a repository's data; False if in doubt."""
    return _is_head(git / "HEAD") and (
        (git / "commondir").exists() or ((git / "objects").is_dir() and (git / "refs").is_dir())
    )


def _is_head(file: Path) -> bool:
    try:
        head = str(file.readlink()) if file.is_symlink() else file.read_text("utf-8", "replace")[:256]
    except OSError:
        return False
    return re.match(r"(ref:\s*)?refs/|[0-9a-f]{40}", head) is not None


def _find_git_data(git: Path) -> Path:
    """Return the folder that a `.git` is, or that the `.git` file of a worktree or a submodule names."""
    if not git.is_file():
        return git
    try:
        link = re.fullmatch(r"gitdir: (\S(?:[^\r\n]*\S)?)\r?\n?", git.read_text("utf-8", "replace"))
    except OSError:
        return git
    return (git.parent / link[1]).resolve() if link is not None else git


def _find_common(git: Path) -> Path:
    try:
        name = re.fullmatch(r"(\S(?:[^\r\n]*\S)?)\r?\n?", (git / "commondir").read_text("utf-8"))
        return (git / name[1]).resolve() if name is not None else git
    except (OSError, ValueError):
        return git


def _find_program_name(repository: Repository, hooks: Sequence[str]) -> str:
    if repository.git.name == ".git" and repository.git.is_file():
        return ".git"
    if repository.git == repository.common and (repository.git / "commondir").exists():
        return "commondir"  # another configuration than the one here
    for file in (repository.common / "config", repository.git / "config.worktree"):
        if named := _find_setting(file, repository):
            return named
    return next((h for h in hooks if os.path.lexists(repository.common / "hooks" / h)), "")


def _find_setting(file: Path, repository: Repository) -> str:
    try:
        text = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return file.name
    if re.search(r"\\\r?\n", text):  # a value continued on the next line, which looks like another setting
        return file.name
    return next((name for name, value in parse_settings(text) if not _is_harmless(name, value, repository)), "")


@functools.cache
def _compile_settings(kind: Literal["harmless_settings", "program_settings"]) -> re.Pattern[str]:
    """Compile a list of settings to a pattern of their names in lower case."""
    lists: Mapping[str, Sequence[str]] = getattr(LISTS, kind)
    patterns = (_make_section_pattern(name, keys) for names, keys in lists.items() for name in names.split())
    return re.compile("|".join(patterns))


def _make_section_pattern(section: str, keys: Sequence[str]) -> str:
    excluded = "".join(f"(?!{re.escape(key[1:])})" for key in keys if key.startswith("!"))
    names = "|".join(_key_pattern(key) for key in keys if not key.startswith("!"))
    return re.escape(section).replace(r"\*", ".*") + rf"\.{excluded}(?:{names})"


def _key_pattern(key: str) -> str:
    return {"*": r"\w+", "**": ".*"}.get(key) or re.escape(key).replace(r"\*", r"[\w-]*")


def is_harmless(name: str) -> bool:
    """Return whether a setting, in lower case, names no program and reads no other file."""
    return _compile_settings("harmless_settings").fullmatch(name) is not None


def _is_harmless(name: str, value: str, repository: Repository) -> bool:
    if name == "core.worktree":  # that of a submodule names the folder it was found in
        return Path(os.path.realpath(repository.git / value)) == Path(os.path.realpath(repository.folder))
    return is_harmless(name) or value in LFS.get(name, ())


def list_tracked(folder: Path) -> list[str] | None:
    """Return the files in the index of the repository around a folder; None if it cannot be read."""
    index = next((r.git / "index" for r in _find_repositories(folder) if _is_complete(r.git)), None)
    try:
        return _parse_index(index.read_bytes()) if index is not None else []
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None


def _parse_index(data: bytes) -> list[str]:
    """Return the names in an index, or raise ValueError: https://git-scm.com/docs/index-format."""
    version, count = int.from_bytes(data[4:8]), int.from_bytes(data[8:12])
    if data[:4] != b"DIRC" or version not in (2, 3):
        raise ValueError(version)  # version 4 compresses the names
    names, at = list[str](), 12
    for _ in range(count):
        start = at + (64 if data[at + 60 : at + 61] >= b"\x40" and version == 3 else 62)
        end = data.index(b"\0", start)
        names.append(data[start:end].decode("utf-8", "replace"))
        at += (end - at + 8) // 8 * 8
    return names


def _has_gitlink(index: Path) -> bool:
    """Return whether an index may hold a repository; one that cannot be read may."""
    try:
        return index.is_file() and _GITLINK in index.read_bytes()
    except OSError:
        return True


def _list_nested(repository: Repository) -> Iterator[Path | None]:
    """Yield the folders of repositories that an index names; None if there are too many."""
    if not any(map(_has_gitlink, (repository.git / "index", *repository.git.glob("sharedindex.*")))):
        return
    for number, (folder, folders, files) in enumerate(os.walk(repository.folder)):
        if number > MOST_FOLDERS:
            yield None
            return
        if ".git" in folders or ".git" in files:
            yield Path(folder)
        folders[:] = [f for f in folders if f != ".git"]


def list_settings(text: str) -> list[str]:
    """Return the names in a git configuration, in lower case: `diff.x.textconv`."""
    return [name for name, _ in parse_settings(text)]


def parse_settings(text: str) -> list[tuple[str, str]]:
    """Return the names in a git configuration, in lower case, with their values as they are written."""
    entries: list[tuple[str, str]] = []
    section = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        rest = line
        while head := _SECTION.match(rest):  # one line may contain several
            section = head[1].lower() + (f".{head[2].lower()}" if head[2] is not None else "")
            rest = head[3]
        if key := _KEY.match(rest):
            entries.append((f"{section}.{key[1].lower()}", key[2].strip()))
    return entries


# Files and folders of a repository that commands must not change.
IN_REPOSITORY = ("hooks", "config", "info", "config.worktree", "commondir")
# The same for a linked worktree.
IN_WORKTREE = ("commondir", "gitdir", "config.worktree")
MOST = 500  # folders of submodules and worktrees that are examined
_LARGEST = 100_000  # bytes of a configuration

_NAMED = lazy_pattern(r"core\.hookspath|include(?:if\..*)?\.path")


def list_git_folders(git: Path) -> list[Path]:
    """Return a repository's folder and those of its submodules."""
    out, waiting = [git], [git / "modules"]
    while waiting and len(out) < MOST:
        for folder in list_folders(waiting.pop()):
            if (folder / "HEAD").is_file():
                out.append(folder)
                waiting.append(folder / "modules")
            else:
                waiting.append(folder)
    return out


def list_protected(git: Path, workspace: Path) -> Iterator[Path]:
    """Yield the paths of a repository that a command must not change, whether they exist or not."""
    for folder in list_git_folders(git):
        yield from (folder / name for name in IN_REPOSITORY)
        yield from (hook for hook in _list_hooks(folder / "hooks") if hook.is_symlink())  # git runs its target
        for tree in list_folders(folder / "worktrees")[:MOST]:
            yield from (tree / name for name in IN_WORKTREE)
    yield from list_named_files(git, workspace)


def list_named_files(git: Path, workspace: Path) -> Iterator[Path]:
    """Yield the hooks folder and the included files that a repository's own configuration names."""
    for name, value in parse_settings(read_text(git / "config")):
        if _NAMED.fullmatch(name):
            for folder in (workspace, git):
                path = Path(os.path.normpath(folder / value.strip('"')))
                if not workspace.is_relative_to(path) and not git.is_relative_to(path):
                    yield path


def find_git_folder(git: Path, workspace: Path) -> Path | None:
    """Return the folder that a `.git` is or names; None if it is not in the workspace."""
    folder = resolve_git(git)
    return folder if folder is not None and folder.is_relative_to(workspace) else None


def resolve_git(git: Path) -> Path | None:
    """Return the folder that a `.git` is, or names as a link or file, or None."""
    folder = git
    if git.is_file():
        match = re.match(r"gitdir: (.+)\n?", read_text(git)[:4_096])
        if match is None:
            return None
        folder = git.parent / match[1].rstrip("\r\n")
    folder = Path(os.path.realpath(folder))
    return folder if folder.is_dir() else None


def list_running_files(git: Path) -> list[Path]:
    """Return the files and folders by which a repository created by a command would run programs."""
    out = [f for f in (git / "config", git / "config.worktree") if _names_programs(f)]
    if _list_hooks(git / "hooks"):
        out.append(git / "hooks")
    common = git / "commondir"
    if os.path.lexists(common) and not _is_own_worktree(git, common):
        out.append(common)
    return out


def list_programs(git: Path, places: Iterable[Path]) -> list[Path]:
    """Return the hooks and configurations of a repository, whether they name programs or not.

    `places` are the folders and files that its configuration names.
    """
    hooks = _list_hooks(git / "hooks")
    for path in places:
        hooks += _list_hooks(path) if path.is_dir() else [path]
    return [f for f in (*hooks, git / "config", git / "config.worktree") if os.path.lexists(f)]


def runs_program(file: Path) -> bool:
    """Return whether a file makes git run something."""
    return file.name not in ("config", "config.worktree") or _names_programs(file)


def _list_hooks(folder: Path) -> list[Path]:
    return [f for f in _list_entries(folder) if not f.name.endswith(".sample")]


def _is_own_worktree(git: Path, common: Path) -> bool:
    """Return whether a worktree's folder names the repository that it lies in."""
    if git.parent.name != "worktrees" or common.is_symlink():
        return False
    return Path(os.path.normpath(git / read_text(common).strip())) == git.parent.parent


def _names_programs(file: Path) -> bool:
    if file.is_symlink():
        return True
    runs = _compile_settings("program_settings")
    return any(
        runs.fullmatch(name) and value not in LFS.get(name, ()) for name, value in parse_settings(read_text(file))
    )


def list_folders(folder: Path) -> list[Path]:
    """Return the subfolders of a folder, without links."""
    return [p for p in _list_entries(folder) if p.is_dir() and not p.is_symlink()]


def _list_entries(folder: Path) -> list[Path]:
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
    named = _read_first_line(file).removeprefix("gitdir:").strip()
    if not named:
        return None
    folder = (workspace / named).resolve()
    back, shared = _read_first_line(folder / "gitdir"), _read_first_line(folder / "commondir")
    if not back or not shared or (folder / back).resolve() != file.resolve():
        return None
    common = (folder / shared).resolve()
    confirmed = (
        (common / "HEAD").is_file() and (common / "objects").is_dir() and folder.is_relative_to(common / "worktrees")
    )
    return common if confirmed else None


def _read_first_line(file: Path) -> str:
    """Return the first line of a small file, or "" if it cannot be read."""
    try:
        with file.open("rb") as f:
            return f.read(4_096).decode("utf-8", "replace").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""
