"""Describe a project to a model too small to explore it: files, entry points, manifest, README.

The functions that make the text are pure.
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

from sakti.agent.file_list import PATIENCE, FileList
from sakti.core import resources
from sakti.core.lazy import lazy_pattern
from sakti.core.text import one_line, sanitise

FILES = 50  # that are named
README = 900  # characters of it
MANIFEST = 700
READ = 64 * 1024  # bytes of a file that are looked at
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


async def of(root: Path, *, trusted: bool = True) -> str:
    """Describe the project at `root`, without git if it is not `trusted`; empty after a time limit."""
    try:
        async with asyncio.timeout(PATIENCE):
            paths = await FileList(root, trusted=lambda: trusted).paths()
            return await asyncio.to_thread(_read, root, paths)
    except TimeoutError:
        return ""


def _read(root: Path, paths: Sequence[str]) -> str:
    readme, manifest = choose_file(paths, _READMES), choose_file(paths, _MANIFESTS)
    return text(paths, readme, _head(root, readme), manifest, _head(root, manifest))


def _head(root: Path, name: str) -> str:
    """Return the beginning of a file of the root; a link that leads elsewhere is not followed."""
    path = root / name
    try:
        if not name or not path.is_file() or path.is_symlink():
            return ""
        with path.open("rb") as file:
            return sanitise(file.read(READ).decode("utf-8", "replace"))
    except OSError:
        return ""


def choose_file(paths: Iterable[str], names: Sequence[str]) -> str:
    """Return the file at the root that comes first in `names`, or ""."""
    there = {p.casefold(): p for p in paths if "/" not in p}
    return next((there[n] for n in names if n in there), "")


def text(paths: Sequence[str], readme: str, readme_text: str, manifest: str, manifest_text: str) -> str:
    """Describe a project with the files `paths` (relative, with `/`); "" without files.

    `readme` and `manifest` are names, their texts as far as they were read.
    """
    files = sorted((p for p in paths if p), key=lambda p: (p.count("/"), p))
    if not files:
        return ""
    shown = files[:FILES]
    more = [f"and {len(files) - FILES:,} more files"] if len(files) > FILES else []
    facts = _facts(manifest, manifest_text)
    parts = ["\n".join([*(one_line(f, 120) for f in shown), *more])]
    if starts := _starts(files, facts):
        parts.append(f"It starts in: {', '.join(starts)}")
    if facts:
        parts.append(f"{manifest} says:\n{_short(facts, MANIFEST)}")
    if prose := _prose(readme_text):
        parts.append(f"{readme} says:\n{_short(prose, README)}")
    return resources.fill_prompt("local#project", project="\n\n".join(parts))


def _starts(files: Sequence[str], facts: str) -> list[str]:
    """Files that are run first: those named by the manifest, else those with a usual name."""
    named = [f for f in files if re.search(rf"(?<![\w/.-])(?:\./)?{re.escape(f)}(?![\w/-])", facts)]
    modules = {m.replace(".", "/") for m in re.findall(r"([\w.]+):\w+", facts)}
    named += [f for f in files if f.rpartition(".")[0].removeprefix("src/") in modules]
    usual = [f for f in files if _STARTS.search(f) and not f.startswith(("test", "doc"))]
    return list(dict.fromkeys(named))[:3] or usual[:3]


def _prose(readme: str) -> str:
    """Take badges and raw HTML out of a README."""
    lines = (line.rstrip() for line in readme.splitlines() if not _NO_PROSE.match(line))
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()


def _facts(name: str, content: str) -> str:
    """Return the lines of a manifest that describe the project, its dependencies and how to run it.

    Its beginning where it has no fields that are known.
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
    return "\n".join(_lines(table)) or content.strip()


def _lines(found: Any) -> Iterator[str]:
    if not isinstance(found, dict):
        return
    tables = cast("dict[str, Any]", found)
    poetry = cast("dict[str, Any]", tables.get("tool") or {}).get("poetry")
    for table in (tables, tables.get("project"), tables.get("package"), poetry):
        if isinstance(table, dict):
            for key, value in cast("dict[str, Any]", table).items():
                if key in _KEPT and value:
                    yield f"{key}: {_value(value)}"


def _value(value: Any) -> str:
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return "; ".join(f"{k}: {_value(v)}" if isinstance(v, (dict, list)) else f"{k} = {v}" for k, v in items)
        case list():
            return ", ".join(_value(v) for v in cast("list[Any]", value))
        case _:
            return one_line(str(value), 200)


def _short(whole: str, limit: int) -> str:
    """Cut a text at the end of a line if it is longer than `limit` characters."""
    if len(whole) <= limit:
        return whole
    return f"{whole[:limit].rpartition(chr(10))[0] or whole[:limit]}\n…"
