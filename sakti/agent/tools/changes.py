"""Change files for write, edit and apply_patch, and show the changes as diffs.

Encoding, line ends and permissions stay the same.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import secrets as randomness
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sakti.agent.tools import textfile
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.files import link_error, open_folder, read_file, require_file
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.store.secrets import reveal_marks


def stat_in_folder(folder: int, path: Path) -> os.stat_result | None:
    """Return the status of `path` in its folder, or None. Raises `ToolError` for a link."""
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise link_error(path)
    return status


_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ChangedFile(Struct, frozen=True):
    """One file before and after: texts for the diff, and the new bytes.

    `data` None: it is deleted; `before` None: it is new.
    """

    path: Path
    name: str
    before: str | None
    after: str
    data: bytes | None


def write_content(run: ToolContext, path: str, content: str) -> ChangedFile:
    """Return a file with new content. Raises `ToolError` unless the model has read all of the old one."""
    target = run.resolve(path)
    name = run.state.show(target)
    if not os.path.lexists(target):
        return ChangedFile(target, name, None, content, FileText("").encode(content))
    require_file(run, path)
    run.state.check_unchanged(target, whole=True)
    require_writable(target, name)
    try:
        _, there = read_file(target)
    except ToolError:  # binary or very large: replaced as it was asked for, without a diff
        return ChangedFile(target, name, "", content, FileText("").encode(content))
    content = reveal_marks(content, there.text)
    there.check_whole(content)
    return ChangedFile(target, name, there.text, content, there.encode(_keep_line_ends(there.text, content)))


def _keep_line_ends(before: str, content: str) -> str:
    r"""Give the new content of a file its former line ends, and keep unchanged lines exactly.

    A content with line ends other than \n is taken literally.
    """
    if "\r" in content or "\r" not in before:
        return content
    old = textfile.split_lines(before)
    if not any("\r" in line.end for line in old):
        return content
    new = [textfile.Line(line.body, line.end) for line in textfile.split_lines(content)]
    plain = [textfile.Line(line.body, "\n" if line.end else "") for line in old]
    return textfile.merge_change(old, plain, new, textfile.find_line_end(old))


def require_writable(path: Path, name: str) -> None:
    """Raise `ToolError` for a read-only file: replacing it would not even be noticed."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o222:
        raise ToolError(f"{name} is read-only (mode {mode:04o}); nothing was changed: make it writable.")


def write_changes(run: ToolContext, changes: Sequence[ChangedFile]) -> None:
    """Write all changes; the model knows these files as they are then.

    Raises `ToolError` if a path leads to another file than the one that was judged, or the file is another than the one
    whose change was shown.
    """
    for change in changes:
        if run.judged is not None and change.path not in run.judged:
            raise ToolError(f"{change.name} is no longer the file that was allowed; nothing was changed.")
        if change.path in run.shown and run.shown[change.path] != change.before:
            raise ToolError(f"{change.name} has changed since the change was shown; nothing was changed. Call again.")
    new = 0o666 & ~read_umask()
    temporaries = [_name_temporary(c.path) for c in changes]
    files = [(c.path, c.data, stat.S_IFREG | new) for c in changes]
    with run.state.recorder.record_writes(files, temporaries):
        for change, temporary in zip(changes, temporaries, strict=True):
            if change.data is None:
                remove_file(change.path)
                run.state.files.forget(change.path)
            else:
                replace_file(change.path, change.data, temporary.name)
                run.state.mark_seen(change.path, change.data)


def _name_temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{randomness.token_hex(8)}")


def replace_file(path: Path, data: bytes, temporary: str) -> None:
    """Write a temporary file and rename it over the target: a crash leaves the old or the new file.

    A file with several links, of another owner, or in a folder that is not writable is overwritten in place: a new file
    in its place would lose the other names or the owner; a crash in that moment loses no more than the checkpoint
    restores. A symbolic link is resolved before: its target is written, the link stays.
    """
    with open_folder(path, make=True) as folder:
        there = stat_in_folder(folder, path)
        if there is not None and (there.st_nlink > 1 or _is_foreign(there) or not os.access(path.parent, os.W_OK)):
            _overwrite(folder, path, data)
            return
        mode = stat.S_IMODE(there.st_mode) if there else 0o666 & ~read_umask()
        handle = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
                f.flush()
                os.fchmod(f.fileno(), mode)
                os.fsync(f.fileno())
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        flush_folder(".", folder)


def remove_file(path: Path) -> None:
    """Delete a file durably."""
    with open_folder(path, make=True) as folder:
        stat_in_folder(folder, path)
        os.unlink(path.name, dir_fd=folder)
        flush_folder(".", folder)


def flush_folder(folder: Path | str, dir_fd: int | None = None) -> None:
    """Make the names in a folder durable, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_foreign(there: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and there.st_uid != os.geteuid()


def _overwrite(folder: int, path: Path, data: bytes) -> None:
    handle = os.open(path.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "r+b") as f:
        f.write(data)
        f.truncate()
        f.flush()
        os.fsync(f.fileno())


def read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def format_diff(run: ToolContext, changes: Sequence[ChangedFile]) -> str:
    """Return the diff of changes that the user is asked about; no other ones are made then."""
    run.shown.update({c.path: c.before for c in changes})
    return str(make_details(changes)["diff"])


def make_details(changes: Sequence[ChangedFile]) -> dict[str, Any]:
    """Return the details of changes for the screen: names, diff, numbers of lines."""
    diffs = [make_diff(c.name, c.before or "", c.after) for c in changes]
    bodies = [row for diff in diffs for row in diff.split("\n")[2:]]
    return {
        "path": ", ".join(c.name for c in changes),
        "diff": "\n".join(d for d in diffs if d),
        "added": sum(row.startswith("+") for row in bodies),
        "removed": sum(row.startswith("-") for row in bodies),
    }


CONTEXT = 3  # lines round each change in a diff
LARGEST_DIFF = 50_000  # lines that are compared
_HUNK = lazy_pattern(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")


def make_diff(name: str, before: str, after: str) -> str:
    """Compare both texts line by line; a changed line end shows as ␍ at the end of its line."""
    old, new = textfile.split_bodies(before), textfile.split_bodies(after)
    if old == new and before != after:
        old, new = _show_ends(before), _show_ends(after)
    start, tail = _count_common(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if len(old) + len(new) > LARGEST_DIFF:
        return f"--- a/{name}\n+++ b/{name}\n@@ lines {start + 1} to {start + len(new)}: too many to compare @@"
    rows = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT)
    return "\n".join(_HUNK.sub(lambda m: _shift_header(m, start), row) for row in rows)


def _shift_header(header: re.Match[str], start: int) -> str:
    """Return the header of a hunk, shifted by the lines before the compared part."""
    old, old_size, new, new_size = header.groups(default="")
    return f"@@ -{int(old) + start}{old_size} +{int(new) + start}{new_size} @@"


def _count_common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines at the beginning and end are equal and need no comparing, without context."""
    head, tail = textfile.count_equal(old, new)
    return max(0, head - CONTEXT), max(0, tail - CONTEXT)


def _show_ends(text: str) -> list[str]:
    return [line.body + ("␍" if "\r" in line.end else "") for line in textfile.split_lines(text)]
