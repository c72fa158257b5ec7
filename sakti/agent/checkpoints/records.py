"""Keep which turn changed what: a file a turn, a line a call, appended before or right after it.

Small files and no table: what they name lies beside them, they survive a kill at any time (a line that was cut is not
there), and a thread that is removed for good takes its folder with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from sakti.agent.checkpoints import pending
from sakti.agent.checkpoints.plan import PathChange
from sakti.agent.tools import changes
from sakti.core.patterns import lazy_pattern

MOST_NAMED = 100  # paths of each kind that a record names
_THREAD = lazy_pattern(r"[0-9A-Za-z_.-]{1,200}")


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


class Undone(Struct, frozen=True):
    """One undo: its turns, its changes, and the thread that continues the conversation ("": the same).

    `redone`: it was reversed. `left` are paths that could not be written: the next undo completes them.
    """

    id: str
    thread_id: str
    turns: tuple[tuple[str, int], ...]
    steps: tuple[PathChange, ...]
    at: int
    went_to: str = ""
    redone: bool = False
    folders: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

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
    def of(cls, value: dict[str, Any], *, redone: bool = False, left: Sequence[str] = ()) -> Undone:
        return cls(
            value["id"],
            value["thread"],
            tuple((t[0], t[1]) for t in value["turns"]),
            tuple(PathChange.of(s) for s in value["steps"]),
            value["at"],
            value.get("went_to", ""),
            redone,
            tuple(value.get("folders", ())),
            tuple(left),
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
        append(self._file(turn), {**line, **lists})

    def has_call(self, turn: tuple[str, int], call: str) -> bool:
        """Return whether the changes of a call are recorded."""
        return any(row.get("call") == call for row in read(self._file(turn)))

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
        for file in sorted(self._of(thread_id).glob("[0-9]*.jsonl")):
            rows = list(read(file))
            changes = tuple(PathChange.of(c) for r in rows for c in r["changes"])
            left_out = tuple(dict.fromkeys(p for r in rows for p in r["left_out"]))
            stays = tuple(dict.fromkeys(p for r in rows for p in r.get("stays", ())))
            if changes or left_out or stays:
                out.append(RecordedTurn(thread_id, int(file.stem), rows[0]["at"], changes, left_out, stays))
        return out

    def undone(self) -> list[Undone]:
        """Return all undos of the workspace, oldest first."""
        rows = list(read(self.folder / "undone.jsonl"))
        redone = {r["redone"] for r in rows if "redone" in r}
        incomplete = {r["incomplete"]: r["paths"] for r in rows if "incomplete" in r}
        undo_rows = [r for r in rows if "id" in r]
        undos = {r["id"]: Undone.of(r, redone=r["id"] in redone, left=incomplete.get(r["id"], ())) for r in undo_rows}
        return list(undos.values())

    def add_undone(self, done: Undone) -> None:
        append(self.folder / "undone.jsonl", done.as_json())

    def note_left(self, undo_id: str, paths: Sequence[str]) -> None:
        """Record which paths an undo has still to write."""
        append(self.folder / "undone.jsonl", {"incomplete": undo_id, "paths": list(paths)})

    def add_redone(self, undo_id: str) -> None:
        append(self.folder / "undone.jsonl", {"redone": undo_id})

    def needed(self) -> set[str]:
        """Return the ids of all contents that records name."""
        out: set[str] = set()
        for folder in (self.folder / "turns").glob("*"):
            for turn in self.turns(folder.name):
                out |= _list_paths(turn.changes)
        for done in self.undone():
            out |= _list_paths(done.steps)
        for call in pending.list_calls(self.folder):
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
        there = self._of(thread_id).is_dir()
        shutil.rmtree(self._of(thread_id), ignore_errors=True)
        before = self.undone()
        remaining = [u for u in before if u.thread_id != thread_id and not any(t == thread_id for t, _ in u.turns)]
        if len(remaining) != len(before):
            self._keep_undone(remaining)
        return there or len(remaining) != len(before)

    def _keep_undone(self, kept: Sequence[Undone]) -> None:
        file = self.folder / "undone.jsonl"
        if not file.exists():
            return
        rows = [u.as_json() for u in kept] + [{"redone": u.id} for u in kept if u.redone]
        rows += [{"incomplete": u.id, "paths": list(u.left)} for u in kept if u.left]
        write(file, "".join(json.dumps(r) + "\n" for r in rows).encode())

    def _file(self, turn: tuple[str, int]) -> Path:
        return self._of(turn[0]) / f"{turn[1]:08}.jsonl"

    def _of(self, thread_id: str) -> Path:
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
