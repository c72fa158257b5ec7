"""Write files back by a journal, so that the next start completes a restore after a kill.

The contents that are replaced are kept before the first byte is written. Each step can be repeated: a path
that has its new state already is skipped, and so is one that has neither its old nor its new state.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sakti.agent.checkpoints import records, safe_paths
from sakti.agent.checkpoints.objects import Objects
from sakti.agent.checkpoints.plan import (
    PathChange,
    PathEntry,
    has_same_mode,
    is_expected,
    is_same,
    name_in_lists,
)
from sakti.agent.checkpoints.records import Records, UndoRecord
from sakti.agent.tools import changes
from sakti.core.errors import SaktiError
from sakti.core.text import format_count

JOURNAL = "restoring.json"


class RestoreRecovery(Struct, frozen=True):
    """Completion of an undo or a redo that a kill interrupted, without the `skipped` paths."""

    undo: UndoRecord
    is_redo: bool
    skipped: Sequence[str] = ()

    def in_words(self) -> str:
        """Describe the completion in one sentence."""
        files = {name_in_lists(s.path) for s in self.undo.steps} - set(map(name_in_lists, self.skipped))
        return f"An interrupted {'redo' if self.is_redo else 'undo'} was completed: {format_count(len(files), 'file')}."


def _do_nothing(_at: str) -> None:
    """Default for `reached`; tests stop the program there."""


class Restorer(Struct, frozen=True):
    """Restores contents from `objects` into `root`; the journal is in `folder`. `reached` marks steps."""

    root: Path
    folder: Path
    objects: Objects
    records: Records
    reached: Callable[[str], None] = _do_nothing

    def run(self, undo: UndoRecord, *, redoes: str = "") -> list[str]:
        """Write the steps of an undo, or of the redo of `redoes`; return the skipped paths.

        Raises `SaktiError` if a content is missing or cannot be stored; nothing was written in that case.
        """
        for step in undo.steps:
            if step.after is not None and not self._has(step):
                raise SaktiError(
                    f"The checkpoint of {step.path} was pruned. Nothing was changed.", title="Undo", code="pruned"
                )
        self.reached("before the snapshot")
        self._keep(undo.steps)
        self.reached("before the journal")
        journal = {"undo": undo.as_json(), "redoes": redoes}
        records.write(self.folder / JOURNAL, json.dumps(journal).encode())
        self.reached("journal")
        return self._write_steps(undo, redoes)

    def _has(self, step: PathChange) -> bool:
        """Return whether the content of a step is stored; entire files are only looked up when written."""
        oid = step.after.oid if step.after is not None else ""
        stays = step.before is not None and step.before.oid == oid
        return not oid or oid == "other" or stays or self.objects.entire_file(oid) is not None or self.objects.has(oid)

    def recover(self) -> RestoreRecovery | None:
        """Complete an interrupted restore; None without such a restore."""
        try:
            journal: dict[str, Any] = json.loads((self.folder / JOURNAL).read_bytes())
            undo = UndoRecord.of(journal["undo"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError):  # it is written at once or not at all: nothing was begun
            (self.folder / JOURNAL).unlink(missing_ok=True)
            return None
        redoes = journal.get("redoes", "")
        return RestoreRecovery(undo, bool(redoes), self._write_steps(undo, redoes))

    def _note(self, undo: UndoRecord, redoes: str, skipped: list[str]) -> None:
        """Record an undo, or that it redid the undo `redoes`, unless that was recorded before a kill."""
        earlier = {u.id: u for u in self.records.undone()}
        if redoes:
            if not (redoes in earlier and earlier[redoes].redone):
                self.records.add_redone(redoes)
            return
        if undo.id not in earlier:
            self.records.add_undone(undo)
        if skipped or (undo.id in earlier and earlier[undo.id].unwritten):
            self.records.add_unwritten(undo.id, skipped)

    def _write_steps(self, undo: UndoRecord, redoes: str) -> list[str]:
        skipped = [step.path for step in undo.steps if not self._write_step(step, undo)]
        self.reached("files")
        self._note(undo, redoes, skipped)
        self.reached("record")
        (self.folder / JOURNAL).unlink(missing_ok=True)
        changes.flush_folder(self.folder)
        return skipped

    def _keep(self, steps: Sequence[PathChange]) -> None:
        """Store the present contents that will be replaced."""
        for step in steps:
            try:
                now, data = read_present(self.root, step)
            except PermissionError:
                continue  # in a folder that a command made inaccessible: it is opened first
            if not is_expected(now, step.before):
                raise SaktiError(
                    f"{step.path} changed just now. Nothing was restored: try again.", title="Undo", code="changed"
                )
            if now is not None and now.oid not in ("", "other", step.after.oid if step.after is not None else None):
                self._keep_one(step, now.oid, data)

    def _keep_one(self, step: PathChange, oid: str, data: bytes) -> None:
        if self.objects.entire_file(oid) is None:
            self.objects.put(data, oid=oid if ":" in oid else "")
            return
        with safe_paths.open_parent(self.root, step.path) as (here, name):
            self.objects.keep(oid, name, here, link=step.after is None)

    def _write_step(self, step: PathChange, undo: UndoRecord) -> bool:
        """Do one step; return False if the path is skipped."""
        self.reached(f"step {step.path}")
        temporary = f"{safe_paths.TEMPORARY}{undo.id}"  # unique to each undo: remains of a killed one are deleted
        safe_paths.remove_temporary(self.root, step.path, temporary)
        try:
            now, _ = read_present(self.root, step)
            if is_same(now, step.after):
                if step.after is not None and not has_same_mode(now, step.after):
                    safe_paths.set_mode(self.root, step.path, step.after.mode)
                return True
            if not is_expected(now, step.before) and not _is_torn(self.root, step, now):
                return False
            if step.after is None:
                safe_paths.remove(self.root, step.path, undo.folders)
            elif now is not None and (now.kind, now.oid) == (step.after.kind, step.after.oid):
                safe_paths.set_mode(self.root, step.path, step.after.mode)  # its content may not be stored
            else:
                safe_paths.write(self.root, step.path, step.after, self._read_content(step.after), temporary)
        except (OSError, SaktiError):
            return False
        return True

    def _read_content(self, entry: PathEntry) -> bytes | Path:
        if not entry.oid or entry.oid == "other":
            return b""
        return self.objects.entire_file(entry.oid) or self.objects.get(entry.oid)


def _is_torn(root: Path, step: PathChange, now: PathEntry | None) -> bool:
    """Return whether a kill during a step may have left a path in neither its old nor its new state.

    A file being overwritten has neither content; a file being replaced by a folder may be missing.
    """
    if step.after is None or (now is not None and now.oid == "other"):
        return False
    if now is None:
        return step.before is not None and step.before.kind != step.after.kind
    try:
        with safe_paths.open_parent(root, step.path) as (here, name):
            status = os.lstat(name, dir_fd=here)
        return stat.S_ISREG(step.after.mode) and safe_paths.is_overwritten(status)
    except (OSError, safe_paths.BlockedPath):
        return False


def read_present(root: Path, step: PathChange) -> tuple[PathEntry | None, bytes]:
    """Return the present entry of a path, its content named as in the change.

    Raises PermissionError.
    """
    return safe_paths.read_entry(root, step.path, [e.oid for e in (step.before, step.after) if e is not None])
