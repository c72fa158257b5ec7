"""Where the programs are that sakti starts by itself: never in the workspace, which anyone may have written.

A PATH with `.`, with an empty entry or with a folder of the workspace is the user's to have, and commands get it whole.
But what runs unasked, in every mode, must not be found there.
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
    """`path` (the process's own PATH if None) without what is relative, and without the workspace and all below."""
    whole = path if path is not None else os.environ.get("PATH", os.defpath)
    return os.pathsep.join(e for e in whole.split(os.pathsep) if _outside(e, workspace))


def find_program(name: str, workspace: Path, path: str | None = None) -> str | None:
    """The absolute path of the program that `name` means; None where it is nowhere but in the workspace."""
    for folder in search_path(workspace, path).split(os.pathsep):
        for end in _ENDS if folder else ():
            found = shutil.which(os.path.join(folder, name + end))  # noqa: PTH118 - a folder keeps its spelling
            if found and _outside(str(Path(os.path.realpath(found)).parent), workspace):
                return found
    return None


def safe_environment(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """`env` for a program that looks for others itself."""
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
    """`folder` and all above it, as files rather than names: a name may have several spellings."""
    for place in (folder, *folder.parents):
        try:
            yield place.stat()
        except OSError:
            continue
