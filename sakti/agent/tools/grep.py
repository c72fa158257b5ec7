"""Search in files by grep: ripgrep if installed, with the same results without it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from sakti.agent.judge.workspace_view import WorkspaceView, explain_secret, make_link_test
from sakti.agent.tools import child
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import MAX_RESULTS, SECONDS, Listing, list_folder, list_notes, make_matcher, show_in_row
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote

MAX_LINE = 500  # bytes of a line that are shown
ARGUMENTS = 100_000  # bytes of file names in one command

_LOOK = lazy_pattern(r"(?<!\\)(?:\\\\)*\(\?<?[=!]")
_BACK = lazy_pattern(r"(?<!\\)(?:\\\\)*\\(?:[1-9]|k<)")
_BINARY = re.compile(rb"(.*): binary file matches \(found")


class Search(Struct):
    """Search request and its results so far."""

    pattern: str
    ignore_case: bool
    literal: bool
    context: int
    files_only: bool
    limit: int
    rows: list[str] = field(default_factory=list[str])
    matches: int = 0
    more: bool = False
    skipped: list[str] = field(default_factory=list[str])

    @property
    def multiline(self) -> bool:
        return not self.literal and r"\n" in self.pattern.replace(r"\\", "")


@tool(effect="read", small=4, small_without=("include", "literal", "files_only", "limit"))
async def grep(
    run: ToolContext,
    pattern: Annotated[str, "regular expression (Rust syntax: no look-around, no backreferences)"],
    path: Annotated[str, "file or folder to search"] = ".",
    include: Annotated[str | None, "only these files, such as *.py, src/**/*.{ts,tsx} or !*.min.js"] = None,
    ignore_case: bool = False,
    literal: Annotated[bool, "the pattern is plain text"] = False,
    context: Annotated[int, Meta(ge=0, le=10), "lines shown around each match"] = 0,
    files_only: Annotated[bool, "only the files, each with its number of matching lines"] = False,
    limit: Annotated[int, Meta(ge=1, le=1000), "matches shown"] = MAX_RESULTS,
) -> Outcome:
    """Search file contents."""
    root = run.resolve_judged(path)
    search = Search(pattern, ignore_case, literal, context, files_only, limit)
    deadline = asyncio.get_running_loop().time() + SECONDS
    place = run.place()
    if root.is_dir():
        files, names, secret = await _list_folder(root, place, include)
        base = root
    else:
        _check_file(root, path, place)
        files, base, names, secret = Listing(), root.parent, [root.name], list[str]()
    show = _make_formatter(run, base)
    search.skipped += [f"{show(n)} (its name has a line end)" for n in names if "\n" in n]
    names = [n for n in names if "\n" not in n]
    timed_out, hidden = False, functools.cache(_name_if_secret(base, make_link_test(place)))
    async with contextlib.aclosing(_stream_rows(search, base, names, deadline)) as rows:
        async for row in rows:
            if row is None:
                timed_out = True
            elif name := hidden(row.partition(b"\0")[0]):
                secret += [] if name in secret else [name]
            elif not _add_row(search, row, show):
                break
    return _build_outcome(search, show, files, secret, timed_out)


async def _list_folder(root: Path, place: WorkspaceView, include: str | None) -> tuple[Listing, list[str], list[str]]:
    """List a folder, the files in it to search, and those left out as secret."""
    files = await list_folder(root, place, seconds=SECONDS)
    if include is None:
        return files, files.paths, list(files.secret)
    fits = make_matcher(include, root)
    names = await asyncio.to_thread(lambda: [p for p in files.paths if fits(p)])
    return files, names, [p for p in files.secret if fits(p)]


def _make_formatter(run: ToolContext, base: Path) -> Callable[[str], str]:
    prefix = run.state.show(base)
    return lambda name: show_in_row(name if prefix == "." else f"{prefix.rstrip('/')}/{name}")


def _name_if_secret(base: Path, secret: Callable[[Path], bool]) -> Callable[[bytes], str]:
    """Return a function that names a file with hits if it is secret under another name, else ""."""

    def name_of(raw: bytes) -> str:
        name = _decode_name(raw)
        return name if secret(base / name) else ""

    return name_of


def _decode_row(row: bytes) -> str:
    """Decode a line: by UTF-8, or by Latin-1 if that is impossible."""
    text = row.decode("utf-8", "surrogateescape")
    if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
        return row.decode("latin-1")
    return text


def _check_file(file: Path, path: str, place: WorkspaceView) -> None:
    """Raise `ToolError` unless a file can be searched."""
    if not file.is_file():
        raise ToolError(f"There is no {path}." if not file.exists() else f"{path} is not a regular file.")
    if reason := explain_secret(file, place):
        raise ToolError(f"{path} cannot be searched: {reason}.")


def _add_row(search: Search, row: bytes, show: Callable[[str], str]) -> bool:
    """Add one row of output; False when there are enough."""
    name, separator, rest = row.partition(b"\0")
    if not separator:
        if match := _BINARY.match(row):
            search.skipped.append(f"{show(_decode_name(match[1]))} (binary, it matches)")
        return True
    if search.files_only:
        number, sign, text = rest.rstrip(b"\r"), b":", b""
    else:
        numbered = re.match(rb"(\d+)([:-])", rest)
        if numbered is None:
            return True
        number, sign, text = numbered[1], numbered[2], rest[numbered.end() :]
    if sign == b":":
        if search.matches >= search.limit:
            search.more = True
            return False
        search.matches += 1
    mark = sign.decode()
    shown = _decode_row(text.rstrip(b"\r"))
    line = f"{show(_decode_name(name))}{mark}{number.decode()}"
    search.rows.append(line if search.files_only else f"{line}{mark}{shown}")
    return True


def _decode_name(name: bytes) -> str:
    text = os.fsdecode(name)
    return text.removeprefix("./")


def _build_outcome(
    search: Search, show: Callable[[str], str], listed: Listing, secret: list[str], timed_out: bool
) -> Outcome:
    only = "" if search.pattern.isascii() else " Only files in UTF-8 and UTF-16 were searched for it."
    rows = search.rows or [f"No match.{only}"]
    if search.more:
        what = "files" if search.files_only else "matches"
        rows += [f"[The first {search.limit} {what}, there are more: narrow pattern, path or include]"]
    if timed_out:
        rows += [f"[Stopped after {SECONDS:.0f} s: not everything was searched. Narrow pattern, path or include]"]
    if search.skipped:
        rest = len(search.skipped) - 5
        rows += [f"[Skipped: {', '.join(search.skipped[:5])}{f' and {rest} more' if rest > 0 else ''}]"]
    rows += list_notes(listed, [show(p) for p in secret])
    return Outcome("\n".join(rows), details={"matches": search.matches})


async def _stream_rows(
    search: Search, base: Path, names: Sequence[str], deadline: float
) -> AsyncGenerator[bytes | None, None]:
    """Yield rows of output over all files, in order; None when time was up."""
    program = child.find_ripgrep()
    if program is None:
        _check_pattern(search)
    for command, data in _list_commands(program, search, names):
        ended = child.ChildEnd()
        rest = b""
        stream = child.read_chunks(command, base, ended, data=data, deadline=deadline)
        async with contextlib.aclosing(stream) as pieces:
            async for piece in pieces:
                *rows, rest = (rest + piece).split(b"\n")
                for row in rows:
                    yield row
        if ended.code is None:
            yield None
            return
        if "regex parse error" in ended.errors or "error: " in ended.errors:
            raise _make_pattern_error(search.pattern, ended.errors)
        search.skipped += _list_unread(ended.errors)


def _list_commands(program: str | None, search: Search, names: Sequence[str]) -> Iterator[tuple[list[str], bytes]]:
    """Yield the commands that search all files, each with its standard input."""
    # an invalid pattern is an error even if there is nothing to search
    targets = [n if n == os.devnull else f"./{n}" for n in names or (os.devnull,)]
    if program is None:
        task = {
            "pattern": re.escape(search.pattern) if search.literal else search.pattern,
            "ignore_case": search.ignore_case,
            "multiline": search.multiline,
            "context": search.context,
            "files_only": search.files_only,
            "columns": MAX_LINE,
            "files": targets,
        }
        yield child.make_command("scan.py"), json.dumps(task).encode()
        return
    command = _make_ripgrep_command(program, search)
    part: list[str] = []
    size = 0
    for target in targets:
        part.append(target)
        size += len(os.fsencode(target)) + 1
        if size > ARGUMENTS:
            yield [*command, *part], b""
            part, size = [], 0
    if part:
        yield [*command, *part], b""


def _make_ripgrep_command(program: str, search: Search) -> list[str]:
    command = [program, "--no-config", "--null", "--with-filename", "--color=never", "--threads=1", "--crlf"]
    command += ["--count"] if search.files_only else ["--line-number", "--no-heading", f"--context={search.context}"]
    command += [f"--max-columns={MAX_LINE}", "--max-columns-preview"]
    command += [] if search.files_only else [f"--max-count={search.limit + 1}"]
    command += ["--ignore-case"] if search.ignore_case else []
    command += ["--fixed-strings"] if search.literal else []
    command += ["--multiline"] if search.multiline else []
    return [*command, f"--regexp={search.pattern}", "--"]


def _check_pattern(search: Search) -> None:
    """Refuse the expressions that ripgrep refuses, so that all mean the same on every platform."""
    if search.literal:
        return
    for sign, what in ((_LOOK, "look-around"), (_BACK, "backreferences")):
        if sign.search(search.pattern):
            raise _make_pattern_error(search.pattern, f"{what} is not supported")


def _make_pattern_error(pattern: str, errors: str) -> ToolError:
    if "look-around" in errors or "backreferences" in errors:
        return ToolError(
            f"{quote(pattern)} uses look-around or backreferences, which grep does not support. Search for the plain "
            "part and pick from the matches, or use bash with perl -ne or git grep -P."
        )
    reason = next((r.removeprefix("error: ") for r in reversed(errors.strip().split("\n")) if "error: " in r), errors)
    return ToolError(
        f"{quote(pattern)} is not a regular expression: {reason.removeprefix('regex parse error: ').strip()}. Escape "
        "special characters with a backslash, or set literal."
    )


def _list_unread(errors: str) -> list[str]:
    """Return the files that could not be read, with the reason."""
    pairs = re.findall(r"^rg: (?:\./)?(.+?): (.+?)(?: \(os error \d+\))?$", errors, re.MULTILINE)
    return [f"{name} ({reason})" for name, reason in pairs]
