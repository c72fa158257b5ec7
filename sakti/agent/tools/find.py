"""glob and grep: what is where. ripgrep does the work where it is installed; the answers are the same without."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pathspec
import pydantic

from sakti.agent.tools.base import Outcome, ToolRun, tool
from sakti.core.errors import ToolError
from sakti.core.programs import find_program

MAX_RESULTS = 200
MAX_LINE = 300
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


@tool(read_only=True)
async def glob(
    run: ToolRun,
    pattern: Annotated[str, "such as src/**/*.py or *.toml"],
    path: Annotated[str, "folder to look in"] = ".",
) -> Outcome:
    """Find files by name, newest first. What .gitignore names is left out."""
    root = _folder(run, path)
    spec = pathspec.GitIgnoreSpec.from_lines([pattern])
    found = await asyncio.to_thread(lambda: [p for p in files(root) if spec.match_file(p.relative_to(root).as_posix())])
    found.sort(key=lambda p: -_mtime(p))
    names = [run.bench.show(p) for p in found[:MAX_RESULTS]]
    more = f"\n[{len(found) - MAX_RESULTS} more]" if len(found) > MAX_RESULTS else ""
    return Outcome("\n".join(names) + more if names else "No file matches.", details={"matches": len(found)})


@tool(read_only=True)
async def grep(
    run: ToolRun,
    pattern: Annotated[str, "regular expression"],
    path: Annotated[str, "file or folder to search"] = ".",
    include: Annotated[str | None, "only files whose name matches this, such as *.py"] = None,
    ignore_case: bool = False,
    context: Annotated[int, pydantic.Field(ge=0, le=10), "lines shown round each match"] = 0,
) -> Outcome:
    """Search file contents. Each result is file:line:text; what .gitignore names is left out."""
    try:
        re.compile(pattern)
    except re.error as e:
        raise ToolError(f"{pattern!r} is not a regular expression: {e}.") from e
    root = run.bench.resolve(path)
    if not root.exists():
        raise ToolError(f"There is no {path}.")
    if program := find_program("rg", run.bench.workspace, run.bench.env.get("PATH")):
        lines, total = await _ripgrep(program, run, root, pattern, include, ignore_case, context)
    else:
        lines, total = await asyncio.to_thread(_scan, run, root, pattern, include, ignore_case, context)
    more = f"\n[{total - MAX_RESULTS} more matches; narrow the pattern or the path]" if total > MAX_RESULTS else ""
    return Outcome("\n".join(lines) + more if lines else "No match.", details={"matches": total})


async def _ripgrep(
    program: str, run: ToolRun, root: Path, pattern: str, include: str | None, ignore_case: bool, context: int
) -> tuple[list[str], int]:
    arguments = [
        program,
        "--no-config",
        "--no-heading",
        "--with-filename",
        "--line-number",
        "--color=never",
        "--sort=path",
        "--hidden",
        "--glob=!.git",
        f"--context={context}",
        "--max-columns=2000",
    ]
    arguments += ["--ignore-case"] if ignore_case else []
    arguments += [f"--glob={include}"] if include else []
    process = await asyncio.create_subprocess_exec(
        *arguments,
        "--regexp",
        pattern,
        "--",
        str(root),
        cwd=run.bench.workspace,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    out, err = await process.communicate()
    if process.returncode == 2 and not out:
        raise ToolError(f"grep failed: {err.decode('utf-8', 'replace').strip()}")
    rows = out.decode("utf-8", "replace").splitlines()
    prefix = f"{run.bench.workspace}/"
    matches = [r for r in rows if r != "--"]
    shown = [r.removeprefix(prefix)[: MAX_LINE + 200] for r in rows[:MAX_RESULTS]]
    return shown, len(matches) if context == 0 else max(len(shown), 1)


def _scan(
    run: ToolRun, root: Path, pattern: str, include: str | None, ignore_case: bool, context: int
) -> tuple[list[str], int]:
    expression = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    wanted = pathspec.GitIgnoreSpec.from_lines([include]) if include else None
    shown: list[str] = []
    total = 0
    for path in sorted(files(root)) if root.is_dir() else [root]:
        if wanted and not wanted.match_file(path.name):
            continue
        try:
            data = path.read_bytes() if path.stat().st_size <= 5_000_000 else b"\0"
        except OSError:
            continue
        if b"\0" in data[:8192]:
            continue
        lines = data.decode("utf-8", "replace").splitlines()
        hits = [i for i, line in enumerate(lines) if expression.search(line)]
        total += len(hits)
        name = run.bench.show(path)
        for i in sorted({j for h in hits for j in range(h - context, h + context + 1) if 0 <= j < len(lines)}):
            if len(shown) >= MAX_RESULTS:
                break
            sign = ":" if i in hits else "-"
            shown.append(f"{name}{sign}{i + 1}{sign}{lines[i][:MAX_LINE]}")
    return shown, total


def files(root: Path) -> Iterator[Path]:
    """Every file below `root` that no .gitignore on the way names, without following links out of it."""
    specs: list[tuple[Path, pathspec.GitIgnoreSpec]] = []
    for folder, names, filenames in os.walk(root):
        here = Path(folder)
        specs = [(base, spec) for base, spec in specs if here.is_relative_to(base)]
        ignore = here / ".gitignore"
        if ".gitignore" in filenames and ignore.is_file():
            specs.append((here, pathspec.GitIgnoreSpec.from_lines(ignore.read_text("utf-8", "replace").splitlines())))

        names[:] = sorted(n for n in names if n not in SKIPPED and not _ignored(specs, here / n, folder=True))
        for name in sorted(filenames):
            path = here / name
            if not _ignored(specs, path) and path.is_file():
                yield path


def _ignored(specs: list[tuple[Path, pathspec.GitIgnoreSpec]], path: Path, *, folder: bool = False) -> bool:
    end = "/" if folder else ""
    return any(spec.match_file(path.relative_to(base).as_posix() + end) for base, spec in specs)


def _folder(run: ToolRun, path: str) -> Path:
    root = run.bench.resolve(path)
    if not root.is_dir():
        raise ToolError(f"{path} is not a folder.")
    return root


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
