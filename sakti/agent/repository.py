"""Find the root of a workspace, its git state, and the environment of the agent's commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from sakti.agent.judge import repositories
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import build_safe_environment, find_program

# Our own look at a repository must not run what its configuration names, nor take its locks. Bare repositories are
# excluded, because any folder with a file HEAD can look like one.
_GIT = (
    "--no-pager",
    "--no-optional-locks",
    *(
        word
        for setting in (
            "core.fsmonitor=false",
            "core.hooksPath=/dev/null",
            "core.attributesFile=/dev/null",
            "core.pager=cat",
            "submodule.recurse=false",
            "safe.bareRepository=explicit",
        )
        for word in ("-c", setting)
    ),
)
# Additional options of each query: no diff or conversion programs, no nested repositories.
_OPTIONS = {
    "status": ("--ignore-submodules=all",),
    "diff": ("--ignore-submodules=all", "--no-ext-diff", "--no-textconv"),
    "ls-files": (),
    "rev-list": (),
}
_FILTER = lazy_pattern(r"filter\.(.*)\.[^.]*", re.DOTALL)


class GitState(Struct, frozen=True):
    """`branch` is a branch or a short commit; `changed` how many paths differ from it."""

    branch: str
    changed: int


def find_root(start: Path) -> Path:
    """Return the closest folder with `.git` or `.sakti` from `start` upwards, else `start`.

    The home folder and the file system's root never count as the workspace of a folder below them.
    """
    start = start.resolve()
    home = Path.home().resolve()
    for folder in (start, *start.parents):
        if folder != start and folder in (home, Path(folder.anchor)):
            break
        if (folder / ".git").exists() or (folder / ".sakti").is_dir():
            return folder
    return start


async def run_git(
    root: Path, question: Literal["status", "diff", "ls-files", "rev-list"], *arguments: str, timeout: float = 3
) -> str | None:
    """Return what git prints, without running anything that the repository's configuration names.

    That excludes filters, diff drivers, hooks and fetching. None outside a repository, or if git is missing, fails, or
    takes longer than `timeout` seconds.
    """
    if not any((p / ".git").exists() for p in (root, *root.parents)):
        return None
    program = find_program("git", root)
    if program is None:
        return None
    base = (program, *_GIT)
    # names only: reading them runs nothing, and git resolves includes as it will for the question
    listed = await _ask((*base, "config", "--null", "--name-only", "--list"), root, timeout)
    if listed is None or (off := _build_filter_options(listed)) is None:
        return None
    return await _ask((*base, *off, question, *_OPTIONS[question], *arguments), root, timeout)


def _build_filter_options(names: str) -> tuple[str, ...] | None:
    """Return the options that switch off every filter among the names of a configuration.

    This includes the user's, which take settings from the repository. None if one cannot be named on a command line.
    """
    filters = {match[1] for name in names.split("\0") if (match := _FILTER.fullmatch(name))}
    if not all(name.isascii() and "=" not in name for name in filters):
        return None
    settings = ("clean=", "smudge=", "process=", "required=false")
    return tuple(word for name in sorted(filters) for end in settings for word in ("-c", f"filter.{name}.{end}"))


async def _ask(command: Sequence[str], root: Path, timeout: float) -> str | None:
    import asyncio  # a program that only looks for the root does without

    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=root,
            env=_build_git_environment(os.environ, root),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(timeout):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return None if process.returncode else out.decode("utf-8", "replace")


def _build_git_environment(env: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the environment of our git, with no git variables except for ours.

    They forbid fetching missing objects of a partial clone, by any protocol.
    """
    variables = {k: v for k, v in build_safe_environment(env, root).items() if not k.startswith("GIT_")}
    return {**variables, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


async def read_git_state(root: Path) -> GitState | None:
    """Branch and changes, or None if `git` has no answer."""
    out = await run_git(root, "status", "--porcelain=v1", "--branch", "--no-ahead-behind", "--untracked-files=normal")
    if out is None:
        return None
    rows = out.split("\n")[:-1]
    head = rows.pop(0) if rows and rows[0].startswith("## ") else ""  # none where HEAD names no possible branch
    branch = head.removeprefix("## ").removeprefix("No commits yet on ").split("...")[0].strip()
    return GitState(branch or "HEAD", len(rows))


def find_local_timezone() -> str:
    """Return the system's IANA time zone ("Europe/Berlin") if known, else UTC."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and "/" in named:
        return named
    target = os.path.realpath("/etc/localtime")
    return target.partition("/zoneinfo/")[2] or "UTC"


def scrub_env(env: Mapping[str, str], secrets: frozenset[str]) -> dict[str, str]:
    """Return the environment of commands: the user's, without the agent's keys and settings, and no pager."""
    variables = {k: v for k, v in env.items() if k not in secrets and not k.startswith("SAKTI_")}
    return {**variables, "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


def find_board_root(root: Path, *, shared: bool) -> Path:
    """Return the folder whose board and page a workspace uses: a linked worktree may share those."""
    common = repositories.find_common_folder(root) if shared else None
    return common.parent if common is not None and common.name == ".git" else root


async def find_first_commit(root: Path) -> str:
    """Return the hash of a repository's first commit, of several the oldest; "" if git has no answer."""
    out = await run_git(root, "rev-list", "--max-parents=0", "HEAD") if (root / ".git").exists() else None
    return (out or "").strip().rpartition("\n")[2]
