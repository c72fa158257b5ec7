"""Find the instructions of a thread: the user's, then the project's from its root downwards.

They are read once a thread and kept with it, so that every request begins with the same bytes; what changes later is
told as a fact. The project's are read only where its workspace is trusted.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from sakti.agent.project import files
from sakti.agent.project.files import Trusts
from sakti.agent.project.frontmatter import split_frontmatter
from sakti.agent.project.instructions.texts import InstructionReader, cut
from sakti.core.lazy import lazy_pattern
from sakti.core.text import display_path
from sakti.core.types import Json, Thread

KEY = "instructions"  # in a thread's metadata
MOST_RULES = 200  # of a project, or of the user
MOST_PATTERNS = 64  # that one with braces stands for
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_COMMA = lazy_pattern(r",(?![^{}]*\})")
LIMIT = 32 * 1024  # bytes of all of them
LIMIT_BRIEF = 4 * 1024  # for a model with a small window
*NAMES, LOCAL = files.INSTRUCTIONS  # the first of a folder counts, and the local one too


class InstructionSource(Struct, frozen=True):
    """A file of instructions or a rule: its name as people write it, and its text with imports.

    `paths` are patterns as in .gitignore; a rule with some holds for matching files only.
    """

    name: str
    text: str
    paths: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()


class Instructions(Struct, frozen=True):
    """Files of instructions, in order; `notes` are sentences about omissions."""

    sources: tuple[InstructionSource, ...] = ()
    notes: tuple[str, ...] = field(default=())


def find(workspace: Path, folder: Path, *, project: bool, trusts: Trusts = files.trusts_all) -> Instructions:
    """Return the instructions for work in `folder`; `project`: also those of it that are trusted."""
    sources: list[InstructionSource] = []
    notes: list[str] = []
    for path, name in _users():
        sources += _read(path, name, (*(f.resolve() for f in files.user_folders()), path.resolve().parent), notes)
    sources += [rule for rule in user_rules(notes) if not rule.paths]
    if project:
        for path, name in _projects(workspace, folder, trusts, notes):
            sources += _read(path, name, (workspace.resolve(),), notes, trusts)
        sources += [rule for rule in project_rules(workspace, notes, trusts) if not rule.paths]
    return cut_to_limit(sources, notes, LIMIT)


def _read(
    path: Path, name: str, roots: Sequence[Path], notes: list[str], trusts: Trusts = files.trusts_all
) -> list[InstructionSource]:
    reader = InstructionReader(roots, trusts=trusts)
    text = reader.read(path)
    notes += reader.notes
    return [InstructionSource(name, text)] if text else []


def all_rules(workspace: Path, *, project: bool, trusts: Trusts = files.trusts_all) -> list[InstructionSource]:
    """Return the user's rules, then the project's if it is trusted."""
    return user_rules([]) + (project_rules(workspace, [], trusts) if project else [])


def user_has_rules() -> bool:
    """Return whether the user has a folder of rules."""
    return any((folder / "rules").is_dir() for folder in files.user_folders())


def cut_to_limit(sources: Sequence[InstructionSource], notes: Sequence[str], limit: int) -> Instructions:
    """Return as much as fits `limit` bytes with its headings, cut at a line, with a note of what does not."""
    fitting: list[InstructionSource] = []
    notes, room = [*notes], limit
    for source in sources:
        text = cut(source.text, room - len(block(InstructionSource(source.name, "")).encode("utf-8", "replace")))
        if len(text) < len(source.text):
            lost = len(source.text) - len(text)
            notes.append(f"{source.name}: {lost:,} characters beyond the limit of {limit // 1024} KiB are left out.")
        if text:
            fitting.append(InstructionSource(source.name, text))
            room -= len(block(fitting[-1]).encode("utf-8", "replace")) + 1
    return Instructions(tuple(fitting), tuple(notes))


def _users() -> Iterator[tuple[Path, str]]:
    """Yield the user's own file, the first there is, with its name."""
    for root in files.user_folders():
        for name in NAMES[1:]:
            if (path := root / name).is_file():
                yield path, display_path(path)
                return


def _projects(workspace: Path, folder: Path, trusts: Trusts, notes: list[str]) -> Iterator[tuple[Path, str]]:
    below = folder.relative_to(workspace).parts if folder.is_relative_to(workspace) else ()
    at = workspace
    for part in (".", *below):
        at = at / part
        for path in of_folder(workspace, at, trusts, notes):
            yield path, path.relative_to(workspace).as_posix()


def of_folder(workspace: Path, folder: Path, trusts: Trusts, notes: list[str]) -> Iterator[Path]:
    """Return the files of one folder that count; one that is not trusted takes no other's place."""
    names = {f.path: f.path.relative_to(workspace).as_posix() for f in files.list_files(folder, "instructions")}
    notes += [files.left_out(name) for name in names.values() if not trusts(name)]
    present = [path for path, name in names.items() if trusts(name)]
    yield from [p for p in present if p.name != LOCAL][:1]
    yield from (p for p in present if p.name == LOCAL)


# --- rules -----------------------------------------------------------------------------------------------------------


def project_rules(workspace: Path, notes: list[str], trusts: Trusts = files.trusts_all) -> list[InstructionSource]:
    """Read the rules of a trusted workspace.

    One that cannot be read is left out with a sentence in `notes`.
    """
    reader = InstructionReader((workspace.resolve(),), notes, trusts)
    listed = files.list_files(workspace, "rule", most=MOST_RULES)
    names = {f.path.relative_to(workspace).as_posix(): f.path for f in listed}
    notes += [files.left_out(name) for name in names if not trusts(name)]
    texts = ((name, reader.read(path)) for name, path in names.items() if trusts(name))
    return [rule for name, text in texts if text and (rule := _rule(name, text))]


def user_rules(notes: list[str]) -> list[InstructionSource]:
    """Read the user's own rules; links, which the user made, are followed."""
    paths = [f.path for f in itertools.islice(files.list_user_files("rule"), MOST_RULES)]
    texts = ((display_path(p), InstructionReader((Path(os.path.realpath(p)).parent,), notes).read(p)) for p in paths)
    return [rule for name, text in texts if text and (rule := _rule(name, text))]


def _rule(name: str, text: str) -> InstructionSource | None:
    front, body = split_frontmatter(text)
    paths = (front or {}).get("paths", (front or {}).get("globs"))
    return InstructionSource(name, body, _patterns(paths)) if body else None


def _patterns(value: Any) -> tuple[str, ...]:
    """Return the patterns of a rule, as a list or with commas between them, `{a,b}` written out."""
    if isinstance(value, str):
        value = _COMMA.split(value)
    patterns = cast("list[Any]", value) if isinstance(value, list) else []
    return tuple(p for pattern in patterns if isinstance(pattern, str) for p in _written_out(pattern.strip()) if p)


def _written_out(pattern: str) -> list[str]:
    """Return the patterns that one with `{a,b}` expands to; itself if they are too many."""
    out, done = [pattern], False
    while not done and len(out) <= MOST_PATTERNS:
        done = True
        for number, one in enumerate(out):
            if braces := _BRACES.search(one):
                choices = [one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(",")]
                out[number : number + 1] = choices
                done = False
                break
    return out if done else [pattern]


# --- with a thread ---------------------------------------------------------------------------------------------------


def find_initial(thread: Thread | None) -> tuple[InstructionSource, ...]:
    """Return the instructions that a thread began with."""
    stored: Any = thread.metadata.get(KEY) if thread is not None else None
    if not isinstance(stored, list):
        return ()
    return tuple(InstructionSource(str(name), str(text)) for name, text in cast("list[list[Any]]", stored))


def to_metadata(found: Instructions) -> Json:
    """Return the thread metadata of the instructions; {} if there are no files."""
    return {KEY: [[s.name, s.text] for s in found.sources]} if found.sources else {}


def block(source: InstructionSource, limit: int = LIMIT) -> str:
    """Return a source as the model reads it."""
    return f"# Instructions from {source.name}\n\n{cut(source.text, limit)}"


def changes(before: Sequence[InstructionSource], now: Sequence[InstructionSource]) -> dict[str, str]:
    """Say which instructions are other than at the thread's beginning, and how they read now, by name."""
    old, new = {s.name: s for s in before}, {s.name: s for s in now}
    out = {
        name: f"{name} has changed since this thread began. Its text is now:\n{new[name].text}"
        for name in new
        if name not in old or old[name].sha256 != new[name].sha256
    }
    return out | {name: f"{name} was removed: its instructions no longer apply." for name in old if name not in new}
