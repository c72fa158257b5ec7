"""Read rules: Markdown files that hold for some paths only, or for all where they name none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from sakti.agent.project import files
from sakti.agent.project.frontmatter import parted
from sakti.agent.project.instructions.texts import Reader
from sakti.core.patterns import lazy_pattern

MOST = 200  # rules of a project, or of the user
MOST_PATTERNS = 64  # that one with braces stands for
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_COMMA = lazy_pattern(r",(?![^{}]*\})")


class Rule(Struct, frozen=True):
    """A rule; `paths` are patterns as in .gitignore, none where it holds everywhere."""

    name: str
    text: str
    paths: tuple[str, ...] = ()


def of_project(workspace: Path, notes: list[str]) -> list[Rule]:
    """Read the rules of a trusted workspace, by name; a file that cannot be read is left out.

    `notes` takes sentences on files that were left out or characters that were.
    """
    reader = Reader((workspace.resolve(),), notes)
    texts = ((f.path, reader.read(f.path)) for f in files.list_files(workspace, "rule", most=MOST))
    return [rule for path, text in texts if text and (rule := _rule(path.relative_to(workspace).as_posix(), text))]


def of_user(named: Callable[[Path], str], notes: list[str]) -> list[Rule]:
    """Read the user's own rules, as `named`; links, which the user made, are followed."""
    paths = [f.path for f in itertools.islice(files.list_user_files("rule"), MOST)]
    texts = ((p, Reader((Path(os.path.realpath(p)).parent,), notes).read(p)) for p in paths)
    return [rule for path, text in texts if text and (rule := _rule(named(path), text))]


def _rule(name: str, text: str) -> Rule | None:
    front, body = parted(text)
    paths = (front or {}).get("paths", (front or {}).get("globs"))
    return Rule(name, body, _patterns(paths)) if body else None


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
