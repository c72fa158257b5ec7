"""Decide what an undo writes back. Pure.

Each call of a turn recorded the state of its paths before and after. A path is only restored without a question if it
is unchanged since the last call; everything else is a conflict.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sakti.core.lazy import lazy_pattern

Action: TypeAlias = Literal["create", "change", "delete"]


class PathEntry(Struct, frozen=True):
    """A file, link or folder: its mode (as `st_mode`) and the id of its content, "" for a folder."""

    mode: int
    oid: str = ""

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def as_json(self) -> list[Any]:
        return [self.mode, self.oid]


class PathChange(Struct, frozen=True):
    """Change of a path (relative to the workspace, absolute outside); None: the path did not exist."""

    path: str
    before: PathEntry | None
    after: PathEntry | None

    def as_json(self) -> list[Any]:
        return [self.path, *(e.as_json() if e is not None else None for e in (self.before, self.after))]

    @classmethod
    def of(cls, value: Sequence[Any]) -> PathChange:
        before, after = (PathEntry(int(e[0]), str(e[1])) if e is not None else None for e in value[1:3])
        return cls(str(value[0]), before, after)

    def reverse(self) -> PathChange:
        return PathChange(self.path, self.after, self.before)


class NetChange(Struct, frozen=True):
    """All changes of a path by several calls. `broken`: it was changed by others between two of them."""

    before: PathEntry | None
    after: PathEntry | None
    broken: bool = False


class PlanItem(Struct, frozen=True):
    """One path of a plan, with its present and its future entry.

    `conflict` is the reason to ask about it, or "".
    """

    path: str
    action: Action
    now: PathEntry | None
    to: PathEntry | None
    conflict: str = ""

    @property
    def step(self) -> PathChange:
        return PathChange(self.path, self.now, self.to)


class Plan(Struct, frozen=True):
    """Steps of an undo; `folders` are kept even if they become empty."""

    items: tuple[PlanItem, ...] = ()
    folders: frozenset[str] = frozenset()

    @property
    def conflicts(self) -> tuple[PlanItem, ...]:
        return tuple(i for i in self.items if i.conflict)

    def steps(self, restore: Iterable[str] = ()) -> list[PathChange]:
        """Return the steps in order; conflicts listed in `restore` are written, too.

        Folders are opened for writing before anything in them is written, and closed last; what is deleted comes
        before what is created.
        """
        chosen = set(restore)
        taken = [i for i in self.items if not i.conflict or {i.path, name_in_lists(i.path)} & chosen]
        return [i.step for i in sorted(taken, key=_sort_key)] + [i.step for i in reversed(taken) if _is_closed(i)]

    def count(self, action: Action) -> int:
        """Return the number of files with this action, without those of git's own folder."""
        return sum(i.action == action and not i.conflict and not is_history(i.path) for i in self.items)

    @property
    def has_history(self) -> bool:
        """Return whether something in git's own folder is restored."""
        return any(is_history(i.path) and not i.conflict for i in self.items)

    @property
    def rows(self) -> tuple[PlanItem, ...]:
        """Return the items for lists, with each `.git` folder as one item."""
        rows: dict[tuple[str, bool], PlanItem] = {}
        for item in self.items:
            name = name_in_lists(item.path)
            row = item if name == item.path else PlanItem(name, "change", None, None, item.conflict)
            rows.setdefault((name, bool(item.conflict)), row)
        return tuple(rows.values())


CHANGED = "changed since"
BETWEEN = "changed by others between two calls"
GONE = "deleted since"


def _sort_key(item: PlanItem) -> tuple[int, str | tuple[int, ...]]:
    """Sort key: folders made writable, then deletions from the inside out, then all others."""
    if item.to is None:
        return 1, tuple(-ord(c) for c in item.path)
    opens = item.to.is_folder and item.now is not None and item.now.is_folder and not _is_closed(item)
    return (0, item.path) if opens else (2, item.path)


def _is_closed(item: PlanItem) -> bool:
    """Return whether an item becomes a folder in which even its owner can change nothing."""
    return item.to is not None and item.to.is_folder and item.to.mode & 0o300 != 0o300


def is_history(path: str) -> bool:
    """Return whether a path lies in a folder that git keeps: branches, index, objects."""
    return ".git" in path.split("/")


def name_in_lists(path: str) -> str:
    """Return a path for display; the `.git` folder for everything in it."""
    parts = path.split("/")
    return "/".join(parts[: parts.index(".git") + 1]) if ".git" in parts else path


def has_same_mode(one: PathEntry | None, other: PathEntry | None) -> bool:
    """Return whether two entries have equal permissions; those of links mean nothing."""
    if one is None or other is None or stat.S_ISLNK(one.mode):
        return True
    return stat.S_IMODE(one.mode) == stat.S_IMODE(other.mode)


def is_same(one: PathEntry | None, other: PathEntry | None) -> bool:
    """Return whether two entries have the same kind, content and executable bit."""
    if one is None or other is None:
        return one is other
    if one.kind != other.kind or one.oid != other.oid:
        return False
    return not stat.S_ISREG(one.mode) or bool(one.mode & 0o111) == bool(other.mode & 0o111)


def is_expected(now: PathEntry | None, expected: PathEntry | None) -> bool:
    """Return whether a path may be written.

    Its entry must be the expected one; a folder is accepted if no entry was expected.
    """
    return is_same(now, expected) or (expected is None and now is not None and now.is_folder)


def collapse(changes: Iterable[PathChange]) -> dict[str, NetChange]:
    """Return the first state and the last of each path, from the changes of calls in their order."""
    net: dict[str, NetChange] = {}
    for change in changes:
        if (earlier := net.get(change.path)) is None:
            net[change.path] = NetChange(change.before, change.after)
        else:
            broken = earlier.broken or not _follows(earlier.after, change.before)
            net[change.path] = NetChange(earlier.before, change.after, broken)
    return net


def _get_id_kind(entry: PathEntry) -> str:
    kind, sign, _ = entry.oid.partition(":")
    return kind if sign else ""


def _follows(after: PathEntry | None, before: PathEntry | None) -> bool:
    """Return whether a call started from the state left by the last one; ids of two kinds are skipped."""
    if after is not None and before is not None and _get_id_kind(after) != _get_id_kind(before):
        return stat.S_IFMT(after.mode) == stat.S_IFMT(before.mode)
    return is_same(after, before)


def make_plan(net: Mapping[str, NetChange], now: Mapping[str, PathEntry | None]) -> Plan:
    """Plan the undo from `now`, which has an entry for each path of `net`."""
    items = [item for path in sorted(net) if (item := _plan_item(path, net[path], now[path])) is not None]
    folders = frozenset(p for p, n in net.items() if n.before is not None and n.before.is_folder)
    return Plan(tuple(_join_history(items, net)), folders)


def _join_history(items: Sequence[PlanItem], net: Mapping[str, NetChange]) -> Iterator[PlanItem]:
    """Restore a repository as a unit: if the user has worked in it since, only lost objects are restored.

    Entries that no call changed are recorded only to detect this.
    """
    moved = _list_moved_repositories(items)
    for item in items:
        if _is_unchanged(net[item.path]):
            continue
        is_lost_object = "/objects/" in item.path and item.to is not None
        together = is_history(item.path) and not is_lost_object and find_repository(item.path) in moved
        yield PlanItem(item.path, item.action, item.now, item.to, item.conflict or CHANGED) if together else item


def _list_moved_repositories(items: Sequence[PlanItem]) -> set[str]:
    """Return the repositories in which the user has worked since."""
    return {find_repository(i.path) for i in items if i.conflict and _LEADING.search(i.path)}


def _is_unchanged(net: NetChange) -> bool:
    return is_same(net.before, net.after) and has_same_mode(net.before, net.after)


# Files that define a repository's position: its branch, its staged files, its branches' commits.
_LEADING = lazy_pattern(r"(?:^|/)\.git/(?:.*/)?(?:HEAD|index|packed-refs|refs/heads/.*)$")


def find_repository(path: str) -> str:
    """Return the part of a path before `.git`, which is equal for all files of a repository."""
    return f"/{path}".partition("/.git/")[0]


def _is_folder(entry: PathEntry | None) -> bool:
    return entry is not None and entry.is_folder


def _choose_action(want: PathEntry | None, now: PathEntry | None) -> Action:
    if want is None:
        return "delete"
    return "create" if now is None else "change"


def _plan_item(path: str, net: NetChange, now: PathEntry | None) -> PlanItem | None:
    want = net.before
    if is_same(now, want):
        return _plan_mode(path, net, now)
    is_folder = _is_folder(now)
    if want is None and is_folder and not _is_folder(net.after):
        return None  # a folder replaced the created file: it is not ours to delete
    action = _choose_action(want, now)
    conflict = _find_conflict(net, now)
    if conflict and is_folder and want is None:
        return None  # removing an empty folder loses nothing
    emptied = is_folder and net.after is None  # its contents are deleted first
    return PlanItem(path, action, None if emptied else now, _choose_permissions(want, net.after, now), conflict)


def _find_conflict(net: NetChange, now: PathEntry | None) -> str:
    """Return why a path needs a question, or "" if it is unchanged since the calls or nothing is lost."""
    if now is None and net.before is not None and net.before.is_folder:
        return ""
    if not is_same(now, net.after) and not (net.after is None and now is not None and now.is_folder):
        return GONE if now is None else CHANGED
    return BETWEEN if net.broken else ""


def _plan_mode(path: str, net: NetChange, now: PathEntry | None) -> PlanItem | None:
    """Restore permissions that a call changed, unless they were changed again since."""
    changed = not has_same_mode(net.before, net.after) and has_same_mode(now, net.after)
    if now is None or not changed or has_same_mode(now, net.before):
        return None
    return PlanItem(path, "change", now, net.before)


def _choose_permissions(want: PathEntry | None, after: PathEntry | None, now: PathEntry | None) -> PathEntry | None:
    """Return the entry to write: the checkpoint's permissions, except for those changed since."""
    if want is None or now is None or not (stat.S_ISREG(want.mode) and stat.S_ISREG(now.mode)):
        return want
    if after is not None and stat.S_IMODE(after.mode) == stat.S_IMODE(now.mode):
        return want
    return PathEntry(now.mode, want.oid) if bool(now.mode & 0o111) == bool(want.mode & 0o111) else want


def back(steps: Sequence[PathChange], now: Mapping[str, PathEntry | None]) -> Plan:
    """Plan a redo: reverse the `steps` of an undo, with the same checks."""
    return make_plan(collapse(s for s in steps), now)
