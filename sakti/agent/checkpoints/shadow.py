"""Hold the checkpoints of one workspace: its shadow repository, records, and the way back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.checkpoints import history, places, restore, uncovered
from sakti.agent.checkpoints import plan as plans
from sakti.agent.checkpoints.objects import FILE, HISTORY, Objects, index_entries
from sakti.agent.checkpoints.plan import Change, Entry, Plan
from sakti.agent.checkpoints.records import Records, Undone
from sakti.agent.checkpoints.scanner import LARGEST as COVERED
from sakti.agent.checkpoints.scanner import GitScanner, Picture, Scanner, packed, program
from sakti.agent.checkpoints.targets import NOTHING, Targets
from sakti.agent.judge.secrets import secret_filter, secret_reason
from sakti.agent.judge.where import Place
from sakti.core import resources
from sakti.core.clock import Clock
from sakti.core.ids import Ids
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.agent.checkpoints import dulwich_scanner

DAY_S = 86_400
KEPT_DAYS = 30
LARGEST = 2_000_000_000  # bytes of the contents of one workspace
YOUNG_S = 3_600  # what was kept so lately may be of a call that has not been recorded yet

try:
    import fcntl
except ImportError:  # Windows: one window a workspace
    fcntl = None


class Before(Struct, frozen=True):
    """A workspace before a command, and files that were kept for an undo.

    `refused` says why not all that the command names could be kept.
    """

    picture: Picture
    beside: uncovered.Surroundings
    history: history.GitFiles
    kept: Mapping[str, Entry]
    refused: str = ""


class Shadow(Struct, dict=True):
    """What is kept of a workspace; `folder` is its folder below the state folder."""

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

    def before(self, named: Targets = NOTHING) -> Before:
        """Look at the workspace before a command that names these files. Raises `SaktiError`, OSError."""
        with self.locked():
            picture = self.scanner().scan(modes=True)
            beside = uncovered.look(self.workspace, picture.entries)
            history = self.history.look(beside.gits, keep=True)
            keeping = self._keeping(named, picture)
            kept = uncovered.keep(self.workspace, keeping, self.objects)
        return Before(picture, beside, history, kept, keeping.refused)

    def refuses(self, named: Targets) -> str:
        """Return why files that a command names could not be restored, "" if they can.

        Raises `SaktiError`, OSError.
        """
        with self.locked():
            return self._keeping(named, self.scanner().scan()).refused

    def _keeping(self, named: Targets, picture: Picture) -> uncovered.Keeping:
        if named == NOTHING:
            return uncovered.Keeping()
        tops = tuple(f"{t.relative_to(self.workspace)}/" for t in named.unignored if t.is_relative_to(self.workspace))
        visible = [self.workspace / p for p in picture.left_out if "./" in tops or p.startswith(tops)]
        small = [p for p in named.mentioned if p.stat().st_size <= COVERED]
        removed, written = (*named.removed, *visible), (*named.written, *small)
        return uncovered.plan_keeping(self.workspace, removed, written, picture.entries, self.objects)

    def after(self, before: Before, thread_id: str, index: int) -> tuple[str, ...]:
        """Record what changed since `before`; return the paths of files that an undo cannot restore.

        Raises `SaktiError`, OSError.
        """
        with self.locked():
            scanner = self.scanner()
            picture = scanner.scan(modes=True, rules=False)
            beside = uncovered.look(self.workspace, picture.entries)
            ours = self._without_unhidden(scanner, before, picture)
            result = uncovered.compare(
                self.workspace,
                uncovered.Moment(before.picture.entries, before.beside),
                uncovered.Moment(ours, beside),
                before.kept,
                picture.left_out,
            )
            gits = tuple(dict.fromkeys((*before.beside.gits, *beside.gits)))
            history, gone = self.history.changes(before.history, self.history.look(gits, keep=False))
            changes, lost = [*result.undoable, *history], (*result.lost, *gone)
            if changes or lost:
                self.records.add(thread_id, index, self.clock.now(), changes, lost)
            used = {c.path for c in changes}
            self.objects.drop(e.oid for p, e in before.kept.items() if p not in used and ":" in e.oid)
        return lost

    def _without_unhidden(self, scanner: Scanner, before: Before, picture: Picture) -> Mapping[str, Entry]:
        """Leave out files that only became visible: a command that changes .gitignore did not make them."""
        old, new = before.picture.entries, picture.entries
        rules = {p: e for p, e in old.items() if p.rpartition("/")[2] == ".gitignore" and e.oid}
        if all(new.get(p) is e or new.get(p) == e for p, e in rules.items()):
            return new
        texts = {path: self.objects.get(entry.oid) for path, entry in rules.items()}
        seen = scanner.ignored([p for p in new if p not in old], texts)
        return {p: e for p, e in new.items() if p not in seen}

    def writing(self, files: Sequence[tuple[Path, bytes | None, int]], thread_id: str, index: int) -> None:
        """Record what a file tool is about to write: path, new content (None: deleted), permissions of a new file.

        Raises OSError, `SaktiError`.
        """
        changes: list[Change] = []
        for path, data, mode in files:
            name = self.name_of(path)
            secret = self.is_secret(path)
            found, old = places.look(self.workspace, name)
            if found is not None and found.oid.startswith(FILE):
                with places.parent(self.workspace, name) as (here, last):
                    self.objects.keep(found.oid, last, here)
            elif found is not None and found.oid not in ("", "other"):
                found = Entry(found.mode, self.objects.put(old, secret=secret))
            after = None
            if data is not None:
                after = Entry(found.mode if found is not None else mode, self.objects.put(data, secret=secret))
            changes += [*self._folder_filled(path, name), Change(name, found, after)]
        with self.locked():
            self.records.add(thread_id, index, self.clock.now(), changes)

    def _folder_filled(self, path: Path, name: str) -> list[Change]:
        """Record an empty folder in which a file is made: an undo leaves it."""
        folder = path.parent
        if "/" not in name or name.startswith("/") or not folder.is_dir() or any(os.scandir(folder)):
            return []
        return [Change(name.rpartition("/")[0], Entry(folder.stat().st_mode), None)]

    # --- the way back -----------------------------------------------------------------------------------------

    def plan(self, changes: Iterable[Change]) -> Plan:
        """Plan the way back from changes, oldest first, by what is there now."""
        net = plans.collapse(changes)
        now: dict[str, Entry | None] = {}
        for path, one in net.items():
            try:
                now[path], _ = places.look(self.workspace, path, [e.oid for e in (one.before, one.after) if e])
            except PermissionError:
                now[path] = one.after  # in a folder that a call closed: it is looked at when that is open again
        return plans.make(net, now)

    def undo(
        self,
        plan: Plan,
        thread_id: str,
        turns: Sequence[tuple[str, int]],
        *,
        take: Iterable[str] = (),
        went_to: str = "",
    ) -> tuple[Undone, list[str]]:
        """Write back what a plan says, conflicts only where `take` names them; return the undo and what was left.

        Raises `SaktiError`.
        """
        done = Undone(
            self.ids.new(), thread_id, tuple(turns), tuple(plan.steps(take)), self.clock.now(), went_to,
            folders=tuple(sorted(plan.folders)),
        )  # fmt: skip
        with self.locked():
            return done, self.restorer().run(done)

    def complete(self, done: Undone, plan: Plan, *, take: Iterable[str] = ()) -> list[str]:
        """Write what an undo could not; return the paths that are still left. Raises `SaktiError`."""
        rest = replace(done, steps=tuple(plan.steps(take)), left=())
        with self.locked():
            return self.restorer().run(rest)

    def redo(self, done: Undone, plan: Plan, *, take: Iterable[str] = ()) -> list[str]:
        """Reverse an undo by its plan; return what was left. Raises `SaktiError`."""
        again = Undone(
            done.id, done.thread_id, done.turns, tuple(plan.steps(take)), self.clock.now(),
            folders=tuple(sorted(plan.folders)),
        )  # fmt: skip
        with self.locked():
            return self.restorer().run(again, redoes=done.id)

    def recover(self) -> list[str] | None:
        """Complete a restore that a kill interrupted."""
        if not (self.folder / restore.JOURNAL).exists():
            return None
        with self.locked():
            return self.restorer().recover()

    def content(self, path: str, oid: str) -> bytes | None:
        """Return the content that stands at a path now, where it is the one of that id."""
        found, data = places.look(self.workspace, path)
        return data if found is not None and found.oid == oid else None

    def prune(self) -> None:
        """Delete what is older than 30 days, and the oldest while all takes more than 2 GB; once a day."""
        stamp = self.folder / "pruned"
        with contextlib.suppress(FileNotFoundError):
            if stamp.stat().st_mtime > time.time() - DAY_S:
                return
        with self.locked():
            stamp.touch(mode=0o600)
            os.utime(stamp)
            now = self.clock.now()
            if self.records.forget_before(now - KEPT_DAYS * DAY_S * 1000):
                sweep(self.folder, older_than=time.time() - YOUNG_S)
            self.history.forget(self.records.needed())
            for _ in range(8):
                oldest = self.records.oldest()
                if self.size() <= LARGEST:
                    break
                if oldest is not None:
                    self.records.forget_before(oldest + max(1, (now - oldest) // 4))
                sweep(self.folder, keep_index=False)

    def size(self) -> int:
        """Return the bytes of all contents but the copies of the repository's objects."""
        contents = sum(s.st_size for oid, _, s in self.objects.everything() if not oid.startswith(HISTORY))
        return contents + sum(p.stat().st_size for p in self.objects.packs())

    def restorer(self) -> restore.Restorer:
        return restore.Restorer(self.workspace, self.folder, self.objects, self.records)

    # --- parts ------------------------------------------------------------------------------------------------

    def scanner(self) -> Scanner:
        """Return what takes pictures here. Raises `SaktiError` where neither git nor dulwich is there."""
        if self._scanner is None:
            secret = secret_filter(self.workspace, Place(self.workspace, self.workspace, self.own))
            found = program(self.workspace)
            if found is not None:
                self._scanner = GitScanner(self.workspace, self.folder / "git", secret, found)
            else:
                self._scanner = dulwich_scanner.DulwichScanner(self.workspace, self.folder, secret, self.objects)
        return self._scanner

    def is_secret(self, path: Path) -> bool:
        return bool(secret_reason(path, Place(self.workspace, self.workspace, self.own)))

    def name_of(self, path: Path) -> str:
        """Return a path as records name it."""
        return path.relative_to(self.workspace).as_posix() if path.is_relative_to(self.workspace) else str(path)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Let no other window look or write here meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def folder_of(workspace: Path) -> Path:
    """Return the folder of a workspace's checkpoints."""
    return home() / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:24]


def home() -> Path:
    return resources.state_home() / "checkpoints"


def open_shadow(workspace: Path, clock: Clock, ids: Ids) -> Shadow:
    """Return the checkpoints of a workspace; nothing is created before something changes."""
    own = (home(), resources.data_home(), resources.config_home())
    return Shadow(workspace, folder_of(workspace), clock, ids, own)


def purge_thread(thread_id: str) -> int:
    """Delete the checkpoints of a thread in every workspace, with the contents that nothing else needs; count them."""
    gone = 0
    for folder in home().glob("*"):
        gone += _forget(folder, thread_id)
    return gone


def _forget(folder: Path, thread_id: str) -> bool:
    records = Records(folder)
    if not records.forget_thread(thread_id):
        return False
    sweep(folder, keep_index=False)
    return True


def sweep(folder: Path, *, keep_index: bool = True, older_than: float = float("inf")) -> int:
    """Delete contents that no record names; return their bytes.

    `keep_index`: the last picture of the workspace stays, so that the next one is quick.
    """
    freed = 0
    objects, records = open_objects(folder), Records(folder)
    needed = records.needed() | objects.names_of(HISTORY)  # copies that the next look would make again
    if keep_index:
        indexed = _in_index(folder / "git" / "index")
        if indexed is None:
            return 0
        needed |= indexed
    else:
        (folder / "git" / "index").unlink(missing_ok=True)
        freed = objects.unpack(needed)
    return freed + objects.sweep(needed, older_than)


def open_objects(folder: Path) -> Objects:
    """Return the contents that a folder of checkpoints keeps."""
    git = program(Path(os.devnull))

    def read(oid: str) -> bytes | None:
        return packed(git, folder / "git", oid) if git is not None else None

    return Objects(folder / "git", folder / "secret", read)


def _in_index(file: Path) -> set[str] | None:
    """Return the ids that a git index names; None where it cannot be read."""
    try:
        return {oid for oid, _ in index_entries(file.read_bytes())}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError):
        return None
