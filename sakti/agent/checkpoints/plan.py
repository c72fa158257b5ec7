"""Decide what an undo writes back. Pure.

A turn's calls each recorded what a path was before and what they left. Only a path that is still what the last call
left is written back without a question; everything else is a conflict.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Action: TypeAlias = Literal["create", "change", "delete"]


class Entry(Struct, frozen=True):
    """A file, link or folder: its full mode (as in `st_mode`) and the id of its content, empty for a folder."""

    mode: int
    oid: str = ""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def as_json(self) -> list[Any]:
        return [self.mode, self.oid]


class Change(Struct, frozen=True):
    """What a call did to a path: relative to the workspace, absolute outside of it; None: there was nothing."""

    path: str
    before: Entry | None
    after: Entry | None

    def as_json(self) -> list[Any]:
        return [self.path, *(e.as_json() if e is not None else None for e in (self.before, self.after))]

    @classmethod
    def of(cls, value: Sequence[Any]) -> Change:
        before, after = (Entry(int(e[0]), str(e[1])) if e is not None else None for e in value[1:3])
        return cls(str(value[0]), before, after)

    def reversed(self) -> Change:
        return Change(self.path, self.after, self.before)


class Net(Struct, frozen=True):
    """All changes of a path by several calls. `broken`: somebody else changed it between two of them."""

    before: Entry | None
    after: Entry | None
    broken: bool = False


class Item(Struct, frozen=True):
    """One path of a plan: from what it is now to what it becomes. `conflict` says why it is asked about, or is ""."""

    path: str
    action: Action
    now: Entry | None
    to: Entry | None
    conflict: str = ""

    @property
    def step(self) -> Change:
        return Change(self.path, self.now, self.to)


class Plan(Struct, frozen=True):
    """What an undo would do; `folders` are kept although nothing is left in them."""

    items: tuple[Item, ...] = ()
    folders: frozenset[str] = frozenset()

    @property
    def conflicts(self) -> tuple[Item, ...]:
        return tuple(i for i in self.items if i.conflict)

    def steps(self, restore: Iterable[str] = ()) -> list[Change]:
        """Return what is written, in order: what is deleted first; `restore` are conflicts that are written, too."""
        chosen = set(restore)
        taken = [i for i in self.items if not i.conflict or i.path in chosen]
        deleted = sorted((i for i in taken if i.to is None), key=lambda i: i.path, reverse=True)
        return [i.step for i in (*deleted, *sorted((i for i in taken if i.to is not None), key=lambda i: i.path))]

    def count(self, action: Action) -> int:
        return sum(i.action == action and not i.conflict for i in self.items)


CHANGED = "changed since"
BETWEEN = "changed by others between two calls"
GONE = "deleted since"


def same(one: Entry | None, other: Entry | None) -> bool:
    """Return whether two entries are equal as far as an undo is concerned: kind, content, executable or not."""
    if one is None or other is None:
        return one is other
    if stat.S_IFMT(one.mode) != stat.S_IFMT(other.mode) or one.oid != other.oid:
        return False
    return not stat.S_ISREG(one.mode) or bool(one.mode & 0o111) == bool(other.mode & 0o111)


def fits(now: Entry | None, expected: Entry | None) -> bool:
    """Return whether a path may be written: it is as expected, or nothing was and a folder stands there."""
    return same(now, expected) or (expected is None and now is not None and now.is_folder)


def collapse(changes: Iterable[Change]) -> dict[str, Net]:
    """Return the first state and the last of each path, from the changes of calls in their order."""
    found: dict[str, Net] = {}
    for change in changes:
        if (known := found.get(change.path)) is None:
            found[change.path] = Net(change.before, change.after)
        else:
            broken = known.broken or not same(known.after, change.before)
            found[change.path] = Net(known.before, change.after, broken)
    return found


def make(net: Mapping[str, Net], now: Mapping[str, Entry | None]) -> Plan:
    """Plan the way back from `now`, which has an entry for each path of `net`."""
    items = [item for path in sorted(net) if (item := _item(path, net[path], now[path])) is not None]
    folders = frozenset(p for p, n in net.items() if n.before is not None and n.before.is_folder)
    return Plan(tuple(items), folders)


def _item(path: str, net: Net, now: Entry | None) -> Item | None:
    want = net.before
    if same(now, want):
        return None
    if want is None and now is not None and now.is_folder and not (net.after and net.after.is_folder):
        return None  # a folder stands where a file was made: not ours to delete
    if want is not None and want.is_folder and now is not None:
        return None  # what stands in its place was not made by the calls, or is deleted by itself
    action: Action = "delete" if want is None else "create" if now is None else "change"
    conflict = ""
    if not same(now, net.after) and not (net.after is None and now is not None and now.is_folder):
        conflict = GONE if now is None else CHANGED
    elif net.broken:
        conflict = BETWEEN
    if conflict and ((want and want.is_folder) or (now and now.is_folder and want is None)):
        return None  # nobody loses anything by a folder
    emptied = now is not None and now.is_folder and net.after is None  # what is in it is deleted before
    return Item(path, action, None if emptied else now, _with_permissions(want, net.after, now), conflict)


def _with_permissions(want: Entry | None, after: Entry | None, now: Entry | None) -> Entry | None:
    """Return what is written: with the checkpoint's permissions, but those that somebody set since."""
    if want is None or now is None or not (stat.S_ISREG(want.mode) and stat.S_ISREG(now.mode)):
        return want
    if after is not None and stat.S_IMODE(after.mode) == stat.S_IMODE(now.mode):
        return want
    return Entry(now.mode, want.oid) if bool(now.mode & 0o111) == bool(want.mode & 0o111) else want


def back(steps: Sequence[Change], now: Mapping[str, Entry | None]) -> Plan:
    """Plan the way back from what an undo wrote (`steps`): a redo, with the same care."""
    return make(collapse(s for s in steps), now)
