"""Read a repository's own configuration: it may make even a git command that only reads run programs."""

from __future__ import annotations

import re
from pathlib import Path

from sakti.core.patterns import lazy_pattern

# Settings of a repository that name a program, or may.
_PROGRAMS = lazy_pattern(
    r"diff\.external|diff\..*\.(?:command|textconv)|filter\.(?!lfs\.).*\.(?:clean|smudge|process)"
    r"|core\.(?:fsmonitor|pager|editor|sshcommand|hookspath|gitproxy|askpass|attributesfile|worktree)|pager\..*"
    r"|alias\..*|gpg\..*|gpg\.program|credential\..*|include\..*|includeif\..*|interactive\..*|sequence\..*"
    r"|merge\..*\.driver|trailer\..*\.(?:command|cmd)|extensions\.(?:worktreeconfig|partialclone)|log\.showsignature"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|promisor|partialclonefilter)"
)
_SECTION = lazy_pattern(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_KEY = lazy_pattern(r"\s*([a-zA-Z][\w-]*)(?:\s*=)?(.*)")


def names_program(folder: Path) -> str:
    """Return the first setting of the repository around `folder` that names a program, empty where none does.

    Only its own configuration counts: the user's is the user's. Where a file cannot be read or understood, that is said
    as a setting, too.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            other = "commondir" if (git / "commondir").exists() else ""  # another configuration than what stands here
            return other or _first(git / "config", git / "config.worktree")
        if git.is_file():
            return _linked(git)
    return ""


def _linked(file: Path) -> str:
    """Follow a worktree's or a submodule's `.git` file."""
    try:
        text = file.read_text("utf-8", "replace")[:4096]
    except OSError:
        return ".git"
    link = re.match(r"gitdir: (.+)\n?", text)
    if link is None:
        return ".git"
    folder = (file.parent / link[1].rstrip("\n")).resolve()
    try:
        common = (folder / (folder / "commondir").read_text("utf-8").strip()).resolve()
    except OSError:
        common = folder
    return _first(common / "config", folder / "config.worktree")


def _first(*files: Path) -> str:
    for file in files:
        try:
            text = file.read_text("utf-8", "replace")
        except FileNotFoundError:
            continue
        except OSError:
            return file.name
        for name in settings(text):
            if _PROGRAMS.fullmatch(name):
                return name
    return ""


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
