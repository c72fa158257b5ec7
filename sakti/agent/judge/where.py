"""Place of a call and the tool facts that are needed to judge it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from sakti.core.text import clean_surrogates

# What a call of a tool does: reads or writes the files that it names, runs a command, opens a URL, sends a query to a
# search service, calls an MCP server, or touches only what is sakti's own: its tasks and memory, the commands that it
# started.
Effect: TypeAlias = Literal["read", "write", "run", "fetch", "search", "remote", "own"]
# What is done with a file: its content is read, it is changed, or only its name and size are looked at.
Access: TypeAlias = Literal["read", "write", "name"]
# What holds a command: all that the sandbox is, a part of it, nothing.
LevelName: TypeAlias = Literal["sandboxed", "partial", "unsandboxed"]


class RemoteFacts(Struct, frozen=True):
    """Facts of a server's tool.

    `reads_only` counts only for servers of the user. `is_confined`: the server runs in the sandbox, without a network.
    `fingerprint` is the hash of description and schema, `diff` how they differ from the approved ones. `note_use` is
    called before a call that may run, with whether the user allowed that very call.
    """

    reads_only: bool
    is_destructive: bool
    is_confined: bool
    fingerprint: str
    diff: Callable[[], str]
    note_use: Callable[[bool], None]


class Facts(Protocol):
    """What a tool declares about itself.

    `named` gives the paths in a call; rules call the tool `rule_name`. `remote` are the facts of a server's tool.
    """

    @property
    def effect(self) -> Effect: ...
    @property
    def rule_name(self) -> str: ...
    @property
    def remote(self) -> RemoteFacts | None: ...
    def named(self, arguments: Mapping[str, Any]) -> Sequence[str]: ...


class Place(Struct, frozen=True):
    """Where a call would act.

    `own` are sakti's own folders: its data and its configuration. `outputs` is the folder of long outputs of tools,
    kept for the model to read. `changed` are the files that run later and were changed here, each with its diff.
    `level` tells what holds the commands that run there, `readable` are folders outside of the workspace that may be
    read unasked: those of skills. `hosts` may be reached by every command. `added` are folders that the user opened
    beside the workspace, for this session. `own_network`: hosts can be opened to commands inside of the sandbox.
    `search_service` is the name of the service that searches the web. `reader` names for refusals what only reads.
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
        """Return whether a path, which is resolved, lies in the workspace or an added folder."""
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
        # judged for each word of a command: a Path takes five times as long
        return Path(os.path.realpath(os.path.join(folder, os.path.expanduser(path))))  # noqa: PTH111, PTH118
    except (ValueError, OSError):
        return Path(os.path.realpath(folder / clean_surrogates(path)))


_SYSTEM = tuple(Path(p) for p in ("/usr", "/opt", "/lib", "/lib64", "/bin", "/sbin", "/Library", "/Applications"))


def is_system(path: Path) -> bool:
    """Return whether a path is where programs are installed."""
    return any(path.is_relative_to(p) for p in (*_SYSTEM, Path(sys.prefix), Path(sys.base_prefix)))
