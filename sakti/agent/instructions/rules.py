"""Read rules: Markdown files that hold for some paths only, or for all where they name none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from sakti.agent.frontmatter import parted
from sakti.agent.instructions.texts import Reader
from sakti.core.patterns import lazy_pattern

FOLDERS = (".sakti/rules", ".agents/rules", ".claude/rules")
MOST = 200  # files
DEEPEST = 4  # folders below `rules`
MOST_PATTERNS = 64  # that one with braces stands for
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_COMMA = lazy_pattern(r",(?![^{}]*\})")


class Rule(Struct, frozen=True):
    """A rule; `paths` are patterns as in .gitignore, none where it holds everywhere."""

    name: str
    text: str
    paths: tuple[str, ...] = ()


def of_project(workspace: Path, notes: list[str]) -> list[Rule]:
    """Return the rules of a trusted workspace, by name; a file that cannot be read is left out.

    `notes` takes sentences on what was left out or left as it is.
    """
    reader = Reader((workspace.resolve(),), notes)
    found = ((p.relative_to(workspace).as_posix(), reader.read(p)) for p in files(workspace))
    return [rule for name, text in found if text and (rule := _rule(name, text))]


def of_user(folder: Path, named: Callable[[Path], str], notes: list[str]) -> list[Rule]:
    """Return the rules in one of the user's folders, as `named`; links, which the user made, are followed."""
    files = itertools.islice(_files(folder / "rules"), MOST)
    found = ((named(p), Reader((_real(p).parent,), notes).read(p)) for p in files)
    return [rule for name, text in found if text and (rule := _rule(name, text))]


def _rule(name: str, text: str) -> Rule | None:
    front, body = parted(text)
    paths = (front or {}).get("paths", (front or {}).get("globs"))
    return Rule(name, body, _patterns(paths)) if body else None


def files(workspace: Path) -> Iterator[Path]:
    """Yield the files of rules that a workspace brings, to a bound of depth and number."""
    inside = (p for f in FOLDERS if _real(p := workspace / f).is_relative_to(_real(workspace)))
    return itertools.islice((file for folder in inside for file in _files(folder)), MOST)


def _files(folder: Path) -> Iterator[Path]:
    depth = len(folder.parts)
    for at, below, names in os.walk(folder):
        below[:] = sorted(below) if len(Path(at).parts) - depth < DEEPEST else []
        for name in sorted(n for n in names if n.endswith(".md")):
            yield Path(at, name)


def _real(path: Path) -> Path:
    """Return where links lead; unlike `Path.resolve` it raises nothing where they lead in a circle."""
    return Path(os.path.realpath(path))


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
