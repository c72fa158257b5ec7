"""Copy databases to private temporary folders if they cannot be read or repaired in place.

Imported lazily: few runs need it, and the file copying of the standard library is slow to import.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sakti.store import files

_NAME = "sakti-copy-"


def make_folder() -> Path:
    """Make a private temporary folder for a copy; remove those of ended processes."""
    top = Path(tempfile.gettempdir())
    for old in top.glob(f"{_NAME}*-*"):
        pid = old.name.removeprefix(_NAME).partition("-")[0]
        if pid.isdigit() and not files.runs(int(pid)) and old.stat().st_uid == os.geteuid():
            remove(old)
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))


def copied(paths: Iterable[Path]) -> Path:
    """Copy files to a new folder; return that folder."""
    folder = make_folder()
    for path in paths:
        shutil.copyfile(path, folder / path.name)
    return folder


def remove(folder: Path) -> None:
    """Delete a folder and its files, ignoring failures."""
    shutil.rmtree(folder, ignore_errors=True)
