"""Define the data of importers: sources, and entries of threads.

Parents and newest branches come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.core.text import clean_surrogates
from sakti.core.types import Part, Role

Kind: TypeAlias = Literal["message", "boundary", "raw", "note", "end"]


class ThreadInfo(Struct, frozen=True):
    """Thread of a source; its entries share it.

    `id` is unique within the program. `parent` is the id of the thread that started this one. `unless`: this thread is
    skipped if one of these was imported.
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
    Consecutive entries of one role with the same `answer` are one message. `kind`: a note is no message, but a parent
    of others; an end marks the answer before it as complete. `counted`: it is a separate message in the source.
    `is_open`: the source may still change it.
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
    end: int = 0  # offset in the source after it, if the source is read in order


class Problem(Struct, frozen=True):
    """Part of a source that could not be imported unchanged."""

    file: str
    line: int
    why: str


class Source(Struct, frozen=True):
    """File or database to import from; links out of the folder `root` are refused."""

    program: str
    path: Path
    root: Path
    side: tuple[Path, ...] = ()  # files whose changes count as changes of the source
    key: str = ""  # its path after --map, if ids are only unique within it


class TodoItem(Struct, frozen=True):
    """Task of a thread in another program; `blocks`: ids of tasks that wait for it."""

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

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]:
        return iter(())


def iter_newest_first(read: Callable[[Findings], Iterable[Entry]], findings: Findings) -> Iterator[Entry]:
    """Yield the entries of the branch with the newest leaf, then the others.

    Parents come before their children. `read` reads the source from its beginning. A source without branches is read
    twice, so that its entries need not all be in memory.
    """
    if not _has_branches(read(Findings())):
        yield from read(findings)
        return
    newest = _find_newest_branch(read(Findings()))
    # read in two passes, so an entry's offset is not the end of the imported part
    yield from (replace(entry, end=0) for entry in read(findings) if entry.id in newest)
    yield from (replace(entry, end=0) for entry in read(Findings()) if entry.id not in newest)


def _has_branches(entries: Iterable[Entry]) -> bool:
    """Return whether the parent of an entry is not in the previous step.

    A step is a prompt, or an answer and the results of its calls: the parent of a result is the line of its call.
    """
    step: set[str] = set()
    answer, is_first = "", True
    for entry in entries:
        if not is_first and entry.parent and entry.parent not in step:
            return True
        if not _belongs_to_parent(entry, answer):
            step.clear()
            answer = entry.answer
        step.add(entry.id)
        is_first = False
    return False


def _find_newest_branch(entries: Iterable[Entry]) -> set[str]:
    """Return the ids of the entries from the root to the last message, with the results of their calls."""
    parents: dict[str, str] = {}
    beside: list[str] = []  # entries that belong to the step of their parent
    leaf = last = answer = ""
    for entry in entries:
        # the line of a missing parent may have been damaged
        parents[entry.id] = entry.parent if entry.parent in parents else last
        last = entry.id
        if entry.kind == "message":
            leaf = entry.id
        if _belongs_to_parent(entry, answer):
            beside.append(entry.id)
        answer = entry.answer or answer
    branch = _find_path_to(leaf, parents)
    branch.update(entry_id for entry_id in beside if parents[entry_id] in branch)
    return branch


def _belongs_to_parent(entry: Entry, answer: str) -> bool:
    """Return whether an entry continues a step: a note, a result, or another line of an answer."""
    return entry.kind != "message" or entry.role == "tool" or (bool(entry.answer) and entry.answer == answer)


def _find_path_to(leaf: str, parents: dict[str, str]) -> set[str]:
    path: set[str] = set()
    while leaf and leaf not in path:
        path.add(leaf)
        leaf = parents.get(leaf, "")
    return path
