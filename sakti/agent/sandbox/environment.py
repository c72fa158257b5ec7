"""Choose the variables that a command gets, never a key, and configure every git that it starts.

`disable_ptrace` keeps other processes of the same user from looking into this one, which holds keys.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from sakti.agent.judge import repositories
from sakti.agent.judge.workspace_view import load_lists, resolve_path
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import find_program
from sakti.store.secrets import has_secret


class VariableLists(Struct, frozen=True, forbid_unknown_fields=True):
    """Variables of a command; schema of `environment.toml`, which explains them."""

    passed: frozenset[str]
    network: frozenset[str]
    loaders: tuple[str, ...]


LISTS = load_lists(Path(__file__).with_name("environment.toml"), VariableLists)
_SECRET = lazy_pattern(r"pass|secret|token|key|credential|auth", re.IGNORECASE)

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
# No lock on the index, and no fetching of objects that a partial clone left out: its remote may name a program.
_READING_VARIABLES = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
_PRIVATE = lazy_pattern(r"pass|secret|token|credential|auth|header|proxy", re.IGNORECASE)
_SUBMODULE = lazy_pattern(
    r'^\s*\[\s*submodule(?:\s+"((?:[^"\\\n]|\\.)*)"|\.([^\]\n]+))\s*\]', re.IGNORECASE | re.MULTILINE
)
_INCLUDE = lazy_pattern(r"include(?:if\..*)?\.path")
_MOST_FILES = 50  # that include one another
MOST = 400  # settings
_SET_DUMPABLE = 4


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable is likely to be a secret."""
    return _SECRET.search(name) is not None


def choose_variables(env: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return a command's variables: known names, locales, and those that the user named in `more`."""
    named = frozenset(more)
    return {
        name: value
        for name, value in env.items()
        if (name in named or name in LISTS.passed or (name.startswith("LC_") and not is_secret_name(name)))
        and not name.startswith(LISTS.loaders)
    }


def drop_loaders(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name no code which a program loads as it starts."""
    return {name: value for name, value in env.items() if not name.startswith(LISTS.loaders)}


def choose_loaders(env: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the library paths that a command gets, but not the program that encloses it."""
    named = {"LD_LIBRARY_PATH", *(name for name in more if name.startswith(LISTS.loaders))}
    return {name: env[name] for name in sorted(named) if env.get(name)}


def choose_network_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the additional variables of a command outside the sandbox: libraries and network access."""
    return {name: value for name, value in env.items() if name.lower() in LISTS.network} | choose_loaders(env)


def make_proxy_variables(port: int) -> dict[str, str]:
    """Return the variables by which a command in the sandbox reaches hosts through a proxy."""
    at = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {**dict.fromkeys(names, at), "no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1"}


def make_git_variables(env: Mapping[str, str], folder: Path, workspace: Path, *, reads: bool) -> dict[str, str]:
    """Return the variables for git of a command that starts in `folder`; `reads`: it only reads.

    `env` is the user's environment.
    """
    settings = {
        **_ALWAYS,
        **_make_lfs_settings(env, workspace),
        **(_READING if reads else {}),
        **_make_repository_settings(folder),
    }
    user_settings = list(_list_user_settings(env))
    taken = {name.lower() for name, _ in user_settings}
    pairs = [*((k, v) for k, v in settings.items() if k.lower() not in taken), *user_settings][:MOST]
    out = dict(_READING_VARIABLES) if reads else {}
    for number, (key, value) in enumerate(pairs):
        out |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return out | {"GIT_CONFIG_COUNT": str(len(pairs))}


def _list_user_settings(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings in the user's environment, those that hold a secret left out."""
    count = env.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), MOST) if count.isascii() and count.isdigit() else 0):
        key, value = env.get(f"GIT_CONFIG_KEY_{number}"), env.get(f"GIT_CONFIG_VALUE_{number}")
        if key and value is not None and not _PRIVATE.search(key) and not has_secret(f"{key}={value}"):
            yield key, value


def _make_lfs_settings(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return the settings of git's filter for large files, with the user's choice not to download them."""
    if find_program("git-lfs", workspace, env.get("PATH")) is None:
        return {**dict.fromkeys(repositories.LFS, ""), "filter.lfs.required": "false"}  # the filter does nothing
    home = Path(env.get("HOME") or Path.home())
    files = (home / ".gitconfig", Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config")
    skips = any(
        n == "filter.lfs.process" and "--skip" in v
        for f in files
        for n, v in repositories.parse_settings(repositories.read_text(f))
    )
    filters = {name: values[-1 if skips else 0] for name, values in repositories.LFS.items()}
    return {**filters, "filter.lfs.required": "true"}


def _make_repository_settings(folder: Path) -> dict[str, str]:
    """Return the settings that switch off programs named by the repository around a folder.

    git takes an empty `diff.external` for a program and fails, so that it is set only against one.
    """
    place = next((p for p in (folder, *folder.parents) if os.path.lexists(p / ".git")), None)
    git = repositories.find_git_folder(place / ".git", Path(folder.anchor)) if place is not None else None
    if place is None or git is None:
        return {}
    common = git / (repositories.read_text(git / "commondir").strip() or ".")
    texts = _read_with_included(common / "config", git / "config.worktree")
    named = any("diff.external" in repositories.list_settings(text) for text in texts)
    names = _list_submodules(*texts, repositories.read_text(place / ".gitmodules"))
    return {f"submodule.{name}.ignore": "dirty" for name in names} | ({"diff.external": ""} if named else {})


def _list_submodules(*texts: str) -> Iterator[str]:
    """Yield the names of the submodules in configurations, in their own letters."""
    for match in (m for text in texts for m in _SUBMODULE.finditer(text)):
        yield re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]


def _read_with_included(*files: Path) -> list[str]:
    """Return the texts of configurations and of the files that they include, conditions ignored."""
    texts, waiting = dict[Path, str](), list(files)
    while waiting and len(texts) < _MOST_FILES:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = text = repositories.read_text(file)
        included = (value.strip('"') for name, value in repositories.parse_settings(text) if _INCLUDE.fullmatch(name))
        waiting += [resolve_path(file.parent, name) for name in included]
    return list(texts.values())


def disable_ptrace() -> None:
    """Make this process not dumpable: no core file, no ptrace, and its /proc belongs to root.

    It can still read its own /proc/self. Programs that it starts are not affected, and root is not kept out.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
