"""Checkpoints of one workspace: its shadow repository, its records, and how to undo them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.checkpoints import history, overflow, restore, safe_paths, surroundings
from sakti.agent.checkpoints import plan as plans
from sakti.agent.checkpoints import records as call_records
from sakti.agent.checkpoints.objects import FILE, HISTORY, Objects, parse_index
from sakti.agent.checkpoints.plan import NetChange, PathChange, PathEntry, Plan, has_same_mode, is_same
from sakti.agent.checkpoints.records import CallMark, PendingCall, Records, UndoRecord
from sakti.agent.checkpoints.scanner import LARGEST as COVERED
from sakti.agent.checkpoints.scanner import GitScanner, Scanner, WorkspaceSnapshot, find_git, read_packed
from sakti.agent.judge.expansion import NOTHING, Targets
from sakti.agent.judge.workspace_view import WorkspaceView, explain_secret, make_secret_filter
from sakti.core import resources
from sakti.core.clock import Clock, Ids
from sakti.core.errors import SaktiError
from sakti.core.text import to_one_line

DAY_S = 86_400
KEPT_DAYS = 30
LARGEST = 2_000_000_000  # bytes of the contents of one workspace
SHARED_MS = 120_000  # after more time, a change during a background command may be the user's
MARGIN_NS = 3_000_000_000  # the process of a call may have lived this long after its last heartbeat
YOUNG_S = 3_600  # contents this recent may belong to a call that is not recorded yet

try:
    import fcntl
except ImportError:  # Windows: one window a workspace
    fcntl = None


class WorkspaceBefore(Struct, frozen=True):
    """A workspace before a command, and files stored for an undo.

    `refused` says why some files named by the command could not be stored. `added` are the folders that the user opened
    beside the workspace; no change by the command is dated before `at_ns`.
    """

    picture: WorkspaceSnapshot
    beside: surroundings.Surroundings
    history: history.GitFiles
    kept: Mapping[str, PathEntry]
    refused: str = ""
    added: Mapping[str, overflow.AddedFolder] = field(default_factory=dict[str, overflow.AddedFolder])
    at_ns: int = 0


class FirstLook(Struct, frozen=True):
    """A running command: its mark, and the workspace before it."""

    mark: CallMark
    before: WorkspaceBefore


class Shadow(Struct, dict=True):
    """Checkpoints of a workspace; `folder` is their folder below the state folder."""

    workspace: Path
    folder: Path
    clock: Clock
    ids: Ids
    own: tuple[Path, ...] = ()
    _scanner: Scanner | None = None

    @cached_property
    def objects(self) -> Objects:
        return open_objects(self.folder)

    @cached_property
    def history(self) -> history.History:
        return history.History(self.workspace, self.objects)

    @cached_property
    def records(self) -> Records:
        return Records(self.folder)

    # --- what calls do --------------------------------------------------------------------------------------

    def before(
        self,
        named: Targets = NOTHING,
        turn: tuple[str, int] = ("", 0),
        command: str = "",
        added: Iterable[Path] = (),
    ) -> FirstLook:
        """Take a snapshot of the workspace and `added` folders before a command that names these files.

        The command's changes are recorded even if sakti is killed. Raises `SaktiError`, OSError.
        """
        with self.lock():
            self._finish_interrupted()
            picture = self.scanner().scan(modes=True)
            beside = surroundings.list_surroundings(self.workspace, picture.entries)
            history = self.history.look(beside.gits, keep=True)
            request = self._plan_keeping(named, picture)
            entries = surroundings.keep_files(self.workspace, request, self.objects)
            looks = {str(f): overflow.list_facts(f) for f in added if not f.is_relative_to(self.workspace)}
            before = WorkspaceBefore(
                picture, beside, history, entries, request.refused, looks, overflow.read_file_clock()
            )
            call = PendingCall(self.ids.new(), *turn, self.clock.now(), command)
            mark = call_records.begin_call(self.folder, call, before)
        return FirstLook(mark, before)

    def explain_loss(self, named: Targets) -> str:
        """Return why files that a command names could not be restored, "" if they can.

        Raises `SaktiError`, OSError.
        """
        with self.lock():
            return self._plan_keeping(named, self.scanner().scan()).refused

    def _plan_keeping(self, named: Targets, picture: WorkspaceSnapshot) -> surroundings.KeepingPlan:
        if named == NOTHING:
            return surroundings.KeepingPlan()
        tops = tuple(f"{t.relative_to(self.workspace)}/" for t in named.unignored if t.is_relative_to(self.workspace))
        visible = [self.workspace / p for p in picture.left_out if "./" in tops or p.startswith(tops)]
        small = [p for p in named.mentioned if p.stat().st_size <= COVERED]
        removed, written = (*named.removed, *visible), (*named.written, *small)
        return surroundings.plan_keeping(self.workspace, removed, written, picture.entries, self.objects)

    def follow(self, first: FirstLook) -> FirstLook:
        """Follow a command in the background, before the second snapshot of its call. Raises OSError."""
        began = first.mark.call
        call = PendingCall(self.ids.new(), *began.key, began.at, began.command, job=True, began_as=began.id)
        with self.lock():
            return FirstLook(call_records.begin_call(self.folder, call, first.before), first.before)

    def after(self, first: FirstLook, *, goes_on: bool = False) -> tuple[str, ...]:
        """Record the changes since the first snapshot; return the files that an undo cannot restore.

        `goes_on`: it is followed in the background. Raises `SaktiError`, OSError.
        """
        call = first.mark.call
        with self.lock():
            try:
                disputes = call.job and self.clock.now() - call.at > SHARED_MS
                return self._record(call, first.before, disputed_after=0 if disputes else None, goes_on=goes_on)
            finally:
                first.mark.end()

    def _record(
        self, call: PendingCall, before: WorkspaceBefore, *, disputed_after: int | None, goes_on: bool = False
    ) -> tuple[str, ...]:
        """Take the second snapshot of a call.

        Changes after `disputed_after` (ns, of the file system) may have been made by others.
        """
        try:
            comparison, history, gone = self._compare(before)
        except (OSError, SaktiError):
            self.add_uncovered(call.key, call.command, call.id)
            raise
        recorded = self.records.changed_since(call.at, call.began_as)
        changes = self._remove_recorded([*comparison.undoable, *history], recorded)
        changed, new = self._find_added_changes(before, recorded)
        lost, stays = (*comparison.lost, *gone, *changed), (*comparison.stays, *new)
        if disputed_after is not None:
            changes = [row for c in changes for row in self._split_disputed(c, disputed_after)]
        if changes or lost or stays:
            self.records.add(call.key, self.clock.now(), changes, lost, stays=stays, call=call.id)
        if not goes_on:
            self._remove_unused(before, changes)
        return lost

    def _remove_unused(self, before: WorkspaceBefore, changes: Sequence[PathChange]) -> None:
        """Drop contents stored before a call that did not change them."""
        used = {c.path for c in changes}
        self.objects.drop(e.oid for p, e in before.kept.items() if p not in used and ":" in e.oid)

    def _compare(self, before: WorkspaceBefore) -> tuple[surroundings.Changes, list[PathChange], list[str]]:
        scanner = self.scanner()
        picture = scanner.scan(modes=True, rules=False)
        ours = self._remove_unhidden(scanner, before, picture)
        beside = surroundings.list_surroundings(self.workspace, ours)
        old, new = (
            surroundings.WorkspaceState(before.picture.entries, before.beside),
            surroundings.WorkspaceState(ours, beside),
        )
        moves = surroundings.find_moves(self.workspace, old, new)
        moved = surroundings.keep_moved(self.workspace, moves, old, new, self.objects)
        moves = moves.limited_to(moved)
        result = surroundings.compare(self.workspace, old, new, {**moved, **before.kept}, picture.left_out, moves)
        for look in (before.beside, beside):
            for path in look.links.keys() & {c.path for c in result.undoable}:
                self.objects.put(os.fsencode(look.links[path]))
        gits = tuple(dict.fromkeys((*before.beside.gits, *beside.gits)))
        look = self.history.look(gits, keep=False, outside=before.history.outside)
        changes, gone = self.history.changes(before.history, look)
        seen = {*old.covered, *new.covered, *before.beside.files}
        came_or_gone = old.covered.keys() ^ new.covered.keys() | before.beside.files.keys() - beside.files.keys()
        explained = {p.rpartition("/")[0] for p in came_or_gone}
        gone += overflow.find_changed(self.workspace, before.beside.skipped, before.at_ns, seen, explained)
        return result, changes, gone

    def _find_added_changes(self, before: WorkspaceBefore, recorded: Container[str]) -> tuple[list[str], list[str]]:
        """Return changes and new files in added folders, without those that other calls recorded."""
        changed, new = list[str](), list[str]()
        for folder, look in before.added.items():
            paths, came = overflow.compare(Path(folder), look, overflow.list_facts(Path(folder)), before.at_ns)
            changed += paths
            new += came
        ours = (self.workspace, self.folder, *self.own)
        rows = [[p for p in names if p not in recorded and not _is_below(p, ours)] for names in (changed, new)]
        return rows[0], rows[1]

    def _remove_recorded(self, changes: Iterable[PathChange], recorded: Mapping[str, PathChange]) -> list[PathChange]:
        """Leave out changes that other calls recorded meanwhile."""
        rest: list[PathChange] = []
        for change in changes:
            before = recorded[change.path].after if change.path in recorded else None
            if change.path not in recorded:
                rest.append(change)
            elif not (is_same(before, change.after) and has_same_mode(before, change.after)):
                rest.append(replace(change, before=before))
        return rest

    def _split_disputed(self, change: PathChange, after: int) -> list[PathChange]:
        """Split a change that others may have made, so that an undo asks about it."""
        path = self.workspace / change.path
        try:
            changed = path.lstat().st_ctime_ns
        except OSError:
            above = next((p for p in path.parents if p.is_dir()), self.workspace)
            changed = above.stat().st_mtime_ns
        if changed <= after:
            return [change]
        return [
            PathChange(change.path, change.before, change.before),
            PathChange(change.path, change.after, change.after),
        ]

    def add_uncovered(self, turn: tuple[str, int], command: str, call: str = "", *, elsewhere: bool = False) -> None:
        """Record that a command's changes, or those it made `elsewhere`, are unknown. Raises OSError."""
        what = f"anything that `{to_one_line(command, 80)}` changed" if command else "anything that a command changed"
        what += " elsewhere" if elsewhere else ""
        self.records.add(turn, self.clock.now(), (), [what], call=call)

    # --- calls that a kill interrupted ------------------------------------------------------------------------

    def jobs(self) -> list[PendingCall]:
        """Return the commands that still run in the background."""
        return [call for call in call_records.list_calls(self.folder) if call.job]

    def _finish_interrupted(self) -> None:
        """Record the changes of calls whose process has ended. Raises OSError, `SaktiError`."""
        for mark in call_records.list_dead_calls(self.folder):
            with contextlib.suppress(SaktiError):  # it is recorded as not covered
                self._finish_interrupted_call(mark)
            mark.end()

    def _finish_interrupted_call(self, mark: CallMark) -> None:
        call, until = mark.call, mark.last_beat_ns() + MARGIN_NS
        for path in call.temporaries:
            safe_paths.remove_temporary(self.workspace, path, path.rpartition("/")[2])
        if call.writes:
            torn = [c for w in call.writes for c in self._find_torn(w, until)]
            if torn:
                self.records.add(call.key, self.clock.now(), torn)
        elif not self.records.has_call(call.key, call.id):
            before = mark.load()
            if isinstance(before, WorkspaceBefore):
                self._record(call, before, disputed_after=until)
            else:
                self.add_uncovered(call.key, call.command, call.id)

    def _find_torn(self, write: PathChange, until: int) -> Iterator[PathChange]:
        """Yield the change of a file that was being overwritten: it has neither content."""
        with contextlib.suppress(OSError, safe_paths.BlockedPath):
            now, _ = safe_paths.read_entry(
                self.workspace, write.path, [e.oid for e in (write.before, write.after) if e]
            )
            neither = now is not None and not is_same(now, write.before) and not is_same(now, write.after)
            if neither and (self.workspace / write.path).lstat().st_ctime_ns <= until:
                yield PathChange(write.path, write.after, now)

    def _remove_unhidden(
        self, scanner: Scanner, before: WorkspaceBefore, picture: WorkspaceSnapshot
    ) -> Mapping[str, PathEntry]:
        """Leave out files that only became visible: a command that changes .gitignore did not make them."""
        old, new = before.picture.entries, picture.entries
        came = [p for p in new if p not in old]
        hidden = {p for p in came if self._is_untouched(p, before.beside.files.get(p))}
        rules, rules_now = _list_ignore_files(old), _list_ignore_files(new)
        if came and rules != rules_now:
            texts = {path: self.objects.get(entry.oid) for path, entry in rules.items()}
            hidden |= scanner.list_ignored(came, texts)
        return {p: e for p, e in new.items() if p not in hidden} if hidden else new

    def _is_untouched(self, path: str, before: os.stat_result | None) -> bool:
        """Return whether a file is unchanged, even if the ignore rules treat it differently now."""
        if before is None:
            return False
        try:
            return surroundings.identify(os.lstat(self.workspace / path)) == surroundings.identify(before)
        except OSError:
            return False

    @contextlib.contextmanager
    def record_writes(
        self, files: Sequence[tuple[Path, bytes | None, int]], turn: tuple[str, int], temporaries: Sequence[Path] = ()
    ) -> Generator[None]:
        """Record the files that a tool writes meanwhile.

        Each file has its path, new content (None: deleted) and permissions if it is new; `temporaries` are files that
        the tool renames, which are removed after a kill. Raises OSError, `SaktiError`.
        """
        changes: list[PathChange] = []
        for path, data, mode in files:
            name = self.name_of(path)
            secret = self.is_secret(path)
            before, old = safe_paths.read_entry(self.workspace, name)
            if before is not None and before.oid.startswith(FILE):
                with safe_paths.open_parent(self.workspace, name) as (here, last):
                    self.objects.keep(before.oid, last, here)
            elif before is not None and before.oid not in ("", "other"):
                before = PathEntry(before.mode, self.objects.put(old, secret=secret))
            after = None
            if data is not None:
                after = PathEntry(before.mode if before is not None else mode, self.objects.put(data, secret=secret))
            changes += [*self._record_folder(path, name), PathChange(name, before, after)]
        names = tuple(self.name_of(t) for t in temporaries)
        with self.lock():
            self._finish_interrupted()
            call = PendingCall(self.ids.new(), *turn, self.clock.now(), writes=tuple(changes), temporaries=names)
            mark = call_records.begin_call(self.folder, call)
        try:
            with self.lock():
                self.records.add(turn, self.clock.now(), changes, call=call.id)
            yield
        finally:
            mark.end()

    def _record_folder(self, path: Path, name: str) -> list[PathChange]:
        """Record an empty folder in which a file is created: an undo keeps it."""
        folder = path.parent
        if "/" not in name or name.startswith("/") or not folder.is_dir() or any(os.scandir(folder)):
            return []
        return [PathChange(name.rpartition("/")[0], PathEntry(folder.stat().st_mode), None)]

    # --- the way back -----------------------------------------------------------------------------------------

    def plan(self, changes: Iterable[PathChange]) -> Plan:
        """Plan to reverse changes, given oldest first, from the present state of the files."""
        net = self._add_new_objects(plans.collapse(changes))
        now: dict[str, PathEntry | None] = {}
        for path, one in net.items():
            try:
                now[path], _ = safe_paths.read_entry(
                    self.workspace, path, [e.oid for e in (one.before, one.after) if e]
                )
            except PermissionError:
                now[path] = one.after  # in an inaccessible folder: checked once the folder is open again
        return plans.make_plan(net, now)

    def _add_new_objects(self, net: dict[str, NetChange]) -> dict[str, NetChange]:
        """Add the objects of repositories that did not exist before: calls do not record new objects.

        A repository with files that no call created belongs to others, and keeps its objects.
        """
        heads = [p for p, one in net.items() if f"/{p}".endswith("/.git/HEAD") and one.before is None]
        for git in [p.removesuffix("/HEAD") for p in heads if not p.startswith("/")]:
            net |= self._list_new_objects(git, net)
        return net

    def _list_new_objects(self, git: str, net: Mapping[str, NetChange]) -> dict[str, NetChange]:
        below = history.list_below(f"{self.workspace}/", git)
        files = {p: status for p, status in below if not stat.S_ISDIR(status.st_mode)}
        objects = {p: status for p, status in files.items() if history.is_object(p)}
        if not files.keys() - objects.keys() <= net.keys():
            return {}
        earlier = dict.fromkeys(
            (p for p in net if p.startswith(f"{git}/") and history.is_object(p)), NetChange(None, None)
        )
        return earlier | {
            p: NetChange(None, PathEntry(s.st_mode, safe_paths.make_history_id(p, s))) for p, s in objects.items()
        }

    def undo(
        self,
        plan: Plan,
        thread_id: str,
        turns: Sequence[tuple[str, int]],
        *,
        take: Iterable[str] = (),
        went_to: str = "",
    ) -> tuple[UndoRecord, list[str]]:
        """Write a plan, with only the conflicts named in `take`; return the undo and the skipped paths.

        Raises `SaktiError`.
        """
        done = UndoRecord(
            self.ids.new(), thread_id, tuple(turns), tuple(plan.steps(take)), self.clock.now(), went_to,
            folders=tuple(sorted(plan.folders)),
        )  # fmt: skip
        with self.lock():
            return done, self.restorer().run(done)

    def complete(self, done: UndoRecord, plan: Plan, *, take: Iterable[str] = ()) -> list[str]:
        """Write the paths that an undo could not; return those that still fail. Raises `SaktiError`."""
        rest = replace(done, steps=tuple(plan.steps(take)), unwritten=())
        with self.lock():
            return self.restorer().run(rest)

    def redo(self, done: UndoRecord, plan: Plan, *, take: Iterable[str] = ()) -> list[str]:
        """Reverse an undo by its plan; return the skipped paths. Raises `SaktiError`."""
        again = UndoRecord(
            done.id, done.thread_id, done.turns, tuple(plan.steps(take)), self.clock.now(),
            folders=tuple(sorted(plan.folders)),
        )  # fmt: skip
        with self.lock():
            return self.restorer().run(again, redoes=done.id)

    def recover(self) -> restore.RestoreRecovery | None:
        """Complete a restore that a kill interrupted, and take the second snapshots of interrupted calls.

        Returns None without an interrupted restore. Raises OSError, `SaktiError`.
        """
        interrupted = (self.folder / restore.JOURNAL).exists()
        if not interrupted and not call_records.list_calls(self.folder):
            return None
        with self.lock():
            recovery = self.restorer().recover() if interrupted else None
            self._finish_interrupted()
        return recovery

    def content(self, path: str, oid: str) -> bytes | None:
        """Return the present content of a path if it has that id."""
        entry, data = safe_paths.read_entry(self.workspace, path)
        return data if entry is not None and entry.oid == oid else None

    def prune(self) -> None:
        """Delete checkpoints over 30 days old, and the oldest while all take more than 2 GB; once a day."""
        stamp = self.folder / "pruned"
        with contextlib.suppress(FileNotFoundError):
            if stamp.stat().st_mtime > time.time() - DAY_S:
                return
        with self.lock():
            stamp.touch(mode=0o600)
            os.utime(stamp)
            now = self.clock.now()
            if self.records.forget_before(now - KEPT_DAYS * DAY_S * 1000):
                sweep(self.folder, older_than=time.time() - YOUNG_S)
            self.history.forget(self.records.list_needed())
            for _ in range(8):
                oldest = self.records.oldest()
                if self.size() <= LARGEST:
                    break
                if oldest is not None:
                    self.records.forget_before(oldest + max(1, (now - oldest) // 4))
                sweep(self.folder, keep_index=False)

    def size(self) -> int:
        """Return the bytes of all contents except copies of the repository's objects."""
        contents = sum(s.st_size for oid, _, s in self.objects.everything() if not oid.startswith(HISTORY))
        return contents + sum(p.stat().st_size for p in self.objects.packs())

    def restorer(self) -> restore.Restorer:
        return restore.Restorer(self.workspace, self.folder, self.objects, self.records)

    # --- parts ------------------------------------------------------------------------------------------------

    def scanner(self) -> Scanner:
        """Return the scanner of this workspace. Raises `SaktiError` without git and dulwich."""
        if self._scanner is None:
            secret = make_secret_filter(self.workspace, WorkspaceView(self.workspace, self.workspace, self.own))
            git = find_git(self.workspace)
            if git is not None:
                self._scanner = GitScanner(self.workspace, self.folder / "git", secret, git)
            else:
                from sakti.agent.checkpoints.dulwich_scanner import DulwichScanner  # dulwich is slow to import

                self._scanner = DulwichScanner(self.workspace, self.folder, secret, self.objects)
        return self._scanner

    def is_secret(self, path: Path) -> bool:
        return bool(explain_secret(path, WorkspaceView(self.workspace, self.workspace, self.own)))

    def name_of(self, path: Path) -> str:
        """Return the name of a path in records."""
        return path.relative_to(self.workspace).as_posix() if path.is_relative_to(self.workspace) else str(path)

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Context in which no other window reads or writes checkpoints."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _list_ignore_files(entries: Mapping[str, PathEntry]) -> dict[str, PathEntry]:
    return {p: e for p, e in entries.items() if p.rpartition("/")[2] == ".gitignore" and e.oid}


def _is_below(path: str, folders: Iterable[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def find_folder(workspace: Path) -> Path:
    """Return the folder of a workspace's checkpoints."""
    return get_checkpoints_home() / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:24]


def get_checkpoints_home() -> Path:
    return resources.state_home() / "checkpoints"


def open_shadow(workspace: Path, clock: Clock, ids: Ids) -> Shadow:
    """Return the checkpoints of a workspace; nothing is created before the first change."""
    own_folders = (get_checkpoints_home(), resources.data_home(), resources.config_home())
    return Shadow(workspace, find_folder(workspace), clock, ids, own_folders)


def purge_thread(thread_id: str) -> int:
    """Delete the checkpoints of a thread in every workspace, and count them.

    Contents that nothing else needs are deleted with them.
    """
    gone = 0
    for folder in get_checkpoints_home().glob("*"):
        gone += _forget_thread(folder, thread_id)
    return gone


def _forget_thread(folder: Path, thread_id: str) -> bool:
    records = Records(folder)
    call_records.forget_thread(folder, thread_id)
    if not records.forget_thread(thread_id):
        return False
    sweep(folder, keep_index=False)
    return True


def sweep(folder: Path, *, keep_index: bool = True, older_than: float = float("inf")) -> int:
    """Delete contents that no record names; return their bytes.

    `keep_index`: the last snapshot of the workspace is kept, so that the next one is quick.
    """
    freed = 0
    objects, records = open_objects(folder), Records(folder)
    needed = records.list_needed() | objects.names_of(HISTORY)  # copies that the next scan would make again
    needed |= {oid for before in call_records.load_all(folder) for oid in _list_ids(before)}
    if keep_index:
        indexed = _read_index_ids(folder / "git" / "index")
        if indexed is None:
            return 0
        needed |= indexed
    else:
        (folder / "git" / "index").unlink(missing_ok=True)
        freed = objects.unpack(needed)
    return freed + objects.sweep(needed, older_than)


def _list_ids(before: object) -> Iterator[str]:
    if isinstance(before, WorkspaceBefore):
        for entries in (before.picture.entries, before.history.entries, before.kept):
            yield from (e.oid for e in entries.values() if e.oid)


def open_objects(folder: Path) -> Objects:
    """Return the contents that a folder of checkpoints keeps."""
    git = find_git(Path(os.devnull))

    def read(oid: str) -> bytes | None:
        return read_packed(git, folder / "git", oid) if git is not None else None

    return Objects(folder / "git", folder / "secret", read)


def _read_index_ids(file: Path) -> set[str] | None:
    """Return the ids that a git index names, or None if it cannot be read."""
    try:
        return {oid for oid, _ in parse_index(file.read_bytes())}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError):
        return None
