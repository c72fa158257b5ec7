"""List the files of a workspace for completing `@path`, and describe the project to small models.

The list comes from git, else from a walk that obeys .gitignore. The functions that build texts are pure.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

from sakti.agent.judge.workspace_view import WorkspaceView, make_secret_filter
from sakti.agent.repository import run_git
from sakti.agent.tools import files
from sakti.core import resources
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count, sanitize_text, to_one_line

LINES = 40  # folders named in a description
ROOT_FILES = 25
LANGUAGES = 6
NAME = 60  # characters of a name
_ENDINGS = """
Python py pyi | JavaScript js mjs cjs jsx | TypeScript ts tsx mts | C c h | C++ cc cpp cxx hpp | C# cs | Java java
Kotlin kt kts | Go go | Rust rs | Ruby rb | PHP php | Swift swift | Shell sh bash zsh | SQL sql | HTML html htm
CSS css scss less | Vue vue | Svelte svelte | Dart dart | Scala scala | Haskell hs | Elixir ex exs | Erlang erl
Lua lua | Perl pl pm | R r | Julia jl | Zig zig | Clojure clj | Markdown md | Notebook ipynb
"""
_NAMED = (line.split() for line in _ENDINGS.strip().replace("\n", "|").split("|"))
_LANGUAGE = {ending: name for name, *endings in _NAMED for ending in endings}


def describe_files(paths: Sequence[str]) -> str:
    """Describe a workspace: languages by number of files, files at the root, folders.

    Folders are listed down to two levels, with their number of files. `paths` are relative, with `/`. Empty without
    files.
    """
    files = [PurePosixPath(p) for p in paths if p]
    if not files:
        return ""
    languages = Counter(_LANGUAGE[e] for f in files if (e := f.suffix[1:].casefold()) in _LANGUAGE)
    root = sorted(f.name for f in files if len(f.parts) == 1)
    spoken = ", ".join(f"{name} {count}" for name, count in languages.most_common(LANGUAGES))
    lines = [f"{format_count(len(files), 'file')}{': ' if spoken else ''}{spoken}"]
    if root:
        more = f", and {len(root) - ROOT_FILES} more" if len(root) > ROOT_FILES else ""
        lines.append(f"At the root: {', '.join(map(_name, root[:ROOT_FILES]))}{more}")
    return "\n".join([*lines, *_list_largest_folders(files)])


def _list_largest_folders(files: Iterable[PurePosixPath]) -> list[str]:
    """Return the folders with the most files below them, in listing order."""
    counts: Counter[tuple[str, ...]] = Counter()
    for file in files:
        counts.update(file.parts[:depth] for depth in (1, 2) if len(file.parts) > depth)
    shown = sorted(folder for folder, _ in sorted(counts.items(), key=lambda x: (len(x[0]), -x[1], x[0]))[:LINES])
    lines = [f"{'  ' * (len(f) - 1)}{_name(f[-1])}/ {counts[f]:,}" for f in shown]
    remaining = len(counts) - len(shown)
    return [*lines, f"(and {format_count(remaining, 'more folder')})"] if remaining else lines


def _name(name: str) -> str:
    return to_one_line(name, NAME)


LIMIT = 50_000
PATIENCE = 3.0  # seconds that the first message waits for the file list
FRESH = 20.0  # seconds until a list is read again


class FileList:
    """Paths below `root`, relative, with `/`, without secret ones (`own` are sakti's folders).

    Read on first use and again when outdated; git is only asked if the workspace is `trusted`.
    """

    def __init__(self, root: Path, own: tuple[Path, ...] = (), *, trusted: Callable[[], bool] = lambda: True) -> None:
        self._root, self._trusted = root, trusted
        self._place = WorkspaceView(root, root, own)
        self._paths: list[str] = []
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def paths(self) -> list[str]:
        """Return up to `LIMIT` paths.

        Names with control characters are left out, because they cannot be typed.
        """
        async with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                names = await _list_git_files(self._root) if self._trusted() else None
                if names is None:
                    names = await _walk(self._root)
                is_secret = make_secret_filter(self._root, self._place)
                typed = (p for p in names if p and not is_secret(p) and sanitize_text(p) == p and "\n" not in p)
                self._paths = list(itertools.islice(typed, LIMIT))
                self._read_at = time.monotonic()
            return self._paths


async def describe_folder(root: Path, *, trusted: bool) -> str:
    """Describe a workspace's files (see `describe_files`); "" if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            return describe_files(await FileList(root, trusted=lambda: trusted).paths())
    except TimeoutError:
        return ""


async def _list_git_files(root: Path) -> list[str] | None:
    listed = await run_git(
        root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", timeout=10
    )
    return None if listed is None else listed.split("\0")


async def _walk(root: Path) -> list[str]:
    return (await files.list_folder(root, WorkspaceView(root, root))).paths


FILES = 50  # that are named
README = 900  # characters of it
MANIFEST = 700
READ = 64 * 1024  # bytes of a file that are read
_READMES = ("readme.md", "readme.rst", "readme.txt", "readme")
_MANIFESTS = (
    "pyproject.toml",
    "package.json",
    "cargo.toml",
    "go.mod",
    "setup.cfg",
    "setup.py",
    "requirements.txt",
    "composer.json",
    "gemfile",
    "pom.xml",
    "makefile",
)
_STARTS = lazy_pattern(
    r"(?:^|/)(?:__main__|main|app|cli|server|manage|index)\.(?:py|js|mjs|ts|go|rs|rb|php|java|c|cpp)$"
)
_NO_PROSE = lazy_pattern(r"^\s*(?:\[?!\[|<|={3,}|-{3,})")
_KEPT = (
    "name",
    "description",
    "main",
    "bin",
    "scripts",
    "dependencies",
    "dev-dependencies",
    "devDependencies",
    "optional-dependencies",
    "dependency-groups",
)


async def describe_project(root: Path, *, trusted: bool = True) -> str:
    """Describe the project at `root`, without git unless it is `trusted`; empty after a time limit."""
    try:
        async with asyncio.timeout(PATIENCE):
            paths = await FileList(root, trusted=lambda: trusted).paths()
            return await asyncio.to_thread(_read, root, paths)
    except TimeoutError:
        return ""


def _read(root: Path, paths: Sequence[str]) -> str:
    readme, manifest = choose_file(paths, _READMES), choose_file(paths, _MANIFESTS)
    return format_project(paths, readme, _read_head(root, readme), manifest, _read_head(root, manifest))


def _read_head(root: Path, name: str) -> str:
    """Return the beginning of a file of the root; a link that leads elsewhere is not followed."""
    path = root / name
    try:
        if not name or not path.is_file() or path.is_symlink():
            return ""
        with path.open("rb") as file:
            return sanitize_text(file.read(READ).decode("utf-8", "replace"))
    except OSError:
        return ""


def choose_file(paths: Iterable[str], names: Sequence[str]) -> str:
    """Return the file at the root that comes first in `names`, or ""."""
    there = {p.casefold(): p for p in paths if "/" not in p}
    return next((there[n] for n in names if n in there), "")


def format_project(paths: Sequence[str], readme: str, readme_text: str, manifest: str, manifest_text: str) -> str:
    """Describe a project with the files `paths` (relative, with `/`); "" without files.

    `readme` and `manifest` are file names; their texts may be cut.
    """
    files = sorted((p for p in paths if p), key=lambda p: (p.count("/"), p))
    if not files:
        return ""
    shown = files[:FILES]
    more = [f"and {format_count(len(files) - FILES, 'more file')}"] if len(files) > FILES else []
    facts = _list_facts(manifest, manifest_text)
    parts = ["\n".join([*(to_one_line(f, 120) for f in shown), *more])]
    if starts := _find_entry_points(files, facts):
        parts.append(f"It starts in: {', '.join(starts)}")
    if facts:
        parts.append(f"{manifest} says:\n{_shorten(facts, MANIFEST)}")
    if prose := _strip_markup(readme_text):
        parts.append(f"{readme} says:\n{_shorten(prose, README)}")
    return resources.fill_prompt("local#project", project="\n\n".join(parts))


def _find_entry_points(files: Sequence[str], facts: str) -> list[str]:
    """List the entry points: files named by the manifest, else files with a usual name."""
    named = [f for f in files if re.search(rf"(?<![\w/.-])(?:\./)?{re.escape(f)}(?![\w/-])", facts)]
    modules = {m.replace(".", "/") for m in re.findall(r"([\w.]+):\w+", facts)}
    named += [f for f in files if f.rpartition(".")[0].removeprefix("src/") in modules]
    usual = [f for f in files if _STARTS.search(f) and not f.startswith(("test", "doc"))]
    return list(dict.fromkeys(named))[:3] or usual[:3]


def _strip_markup(readme: str) -> str:
    """Remove badges and raw HTML from a README."""
    lines = (line.rstrip() for line in readme.splitlines() if not _NO_PROSE.match(line))
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()


def _list_facts(name: str, content: str) -> str:
    """Return the lines of a manifest that describe the project, its dependencies and how to run it.

    Returns its beginning if it has no known fields.
    """
    try:
        match PurePosixPath(name).suffix:
            case ".toml":
                table = tomllib.loads(content)
            case ".json":
                table = json.loads(content)
            case _:
                return content.strip()
    except ValueError:
        return content.strip()
    return "\n".join(_iter_manifest_lines(table)) or content.strip()


def _iter_manifest_lines(found: Any) -> Iterator[str]:
    if not isinstance(found, dict):
        return
    tables = cast("dict[str, Any]", found)
    poetry = cast("dict[str, Any]", tables.get("tool") or {}).get("poetry")
    for table in (tables, tables.get("project"), tables.get("package"), poetry):
        if isinstance(table, dict):
            for key, value in cast("dict[str, Any]", table).items():
                if key in _KEPT and value:
                    yield f"{key}: {_format_value(value)}"


def _format_value(value: Any) -> str:
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return "; ".join(
                f"{k}: {_format_value(v)}" if isinstance(v, (dict, list)) else f"{k} = {v}" for k, v in items
            )
        case list():
            return ", ".join(_format_value(v) for v in cast("list[Any]", value))
        case _:
            return to_one_line(str(value), 200)


def _shorten(whole: str, limit: int) -> str:
    """Cut a text at the end of a line if it is longer than `limit` characters."""
    if len(whole) <= limit:
        return whole
    return f"{whole[:limit].rpartition(chr(10))[0] or whole[:limit]}\n…"
