"""Record the changes of each turn (one file per turn, one line per call), and the running calls.

Small files instead of a table: the contents they name are stored beside them, they survive a kill at any time (an
incomplete line is ignored), and removing a thread for good removes its folder.

A running call has a file that is locked while its process lives; its time is updated regularly. A later process can
lock the files of ended processes: it takes the second snapshot for them, and knows when they ended. The first line
names the call; the snapshot before the command follows.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from sakti.agent.checkpoints.plan import PathChange
from sakti.agent.tools import changes
from sakti.core.lazy import lazy_pattern

try:
    import fcntl
except ImportError:  # Windows: one window a workspace
    fcntl = None

_own: set[str] = set()  # calls of this process
BEAT_S = 1.0  # seconds between two renewals of the time
_TYPES = {("posix", "stat_result"), ("os", "stat_result"), ("builtins", "frozenset"), ("builtins", "set")}

MOST_NAMED = 100  # paths of each kind that a record names
_THREAD = lazy_pattern(r"[0-9A-Za-z_.-]{1,200}")


class PendingCall(Struct, frozen=True):
    """One running call: its turn, start (Unix ms), name and known effects.

    `job`: a command in the background, of the call with the id `began_as`. `writes` are the changes of a file tool,
    `temporaries` files that it renames.
    """

    id: str
    thread_id: str
    index: int
    at: int
    command: str = ""
    job: bool = False
    began_as: str = ""
    writes: tuple[PathChange, ...] = ()
    temporaries: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.thread_id, self.index


class CallMark(Struct):
    """Locked file of a call; `end` deletes it."""

    call: PendingCall
    file: Path
    handle: int

    def beat(self) -> None:
        """Note that the call still runs."""
        with contextlib.suppress(OSError):
            os.utime(self.handle)

    def last_beat_ns(self) -> int:
        return os.fstat(self.handle).st_mtime_ns

    def load(self) -> Any:
        """Return the snapshot before the call; None if missing or unreadable."""
        return _load(self.file)

    def end(self) -> None:
        self.file.unlink(missing_ok=True)
        os.close(self.handle)
        _own.discard(self.call.id)


class _Unpickler(pickle.Unpickler):
    """Unpickler for our own structures only: a file cannot name anything else, such as a function to call."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) in _TYPES:
            return super().find_class(module_name, global_name)
        if module_name.startswith("sakti.agent.checkpoints.") and global_name.isidentifier():
            value = super().find_class(module_name, global_name)
            if isinstance(value, type) and issubclass(value, Struct):
                return value
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not part of a call's notes")


def begin_call(folder: Path, call: PendingCall, before: object = None) -> CallMark:
    """Note a call, durably, before it begins; the workspace must be locked. Raises OSError."""
    file = _get_calls_folder(folder) / call.id
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    row = {**asdict(call), "writes": [c.as_json() for c in call.writes]}
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    mark = CallMark(call, file, handle)
    _own.add(call.id)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        with os.fdopen(handle, "wb", closefd=False) as f:
            f.write(json.dumps(row).encode() + b"\n")  # ASCII: any name is kept
            if before is not None:
                pickle.dump(before, f, protocol=5)
            f.flush()
            os.fsync(handle)
    except BaseException:
        mark.end()
        raise
    changes.flush_folder(file.parent)
    return mark


def list_dead_calls(folder: Path) -> Iterator[CallMark]:
    """Yield the calls whose process is gone, oldest first, locked for this one.

    The workspace must be locked.
    """
    for file in _list_files(folder):
        if file.name in _own:
            continue
        handle = os.open(file, os.O_RDWR)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its process lives
            os.close(handle)
            continue
        call = _read_call(file)
        if call is None:  # it never began
            file.unlink(missing_ok=True)
            os.close(handle)
        else:
            yield CallMark(call, file, handle)


def list_calls(folder: Path) -> list[PendingCall]:
    """Return all calls that are noted."""
    return [call for file in _list_files(folder) if (call := _read_call(file)) is not None]


def forget_thread(folder: Path, thread_id: str) -> None:
    """Delete the notes of a thread's calls."""
    for call in list_calls(folder):
        if call.thread_id == thread_id:
            (_get_calls_folder(folder) / call.id).unlink(missing_ok=True)


def load_all(folder: Path) -> list[Any]:
    """Return the snapshots before all calls."""
    return [before for file in _list_files(folder) if (before := _load(file)) is not None]


def _load(file: Path) -> Any:
    try:
        data = file.read_bytes().partition(b"\n")[2]
        return _Unpickler(io.BytesIO(data)).load() if data else None
    except Exception:  # of another version, or damaged: anything may be raised
        return None


def _get_calls_folder(folder: Path) -> Path:
    return folder / "pending"


def _list_files(folder: Path) -> list[Path]:
    try:
        return sorted(_get_calls_folder(folder).iterdir())
    except FileNotFoundError:
        return []


def _read_call(file: Path) -> PendingCall | None:
    try:
        with file.open("rb") as f:
            row = json.loads(f.readline())
        changes_ = tuple(PathChange.of(c) for c in row.pop("writes"))
        temporaries = tuple(row.pop("temporaries"))
        return PendingCall(**row, writes=changes_, temporaries=temporaries)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class RecordedTurn(Struct, frozen=True):
    """Changes of one turn's calls; a turn is named by its thread and the index of the user's message."""

    thread_id: str
    index: int
    at: int  # Unix ms of its first change
    changes: tuple[PathChange, ...]
    left_out: tuple[str, ...] = ()  # paths that its commands may have changed without being covered
    stays: tuple[str, ...] = ()  # new files of its commands that git ignores

    @property
    def key(self) -> tuple[str, int]:
        return self.thread_id, self.index


class UndoRecord(Struct, frozen=True):
    """One undo: its turns, its changes, and the thread that continues the conversation ("": the same).

    `redone`: it was reversed. `unwritten` are paths that could not be written: the next undo completes them.
    """

    id: str
    thread_id: str
    turns: tuple[tuple[str, int], ...]
    steps: tuple[PathChange, ...]
    at: int
    went_to: str = ""
    redone: bool = False
    folders: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "thread": self.thread_id,
            "turns": [list(t) for t in self.turns],
            "steps": [s.as_json() for s in self.steps],
            "at": self.at,
            "went_to": self.went_to,
            "folders": list(self.folders),
        }

    @classmethod
    def of(cls, value: dict[str, Any], *, redone: bool = False, unwritten: Sequence[str] = ()) -> UndoRecord:
        return cls(
            value["id"],
            value["thread"],
            tuple((t[0], t[1]) for t in value["turns"]),
            tuple(PathChange.of(s) for s in value["steps"]),
            value["at"],
            value.get("went_to", ""),
            redone,
            tuple(value.get("folders", ())),
            tuple(unwritten),
        )


class Records(Struct):
    """`folder` is the workspace's folder of checkpoints."""

    folder: Path
    _made: set[Path] = field(default_factory=set[Path])

    def add(
        self,
        turn: tuple[str, int],
        at: int,
        changes_: Sequence[PathChange],
        left_out: Iterable[str] = (),
        *,
        stays: Iterable[str] = (),
        call: str = "",
    ) -> None:
        """Append what a call of a turn changed. Raises OSError."""
        line = {"at": at, "call": call, "changes": [c.as_json() for c in changes_]}
        lists = {"left_out": sorted(left_out)[:MOST_NAMED], "stays": sorted(stays)[:MOST_NAMED]}
        append(self._turn_file(turn), {**line, **lists})

    def has_call(self, turn: tuple[str, int], call: str) -> bool:
        """Return whether the changes of a call are recorded."""
        return any(row.get("call") == call for row in read(self._turn_file(turn)))

    def changed_since(self, at: int, call: str) -> dict[str, PathChange]:
        """Return the last change of each path by a call, or by any that was recorded after a time (Unix ms)."""
        files = [f for f in (self.folder / "turns").glob("*/*.jsonl") if f.stat().st_mtime * 1000 >= at - 1000]
        rows = sorted(
            (r for f in files for r in read(f) if r["at"] > at or (call and r.get("call") == call)),
            key=lambda r: r["at"],
        )
        return {c[0]: PathChange.of(c) for r in rows for c in r["changes"]}

    def turns(self, thread_id: str) -> list[RecordedTurn]:
        """Return the turns of a thread that changed files, oldest first."""
        out: list[RecordedTurn] = []
        for file in sorted(self._get_thread_folder(thread_id).glob("[0-9]*.jsonl")):
            rows = list(read(file))
            changes = tuple(PathChange.of(c) for r in rows for c in r["changes"])
            left_out, stays = _collect(rows, "left_out"), _collect(rows, "stays")
            if changes or left_out or stays:
                out.append(RecordedTurn(thread_id, int(file.stem), rows[0]["at"], changes, left_out, stays))
        return out

    def undone(self) -> list[UndoRecord]:
        """Return all undos of the workspace, oldest first."""
        rows = list(read(self.folder / "undone.jsonl"))
        redone = {r["redone"] for r in rows if "redone" in r}
        incomplete = {r["incomplete"]: r["paths"] for r in rows if "incomplete" in r}
        undo_rows = [r for r in rows if "id" in r]
        undos = {
            r["id"]: UndoRecord.of(r, redone=r["id"] in redone, unwritten=incomplete.get(r["id"], ()))
            for r in undo_rows
        }
        return list(undos.values())

    def add_undone(self, done: UndoRecord) -> None:
        append(self.folder / "undone.jsonl", done.as_json())

    def add_unwritten(self, undo_id: str, paths: Sequence[str]) -> None:
        """Record which paths an undo has still to write."""
        append(self.folder / "undone.jsonl", {"incomplete": undo_id, "paths": list(paths)})

    def add_redone(self, undo_id: str) -> None:
        append(self.folder / "undone.jsonl", {"redone": undo_id})

    def list_needed(self) -> set[str]:
        """Return the ids of all contents that records name."""
        out: set[str] = set()
        for folder in (self.folder / "turns").glob("*"):
            for turn in self.turns(folder.name):
                out |= _list_paths(turn.changes)
        for done in self.undone():
            out |= _list_paths(done.steps)
        for call in list_calls(self.folder):
            out |= _list_paths(call.writes)
        return out

    def forget_before(self, at: int) -> int:
        """Delete turns and undos that were made before `at` (Unix ms); return the number of turns."""
        gone = 0
        for file in (self.folder / "turns").glob("*/*.jsonl"):
            first = next(read(file), None)
            if first is None or first["at"] < at:
                file.unlink(missing_ok=True)
                gone += 1
        for folder in (self.folder / "turns").glob("*"):
            with contextlib.suppress(OSError):
                folder.rmdir()
        remaining = [u for u in self.undone() if u.at >= at]
        self._keep_undone(remaining)
        return gone

    def oldest(self) -> int | None:
        """Return when the oldest turn changed something (Unix ms)."""
        times = [first["at"] for f in (self.folder / "turns").glob("*/*.jsonl") if (first := next(read(f), None))]
        return min(times, default=None)

    def forget_thread(self, thread_id: str) -> bool:
        """Delete all records of a thread's turns; return whether there were any."""
        there = self._get_thread_folder(thread_id).is_dir()
        shutil.rmtree(self._get_thread_folder(thread_id), ignore_errors=True)
        before = self.undone()
        remaining = [u for u in before if u.thread_id != thread_id and not any(t == thread_id for t, _ in u.turns)]
        if len(remaining) != len(before):
            self._keep_undone(remaining)
        return there or len(remaining) != len(before)

    def _keep_undone(self, undos: Sequence[UndoRecord]) -> None:
        file = self.folder / "undone.jsonl"
        if not file.exists():
            return
        rows = [u.as_json() for u in undos] + [{"redone": u.id} for u in undos if u.redone]
        rows += [{"incomplete": u.id, "paths": list(u.unwritten)} for u in undos if u.unwritten]
        write(file, "".join(json.dumps(r) + "\n" for r in rows).encode())

    def _turn_file(self, turn: tuple[str, int]) -> Path:
        return self._get_thread_folder(turn[0]) / f"{turn[1]:08}.jsonl"

    def _get_thread_folder(self, thread_id: str) -> Path:
        name = thread_id if _THREAD.fullmatch(thread_id) and thread_id.strip(".") else thread_id.encode().hex()
        return self.folder / "turns" / name


def _list_paths(made: Iterable[PathChange]) -> set[str]:
    return {e.oid for c in made for e in (c.before, c.after) if e is not None and e.oid}


def append(file: Path, value: dict[str, Any]) -> None:
    """Append one line, durably. A line before it that was cut is ended first."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (b"\n" if cut else b"") + json.dumps(value).encode() + b"\n")  # ASCII: any name is kept
        os.fsync(handle)
    finally:
        os.close(handle)


def read(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON value of each complete line of a file."""
    with contextlib.suppress(OSError):
        for line in file.read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                if line:
                    yield json.loads(line)


def write(file: Path, data: bytes) -> None:
    """Replace a file at once, durably."""
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(file)
    changes.flush_folder(file.parent)


def _collect(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
    """Return the distinct paths under a name in the rows of a turn, in order."""
    return tuple(dict.fromkeys(p for r in rows for p in r.get(name, ())))
