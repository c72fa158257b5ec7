"""Describe where a call acts, which files there hold secrets, and the facts of its tool.

Secret files are recognised by name, by folder, and as the same file under another name.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct, field

from sakti.core.lazy import lazy_pattern
from sakti.core.text import clean_surrogates

# Effect of a tool call: it reads or writes the files that it names, runs a command, opens a URL, sends a query to a
# search service, calls an MCP server, or only touches sakti's own data: tasks, memory, and commands that it started.
Effect: TypeAlias = Literal["read", "write", "run", "fetch", "search", "remote", "own"]
# Use of a file: its content is read, it is changed, or only its name and size are read.
Access: TypeAlias = Literal["read", "write", "name"]
# Enclosure of a command: the complete sandbox, a part of it, or none.
LevelName: TypeAlias = Literal["sandboxed", "partial", "unsandboxed"]


class RemoteFacts(Struct, frozen=True):
    """Facts of a server's tool.

    `reads_only` only counts for the user's servers. `is_confined`: the server runs in the sandbox without a network.
    `fingerprint` is the hash of description and schema, `diff` how they differ from the approved ones. `note_use` is
    called before an allowed call, with whether the user approved this particular call.
    """

    reads_only: bool
    is_destructive: bool
    is_confined: bool
    fingerprint: str
    diff: Callable[[], str]
    note_use: Callable[[bool], None]


class ToolFacts(Protocol):
    """What a tool declares about itself.

    `list_paths` gives the paths in a call; rules call the tool `rule_name`. `remote` are the facts of a server's tool.
    """

    @property
    def effect(self) -> Effect: ...
    @property
    def rule_name(self) -> str: ...
    @property
    def remote(self) -> RemoteFacts | None: ...
    def list_paths(self, arguments: Mapping[str, Any]) -> Sequence[str]: ...


class WorkspaceView(Struct, frozen=True):
    """Where a call would act.

    `own` are sakti's own folders: its data and its configuration. `outputs` is the folder of long outputs of tools,
    kept for the model to read. `changed` are the files that run later and were changed here, each with its diff.
    `level` tells how commands there are enclosed; `readable` are folders outside of the workspace that may be read
    without a question, such as those of skills. `hosts` may be reached by every command. `added` are folders that the
    user opened beside the workspace, for this session. `own_network`: single hosts can be made reachable for commands
    in the sandbox. `search_service` is the name of the service that searches the web. `reader` names the read-only mode
    or child in refusals.
    """

    workspace: Path
    cwd: Path
    own: tuple[Path, ...] = ()
    outputs: Path | None = None
    changed: Mapping[Path, str] = field(default_factory=dict[Path, str])
    level: LevelName = "unsandboxed"
    readable: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    added: tuple[Path, ...] = ()
    own_network: bool = True
    search_service: str = ""
    reader: str = "plan mode"

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.workspace, *self.added)

    def holds(self, path: Path) -> bool:
        """Return whether a resolved path is in the workspace or an added folder."""
        return any(path.is_relative_to(root) for root in self.roots)

    def resolve(self, path: str) -> Path:
        return resolve_path(self.cwd, path)

    def show(self, path: Path) -> str:
        return str(path.relative_to(self.workspace)) if path.is_relative_to(self.workspace) else str(path)


def resolve_path(folder: Path, path: str) -> Path:
    """Resolve `path` against `folder`, with symlinks and `..` followed; raises nothing.

    `~nosuch` is taken literally, as a shell does, and characters that no file system can hold are replaced.
    """
    try:
        # called for each word of a command: a Path takes five times as long
        return Path(os.path.realpath(os.path.join(folder, os.path.expanduser(path))))  # noqa: PTH111, PTH118
    except (ValueError, OSError):
        return Path(os.path.realpath(folder / clean_surrogates(path)))


ListsT = TypeVar("ListsT")


class JudgeLists(Struct, frozen=True, forbid_unknown_fields=True):
    """Known names of files and folders; schema of `lists.toml`, which explains them."""

    secret_names: tuple[str, ...]
    secret_stems: tuple[str, ...]
    secret_endings: tuple[str, ...]
    harmless_names: tuple[str, ...]
    secret_folders: frozenset[str]
    secret_at_home: tuple[str, ...]
    autorun_names: frozenset[str]
    autorun_folders: frozenset[str]
    run_later_names: frozenset[str]
    run_later_folders: frozenset[str]
    system_folders: tuple[str, ...]
    removers: frozenset[str]
    writers: frozenset[str]
    copiers: frozenset[str]
    git_writers: frozenset[str]
    lookers: frozenset[str]
    evaluating_commands: frozenset[str]
    harmless_variables: tuple[str, ...]
    reading_tools: frozenset[str]
    common_tools: frozenset[str]
    git_value_options: frozenset[str]
    git_quiet_options: frozenset[str]
    git_escapes: tuple[str, ...]
    git_file_options: tuple[str, ...]
    git_single_file_options: tuple[str, ...]
    git_copiers: frozenset[str]
    harmless_values: frozenset[str]
    harmless_settings: Mapping[str, tuple[str, ...]]
    program_settings: Mapping[str, tuple[str, ...]]


def load_lists(file: Path, kind: type[ListsT]) -> ListsT:
    """Load lists of words, each stored as one string, because TOML parses arrays ten times slower."""
    return msgspec.convert(_split_words(tomllib.loads(file.read_text("utf-8"))), kind)


def _split_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _split_words(each) for name, each in cast("dict[str, Any]", value).items()}
    return value.split() if isinstance(value, str) else value


LISTS = load_lists(Path(__file__).with_name("lists.toml"), JudgeLists)
SECRET_NAMES = (*(f"{stem}.{end}" for stem in LISTS.secret_stems for end in LISTS.secret_endings), *LISTS.secret_names)


def is_system(path: Path) -> bool:
    """Return whether a path is in a folder of installed programs."""
    return any(path.is_relative_to(p) for p in (*LISTS.system_folders, sys.prefix, sys.base_prefix))


# Process files that show the arguments and environment of a shell.
_PROCESS = lazy_pattern(r"/proc/[^/]+/(?:environ|mem|maps|cmdline|fd(?:/.*)?|root(?:/.*)?|cwd(?:/.*)?)$")
WALKED = 20_000  # entries searched for another name of a file


def explain_secret(path: Path, place: WorkspaceView) -> str:
    """Return why the agent may not read or write the resolved `path`; empty for an ordinary file."""
    if named := _explain_name(path, place):
        return named
    other = _find_same_file(path, place)
    return f"the same file as {place.show(other)}, which holds secrets" if other is not None else ""


def _is_own(text: str, place: WorkspaceView) -> bool:
    """Return whether a path is in a folder of sakti's data or configuration."""
    return any(text == folder or text.startswith(f"{folder}/") for folder in map(str, place.own))


def _explain_name(path: Path, place: WorkspaceView) -> str:
    text = str(path)
    if _is_own(text, place) and not any(path.is_relative_to(folder) for folder in place.readable):
        return "sakti's own data"
    if any(part.lower() in LISTS.secret_folders for part in path.parts):
        return "a folder of credentials"
    if _is_secret_name(path.name):
        return "holds secrets"
    if text.startswith(_list_secrets_at_home(os.path.expanduser("~"))):  # noqa: PTH111 - a path would be parsed each time
        return "holds secrets"
    if _PROCESS.match(text):
        return "shows what programs were given"
    return ""


@functools.lru_cache(maxsize=4)
def _list_secrets_at_home(home: str) -> tuple[str, ...]:
    return tuple(f"{home}/{p}" for p in LISTS.secret_at_home)


def _is_secret_name(name: str) -> bool:
    return _compile_names().fullmatch(name.lower()) is not None


@functools.cache
def _compile_names() -> re.Pattern[str]:
    names, harmless = ("|".join(map(_convert_glob, n)) for n in (SECRET_NAMES, LISTS.harmless_names))
    return re.compile(rf"(?!(?:{harmless})$)(?:{names})")


def _find_same_file(path: Path, place: WorkspaceView) -> Path | None:
    """Return the secret file for which `path` is another name, if any."""
    try:
        there = path.stat()
    except OSError:
        return None
    if there.st_nlink < 2 or path.is_dir():
        return None
    for file in itertools.chain.from_iterable(map(list_secret_files, place.roots)):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, file.stat()):
                return file
    return None


def make_link_test(place: WorkspaceView) -> Callable[[Path], bool]:
    """Return a test for other names of secret files, which are listed once, on first use."""

    @functools.cache
    def inodes() -> frozenset[tuple[int, int]]:
        numbers: set[tuple[int, int]] = set()
        for file in itertools.chain.from_iterable(map(list_secret_files, place.roots)):
            with contextlib.suppress(OSError):
                seen = file.stat()
                numbers.add((seen.st_dev, seen.st_ino))
        return frozenset(numbers)

    def test(path: Path) -> bool:
        try:
            there = path.stat()
        except OSError:
            return False
        return there.st_nlink > 1 and (there.st_dev, there.st_ino) in inodes()

    return test


def list_secret_files(root: Path) -> Iterator[Path]:
    """Walk a folder for files with a secret name."""
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("node_modules", ".venv", "__pycache__") and f != ".git"]
        seen += len(files) + len(folders)
        if seen > WALKED:
            return
        for name in files:
            if _is_secret_name(name):
                yield Path(folder, name)


@functools.cache
def _compile_secrets() -> re.Pattern[str]:
    """Compile a pattern of secret names in lower-case relative paths, as `explain_secret`."""
    folders = "|".join(map(re.escape, sorted(LISTS.secret_folders)))
    return re.compile(rf"(?:^|/)(?:(?:{folders})(?:/|$)|{_compile_names().pattern}$)")


def make_secret_filter(root: Path, place: WorkspaceView) -> Callable[[str], bool]:
    """Return a test whether the file at a path relative to `root` is secret or sakti's."""
    pattern = _compile_secrets()
    own_names = tuple(o.relative_to(root).as_posix() for o in place.own if o.is_relative_to(root))
    if own_names:
        inside = tuple(f"{o}/" for o in own_names)
        return lambda path: bool(pattern.search(path.lower())) or path in own_names or path.startswith(inside)
    return lambda path: bool(pattern.search(path.lower()))


def _convert_glob(pattern: str) -> str:
    """Convert a glob of a name to a regular expression for a name in a longer path."""
    return "".join("[^/]*" if c == "*" else re.escape(c) for c in pattern)


def list_exclusions(place: WorkspaceView, for_files: str, for_folders: str) -> list[str]:
    """Return options with which a program that searches folders excludes secrets by name.

    Empty if names do not suffice, because a secret file has another name.
    """
    files = [f for root in place.roots for f in list_secret_files(root)]
    try:
        if any(f.stat().st_nlink > 1 for f in files):
            return []
    except OSError:
        return []
    names = dict.fromkeys((*SECRET_NAMES, *(re.sub(r"([*?\[\\])", r"[\1]", f.name) for f in files)))
    return [*(for_files + n for n in names), *(for_folders + n for n in sorted(LISTS.secret_folders))]


def find_secret(folder: Path, *, hidden: bool = True) -> Path | None:
    """Return the first secret file below `folder`, or None.

    `hidden`: include files with a name, or a folder above them, that begins with a dot.
    """
    files = list_secret_files(folder)
    seen = (f for f in files if hidden or not any(p.startswith(".") for p in f.relative_to(folder).parts))
    return next(seen, None)
