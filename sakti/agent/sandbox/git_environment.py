"""Configure every git that a command starts by its environment, which beats the files of a repository.

What a repository's own configuration names must not run when git only looks at it. The user's own settings, in their
files and in their environment, stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sakti.agent.judge import repository_config
from sakti.agent.judge.where import resolved
from sakti.agent.sandbox import repositories
from sakti.core.patterns import lazy_pattern
from sakti.core.programs import find_program
from sakti.store.secrets import has_secret

_ALWAYS = {
    "safe.bareRepository": "explicit",  # a folder of a clone that looks like a repository is none
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "",
    "status.submoduleSummary": "false",
    "diff.ignoreSubmodules": "dirty",  # which commit a submodule is at shows without git looking into it
    "diff.submodule": "short",
    "submodule.recurse": "false",
}
# For a command that only reads: hooks run as git refreshes its index, too.
_READING = {"core.hooksPath": os.devnull, "log.showSignature": "false"}
# No lock on the index, and no fetching of objects that a partial clone left out, by whatever its remote names.
_READING_VARIABLES = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
# What `git lfs install` sets; without git-lfs the filter does nothing.
_LFS = {
    **{"clean": "git-lfs clean -- %f", "smudge": "git-lfs smudge -- %f", "process": "git-lfs filter-process"},
    "required": "true",
}
_SKIPPING = {"smudge": "git-lfs smudge --skip -- %f", "process": "git-lfs filter-process --skip"}
_NO_LFS = {"clean": "", "smudge": "", "process": "", "required": "false"}
_PRIVATE = lazy_pattern(r"pass|secret|token|credential|auth|header|proxy", re.IGNORECASE)
_SUBMODULE = lazy_pattern(
    r'^\s*\[\s*submodule(?:\s+"((?:[^"\\\n]|\\.)*)"|\.([^\]\n]+))\s*\]', re.IGNORECASE | re.MULTILINE
)
_INCLUDE = lazy_pattern(r"include(?:if\..*)?\.path")
_MOST_FILES = 50  # that include one another
MOST = 400  # settings


def variables(env: Mapping[str, str], folder: Path, workspace: Path, *, reads: bool) -> dict[str, str]:
    """Return what a command that starts in `folder` gets for git; `reads`: it only reads.

    `env` is the user's environment.
    """
    settings = {**_ALWAYS, **_lfs(env, workspace), **(_READING if reads else {}), **_of_repository(folder)}
    user_settings = list(_of_user(env))
    taken = {name.lower() for name, _ in user_settings}
    pairs = [*((k, v) for k, v in settings.items() if k.lower() not in taken), *user_settings][:MOST]
    out = dict(_READING_VARIABLES) if reads else {}
    for number, (key, value) in enumerate(pairs):
        out |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return out | {"GIT_CONFIG_COUNT": str(len(pairs))}


def _of_user(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings in the user's environment, those that hold a secret left out."""
    count = env.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), MOST) if count.isascii() and count.isdigit() else 0):
        key, value = env.get(f"GIT_CONFIG_KEY_{number}"), env.get(f"GIT_CONFIG_VALUE_{number}")
        if key and value is not None and not _PRIVATE.search(key) and not has_secret(f"{key}={value}"):
            yield key, value


def _lfs(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return the settings of git's filter for large files, with the user's choice not to download them."""
    if find_program("git-lfs", workspace, env.get("PATH")) is None:
        return {f"filter.lfs.{name}": value for name, value in _NO_LFS.items()}
    home = Path(env.get("HOME") or Path.home())
    files = (home / ".gitconfig", Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config")
    skips = any(
        n == "filter.lfs.process" and "--skip" in v
        for f in files
        for n, v in repository_config.pairs(repositories.read_text(f))
    )
    return {f"filter.lfs.{name}": value for name, value in (_LFS | (_SKIPPING if skips else {})).items()}


def _of_repository(folder: Path) -> dict[str, str]:
    """Return what switches off what the repository around a folder names.

    git takes an empty `diff.external` for a program and fails, so that it is set only against one.
    """
    place = next((p for p in (folder, *folder.parents) if os.path.lexists(p / ".git")), None)
    git = repositories.find_git_folder(place / ".git", Path(folder.anchor)) if place is not None else None
    if place is None or git is None:
        return {}
    common = git / (repositories.read_text(git / "commondir").strip() or ".")
    texts = _with_included(common / "config", git / "config.worktree")
    named = any("diff.external" in repository_config.settings(text) for text in texts)
    names = _submodules(*texts, repositories.read_text(place / ".gitmodules"))
    return {f"submodule.{name}.ignore": "dirty" for name in names} | ({"diff.external": ""} if named else {})


def _submodules(*texts: str) -> Iterator[str]:
    """Yield the names of the submodules in configurations, in their own letters."""
    for match in (m for text in texts for m in _SUBMODULE.finditer(text)):
        yield re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]


def _with_included(*files: Path) -> list[str]:
    """Return the texts of configurations and of the files that they include, whatever the condition."""
    texts, waiting = dict[Path, str](), list(files)
    while waiting and len(texts) < _MOST_FILES:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = text = repositories.read_text(file)
        included = (value.strip('"') for name, value in repository_config.pairs(text) if _INCLUDE.fullmatch(name))
        waiting += [resolved(file.parent, name) for name in included]
    return list(texts.values())
