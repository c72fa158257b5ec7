"""Read one file of instructions, with the files that it imports in their places."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.judge.workspace_view import WorkspaceView, secret_reason
from sakti.agent.project import files
from sakti.agent.project.files import Trusts
from sakti.agent.project.instructions.imports import DEEPEST, LONGEST, MOST, TEXT, outside_code
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.text import counted, one_line, remove_invisible, sanitise
from sakti.store.secrets import masked


class InstructionReader(Struct):
    """Reads files below the given folders only, links resolved; `notes` report imports left as text.

    `trusts` decides on imports by their names, relative to the first folder.
    """

    roots: Sequence[Path]
    notes: list[str] = field(default_factory=list[str])
    trusts: Trusts = files.trusts_all
    _imported: int = 0
    _length: int = 0

    def read(self, path: Path) -> str | None:
        """Return the text of a file with its imports, clean for a screen and secrets masked; None without one."""
        notes_before = len(self.notes)
        text = self.plain(path)
        if text is None:
            if len(self.notes) == notes_before and os.path.lexists(path):
                self._note(f"{path.name}: left out, it holds secrets, leads out of the project or cannot be read.")
            return None
        return self._expand(text, path, (path.resolve(),))

    def plain(self, path: Path) -> str | None:
        """Return the text of a file as it is, clean for a screen and secrets masked; None without one.

        A link may give a file with secrets another name, so it is judged where it leads.
        """
        try:
            real = path.resolve()
            root = next((r for r in self.roots if real.is_relative_to(r)), None)
            if root is None or secret_reason(real, WorkspaceView(root, root)):
                return None
            data = read_bytes(real, LONGEST)
        except ConfigError as e:
            self._note(e.message)
            return None
        except (OSError, ValueError, RuntimeError):  # a name that is too long, links in a circle
            return None
        if data is None:
            return None
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        text, hidden = remove_invisible(text)
        if hidden:
            self._note(f"{path.name}: {counted(hidden, 'hidden character')} left out.")
        return masked(sanitise(text)).strip()

    def _expand(self, text: str, path: Path, above: tuple[Path, ...]) -> str:
        return outside_code(text, lambda name, written: self._import(name, written, path, above))

    def _import(self, name: str, written: str, path: Path, above: tuple[Path, ...]) -> str:
        target = Path.home() / name[2:] if name.startswith("~/") else path.parent / name
        meant = name.endswith(TEXT)
        if self._imported >= MOST or self._length > LONGEST:
            if meant:
                self._note(
                    f"{path.name}: more than {MOST} imports or {LONGEST:,} characters; the rest is left as text."
                )
            return written
        try:
            real = target.resolve()
            if not meant and not target.is_file():
                return written
        except (OSError, ValueError, RuntimeError):
            return written
        if real in above:
            self._note(f"{path.name}: @{name} imports itself; left as text.")
            return written
        if not self._may_import(real):
            self._note(files.left_out(real.relative_to(self.roots[0]).as_posix()))
            return written
        if len(above) > DEEPEST:
            self._note(f"{path.name}: @{name} is too deep; left as text.")
            return written
        text = self.plain(real)
        if text is None:
            self._note(f"{path.name}: @{name} does not exist or is outside the project; left as text.")
            return written
        self._imported += 1
        self._length += len(text)
        return self._expand(text, real, (*above, real))

    def _may_import(self, path: Path) -> bool:
        inside = path.is_relative_to(self.roots[0]) and path.is_file()
        return not inside or self.trusts(path.relative_to(self.roots[0]).as_posix())

    def _note(self, text: str) -> None:
        if (clean := one_line(text, 200)) not in self.notes:
            self.notes.append(clean)


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes, cut at the end of a line."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return os.fsdecode(data[:limit]).rpartition("\n")[0]
