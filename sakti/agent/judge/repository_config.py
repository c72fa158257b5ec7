"""Read a repository's own configuration: it may make even a git command that only reads run programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sakti.core.lazy import lazy_pattern

# Settings of a repository that name no program and read no other file; any other one may.
_HARMLESS = lazy_pattern(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev|compression|preloadindex|untrackedcache|longpaths|protecthfs|protectntfs"
    r"|sharedrepository|checkstat|trustctime|whitespace|commentchar|splitindex|commitgraph|multipackindex|fscache"
    r"|warnambiguousrefs|sparsecheckout|sparsecheckoutcone|bigfilethreshold|hidedotfiles|loosecompression)"
    r"|remote\..*\.(?:url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate|skipfetchall|gh-resolved)"
    r"|remote\.pushdefault|branch\..*\.(?:remote|merge|rebase|pushremote|description|[\w-]*merge-base"
    r"|github-pr-owner-number)|user\.\w+|submodule\.(?:active|recurse)|submodule\..*\.(?:url|active|branch|path)|color\..*"
    r"|(?:advice|apply|branch|column|commit|commitgraph|feature|fetch|fsck|gc|gui|index|init|maintenance|merge|pack|pull"
    r"|push|rebase|receive|repack|rerere|stash|tag|transfer|versionsort)\.\w+|status\.(?!submodulesummary)\w+"
    r"|log\.(?!showsignature)\w+|format\.(?!pretty)\w+|extensions\.objectformat|filter\.lfs\.required"
    r"|diff\.(?!external)\w+|lfs\.(?:url|repositoryformatversion|.*\.(?:access|locksverify))"
    r"|url\..*\.(?:insteadof|pushinsteadof)|credential\..*\.username"
)
# Filters that `git lfs install` sets.
_LFS = {
    "filter.lfs.clean": ("git-lfs clean -- %f",),
    "filter.lfs.smudge": ("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"),
    "filter.lfs.process": ("git-lfs filter-process", "git-lfs filter-process --skip"),
}
_SECTION = lazy_pattern(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_KEY = lazy_pattern(r"\s*([a-zA-Z][\w-]*)(?:\s*=)?(.*)")
_GITLINK = b"\0\0\xe0\0"  # mode of a repository in the index of another one
MOST_FOLDERS = 20_000  # that are searched for repositories in a repository


class Repository(Struct, frozen=True):
    """What git would use in a folder: `folder` holds its files, `git` its own data, `common` the settings."""

    folder: Path
    git: Path
    common: Path


def names_program(folder: Path, hooks: Sequence[str] = ("post-index-change",)) -> str:
    """Return the first setting or hook around `folder` that names a program; empty if none does.

    Only its own configuration counts: the user's is the user's. A file that cannot be read or understood counts as a
    setting, too. Other repositories in it, that it names, are entered as git enters them.
    """
    for repository in _find_repositories(folder):
        if named := _first_program(repository, hooks):
            return named
        for nested in _list_nested(repository):
            if nested is None:
                return f"more than {MOST_FOLDERS:,} folders"
            if named := next((n for r in _find_at(nested) if (n := _first_program(r, hooks))), ""):
                return named
    return ""


def has_repository(folder: Path) -> bool:
    """Return whether git finds a repository from `folder`."""
    return any(_is_complete(r.git) for r in _find_repositories(folder))


def _find_repositories(folder: Path) -> Iterator[Repository]:
    """Yield the repositories that git may take for the one of `folder`: at each level `.git`, then itself."""
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
        folder = _follow(git)
        yield Repository(place, folder, _find_common(folder) if git.is_file() else folder)
    if _is_complete(place):
        yield Repository(place, place, place)


def _is_complete(git: Path) -> bool:
    """Return whether git takes a folder for a repository's data; False if in doubt."""
    return _is_head(git / "HEAD") and (
        (git / "commondir").exists() or ((git / "objects").is_dir() and (git / "refs").is_dir())
    )


def _is_head(file: Path) -> bool:
    try:
        head = str(file.readlink()) if file.is_symlink() else file.read_text("utf-8", "replace")[:256]
    except OSError:
        return False
    return re.match(r"(ref:\s*)?refs/|[0-9a-f]{40}", head) is not None


def _follow(git: Path) -> Path:
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


def _first_program(repository: Repository, hooks: Sequence[str]) -> str:
    if repository.git.name == ".git" and repository.git.is_file():
        return ".git"
    if repository.git == repository.common and (repository.git / "commondir").exists():
        return "commondir"  # another configuration than the one here
    for file in (repository.common / "config", repository.git / "config.worktree"):
        if named := _first_setting(file, repository):
            return named
    return next((h for h in hooks if os.path.lexists(repository.common / "hooks" / h)), "")


def _first_setting(file: Path, repository: Repository) -> str:
    try:
        text = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return file.name
    if re.search(r"\\\r?\n", text):  # a value that goes on in the next line, which looks like another setting
        return file.name
    return next((name for name, value in pairs(text) if not _is_harmless(name, value, repository)), "")


def is_harmless(name: str) -> bool:
    """Return whether a setting, in lower case, names no program and reads no other file."""
    return _HARMLESS.fullmatch(name) is not None


def _is_harmless(name: str, value: str, repository: Repository) -> bool:
    if name == "core.worktree":  # a submodule's names the folder that it was found in
        return Path(os.path.realpath(repository.git / value)) == Path(os.path.realpath(repository.folder))
    return is_harmless(name) or value in _LFS.get(name, ())


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
        raise ValueError(version)  # names are shortened in the other version
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


def settings(text: str) -> list[str]:
    """Return the names in a git configuration, in lower case: `diff.x.textconv`."""
    return [name for name, _ in pairs(text)]


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the names in a git configuration, in lower case, with their values as they are written."""
    entries: list[tuple[str, str]] = []
    section = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        rest = line
        while head := _SECTION.match(rest):  # several may stand in one line
            section = head[1].lower() + (f".{head[2].lower()}" if head[2] is not None else "")
            rest = head[3]
        if key := _KEY.match(rest):
            entries.append((f"{section}.{key[1].lower()}", key[2].strip()))
    return entries
