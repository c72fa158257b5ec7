"""Find skills (folders with SKILL.md) and commands (Markdown files) of the project and of the user.

The project's come before the user's, and of both the first of the folder names; who has the same name behind another
is shadowed. What cannot be used is said in a sentence, and hinders nothing.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.frontmatter import parted
from sakti.agent.instructions.texts import Reader
from sakti.core import resources
from sakti.core.text import one_line

BRANDS = (".sakti", ".agents", ".claude")
SKILL = "SKILL.md"
DEEPEST = 4  # folders below `skills`
MOST_FOLDERS = 2_000
MOST_FILES = 100  # of a skill, that are listed
MOST_COMMANDS = 2_000  # of one folder `commands`
MOST_OF_PROJECT = 500  # files of skills and commands that a workspace brings
_KINDS = ("skills", "commands")
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
SCRIPTS = frozenset(".sh .bash .zsh .fish .py .js .mjs .cjs .ts .rb .pl .php .lua .ps1 .bat .cmd .jar .exe".split())
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1_024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TYPED = re.compile(r"[\w-]+(?::[\w-]+)*")


class Skill(Struct, frozen=True):
    """A skill, or a command: a skill of one file that only the user calls.

    `source` is its file as people write it. `offered`: the model may load it; `typed`: it is `/name` in the prompt.
    `hint` names its arguments, `model` the one that answers the turn, "" for the usual one.
    """

    name: str
    description: str
    body: str
    path: Path
    source: str
    kind: Literal["skill", "command"] = "skill"
    hint: str = ""
    model: str = ""
    offered: bool = True
    typed: bool = True

    @property
    def folder(self) -> Path | None:
        """Return the folder that belongs to it, None for a command."""
        return self.path.parent if self.kind == "skill" else None

    def files(self) -> list[str]:
        """Return the other files of its folder, relative to it."""
        if self.folder is None:
            return []
        found = (Path(at, name) for at, names in _walk(self.folder) for name in names)
        listed = sorted(p.relative_to(self.folder).as_posix() for p in found if p != self.path)
        return listed[:MOST_FILES]


class Library(Struct, frozen=True):
    """What was found: `notes` say what is broken, `shadowed` names what stands behind another of its name."""

    skills: tuple[Skill, ...] = ()
    notes: tuple[str, ...] = ()
    shadowed: tuple[Skill, ...] = ()

    def get(self, name: str) -> Skill | None:
        return next((s for s in self.skills if s.name == name), None)

    @property
    def offered(self) -> tuple[Skill, ...]:
        return tuple(s for s in self.skills if s.offered)

    @property
    def typed(self) -> tuple[Skill, ...]:
        return tuple(s for s in self.skills if s.typed)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the skills' own folders: what is in them may be read."""
        return tuple(s.folder for s in self.skills if s.folder is not None)


def load(workspace: Path, *, project: bool) -> Library:
    """Return all skills and commands, without the project's where it is not trusted. Raises nothing."""
    notes: list[str] = []
    found: dict[str, Skill] = {}
    shadowed: list[Skill] = []
    trusted = frozenset(project_files(workspace)) if project else frozenset[Path]()
    for root, bound in _roots(workspace, project=project):
        for skill in (*_skills(root / "skills", bound, notes), *_commands(root / "commands", bound, notes)):
            if bound is not None and skill.path not in trusted:
                note = f"{skill.source} and others: left out, a project may bring {MOST_OF_PROJECT} files of them."
                notes += [] if any("a project may bring" in n for n in notes) else [note]
            elif skill.name in found:
                shadowed.append(skill)
            else:
                found[skill.name] = skill
    return Library(tuple(sorted(found.values(), key=lambda s: s.name)), tuple(notes), tuple(shadowed))


def _roots(workspace: Path, *, project: bool) -> Iterator[tuple[Path, Path | None]]:
    """Yield the folders to look in, with the one that nothing may lead out of; the user's own may hold links."""
    if project:
        for brand in BRANDS:
            yield workspace / brand, workspace.resolve()
    yield resources.config_home(), None
    for brand in BRANDS[1:]:
        yield Path.home() / brand, None


def project_files(workspace: Path) -> list[Path]:
    """Return the files of skills and commands that a workspace brings: what trusting it means, and no more is used."""
    folders = [(root / kind, bound) for root, bound in _roots(workspace, project=True) for kind in _KINDS]
    found = (Path(at, n) for f, bound in folders if bound is not None for at, ns in _walk(f, bound) for n in sorted(ns))
    return list(itertools.islice(found, MOST_OF_PROJECT))


def is_of_skills(name: str) -> bool:
    """Return whether a file of the workspace, by its relative name, belongs to its skills or commands."""
    return name.startswith(tuple(f"{brand}/{kind}/" for brand in BRANDS for kind in _KINDS))


def is_script(path: Path) -> bool:
    """Return whether a file of a skill is there to be run. Raises `OSError`."""
    if path.suffix in SCRIPTS or path.stat().st_mode & 0o111:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _walk(root: Path, bound: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """Walk a folder to its bounds of depth and number; below `bound` only, links resolved, where there is one."""
    if not root.is_dir() or (bound is not None and not root.resolve().is_relative_to(bound)):
        return
    depth = len(root.parts)
    for number, (at, folders, files) in enumerate(os.walk(root, followlinks=bound is None)):
        if number >= MOST_FOLDERS:
            return
        deep = len(Path(at).parts) - depth >= DEEPEST
        folders[:] = [] if deep else sorted(f for f in folders if f not in SKIPPED)
        yield at, files


def _skills(root: Path, bound: Path | None, notes: list[str]) -> Iterator[Skill]:
    for at, files in _walk(root, bound):
        if SKILL in files and (skill := _skill(Path(at, SKILL), bound, notes)) is not None:
            yield skill


def _skill(path: Path, bound: Path | None, notes: list[str]) -> Skill | None:
    """Read a skill: a wrong name is said and it is loaded all the same; without a description it is not."""
    read = _read(path, bound, notes)
    if read is None:
        return None
    table, body, source = read
    description = _line(table.get("description"), LONGEST_DESCRIPTION)
    if not description:
        notes.append(f"{source}: left out, it has no description.")
        return None
    folder, name = path.parent.name, str(table.get("name") or "")
    if name != folder or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        notes.append(f"{source}: its name should be that of its folder, 1 to 64 of a-z, 0-9 and single hyphens.")
        name = name if _TYPED.fullmatch(name) and len(name) <= LONGEST_NAME else folder
    if not _TYPED.fullmatch(name) or len(name) > LONGEST_NAME:
        notes.append(f"{source}: left out, {one_line(name, 40)!r} cannot be typed.")
        return None
    made = Skill(name, description, body, path, source, hint=_line(table.get("argument-hint"), 80))
    return replace(
        made,
        model=_model(table),
        offered=not _is(table.get("disable-model-invocation"), "true"),
        typed=not _is(table.get("user-invocable"), "false"),
    )


def _commands(root: Path, bound: Path | None, notes: list[str]) -> Iterator[Skill]:
    number = 0
    for at, files in _walk(root, bound):
        for file in sorted(f for f in files if f.endswith(".md")):
            number += 1
            if number > MOST_COMMANDS:
                notes.append(f"{short(root, bound)}: more than {MOST_COMMANDS:,} commands; the rest is left out.")
                return
            path = Path(at, file)
            name = ":".join((*path.parent.relative_to(root).parts, path.stem))
            read = _read(path, bound, notes)
            if read is None:
                continue
            table, body, source = read
            if not _TYPED.fullmatch(name):
                notes.append(f"{source}: left out, {one_line(name, 40)!r} cannot be typed.")
            elif not body:
                notes.append(f"{source}: left out, it is empty.")
            else:
                told = _line(table.get("description"), LONGEST_DESCRIPTION) or _line(body.lstrip("# "), 80)
                hint = _line(table.get("argument-hint"), 80)
                yield Skill(name, told, body, path, source, "command", hint, _model(table), offered=False)


def _read(path: Path, bound: Path | None, notes: list[str]) -> tuple[Mapping[str, Any], str, str] | None:
    """Return frontmatter, text and name of a file; None where it cannot be read or leads out of the project."""
    source = short(path, bound)
    reader = Reader((bound,) if bound is not None else (path.resolve().parent,))
    text = reader.plain(path)
    if text is None:
        notes.append(f"{source}: left out, it cannot be read.")
        return None
    table, body = parted(text)
    if table is None:
        notes.append(f"{source}: its frontmatter is not YAML.")
    return table or {}, body, source


def short(path: Path, workspace: Path | None) -> str:
    """Return a path as people write it: relative to the workspace, or to their home."""
    for root, before in ((workspace, ""), (Path.home(), "~/")):
        if root is not None and path.is_relative_to(root):
            return one_line(before + path.relative_to(root).as_posix(), 200)
    return one_line(path.as_posix(), 200)


def _line(value: Any, most: int) -> str:
    """Return a text in one line; a hint such as `[number]` reads as a list in YAML."""
    if isinstance(value, list):
        value = f"[{', '.join(map(str, cast('list[Any]', value)))}]"
    return one_line(value, most).strip() if isinstance(value, str) else ""


def _model(table: Mapping[str, Any]) -> str:
    name = _line(table.get("model"), 100)
    return "" if name == "inherit" else name


def _is(value: Any, word: str) -> bool:
    return str(value).strip().lower() == word
