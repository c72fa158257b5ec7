"""Read rules: Markdown files that hold for some paths only, or for all where they name none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sakti.agent.frontmatter import parted
from sakti.agent.instructions.texts import Reader
from sakti.core.patterns import lazy_pattern

FOLDERS = (".sakti/rules", ".agents/rules", ".claude/rules")
MOST = 200  # files
DEEPEST = 4  # folders below `rules`
MOST_PATTERNS = 64  # that one with braces stands for
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_COMMA = lazy_pattern(r",(?![^{}]*\})")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `paths` are patterns as in .gitignore, none where it holds everywhere."""

    name: str
    text: str
    paths: tuple[str, ...] = ()


def load(workspace: Path, notes: list[str] | None = None) -> list[Rule]:
    """Return the rules of a trusted workspace, by name; a file that cannot be read is left out.

    `notes` takes sentences on what was left out or left as it is.
    """
    out: list[Rule] = []
    reader = Reader((workspace.resolve(),), notes if notes is not None else [])
    for path in files(workspace):
        text = reader.read(path)
        if text:
            front, body = parted(text)
            paths = (front or {}).get("paths", (front or {}).get("globs"))
            if body:
                out.append(Rule(path.relative_to(workspace).as_posix(), body, _patterns(paths)))
    return out


def files(workspace: Path) -> Iterator[Path]:
    """Yield the files of rules that a workspace brings, to a bound of depth and number."""
    count = 0
    for folder in FOLDERS:
        root = workspace / folder
        if not root.is_dir() or not root.resolve().is_relative_to(workspace.resolve()):
            continue
        depth = len(root.parts)
        for at, folders, names in os.walk(root):
            folders[:] = sorted(folders) if len(Path(at).parts) - depth < DEEPEST else []
            for name in sorted(n for n in names if n.endswith(".md")):
                count += 1
                if count > MOST:
                    return
                yield Path(at, name)


def _patterns(value: Any) -> tuple[str, ...]:
    """Return the patterns of a rule, as a list or with commas between them, `{a,b}` written out."""
    if isinstance(value, str):
        value = _COMMA.split(value)
    given = [p.strip() for p in cast("list[Any]", value) if isinstance(p, str)] if isinstance(value, list) else []
    return tuple(p for pattern in given if pattern for p in _written_out(pattern))


def _written_out(pattern: str) -> list[str]:
    """Return the patterns that one with `{a,b}` stands for; itself where they are too many."""
    out, done = [pattern], False
    while not done and len(out) <= MOST_PATTERNS:
        done = True
        for number, one in enumerate(out):
            if found := _BRACES.search(one):
                choices = [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
                out[number : number + 1] = choices
                done = False
                break
    return out if done else [pattern]
