"""Instructions of a project and its user (AGENTS.md, CLAUDE.md, rules), read for a thread."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pathspec
from msgspec import Struct, field

from sakti.agent.judge.workspace_view import WorkspaceView, explain_secret
from sakti.agent.project import files
from sakti.agent.project.files import Trusts
from sakti.agent.project.markdown import (
    DEEPEST_IMPORT,
    LONGEST_FILE,
    MOST_IMPORTS,
    TEXT,
    replace_imports,
    split_frontmatter,
)
from sakti.agent.tools.context import Outcome
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import display_path, format_count, remove_invisible, sanitize_text, to_one_line
from sakti.core.types import Json, Thread, ToolCallPart
from sakti.store.secrets import mask_secrets


class InstructionReader(Struct):
    """Reads files below the given folders only, links resolved; `notes` report imports left as text.

    `trusts` decides on imports by their names, relative to the first folder.
    """

    roots: Sequence[Path]
    notes: list[str] = field(default_factory=list[str])
    trusts: Trusts = files.trusts_all
    _imported: int = 0
    _length: int = 0

    def read(self, path: Path) -> str | None:
        """Return the text of a file with its imports, clean for a screen and secrets masked; None without one."""
        notes_before = len(self.notes)
        text = self.plain(path)
        if text is None:
            if len(self.notes) == notes_before and os.path.lexists(path):
                self._note(f"{path.name}: left out, it holds secrets, leads out of the project or cannot be read.")
            return None
        return self._expand(text, path, (path.resolve(),))

    def plain(self, path: Path) -> str | None:
        """Return the text of a file as it is, clean for a screen and secrets masked; None without one.

        A link may give a file with secrets another name, so its target is judged.
        """
        try:
            real = path.resolve()
            root = next((r for r in self.roots if real.is_relative_to(r)), None)
            if root is None or explain_secret(real, WorkspaceView(root, root)):
                return None
            data = read_bytes(real, LONGEST_FILE)
        except ConfigError as e:
            self._note(e.message)
            return None
        except (OSError, ValueError, RuntimeError):  # a name that is too long, links in a circle
            return None
        if data is None:
            return None
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        text, hidden = remove_invisible(text)
        if hidden:
            self._note(f"{path.name}: {format_count(hidden, 'hidden character')} left out.")
        return mask_secrets(sanitize_text(text)).strip()

    def _expand(self, text: str, path: Path, above: tuple[Path, ...]) -> str:
        return replace_imports(text, lambda name, written: self._import(name, written, path, above))

    def _import(self, name: str, written: str, path: Path, above: tuple[Path, ...]) -> str:
        target = Path.home() / name[2:] if name.startswith("~/") else path.parent / name
        meant = name.endswith(TEXT)
        if self._imported >= MOST_IMPORTS or self._length > LONGEST_FILE:
            if meant:
                most = f"{MOST_IMPORTS} imports or {LONGEST_FILE:,} characters"
                self._note(f"{path.name}: more than {most}; the rest is left as text.")
            return written
        try:
            real = target.resolve()
            if not meant and not target.is_file():
                return written
        except (OSError, ValueError, RuntimeError):
            return written
        text = None
        if real in above:
            problem = f"{path.name}: @{name} imports itself; left as text."
        elif not self._may_import(real):
            problem = files.describe_ignored(real.relative_to(self.roots[0]).as_posix())
        elif len(above) > DEEPEST_IMPORT:
            problem = f"{path.name}: @{name} is nested too deep; left as text."
        else:
            text = self.plain(real)
            problem = f"{path.name}: @{name} does not exist or is outside the project; left as text."
        if text is None:
            self._note(problem)
            return written
        self._imported += 1
        self._length += len(text)
        return self._expand(text, real, (*above, real))

    def _may_import(self, path: Path) -> bool:
        inside = path.is_relative_to(self.roots[0]) and path.is_file()
        return not inside or self.trusts(path.relative_to(self.roots[0]).as_posix())

    def _note(self, text: str) -> None:
        if (clean := to_one_line(text, 200)) not in self.notes:
            self.notes.append(clean)


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes, cut at the end of a line."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return os.fsdecode(data[:limit]).rpartition("\n")[0]


KEY = "instructions"  # in a thread's metadata
MOST_RULES = 200  # of a project, or of the user
MOST_PATTERNS = 64  # that one with braces expands to
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_COMMA = lazy_pattern(r",(?![^{}]*\})")
LIMIT = 32 * 1024  # bytes of all of them
LIMIT_BRIEF = 4 * 1024  # for a model with a small window
*NAMES, LOCAL = files.INSTRUCTIONS  # the first of a folder counts, and the local one too


class InstructionSource(Struct, frozen=True):
    """A file of instructions or a rule: its name as people write it, and its text with imports.

    `paths` are patterns as in .gitignore; a rule with some applies to matching files only.
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
    for path, name in _iter_user_files():
        sources += _read(path, name, (*(f.resolve() for f in files.list_user_folders()), path.resolve().parent), notes)
    sources += [rule for rule in read_user_rules(notes) if not rule.paths]
    if project:
        for path, name in _iter_project_files(workspace, folder, trusts, notes):
            sources += _read(path, name, (workspace.resolve(),), notes, trusts)
        sources += [rule for rule in read_project_rules(workspace, notes, trusts) if not rule.paths]
    return cut_to_limit(sources, notes, LIMIT)


def _read(
    path: Path, name: str, roots: Sequence[Path], notes: list[str], trusts: Trusts = files.trusts_all
) -> list[InstructionSource]:
    reader = InstructionReader(roots, trusts=trusts)
    text = reader.read(path)
    notes += reader.notes
    return [InstructionSource(name, text)] if text else []


def list_all_rules(workspace: Path, *, project: bool, trusts: Trusts = files.trusts_all) -> list[InstructionSource]:
    """Return the user's rules, then the project's if it is trusted."""
    return read_user_rules([]) + (read_project_rules(workspace, [], trusts) if project else [])


def user_has_rules() -> bool:
    """Return whether the user has a folder of rules."""
    return any((folder / "rules").is_dir() for folder in files.list_user_folders())


def cut_to_limit(sources: Sequence[InstructionSource], notes: Sequence[str], limit: int) -> Instructions:
    """Return as much as fits `limit` bytes with its headings, cut at a line, with a note on the rest."""
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


def _iter_user_files() -> Iterator[tuple[Path, str]]:
    """Yield the user's own file, the first that exists, with its name."""
    for root in files.list_user_folders():
        for name in NAMES[1:]:
            if (path := root / name).is_file():
                yield path, display_path(path)
                return


def _iter_project_files(workspace: Path, folder: Path, trusts: Trusts, notes: list[str]) -> Iterator[tuple[Path, str]]:
    below = folder.relative_to(workspace).parts if folder.is_relative_to(workspace) else ()
    at = workspace
    for part in (".", *below):
        at = at / part
        for path in iter_folder_files(workspace, at, trusts, notes):
            yield path, path.relative_to(workspace).as_posix()


def iter_folder_files(workspace: Path, folder: Path, trusts: Trusts, notes: list[str]) -> Iterator[Path]:
    """Return the files of one folder that count; one that is not trusted takes no other's place."""
    names = {f.path: f.path.relative_to(workspace).as_posix() for f in files.list_files(folder, "instructions")}
    notes += [files.describe_ignored(name) for name in names.values() if not trusts(name)]
    present = [path for path, name in names.items() if trusts(name)]
    yield from [p for p in present if p.name != LOCAL][:1]
    yield from (p for p in present if p.name == LOCAL)


# --- rules -----------------------------------------------------------------------------------------------------------


def read_project_rules(workspace: Path, notes: list[str], trusts: Trusts = files.trusts_all) -> list[InstructionSource]:
    """Read the rules of a trusted workspace.

    One that cannot be read is left out with a sentence in `notes`.
    """
    reader = InstructionReader((workspace.resolve(),), notes, trusts)
    listed = files.list_files(workspace, "rule", most=MOST_RULES)
    names = {f.path.relative_to(workspace).as_posix(): f.path for f in listed}
    notes += [files.describe_ignored(name) for name in names if not trusts(name)]
    texts = ((name, reader.read(path)) for name, path in names.items() if trusts(name))
    return [rule for name, text in texts if text and (rule := _make_rule(name, text))]


def read_user_rules(notes: list[str]) -> list[InstructionSource]:
    """Read the user's own rules; links, which the user made, are followed."""
    paths = [f.path for f in itertools.islice(files.list_user_files("rule"), MOST_RULES)]
    texts = ((display_path(p), InstructionReader((Path(os.path.realpath(p)).parent,), notes).read(p)) for p in paths)
    return [rule for name, text in texts if text and (rule := _make_rule(name, text))]


def _make_rule(name: str, text: str) -> InstructionSource | None:
    front, body = split_frontmatter(text)
    paths = (front or {}).get("paths", (front or {}).get("globs"))
    return InstructionSource(name, body, _read_patterns(paths)) if body else None


def _read_patterns(value: Any) -> tuple[str, ...]:
    """Return the patterns of a rule, as a list or with commas between them, `{a,b}` written out."""
    if isinstance(value, str):
        value = _COMMA.split(value)
    patterns = cast("list[Any]", value) if isinstance(value, list) else []
    return tuple(p for pattern in patterns if isinstance(pattern, str) for p in _expand_braces(pattern.strip()) if p)


def _expand_braces(pattern: str) -> list[str]:
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


def describe_changes(before: Sequence[InstructionSource], now: Sequence[InstructionSource]) -> dict[str, str]:
    """Return the instructions that changed since the thread's beginning, as they are now, by name."""
    old, new = {s.name: s for s in before}, {s.name: s for s in now}
    out = {
        name: f"{name} has changed since this thread began. Its text is now:\n{new[name].text}"
        for name in new
        if name not in old or old[name].sha256 != new[name].sha256
    }
    return out | {name: f"{name} was removed: its instructions no longer apply." for name in old if name not in new}


NEARBY_LIMIT = 32 * 1024  # bytes kept for a thread; texts touched first are left out first
NEARBY_KEY = "nearby"  # in a thread's metadata: names of what was shown, in order


class Nearby:
    """Finds instructions for the calls of a thread; each is shown once, as a fact that memory ignores.

    `trusts`: those of the workspace count that it trusts, None: the user's rules only. `begun` gives the sources that
    are in the prompt already, `touched` the paths of a call, relative to the workspace. `kept` are the names that the
    thread has, `keep` adds some.
    """

    def __init__(
        self,
        workspace: Path,
        trusts: Trusts | None,
        begun: Callable[[], Sequence[InstructionSource]],
        touched: Callable[[ToolCallPart], Sequence[str]],
        kept: Callable[[], Sequence[str]],
        keep: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._workspace, self._project, self._trusts = workspace, trusts is not None, trusts or files.trusts_all
        self._begun, self._touched, self._kept, self._keep = begun, touched, kept, keep
        self._texts: dict[str, str] = {}
        self._rules: list[InstructionSource] | None = None

    def forget(self) -> None:
        """Forget all texts: another thread is open."""
        self._texts = {}

    async def refresh(self) -> None:
        """Read the instructions shown in the thread again, at the start of a turn."""
        self._rules = None
        names = self._kept()
        self._texts = await asyncio.to_thread(self._read, names) if names else {}

    def _read(self, names: Sequence[str]) -> dict[str, str]:
        ruled = {r.name: r.text for r in self._get_rules()}
        return {name: ruled.get(name) or self._read_instruction(name) for name in names}

    def _read_instruction(self, name: str) -> str:
        """Return the text of a file of instructions; empty for a rule, which would be there."""
        if not self._project or name.startswith(("~", "/")) or files.find_kind(name, "instructions") == "rule":
            return ""
        if not self._trusts(name):
            return ""
        return self._reader().read(self._workspace / name) or ""

    def texts(self) -> dict[str, str]:
        """Return the current texts that the thread has been shown, by name; empty for a removed file."""
        out: dict[str, str] = {}
        remaining = NEARBY_LIMIT
        for name, text in reversed(self._texts.items()):
            remaining -= len(text.encode("utf-8", "replace"))
            if remaining < 0:
                break
            out[name] = text
        return dict(reversed(out.items()))

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call as it is."""
        return call

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Note the instructions for the paths of the call; return the outcome as it is."""
        paths = [p for p in self._touched(call) if not p.startswith(("/", "~", ".."))]
        if outcome.is_error or not paths:
            return outcome
        names = {*self._texts, *(s.name for s in self._begun())}
        due = await asyncio.to_thread(lambda: list(self._iter_due(paths, names)))
        new = {s.name: cut(s.text, NEARBY_LIMIT) for s in due if s.name not in self._texts}
        if new:
            self._texts |= new
            await self._keep(list(new))
        return outcome

    def _iter_due(self, paths: Sequence[str], known: set[str]) -> Iterator[InstructionSource]:
        for folder in dict.fromkeys(f for p in paths for f in reversed(PurePosixPath(p).parents)):
            if folder == PurePosixPath(".") or not self._project:
                continue
            for path in iter_folder_files(self._workspace, self._workspace / folder, self._trusts, []):
                name = path.relative_to(self._workspace).as_posix()
                if name not in known and (text := self._reader().read(path)):
                    known.add(name)
                    yield InstructionSource(name, text)
        for rule in self._get_rules():
            if rule.paths and rule.name not in known and _matches(rule.paths, paths):
                yield rule

    def _reader(self) -> InstructionReader:
        return InstructionReader((self._workspace.resolve(),), trusts=self._trusts)

    def _get_rules(self) -> list[InstructionSource]:
        if self._rules is None:
            self._rules = list_all_rules(self._workspace, project=self._project, trusts=self._trusts)
        return self._rules


def _matches(patterns: Sequence[str], paths: Sequence[str]) -> bool:
    """Return whether a pattern fits one of the paths; an invalid pattern fits none."""
    for pattern in patterns:
        try:
            spec = pathspec.GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            continue
        if any(spec.match_file(p) for p in paths):
            return True
    return False
