"""Copy a workspace: for a model to work in, and for judging its work."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tests.bench.repair.catalog import Repair, files

MAX_FILES = 500
MAX_BYTES = 1_000_000  # of one source file


def fresh(repair: Repair, target: Path) -> Path:
    """Copy the repair's workspace to `target`; return it.

    Scripts are made executable, whatever an installation did to their mode.
    """
    for path in files(repair.workspace):
        copy = target / path.relative_to(repair.workspace)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        if copy.read_bytes()[:2] == b"#!":
            copy.chmod(0o755)
    return target


def to_judge(repair: Repair, worked_in: Path, target: Path) -> Path:
    """Make the folder that is judged.

    `workspace` has the sources as the run left them and everything else as it was, `hidden` has the tests. Test
    files, settings and programs that the run wrote elsewhere never get there.
    """
    workspace = fresh(repair, target / "workspace")
    for source in repair.sources:
        _remove(workspace / source)
        for number, path in enumerate(_regular_files(worked_in, worked_in / source)):
            if number >= MAX_FILES:
                break
            copy = workspace / path.relative_to(worked_in)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy, follow_symlinks=False)
    for path in files(repair.hidden):
        copy = target / "hidden" / path.relative_to(repair.hidden)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return target


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _regular_files(top: Path, start: Path) -> Iterator[Path]:
    """Yield files at or below `start`, none through a link, which may lead outside of `top`."""
    if any(p.is_symlink() for p in (start, *start.parents) if p.is_relative_to(top)):
        return
    if _is_source(start):
        yield start
    for folder, names, found in os.walk(start, followlinks=False):
        names[:] = sorted(n for n in names if n != "__pycache__")
        yield from (path for path in (Path(folder, n) for n in sorted(found)) if _is_source(path))


def _is_source(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size <= MAX_BYTES
