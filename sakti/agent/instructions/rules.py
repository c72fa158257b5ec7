"""Read rules: Markdown files that hold for some paths only, or for all where they name none."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sakti.agent.instructions.texts import Reader
from sakti.core.patterns import lazy_pattern

FOLDERS = (".sakti/rules", ".agents/rules", ".claude/rules")
MOST = 200  # files
_FRONT = lazy_pattern(r"---[ \t]*\n(.*?)(?:\n|^)---[ \t]*(?:\n|\Z)(.*)", 16 | 8)  # re.DOTALL, re.MULTILINE
_PAIR = lazy_pattern(r"^([\w-]+):[ \t]+(?![\"'\[{|>])(.*:.*)$", 8)


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
            paths = front.get("paths", front.get("globs"))
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


def parted(text: str) -> tuple[dict[str, Any], str]:
    """Return a text's frontmatter (YAML between two lines `---`) and the rest; {} where there is none or it is broken.

    A value that holds ": " is often written without quotes: it is read as if it had them.
    """
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    for written in (found[1], _PAIR.sub(lambda m: f"{m[1]}: {_quoted(m[2])}", found[1])):
        table = _yaml(written)
        if table is not None:
            return table, found[2].strip()
    return {}, found[2].strip()


def _quoted(value: str) -> str:
    return "'" + value.strip().replace("'", "''") + "'"


def _yaml(text: str) -> dict[str, Any] | None:
    yaml: Any = importlib.import_module("yaml")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(p.strip() for p in value.split(",") if p.strip())
    return tuple(p for p in cast("list[Any]", value) if isinstance(p, str)) if isinstance(value, list) else ()
