"""Change files for write, edit and apply_patch; encoding, line ends and permissions are kept."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sakti.agent.tools import merging, textfile
from sakti.agent.tools.base import Workbench
from sakti.agent.tools.diffs import unified_diff
from sakti.agent.tools.files import read_file, regular
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.store.secrets import revealed


@dataclass(frozen=True, slots=True)
class Changed:
    """One file before and after: texts for the diff, and the new bytes.

    `data` None: it is deleted; `before` None: it is new.
    """

    path: Path
    name: str
    before: str | None
    after: str
    data: bytes | None


def written(bench: Workbench, path: str, content: str) -> Changed:
    """Return a file with a new content. Raises `ToolError` where the model has not read all of what is there."""
    found = bench.resolve(path)
    name = bench.show(found)
    if not os.path.lexists(found):
        return Changed(found, name, None, content, FileText("").encode(content))
    regular(bench, path)
    bench.check_unchanged(found, whole=True)
    writable(found, name)
    try:
        _, there = read_file(found)
    except ToolError:  # binary or very large: replaced as it was asked for, without a diff
        return Changed(found, name, "", content, FileText("").encode(content))
    content = revealed(content, there.text)
    return Changed(found, name, there.text, content, there.encode(_kept_ends(there.text, content)))


def _kept_ends(before: str, content: str) -> str:
    r"""Give new content of a whole file its former line ends, and keep unchanged lines as they were.

    A content with line ends other than \n is taken literally.
    """
    if "\r" in content or "\r" not in before:
        return content
    old = textfile.lines(before)
    if not any("\r" in line.end for line in old):
        return content
    new = [textfile.Line(line.body, line.end) for line in textfile.lines(content)]
    plain = [textfile.Line(line.body, "\n" if line.end else "") for line in old]
    return merging.merged(old, plain, new, textfile.usual_end(old))


def writable(path: Path, name: str) -> None:
    """Raise `ToolError` for a read-only file: replacing it would not even be noticed."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o222:
        raise ToolError(f"{name} is read-only (mode {mode:04o}); nothing was changed: make it writable.")


def put(bench: Workbench, changes: Sequence[Changed]) -> None:
    """Write all changes; the model knows these files as they are then."""
    new = 0o666 & ~_umask()
    bench.recorder.writing([(c.path, c.data, stat.S_IFREG | new) for c in changes])
    for change in changes:
        if change.data is None:
            change.path.unlink()
            flush_folder(change.path.parent)
            bench.files.forget(change.path)
        else:
            replace_file(change.path, change.data)
            bench.saw(change.path, change.data)


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it over the target, so that a crash leaves the old or the new file.

    A file with several links, of another owner, or in a folder that is not writable is overwritten in place: a new file
    in its stead would lose the other names or the owner, which nobody asked for, while a crash in that moment costs at
    most what its checkpoint has. A symbolic link is resolved before: its target is written, the link stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there is not None and (there.st_nlink > 1 or _of_another(there) or not os.access(path.parent, os.W_OK)):
        _overwrite(path, data)
        return
    mode = stat.S_IMODE(there.st_mode) if there else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _of_another(there: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and there.st_uid != os.geteuid()


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as f:
        f.write(data)
        f.truncate()
        f.flush()
        os.fsync(f.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def details(changes: Sequence[Changed]) -> dict[str, Any]:
    """Return what the screen shows of changes: names, diff, numbers of lines."""
    diffs = [unified_diff(c.name, c.before or "", c.after) for c in changes]
    bodies = [row for diff in diffs for row in diff.split("\n")[2:]]
    return {
        "path": ", ".join(c.name for c in changes),
        "diff": "\n".join(d for d in diffs if d),
        "added": sum(row.startswith("+") for row in bodies),
        "removed": sum(row.startswith("-") for row in bodies),
    }
