"""Order the entries of a tree so that its newest branch comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from sakti.importers.entries import Entry, Findings


def newest_first(read: Callable[[Findings], Iterable[Entry]], findings: Findings) -> Iterator[Entry]:
    """Yield the entries of the branch with the newest leaf, then the others.

    Parents stay before their children. `read` reads the source from its beginning. A source without branches is read
    once to see that, and once more; no entry of it is held.
    """
    if not _has_branches(read(Findings())):
        yield from read(findings)
        return
    newest = _newest_branch(read(Findings()))
    # read in two passes, so the offset of an entry is not that up to which the source was imported
    yield from (replace(entry, end=0) for entry in read(findings) if entry.id in newest)
    yield from (replace(entry, end=0) for entry in read(Findings()) if entry.id not in newest)


def _has_branches(entries: Iterable[Entry]) -> bool:
    """Return whether an entry hangs on one that is not in the step before it.

    A step is a prompt, or an answer and the results of its calls: each result hangs on the line of its own call.
    """
    step: set[str] = set()
    answer, is_first = "", True
    for entry in entries:
        goes_on = _belongs_to_parent(entry, answer)
        if not is_first and entry.parent and entry.parent not in step:
            return True
        if not goes_on:
            step.clear()
            answer = entry.answer
        step.add(entry.id)
        is_first = False
    return False


def _newest_branch(entries: Iterable[Entry]) -> set[str]:
    """Return the ids of the entries from the root to the last message, with the results of their calls."""
    parents: dict[str, str] = {}
    beside: list[str] = []  # entries that belong to the step of their parent
    leaf = last = answer = ""
    for entry in entries:
        # the line of a parent that is missing may have been damaged
        parents[entry.id] = entry.parent if entry.parent in parents else last
        last = entry.id
        if entry.kind == "message":
            leaf = entry.id
        if _belongs_to_parent(entry, answer):
            beside.append(entry.id)
        answer = entry.answer or answer
    branch = _path_to(leaf, parents)
    branch.update(entry_id for entry_id in beside if parents[entry_id] in branch)
    return branch


def _belongs_to_parent(entry: Entry, answer: str) -> bool:
    """Return whether an entry goes on in a step: a note, a result, or another line of an answer."""
    return entry.kind != "message" or entry.role == "tool" or (bool(entry.answer) and entry.answer == answer)


def _path_to(leaf: str, parents: dict[str, str]) -> set[str]:
    path: set[str] = set()
    while leaf and leaf not in path:
        path.add(leaf)
        leaf = parents.get(leaf, "")
    return path
