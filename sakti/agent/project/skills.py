"""Skills (folders with SKILL.md) and commands (Markdown files): their library and the model's list."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.project import files
from sakti.agent.project.files import ListedFile, Trusts
from sakti.agent.project.instructions import InstructionReader
from sakti.agent.project.markdown import split_frontmatter
from sakti.core import resources
from sakti.core.errors import ConfigError
from sakti.core.text import display_path, quote, to_one_line
from sakti.core.tokens import Counter

SKILL = "SKILL.md"
MOST_LISTED = 100  # files of a skill
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1_024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TYPED = re.compile(r"[\w-]+(?::[\w-]+)*")

_TEMPLATE = """---
name: {name}
description: What it does and when to use it. Replace this with words that a request would contain.
---

# {title}

1. List the steps; name commands and files exactly.
2. Put long references into files beside this one and name them here.
"""


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
        paths = (p for p in files.walk_folder(self.folder) if p != self.path)
        return sorted(p.relative_to(self.folder).as_posix() for p in paths)[:MOST_LISTED]


class Library(Struct, frozen=True):
    """Skills and commands by name; `shadowed` ones come after another of their name."""

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
        """Return the skills' folders: files in them may be read."""
        return tuple(s.folder for s in self.skills if s.folder is not None)


def load(workspace: Path, *, project: bool, trusts: Trusts = files.trusts_all) -> Library:
    """Load all skills and commands; `project`: also those of it that are trusted. Raises nothing."""
    notes: list[str] = []
    skills: dict[str, Skill] = {}
    shadowed: list[Skill] = []
    bound = workspace.resolve()
    listed = files.list_files(workspace, "skill", "command", most=files.MOST + 1) if project else []
    for file, root in chain(
        ((f, bound) for f in listed[: files.MOST] if trusts(f.path.relative_to(workspace).as_posix())),
        ((f, None) for f in files.list_user_files("skill", "command")),
    ):
        skill = _load(file, root, notes)
        if skill is not None and skill.name in skills:
            shadowed.append(skill)
        elif skill is not None:
            skills[skill.name] = skill
    if len(listed) > files.MOST:
        source = display_path(listed[-1].path, bound)
        notes.append(f"{source} and others: left out, a project may have at most {files.MOST} of them.")
    return Library(tuple(sorted(skills.values(), key=lambda s: s.name)), tuple(notes), tuple(shadowed))


def _load(file: ListedFile, bound: Path | None, notes: list[str]) -> Skill | None:
    """Read the skill or command in a file, if it is one. `bound`: nothing may lead out of that folder."""
    if file.kind == "skill" and file.path.name == SKILL:
        return _read_skill(file.path, bound, notes)
    if file.kind == "command" and file.path.suffix == ".md":
        return _read_command(file, bound, notes)
    return None


def _read_skill(path: Path, bound: Path | None, notes: list[str]) -> Skill | None:
    """Read a skill: one with a wrong name is reported but loaded, one without a description is not."""
    read = read_file(path, bound, notes)
    if read is None:
        return None
    table, body, source = read
    description = _line(table.get("description"), LONGEST_DESCRIPTION)
    if not description:
        notes.append(f"{source}: left out, it has no description.")
        return None
    folder, name = path.parent.name, str(table.get("name") or "")
    if name != folder or not _is_name(name):
        notes.append(f"{source}: its name must be its folder's name, 1 to 64 of a-z, 0-9 and single hyphens.")
        name = name if _TYPED.fullmatch(name) and len(name) <= LONGEST_NAME else folder
    if not _TYPED.fullmatch(name) or len(name) > LONGEST_NAME:
        notes.append(f"{source}: left out, {quote(name, 40)} cannot be typed.")
        return None
    skill = Skill(name, description, body, path, source, hint=_line(table.get("argument-hint"), 80))
    return replace(
        skill,
        model=_normalize_model(table),
        offered=not _is(table.get("disable-model-invocation"), "true"),
        typed=not _is(table.get("user-invocable"), "false"),
    )


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and len(name) <= LONGEST_NAME


def _read_command(file: ListedFile, bound: Path | None, notes: list[str]) -> Skill | None:
    name = ":".join((*file.path.parent.relative_to(file.root).parts, file.path.stem))
    read = read_file(file.path, bound, notes)
    if read is None:
        return None
    table, body, source = read
    if not _TYPED.fullmatch(name):
        notes.append(f"{source}: left out, {quote(name, 40)} cannot be typed.")
        return None
    if not body:
        notes.append(f"{source}: left out, it is empty.")
        return None
    description = _line(table.get("description"), LONGEST_DESCRIPTION) or _line(body.lstrip("# "), 80)
    hint = _line(table.get("argument-hint"), 80)
    return Skill(name, description, body, file.path, source, "command", hint, _normalize_model(table), offered=False)


def read_file(path: Path, bound: Path | None, notes: list[str]) -> tuple[Mapping[str, Any], str, str] | None:
    """Return frontmatter, text and name of a file; None if it is unreadable or outside the project."""
    source = display_path(path, bound)
    reader = InstructionReader((bound,) if bound is not None else (path.resolve().parent,))
    text = reader.plain(path)
    if text is None:
        notes.append(f"{source}: left out, it cannot be read.")
        return None
    table, body = split_frontmatter(text)
    if table is None:
        notes.append(f"{source}: its frontmatter is not YAML.")
    return table or {}, body, source


def create_skill(workspace: Path, name: str, *, user: bool) -> Path:
    """Write the SKILL.md of a new skill; return its path. Raises `ConfigError`."""
    if not _is_name(name):
        raise ConfigError("A skill's name is 1 to 64 of a-z, 0-9 and single hyphens.")
    root = resources.config_home() if user else workspace / files.BRANDS[0]
    path = root / "skills" / name / SKILL
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(name=name, title=name.replace("-", " ").capitalize()))
    except FileExistsError as e:
        raise ConfigError(f"{path} already exists: edit it.") from e
    except OSError as e:
        raise ConfigError(f"{path} cannot be written ({e.strerror}).") from e
    return path


def _line(value: Any, most: int) -> str:
    """Return a text in one line; a hint such as `[number]` reads as a list in YAML."""
    if isinstance(value, list):
        value = f"[{', '.join(map(str, cast('list[Any]', value)))}]"
    return to_one_line(value, most).strip() if isinstance(value, str) else ""


def _normalize_model(table: Mapping[str, Any]) -> str:
    name = _line(table.get("model"), 100)
    return "" if name == "inherit" else name


def _is(value: Any, word: str) -> bool:
    return str(value).strip().lower() == word


SHARE = 0.02  # of the window
ASSUMED_WINDOW = 200_000
SHOWN = 300  # characters of a description


def block(library: Library, counter: Counter, window: int | None) -> str:
    """Return the text that names all skills that fit, by name; "" without skills."""
    skills = library.offered
    if not skills:
        return ""
    room = int(SHARE * (window or ASSUMED_WINDOW))
    lines: list[str] = []
    for skill in skills:
        line = _list_line(skill)
        room -= counter.count(line) + 1
        if room < 0:
            lines.append(f"- {len(skills) - len(lines)} more: call `skill` with words that say what you need.")
            break
        lines.append(line)
    return resources.fill_prompt("system#skills", skills="\n".join(lines))


def _list_line(skill: Skill) -> str:
    return f"- {skill.name}: {to_one_line(skill.description, SHOWN)}"


def find_similar(library: Library, words: str) -> Sequence[Skill]:
    """Return the skills that `words` may mean: those whose name or description has most of them."""
    query_words = set(words.lower().replace("-", " ").split())
    scored = [(len(query_words & _collect_words(s)), s) for s in library.offered]
    ranked = [s for n, s in sorted(scored, key=lambda e: -e[0]) if n]
    if ranked:
        return ranked[:5]
    names = {s.name: s for s in library.offered}
    return [names[n] for n in difflib.get_close_matches(words.lower(), names, 3)]


def _collect_words(skill: Skill) -> set[str]:
    return set(f"{skill.name.replace('-', ' ')} {skill.description.lower()}".split())


def format_skill(skill: Skill, body: str) -> str:
    """Return a skill's text as the model reads it, with its folder and the files there."""
    if skill.folder is None:
        return f'<command name="{skill.name}">\n{body}\n</command>'
    files = "".join(f"\n- {name}" for name in skill.files())
    folder_note = (
        f"\n\nIts folder is {skill.folder}; paths in it are relative to that.{' Files there:' * bool(files)}{files}"
    )
    return f'<skill name="{skill.name}">\n{body}{folder_note}\n</skill>'


def describe_changes(before: str, now: str) -> str:
    """Describe the skills that are new or changed since the thread's beginning; empty for none."""
    if before == now:
        return ""
    old = set(before.splitlines())
    new = [line for line in now.splitlines() if line not in old and line.startswith("- ")]
    current = _parse_names(now)
    lost = [name for name in _parse_names(before) if name not in current and " more" not in name]
    lines = ["Skills that are new or have changed since this thread began:", *new] if new else []
    return "\n".join((*lines, *(f"The skill {name} was removed." for name in lost)))


def _parse_names(listing: str) -> list[str]:
    """Return the names in a list of skills, in its order."""
    return [line.partition(":")[0][2:] for line in listing.splitlines() if line.startswith("- ")]
