"""Note calls while they run, so that their changes are recorded even if sakti is killed meanwhile.

Each call has a file, which is locked while its process lives and whose time is renewed all along. Whoever looks at a
workspace next can lock those of processes that are gone: it takes the second look for them, and knows about when they
ended. The file names the call on its first line; what a command's second look is compared with follows.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from sakti.agent.checkpoints.plan import PathChange
from sakti.agent.tools import changes

try:
    import fcntl
except ImportError:  # Windows: one window a workspace
    fcntl = None

_own: set[str] = set()  # calls of this process
BEAT_S = 1.0  # seconds between two renewals of the time
_TYPES = {("posix", "stat_result"), ("os", "stat_result"), ("builtins", "frozenset"), ("builtins", "set")}


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


class Mark(Struct):
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
        """Return what the second look is compared with; None if there is nothing, or it cannot be read."""
        return _load(self.file)

    def end(self) -> None:
        self.file.unlink(missing_ok=True)
        os.close(self.handle)
        _own.discard(self.call.id)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name.startswith("sakti.agent.checkpoints.") or (module_name, global_name) in _TYPES:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is nothing that a call keeps")


def begin(folder: Path, call: PendingCall, before: object = None) -> Mark:
    """Note a call, durably, before it begins; the workspace must be locked. Raises OSError."""
    file = _folder(folder) / call.id
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    row = {**asdict(call), "writes": [c.as_json() for c in call.writes]}
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    mark = Mark(call, file, handle)
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


def list_dead(folder: Path) -> Iterator[Mark]:
    """Yield the calls whose process is gone, oldest first, locked for this one.

    The workspace must be locked.
    """
    for file in _files(folder):
        if file.name in _own:
            continue
        handle = os.open(file, os.O_RDWR)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its process lives
            os.close(handle)
            continue
        call = _read(file)
        if call is None:  # it was never begun
            file.unlink(missing_ok=True)
            os.close(handle)
        else:
            yield Mark(call, file, handle)


def list_calls(folder: Path) -> list[PendingCall]:
    """Return all calls that are noted."""
    return [call for file in _files(folder) if (call := _read(file)) is not None]


def forget_thread(folder: Path, thread_id: str) -> None:
    """Delete the notes of a thread's calls."""
    for call in list_calls(folder):
        if call.thread_id == thread_id:
            (_folder(folder) / call.id).unlink(missing_ok=True)


def load_all(folder: Path) -> list[Any]:
    """Return what the second looks of all calls are compared with."""
    return [before for file in _files(folder) if (before := _load(file)) is not None]


def _load(file: Path) -> Any:
    try:
        data = file.read_bytes().partition(b"\n")[2]
        return _Unpickler(io.BytesIO(data)).load() if data else None
    except Exception:  # of another version, or damaged: anything may be raised
        return None


def _folder(folder: Path) -> Path:
    return folder / "pending"


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(_folder(folder).iterdir())
    except FileNotFoundError:
        return []


def _read(file: Path) -> PendingCall | None:
    try:
        with file.open("rb") as f:
            row = json.loads(f.readline())
        changes_ = tuple(PathChange.of(c) for c in row.pop("writes"))
        temporaries = tuple(row.pop("temporaries"))
        return PendingCall(**row, writes=changes_, temporaries=temporaries)
    except (OSError, ValueError, KeyError, TypeError):
        return None
