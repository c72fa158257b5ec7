"""Discover the files by which a workspace changes the behaviour of sakti.

`TABLE` is the one list of them: trust, the sandbox and the readers of each kind take names and folders from it. The
contents of a workspace may be hostile: names and sizes are bounded, links are judged by their target, nothing waits for
a FIFO.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sakti.agent.project import markdown
from sakti.agent.project.markdown import list_imports
from sakti.core import resources
from sakti.core.config.reading import parse, read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports
from sakti.core.text import to_one_line

with lazy_imports:
    from sakti.agent.mcp import config as mcp_config
    from sakti.agent.project.hooks import settings as hook_settings

Kind: TypeAlias = Literal[
    "settings", "page", "hooks", "script", "instructions", "rule", "skill", "command", "agent", "mcp"
]
# A file is trusted with its content, by its path (it can only say something), or by its path unless it runs something.
Basis: TypeAlias = Literal["content", "path", "path unless it runs"]

CONFIG = ".sakti/config.toml"
HOOKS = (".claude/settings.json", ".claude/settings.local.json")  # only their hooks have an effect
SERVERS = ".mcp.json"  # as other programs write it
INSTRUCTIONS = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
BRANDS = (".sakti", ".agents", ".claude")
PAGES = ("memory.working_memory.schema", "memory.working_memory.template")  # settings that name a file

LONGEST = 1_000_000  # bytes of a file that is read
MOST = 500  # files that are listed at once
MOST_FOLDERS = 2_000
MOST_ENTRIES = 20_000  # of a workspace that is searched for instructions
DEEPEST = 4  # folders below one of the table
# Folders of tools and dependencies: they hold no secrets, and their texts do not instruct an agent.
DEPENDENCIES = frozenset("node_modules .venv venv __pycache__ .tox .mypy_cache .ruff_cache".split())
_SKIPPED = DEPENDENCIES | {".git"}
_SCRIPTS = frozenset(".sh .bash .zsh .fish .py .js .mjs .cjs .ts .rb .pl .php .lua .ps1 .bat .cmd .jar .exe".split())


class Location(Struct, frozen=True):
    """A file, or a folder with files, of one kind. The path of a folder ends with `/`."""

    kind: Kind
    path: str
    basis: Basis
    suffix: str = ""

    def holds(self, name: str) -> bool:
        """Return whether it has the file of a name; instructions are also those of folders below."""
        name = name.rpartition("/")[2] if self.kind == "instructions" else name
        return name.startswith(self.path) if self.path.endswith("/") else name == self.path


# Settings name files of one more kind, "page", and hooks name scripts in other folders: both are trusted with content.
TABLE: tuple[Location, ...] = (
    Location("settings", CONFIG, "content"),
    *(Location("hooks", name, "content") for name in HOOKS),
    Location("mcp", SERVERS, "content"),
    *(Location("script", f"{brand}/hooks/", "content") for brand in BRANDS),
    *(Location("instructions", name, "path") for name in INSTRUCTIONS),
    *(Location("rule", f"{brand}/rules/", "path", ".md") for brand in BRANDS),
    *(Location("agent", f"{brand}/agents/", "path", ".md") for brand in BRANDS),
    *(
        location
        for brand in BRANDS
        for location in (
            Location("skill", f"{brand}/skills/", "path unless it runs"),
            Location("command", f"{brand}/commands/", "path unless it runs"),
        )
    ),
)
_BASIS: Mapping[Kind, Basis] = {location.kind: location.basis for location in TABLE}


class ProjectFile(Struct, frozen=True):
    """A file of the workspace that has an effect; `name` is relative to the workspace."""

    name: str
    kind: Kind
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def is_text(self) -> bool:
        """Return whether it is a text for the model that runs nothing, and is trusted by path alone."""
        if _BASIS.get(self.kind) == "path unless it runs":
            return self.name.endswith(".md") and not markdown.runs_commands(self.text)
        return _BASIS.get(self.kind) == "path"


class ProjectFiles(Struct, frozen=True):
    """Files of a workspace that have an effect. `problem`: its settings are unreadable, so none has."""

    workspace: Path
    files: tuple[ProjectFile, ...] = ()
    problem: str = ""

    def select(self, *kinds: Kind) -> tuple[ProjectFile, ...]:
        return tuple(f for f in self.files if f.kind in kinds)

    @property
    def config(self) -> bytes | None:
        """Return the project's settings as they were read."""
        return next((f.data for f in self.select("settings")), None)


class ListedFile(Struct, frozen=True):
    """A file of a folder of the table, not read yet. `root` is that folder."""

    kind: Kind
    path: Path
    root: Path


def find_kind(name: str, default: Kind) -> Kind:
    """Kind of the file with a name relative to the workspace; `default` if the table does not have it."""
    for location in TABLE:
        if location.holds(name):
            return location.kind
    return default


def is_trusted_by_path(name: str) -> bool:
    """Return whether files of this name are trusted by path, whatever they contain."""
    return _BASIS.get(find_kind(name, "script")) == "path"


def select_hook_files(files: Iterable[ProjectFile]) -> dict[str, bytes]:
    """Files that may define hooks, by name."""
    return {f.name: f.data for f in files if f.kind in ("settings", "hooks") and b"ooks" in f.data}


def select_server_files(files: Iterable[ProjectFile]) -> dict[str, bytes]:
    """Files that may name MCP servers, by name."""
    return {f.name: f.data for f in files if f.kind == "mcp" or (f.kind == "settings" and b"mcp" in f.data)}


# --- reading ----------------------------------------------------------------------------------------------------------


def discover(workspace: Path) -> ProjectFiles:
    """Read the files of a workspace that have an effect. Raises nothing."""
    workspace = workspace.resolve()
    path = workspace / CONFIG
    try:
        config = read_bytes(path)
        settings = parse(config, path) if config is not None else {}
    except ConfigError as e:
        return ProjectFiles(workspace, problem=e.message)
    files: dict[str, ProjectFile] = {}
    for file in itertools.chain(
        [ProjectFile(CONFIG, "settings", config)] if config is not None else [],
        _read_pages(workspace, settings),
        _read_hooks(workspace, config or b""),
        _read_servers(workspace, config or b""),
        _read_texts(workspace),
        _read_skills(workspace),
    ):
        files.setdefault(file.name, file)
    return ProjectFiles(workspace, tuple(files.values()))


def _read_pages(workspace: Path, settings: Mapping[str, Any]) -> Iterator[ProjectFile]:
    for setting in PAGES:
        target = resolve_inside(workspace, settings.get(setting))
        # one that cannot be read is refused when it is used, with a message
        if target is not None and (data := _read(target, 100_000)) is not None:
            name = target.relative_to(workspace).as_posix()
            yield ProjectFile(name, find_kind(name, "page"), data)


def _read_hooks(workspace: Path, config: bytes) -> Iterator[ProjectFile]:
    """Yield the hooks of claude-code's settings, and the workspace's scripts that any hook runs."""
    files = [ProjectFile(CONFIG, "settings", config)]
    for name in HOOKS:
        data = _read_inside(workspace, name)
        if data and b"ooks" in data and (part := hook_settings.part(data)) is not None:
            files.append(ProjectFile(name, "hooks", part))
            yield files[-1]
    if sources := select_hook_files(files):
        for path in hook_settings.list_scripts(workspace, sources):
            if (data := _read(path)) is not None:
                yield ProjectFile(path.relative_to(workspace).as_posix(), "script", data)


def _read_servers(workspace: Path, config: bytes) -> Iterator[ProjectFile]:
    """Yield the file of MCP servers, and the workspace's scripts that any server runs."""
    files = [ProjectFile(CONFIG, "settings", config)]
    if (data := _read_inside(workspace, SERVERS)) is not None:
        files.append(ProjectFile(SERVERS, "mcp", data))
        yield files[-1]
    if sources := select_server_files(files):
        for path in mcp_config.list_scripts(workspace, sources):
            if (data := _read(path)) is not None:
                yield ProjectFile(path.relative_to(workspace).as_posix(), "script", data)


def _read_texts(workspace: Path) -> Iterator[ProjectFile]:
    """Yield instructions, also of the folders below, rules, their imports, and custom agents."""
    below = list(itertools.islice(_list_below(workspace), MOST))
    listed = [*list_files(workspace, "instructions"), *below, *list_files(workspace, "rule", "agent")]
    imported = list_imports([f.path for f in listed], workspace)
    listed += [ListedFile("instructions", path, path.parent) for path in itertools.islice(imported, MOST)]
    for file in listed:
        name = file.path.relative_to(workspace).as_posix()
        if (data := _read_inside(workspace, name)) is not None:
            yield ProjectFile(name, file.kind, data)


def _read_skills(workspace: Path) -> Iterator[ProjectFile]:
    """Yield the texts of skills and commands, and the files of a skill that could be run."""
    for file in list_files(workspace, "skill", "command"):
        if file.path.suffix == ".md" or _is_script(file.path):
            data = _read(file.path)
            if data is not None:
                yield ProjectFile(file.path.relative_to(workspace).as_posix(), file.kind, data)


def read_as(workspace: Path, name: str, aside: str) -> Iterator[ProjectFile]:
    """Yield the files of the table that a path held before it was set aside."""
    path = workspace / aside
    if not DEPENDENCIES.isdisjoint(Path(name).parts):  # no thread reads what is there
        return
    for file in [path] if path.is_file() else walk_folder(path, workspace):
        old = Path(name, file.relative_to(path)).as_posix()
        location = next((one for one in TABLE if one.holds(old)), None)
        data = _read(file) if location is not None and old.endswith(location.suffix) else None
        if location is not None and data is not None:
            yield ProjectFile(old, location.kind, data)


def _is_script(path: Path) -> bool:
    """Return whether a file of a skill can be run."""
    with contextlib.suppress(OSError):
        status = path.stat()
        if path.suffix in _SCRIPTS or status.st_mode & 0o111:
            return True
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                return file.read(2) == b"#!"
    return False


def _read_inside(workspace: Path, name: str) -> bytes | None:
    target = resolve_inside(workspace, name)
    return _read(target) if target is not None else None


def _read(path: Path, longest: int = LONGEST) -> bytes | None:
    """Read a regular file of a bounded size; None for any other, which its reader reports."""
    with contextlib.suppress(ConfigError):
        return read_bytes(path, longest)
    return None


def resolve_inside(workspace: Path, name: Any) -> Path | None:
    """Resolve a file that a project names, links followed; None if it is not in the workspace."""
    if not isinstance(name, str):
        return None
    try:
        path = (workspace / name).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, a name that is too long, a circle of links
        return None
    return path if path.is_relative_to(workspace.resolve()) else None


# A file is used only if its name, relative to the workspace, is one of those that were trusted.
Trusts: TypeAlias = Callable[[str], bool]


def trusts_all(_name: str) -> bool:
    return True


def describe_ignored(name: str) -> str:
    """Sentence on a text that appeared since the workspace was trusted."""
    return (
        f"{to_one_line(name, 80)}: new since the workspace was trusted, so left out. `sakti trust` shows and trusts it."
    )


# --- listing ----------------------------------------------------------------------------------------------------------


def list_files(workspace: Path, *kinds: Kind, most: int = MOST) -> list[ListedFile]:
    """List a workspace's files of some kinds, in the order of the table."""
    bound = Path(os.path.realpath(workspace))
    listed = (f for location in TABLE if location.kind in kinds for f in _list(location, workspace, bound))
    return list(itertools.islice(listed, most))


def _list_below(workspace: Path) -> Iterator[ListedFile]:
    """Yield the instructions of the folders below a workspace, links to folders not followed."""
    entries = 0
    for at, folders, names in os.walk(workspace):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED)
        entries += len(folders) + len(names)
        if entries > MOST_ENTRIES:
            return
        if Path(at) != workspace:
            present = (name for name in INSTRUCTIONS if name in names)
            yield from (ListedFile("instructions", Path(at, name), Path(at)) for name in present)


def list_user_files(*kinds: Kind) -> Iterator[ListedFile]:
    """List the user's own files of some kinds; links are followed, since the user made them."""
    for brand, folder in zip(BRANDS, list_user_folders(), strict=True):
        for location in TABLE:
            if location.kind in kinds and location.path.startswith(f"{brand}/"):
                yield from _walk(location, folder / location.path.removeprefix(f"{brand}/"), None)


def list_user_folders() -> tuple[Path, ...]:
    """Folders of the user that hold for all projects, one for each of `BRANDS`."""
    return (resources.config_home(), *(Path.home() / brand for brand in BRANDS[1:]))


def _list(location: Location, workspace: Path, bound: Path) -> Iterator[ListedFile]:
    path = workspace / location.path
    if location.path.endswith("/"):
        yield from _walk(location, path, bound)
    elif os.path.isfile(path):  # noqa: PTH113 - unlike Path.is_file it raises nothing
        yield ListedFile(location.kind, path, path.parent)


def _walk(location: Location, root: Path, bound: Path | None) -> Iterator[ListedFile]:
    for path in walk_folder(root, bound):
        if path.name.endswith(location.suffix):
            yield ListedFile(location.kind, path, root)


def walk_folder(root: Path, bound: Path | None = None) -> Iterator[Path]:
    """Yield the files of a folder, sorted, to a bound of depth and number of folders.

    With `bound`, a resolved folder, the root must lie in it and links to folders are not followed.
    """
    if bound is not None and not Path(os.path.realpath(root)).is_relative_to(bound):
        return
    depth = len(root.parts)
    walked = os.walk(root, followlinks=bound is None)
    for at, folders, names in itertools.islice(walked, MOST_FOLDERS):
        is_deepest = len(Path(at).parts) - depth >= DEEPEST
        folders[:] = [] if is_deepest else sorted(f for f in folders if f not in _SKIPPED)
        yield from (Path(at, name) for name in sorted(names))
