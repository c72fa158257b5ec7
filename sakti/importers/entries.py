"""Define what importers yield: sources, and entries of threads, parents first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from sakti.core.text import clean_surrogates
from sakti.core.types import Part, Role

Kind: TypeAlias = Literal["message", "boundary", "raw", "note", "end"]


class ThreadInfo(Struct, frozen=True):
    """Thread of a source; its entries share it.

    `id` is unique within the program. `parent` is the id of the thread that started this one. `unless`: ids of threads
    of which one that was imported makes this one superfluous.
    """

    id: str
    cwd: str = ""
    title: str = ""
    version: str = ""
    file: str = ""
    parent: str = ""
    unless: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Entry(Struct, frozen=True):
    """One entry of a source.

    `id` is unique within the program. `parent` is the entry before it, "" if that is the last one of the thread.
    Entries of one role with the same `answer` that follow each other are one message. `kind`: a note is no message; it
    only stands for a line on which others hang. An end says that the answer before it is finished. `counted`: it is a
    message of its own in the source. `is_open`: the source may still change it.
    """

    thread: ThreadInfo
    id: str
    role: Role = "system"
    parts: tuple[Part, ...] = ()
    time: int = 0
    parent: str = ""
    answer: str = ""
    kind: Kind = "message"
    counted: bool = True
    title: str = ""
    is_open: bool = False
    end: int = 0  # offset in the source behind it, where the source is read in its order


class Problem(Struct, frozen=True):
    """Part of a source that could not be imported as it is."""

    file: str
    line: int
    why: str


class Source(Struct, frozen=True):
    """File or database to import from; `root` is the folder that it may not lead out of."""

    program: str
    path: Path
    root: Path
    side: tuple[Path, ...] = ()  # files whose change is a change of the source
    key: str = ""  # its path after --map, for ids that are unique only in it


class TodoItem(Struct, frozen=True):
    """Task that another program kept for a thread; `blocks`: ids of tasks that wait for it."""

    thread: ThreadInfo
    id: str
    title: str
    description: str = ""
    status: str = "open"
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()


class Findings(Struct):
    """Results of reading besides entries; `read_to`: the end of the last complete line."""

    problems: list[Problem] = field(default_factory=list[Problem])
    dropped_thinking: int = 0
    read_to: int = 0

    def add(self, file: Path, line: int, why: str) -> None:
        self.problems.append(Problem(clean_surrogates(str(file)), line, why))


class Importer(Protocol):
    """Reader of one program's history.

    `find` yields the sources below a folder of the program, parents before children. `entries` yields the entries of a
    source from an offset on (0: all of it). `todos` yields the tasks of a source.
    """

    program: str

    def place(self, home: Path, workspace: Path) -> Path | None: ...

    def find(self, root: Path, findings: Findings) -> Iterable[Source]: ...

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]: ...

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]: ...
