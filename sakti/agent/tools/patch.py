"""Parse the `*** Begin Patch` envelope and apply it to a file's text. Pure.

*** Begin Patch
*** Update File: src/app.py
*** Move to: src/main.py
@@ class App
 def run(self):
-    return 1
+    return 2
*** Add File: notes.txt
+first line
*** Delete File: old.py
*** End Patch
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from sakti.agent.tools import textfile
from sakti.agent.tools.matching import show_blanks
from sakti.agent.tools.textfile import Line, fold_text, merge_change
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern

BEGIN, END = "*** Begin Patch", "*** End Patch"
_FILE = lazy_pattern(r"\*\*\* (Add|Update|Delete) File: ?(.+)")
_MOVE = lazy_pattern(r"\*\*\* Move to: ?(.+)")
_EOF = "*** End of File"


# Models that were trained on the `*** Begin Patch` envelope.
_PATCHING = lazy_pattern(r"(?:^|[/-])(?:gpt-(?:4\.1|[5-9]|\d\d|oss)|codex)")


def knows_patches(model: str) -> bool:
    """Return whether a model writes `apply_patch` better than replacements."""
    return _PATCHING.search(model.lower()) is not None


class Hunk(Struct, frozen=True):
    """Lines to replace; `context` names preceding lines, the outer first, `at_end`: it is the file's end."""

    context: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


class FileChange(Struct, frozen=True):
    """Change of one file; `content` is that of a new one."""

    kind: Literal["add", "update", "delete"]
    path: str
    move_to: str | None = None
    content: str = ""
    hunks: tuple[Hunk, ...] = ()


def list_paths(text: str) -> list[str]:
    """Return every path in a patch, however broken the rest of it is."""
    rows = textfile.normalize_ends(text).split("\n")
    names = [m[m.lastindex or 1].strip() for row in rows if (m := _FILE.match(row.strip()) or _MOVE.match(row.strip()))]
    return list(dict.fromkeys(names))


def parse(text: str) -> list[FileChange]:
    """Parse the changes of a patch. Raises `ToolError` naming the invalid line."""
    rows = textfile.normalize_ends(text).split("\n")
    at, stop = _find_body(rows)
    out: list[FileChange] = []
    while at < stop:
        if not rows[at].strip():
            at += 1
            continue
        head = _FILE.fullmatch(rows[at].strip())
        if head is None:
            raise ToolError(
                f"Line {at + 1} of the patch is {rows[at][:80]!r}, where '*** Add File: ', '*** Update File: ' or "
                "'*** Delete File: ' is expected; nothing was changed."
            )
        end = next((i for i in range(at + 1, stop) if _FILE.fullmatch(rows[i].strip()) and rows[i][0] == "*"), stop)
        out.append(_parse_file(head[1], head[2].strip(), rows[at + 1 : end]))
        at = end
    if not out:
        raise ToolError("The patch names no file; nothing was changed.")
    return out


def _find_body(rows: Sequence[str]) -> tuple[int, int]:
    """Return the first line of a patch, and the one that ends it. Raises `ToolError` if one is missing."""
    marks = [i for i, row in enumerate(rows) if row.strip() == BEGIN]
    if not marks:
        raise ToolError(f"The patch does not begin with {BEGIN!r}; nothing was changed.")
    start = marks[0] + 1
    stop = next((i for i in range(start, len(rows)) if rows[i].strip() == END), None)
    if stop is None:
        raise ToolError(f"The patch has no {END!r}: its end may be cut off. Nothing was changed.")
    return start, stop


def _parse_file(kind: str, path: str, rows: Sequence[str]) -> FileChange:
    if kind == "Delete":
        return FileChange("delete", path)
    if kind == "Add":
        return FileChange("add", path, content=_read_content(path, rows))
    move = _MOVE.fullmatch(rows[0].strip()) if rows else None
    hunks = _parse_hunks(path, rows[1:] if move else rows)
    if not hunks and move is None:
        raise ToolError(f"The patch changes nothing in {path}.")
    return FileChange("update", path, move[1].strip() if move else None, hunks=tuple(hunks))


def _read_content(path: str, rows: Sequence[str]) -> str:
    """Return the text of a new file. Raises `ToolError` for a line without its sign."""
    lines = _drop_empty_end(rows)
    wrong = next((row for row in lines if row and not row.startswith("+")), None)
    if wrong is not None:
        raise ToolError(f"In the new file {path} the line {wrong[:80]!r} does not begin with '+'.")
    return "".join(row[1:] + "\n" for row in lines)


def _drop_empty_end(rows: Sequence[str]) -> list[str]:
    lines = list(rows)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _parse_hunks(path: str, rows: Sequence[str]) -> list[Hunk]:
    out: list[Hunk] = []
    context: list[str] = []
    old: list[str] = []
    new: list[str] = []

    def close(at_end: bool = False) -> None:
        if old or new:
            out.append(Hunk(tuple(context), tuple(old), tuple(new), at_end))
            context.clear()
            old.clear()
            new.clear()

    for row in _drop_empty_end(rows):
        if row == "@@" or row.startswith("@@ "):
            close()
            if name := re.sub(r"^-\d+(,\d+)? \+\d+(,\d+)? @@ ?", "", row[3:]):
                context.append(name)
        elif row.strip() == _EOF:
            close(at_end=True)
        elif row[:1] in ("", " ", "-", "+"):
            if row[:1] != "+":
                old.append(row[1:])
            if row[:1] != "-":
                new.append(row[1:])
        elif not row.startswith("\\"):  # "\ No newline at end of file"
            raise ToolError(
                f"In the patch of {path} the line {row[:80]!r} begins with neither ' ', '+', '-' nor '@@'; nothing was "
                "changed."
            )
    close()
    return out


def apply_update(text: str, change: FileChange, name: str) -> str:
    """Return the text of a file after an update, with untouched lines as they are.

    Raises `ToolError` if a hunk does not match.
    """
    lines = textfile.split_lines(text)
    end = textfile.find_line_end(lines)
    spots: list[tuple[int, Hunk]] = []
    at = 0
    for number, hunk in enumerate(change.hunks, 1):
        start = _locate(lines, hunk, at, f"Hunk {number} of {name}")
        spots.append((start, hunk))
        at = start + len(hunk.old)
    out: list[Line] = []
    at = 0
    for start, hunk in spots:
        out += lines[at:start]
        at = start + len(hunk.old)
        out += _replace(lines[start:at], hunk, end if not out or not out[-1].end else out[-1].end)
    out += lines[at:]
    for n, line in enumerate(out[:-1]):
        if not line.end:
            out[n] = Line(line.body, end)
    return "".join(line.body + line.end for line in out)


def _replace(there: list[Line], hunk: Hunk, end: str) -> list[Line]:
    old = [Line(body, "\n") for body in hunk.old]
    new = [Line(body, "\n") for body in hunk.new]
    near = next((line.end for line in there if line.end), end)
    return (
        textfile.split_lines(merge_change(there, old, new, near)) if there else [Line(line.body, near) for line in new]
    )


# What is compared, the strictest first: the line, without blanks at its end, without blanks round it, plain signs.
_LOOKS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, lambda body: fold_text(body).strip())


def _skip_context(bodies: Sequence[str], hunk: Hunk, at: int, what: str) -> int:
    """Return the index after the lines that follow '@@' of a hunk. Raises `ToolError` if one is missing."""
    for name in hunk.context:
        index = _find_rows(bodies, [name], at)
        if index is None:
            raise ToolError(f"{what}: the line {name!r} of its '@@' is not there; nothing was changed.")
        at = index + 1
    return at


def _locate(lines: Sequence[Line], hunk: Hunk, at: int, what: str) -> int:
    """Return the index of the first line that a hunk replaces, not before `at`."""
    bodies = [line.body for line in lines]
    at = _skip_context(bodies, hunk, at, what)
    if not hunk.old:
        return at if hunk.context else len(bodies)
    tail = len(bodies) - len(hunk.old)
    if hunk.at_end and tail >= at and _find_rows(bodies[tail:], hunk.old, 0) is not None:
        return tail
    index = _find_rows(bodies, hunk.old, at)
    if index is None and hunk.context and hunk.old[0].strip() == hunk.context[-1].strip():
        index = _find_rows(bodies, hunk.old, max(0, at - 1))  # a context line that is given twice, as name and as line
    if index is None:
        raise ToolError(
            f"{what} does not fit: its lines are not in the file{_describe_start(at)}; nothing was changed."
            f"{_describe_nearest(bodies, hunk.old)}"
        )
    return index


def _find_rows(bodies: Sequence[str], wanted: Sequence[str], at: int) -> int | None:
    for look in _LOOKS:
        sought = [look(w) for w in wanted]
        there = [look(b) for b in bodies]
        for i in range(at, len(there) - len(sought) + 1):
            if there[i] == sought[0] and there[i : i + len(sought)] == sought:
                return i
    return None


def _describe_start(at: int) -> str:
    return f" after line {at}" if at else ""


def _find_most_alike(bodies: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return the index at which most lines are equal; None if no line is equal anywhere."""
    best, score = None, 0
    for i in range(len(bodies)):
        same = sum(a == b and bool(a) for a, b in zip(bodies[i:], wanted, strict=False))
        if same > score:
            best, score = i, same
    return best


def _describe_nearest(bodies: Sequence[str], wanted: Sequence[str]) -> str:
    """Describe the place of most of the lines, and the first that differs."""
    folded_there = [b.strip() for b in bodies]
    folded_wanted = [w.strip() for w in wanted]
    best = _find_most_alike(folded_there, folded_wanted)
    if best is None:
        return " Read the file again."
    n = next((n for n, w in enumerate(folded_wanted) if folded_there[best + n : best + n + 1] != [w]), 0)
    there = bodies[best + n] if best + n < len(bodies) else "(the end of the file)"
    return (
        f" It comes nearest at line {best + 1}; line {best + n + 1} there is\n{show_blanks(there)}\n"
        f"and the patch has\n{show_blanks(wanted[n])}"
    )
