"""Find the programs that sakti starts itself, never inside the untrusted workspace.

A PATH with `.`, with an empty entry or with a folder of the workspace is the user's choice, and commands get it
whole. A program that runs without being asked for, in every mode, must not be found there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

# Folders of the system count even where the workspace holds them.
_SYSTEM = frozenset({"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"})
_ENDS = ("", ".exe") if os.name == "nt" else ("",)


def search_path(workspace: Path, path: str | None = None) -> str:
    """Return `path` without relative entries and without the workspace and its folders.

    `path` is the process's own PATH if None.
    """
    entries = path if path is not None else os.environ.get("PATH", os.defpath)
    return os.pathsep.join(e for e in entries.split(os.pathsep) if _outside(e, workspace))


def find_program(name: str, workspace: Path, path: str | None = None) -> str | None:
    """Return the absolute path of a program; None if only the workspace has one of that name."""
    for folder in search_path(workspace, path).split(os.pathsep):
        for end in _ENDS if folder else ():
            program = shutil.which(os.path.join(folder, name + end))  # noqa: PTH118 - a folder keeps its spelling
            if program and _outside(str(Path(os.path.realpath(program)).parent), workspace):
                return program
    return None


def safe_environment(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return `env` with a safe PATH, for a program that looks up others itself."""
    # an empty PATH means the current folder to the C library
    return {**env, "PATH": search_path(workspace, env.get("PATH", os.defpath)) or os.defpath}


def _outside(folder: str, workspace: Path) -> bool:
    if not os.path.isabs(folder):  # noqa: PTH117 - as written: an empty entry is the current folder
        return False
    if folder.rstrip("/") in _SYSTEM or workspace == Path(workspace.anchor):
        return True  # of the root of all nothing is outside
    try:
        top = workspace.stat()
    except OSError:
        return True  # nothing is in a folder that is not there
    return not any(os.path.samestat(top, seen) for seen in _above(Path(os.path.realpath(folder))))


def _above(folder: Path) -> Iterator[os.stat_result]:
    """Yield the stat of `folder` and its parents: files are compared by identity, not by spelling."""
    for place in (folder, *folder.parents):
        try:
            yield place.stat()
        except OSError:
            continue
