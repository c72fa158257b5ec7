"""A workspace with checkpoints, changed by commands of the agent and by its user; and what it looks like as a whole."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from sakti.agent.checkpoints.plan import Plan
from sakti.agent.checkpoints.records import UndoRecord
from sakti.agent.checkpoints.shadow import Shadow
from sakti.agent.judge.expansion import NOTHING, read_targets
from sakti.agent.judge.workspace_view import WorkspaceView as Judged
from sakti.core.clock import TimeIds
from tests.fakes.clock import FakeClock


def tree(root: Path) -> dict[str, tuple[str, object]]:
    """Everything below a folder but `.git`: kind, permissions, content."""
    out: dict[str, tuple[str, object]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found = path.lstat()
            key = str(path.relative_to(root))
            if key == ".git" or key.startswith(".git/"):
                continue
            if stat.S_ISLNK(found.st_mode):
                out[key] = ("link", str(path.readlink()))
            elif stat.S_ISDIR(found.st_mode):
                out[key] = ("folder", None)
            else:
                data = path.read_bytes() if found.st_size < 50_000_000 else found.st_size
                out[key] = (oct(stat.S_IMODE(found.st_mode)), data)
    return out


def git(root: Path, *words: str) -> str:
    names = ("AUTHOR", "COMMITTER")
    env = {f"GIT_{n}_{w}": "t@example.org" for n in names for w in ("NAME", "EMAIL")}
    env |= {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(("git", *words), cwd=root, env=env, capture_output=True, text=True, check=True)
    return done.stdout


class Place:
    """`run` is a command of the agent's turn, `edit` one of its file tools; anything else is the user."""

    def __init__(self, folder: Path, thread: str = "thread") -> None:
        self.root = folder / "ws"
        self.root.mkdir(exist_ok=True)
        self.clock = FakeClock()
        self.thread = thread
        self.shadow = self.opened()

    def opened(self) -> Shadow:
        return Shadow(self.root, self.root.parent / "checkpoints", self.clock, TimeIds(self.clock))

    def run(self, command: str | Callable[[], object], turn: int = 1) -> None:
        named = read_targets(command, Judged(self.root, self.root)) if isinstance(command, str) else NOTHING
        first = self.shadow.before(named, (self.thread, turn))
        if isinstance(command, str):
            subprocess.run(("bash", "-c", command), cwd=self.root, check=False, capture_output=True)
        else:
            command()
        self.shadow.after(first)

    def edit(self, name: str, data: bytes | None, turn: int = 1) -> None:
        path = self.root / name
        with self.shadow.record_writes([(path, data, stat.S_IFREG | 0o644)], (self.thread, turn)):
            if data is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def plan(self, first: int = 1) -> Plan:
        turns = [t for t in self.shadow.records.turns(self.thread) if t.index >= first]
        return self.shadow.plan(c for t in turns for c in t.changes)

    def undo(self, first: int = 1, take: tuple[str, ...] = ()) -> tuple[UndoRecord, list[str]]:
        return self.shadow.undo(self.plan(first), self.thread, [(self.thread, first)], take=take)

    def redo(self, done: UndoRecord) -> list[str]:
        return self.shadow.redo(done, self.shadow.plan(done.steps))
