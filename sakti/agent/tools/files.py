"""List, find and read the files that tools show or change.

Listings for glob, grep and `@` leave out secret files and those of .gitignore.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import functools
import itertools
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import pathspec
from msgspec import Struct, field

from sakti.agent.judge.workspace_view import WorkspaceView, make_secret_filter
from sakti.agent.tools import textfile
from sakti.agent.tools.child import ChildEnd, find_ripgrep, read_chunks
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError

MAX_FILE_BYTES = 20_000_000  # of a file that is held in memory; larger ones are read line by line


_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def open_folder(path: Path, *, make: bool = False) -> Generator[int]:
    """Give a descriptor of the folder of `path`, which is resolved; `make` folders that are missing.

    Raises `ToolError` if the path now contains a link.
    """
    at = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:-1]:
            below = _enter(at, part, path, make=make)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _enter(at: int, part: str, path: Path, *, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(part, dir_fd=at)
        return os.open(part, _FOLDER, dir_fd=at)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise link_error(path) from e
        raise


def link_error(path: Path) -> ToolError:
    return ToolError(f"{path} now leads elsewhere: a link appeared in its path. Nothing was done.")


def open_file(path: Path) -> BinaryIO:
    """Open the file at a resolved path for reading. Raises `ToolError` if its path now contains a link."""
    with open_folder(path) as folder:
        try:
            return os.fdopen(os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb")
        except OSError as e:
            if e.errno == errno.ELOOP:
                raise link_error(path) from e
            raise


def require_file(run: ToolContext, path: str) -> Path:
    """Return the file at a path. Raises `ToolError` for anything but a regular file that was judged."""
    target = run.resolve_judged(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        near = _suggest_names(target)
        raise ToolError(f"There is no file {path}.{near}") from None
    except OSError as e:
        raise ToolError(f"{path} cannot be read: {e.strerror}.") from e
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a folder; use ls.")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is not a regular file.")
    return target


def _suggest_names(path: Path) -> str:
    try:
        names = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 3, 0.5)
    except OSError:
        return ""
    return f" Near it: {', '.join(names)}." if names else ""


def read_file(path: Path) -> tuple[bytes, FileText]:
    """Return the file's bytes and text; raises `ToolError` for binary or over-large files."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE_BYTES:
            raise ToolError(f"{path.name} has {size:,} bytes, too many to load; use grep or bash.")
        data = file.read()
    text = textfile.decode(data)
    if text is None:
        raise ToolError(f"{path.name} is a binary file of {len(data):,} bytes.")
    return data, text


def show_in_row(name: str) -> str:
    """Replace line breaks in a name by visible symbols."""
    return name.replace("\n", "␊").replace("\r", "␍")


def format_omitted(secret: list[str]) -> str:
    """Format a note that names the files left out as secret."""
    names = ", ".join(secret[:5]) + (f" and {len(secret) - 5} more" if len(secret) > 5 else "")
    return f"[Left out, because they contain secrets: {names}]"


SKIPPED = (".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache")
LIMIT = 500_000  # files of one listing


class Listing(Struct):
    """Files found: paths relative to the folder, with `/`, sorted.

    Also those left out as secret, and whether there was time for all.
    """

    paths: list[str] = field(default_factory=list[str])
    secret: list[str] = field(default_factory=list[str])
    complete: bool = True


async def list_folder(root: Path, place: WorkspaceView, *, seconds: float = 20) -> Listing:
    """List the files below `root` that may be read."""
    program, deadline = find_ripgrep(), monotonic() + seconds
    if program is not None:
        names, complete = await _list_by_ripgrep(program, root, place.workspace, seconds / 2)
    else:
        names, complete = await _list_by_walk(root, place.workspace, seconds / 2)
    paths, secret = await asyncio.to_thread(_split_secrets, names, root, place, deadline)
    return Listing(sorted(paths), sorted(secret), complete and len(paths) + len(secret) == len(names))


def _split_secrets(
    names: Sequence[str], root: Path, place: WorkspaceView, deadline: float
) -> tuple[list[str], list[str]]:
    """Return the paths that are not secret, and those that are, as far as there is time to look."""
    is_secret = make_secret_filter(root, place)
    paths, secret = list[str](), list[str]()
    for path in take_until(deadline, names):
        (secret if is_secret(path) else paths).append(path)
    return paths, secret


def take_until(deadline: float, paths: Iterable[str]) -> Iterator[str]:
    """Yield paths until a time of the monotonic clock."""
    return itertools.takewhile(lambda _: monotonic() < deadline, paths)


async def _list_by_ripgrep(program: str, root: Path, workspace: Path, seconds: float) -> tuple[list[str], bool]:
    top = _find_top(root, workspace)
    below = root.relative_to(top).as_posix()
    command = [program, "--no-config", "--files", "--null", "--hidden", "--no-messages", "--no-require-git"]
    command += ["--no-ignore-parent", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"]
    command += [f"--glob=!{name}" for name in SKIPPED]
    with tempfile.TemporaryDirectory(prefix="sakti-ignore-") as folder:
        if lines := [row for base, rows in _list_above(root, top) for row in _move_rules(base.relative_to(top), rows)]:
            file = Path(folder) / "ignore"
            file.write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")
            command.append(f"--ignore-file={file}")
        ended = ChildEnd()
        deadline = asyncio.get_running_loop().time() + seconds
        out: list[bytes] = []
        # ignore files apply below the current folder; so it is the top one, and the search goes on from it
        start = "./" if below == "." else f"./{below}/"
        stream = read_chunks([*command, "--", start], top, ended, deadline=deadline)
        async with contextlib.aclosing(stream) as pieces:
            async for piece in pieces:
                out.append(piece)
    names = b"".join(out).split(b"\0")[:-1][:LIMIT]
    return [os.fsdecode(name).removeprefix(start) for name in names], ended.code is not None


async def _list_by_walk(root: Path, workspace: Path, seconds: float) -> tuple[list[str], bool]:
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(lambda: list(list_files(root, workspace, stop))))
    try:
        await asyncio.wait({work}, timeout=seconds)
    finally:
        complete = work.done()
        stop.set()
    return await work, complete


def list_files(root: Path, workspace: Path | None = None, stop: threading.Event | None = None) -> Iterator[str]:
    """Yield every file below `root`, relative to it, without ripgrep."""
    return itertools.islice(_walk_files(root, workspace or root, stop or threading.Event()), LIMIT)


def _walk_files(root: Path, workspace: Path, stop: threading.Event) -> Iterator[str]:
    top = _find_top(root, workspace)
    specs = [(base, pathspec.GitIgnoreSpec.from_lines(rows)) for base, rows in _list_above(root, top)]
    if _is_ignored(specs, root, folder=True):
        specs = []
    for folder, names, filenames in os.walk(root):
        if stop.is_set():
            return
        here = Path(folder)
        specs = _select_specs(here, root, specs)
        names[:] = sorted(n for n in names if n not in SKIPPED and not _is_ignored(specs, here / n, folder=True))
        listed = filter(functools.partial(_is_listed, specs), map(here.joinpath, sorted(filenames)))
        yield from (path.relative_to(root).as_posix() for path in listed)


def _is_listed(specs: list[tuple[Path, pathspec.GitIgnoreSpec]], path: Path) -> bool:
    return not _is_ignored(specs, path) and path.is_file() and not path.is_symlink()


def _select_specs(
    here: Path, root: Path, specs: Sequence[tuple[Path, pathspec.GitIgnoreSpec]]
) -> list[tuple[Path, pathspec.GitIgnoreSpec]]:
    """Return the ignore rules that apply in a folder: those of the folders above it, and its own."""
    above = [(base, spec) for base, spec in specs if here.is_relative_to(base)]
    if here == root and above and above[-1][0] == here:
        return above
    rows = _read_gitignore(here)
    return [*above, (here, pathspec.GitIgnoreSpec.from_lines(rows))] if rows else above


def _read_gitignore(folder: Path) -> list[str]:
    file = folder / ".gitignore"
    try:
        return file.read_text("utf-8", "surrogateescape").splitlines() if file.is_file() else []
    except OSError:
        return []


def _find_top(root: Path, workspace: Path) -> Path:
    """Return the top folder of ignore files: the repository's root, the workspace, or `root` itself."""
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            return folder
    return workspace if root.is_relative_to(workspace) else root


def _list_above(root: Path, top: Path) -> list[tuple[Path, list[str]]]:
    """Return the ignore files from `top` down to the parent of `root`, the outer first."""
    on_the_way = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    return [(folder, rows) for folder in on_the_way if (rows := _read_gitignore(folder))]


def _move_rules(base: Path, rows: list[str]) -> Iterator[str]:
    """Rewrite rules of an ignore file in folder `base` as rules of one at the top."""
    prefix = base.as_posix()
    for row in rows:
        if prefix == "." or not row.strip() or row.startswith("#"):
            yield row
            continue
        sign, rule = ("!", row[1:]) if row.startswith("!") else ("", row)
        anchored = "/" in rule.rstrip().rstrip("/")
        escaped = re.sub(r"([*?\[\\])", r"\\\1", prefix)
        yield f"{sign}/{escaped}/{rule.lstrip('/')}" if anchored else f"{sign}/{escaped}/**/{rule}"


def _is_ignored(specs: list[tuple[Path, pathspec.GitIgnoreSpec]], path: Path, *, folder: bool = False) -> bool:
    """Decide by the nearest ignore file with a rule for the path."""
    end = "/" if folder else ""
    for base, spec in reversed(specs):
        ignored = spec.check_file(path.relative_to(base).as_posix() + end).include
        if ignored is not None:
            return ignored
    return False


def make_matcher(pattern: str, root: Path) -> Callable[[str], bool]:
    """Return a test whether a path relative to `root` matches a glob.

    Braces, `./`, `!` and absolute patterns work as models write them; a pattern without a slash is matched by name.
    """
    no = pattern.startswith("!")
    lines: list[str] = []
    for each in expand_braces(pattern.removeprefix("!")):
        one = each.removeprefix("./")
        if one.startswith(f"{root.as_posix()}/"):
            one = "/" + one[len(root.as_posix()) + 1 :]
        lines.append(one.replace("#", r"\#", 1) if one.startswith("#") else one)
    spec = pathspec.GitIgnoreSpec.from_lines(lines)
    return (lambda p: not spec.match_file(p)) if no else spec.match_file


def expand_braces(pattern: str, most: int = 200) -> list[str]:
    """Expand braces: `*.{ts,tsx}` to `*.ts` and `*.tsx`."""
    out, todo = list[str](), [pattern]
    while todo and len(out) + len(todo) <= most:
        one = todo.pop(0)
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if inner is None:
            out.append(one)
        else:
            todo += [one[: inner.start()] + choice + one[inner.end() :] for choice in inner[1].split(",")]
    return list(dict.fromkeys([*out, *todo]))


MAX_RESULTS = 200
SECONDS = 20.0  # for one search


def list_notes(listed: Listing, secret: list[str]) -> list[str]:
    """Return notes of an incomplete listing and of files left out as secret."""
    late = [] if listed.complete else [f"[Stopped after {SECONDS:.0f} s: the list of files is incomplete]"]
    return [*late, *([format_omitted(secret)] if secret else [])]
