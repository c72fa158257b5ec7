"""Read rules: Markdown files that hold for some paths only, or for all where they name none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sakti.agent.frontmatter import parted
from sakti.agent.instructions.texts import Reader

FOLDERS = (".sakti/rules", ".agents/rules", ".claude/rules")
MOST = 200  # files


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `paths` are patterns as in .gitignore, none where it holds everywhere."""

    name: str
    text: str
    paths: tuple[str, ...] = ()


def load(workspace: Path) -> list[Rule]:
    """Return the rules of a trusted workspace, by name; a file that cannot be read is left out."""
    out: list[Rule] = []
    reader = Reader((workspace.resolve(),))
    for path in _files(workspace):
        text = reader.read(path)
        if text:
            front, body = parted(text)
            paths = (front or {}).get("paths", (front or {}).get("globs"))
            if body:
                out.append(Rule(path.relative_to(workspace).as_posix(), body, _patterns(paths)))
    return out


def _files(workspace: Path) -> Iterator[Path]:
    count = 0
    for folder in FOLDERS:
        root = workspace / folder
        if not root.is_dir() or not root.resolve().is_relative_to(workspace.resolve()):
            continue
        for path in sorted((*root.glob("*.md"), *root.glob("*/*.md"))):
            count += 1
            if count > MOST:
                return
            yield path


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(p.strip() for p in value.split(",") if p.strip())
    return tuple(p for p in cast("list[Any]", value) if isinstance(p, str)) if isinstance(value, list) else ()
