"""Read one file of instructions, with the files that it imports in their places."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.patterns import lazy_pattern
from sakti.core.text import one_line, sanitise
from sakti.store.secrets import masked

LONGEST = 1_000_000  # bytes of a file that is read
DEEPEST = 5  # imports below one another
MOST = 100  # imports of one file, all in all
_IMPORT = lazy_pattern(r"(?<![\w`@/.])@((?:~/|(?:\.{1,2}/)+)?[\w][\w./-]*\.(?:md|markdown|txt))(?![\w/])")
_FENCE = lazy_pattern(r"^ {0,3}(`{3,}|~{3,})")
_CODE = lazy_pattern(r"(`+)(?:(?!\1).)*\1(?!`)")


@dataclass(slots=True)
class Reader:
    """Reads files below the given folders only, links resolved; `notes` say what was left as it is, and why."""

    roots: Sequence[Path]
    notes: list[str] = field(default_factory=list[str])
    _imported: int = 0

    def read(self, path: Path) -> str | None:
        """Return the text of a file with its imports, clean for a screen and secrets masked; None without one."""
        text = self.plain(path)
        return None if text is None else self._expanded(text, path, (path.resolve(),))

    def plain(self, path: Path) -> str | None:
        """Return the text of a file as it is, clean for a screen and secrets masked; None without one."""
        try:
            real = path.resolve()
            if not any(real.is_relative_to(root) for root in self.roots):
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
        return masked(sanitise(text)).strip()

    def _expanded(self, text: str, path: Path, above: tuple[Path, ...]) -> str:
        return outside_code(text, lambda name, written: self._import(name, written, path, above))

    def _import(self, name: str, written: str, path: Path, above: tuple[Path, ...]) -> str:
        target = Path.home() / name[2:] if name.startswith("~/") else path.parent / name
        try:
            real = target.resolve()
        except (OSError, ValueError, RuntimeError):
            return written
        if real in above:
            self._note(f"{path.name}: @{name} imports itself; left as text.")
            return written
        if len(above) > DEEPEST or self._imported >= MOST:
            self._note(f"{path.name}: @{name} is too deep or one too many; left as text.")
            return written
        text = self.plain(real)
        if text is None:
            self._note(f"{path.name}: @{name} is not there or not in the project; left as text.")
            return written
        self._imported += 1
        return self._expanded(text, real, (*above, real))

    def _note(self, text: str) -> None:
        if (clean := one_line(text, 200)) not in self.notes:
            self.notes.append(clean)


def outside_code(text: str, replaced: Callable[[str, str], str]) -> str:
    """Return text with each import replaced by `replaced(name, as it is written)`, but for those in code."""
    out: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
            out.append(line)
        elif fence or "@" not in line:
            out.append(line)
        else:
            out.append(_line(line, replaced))
    return "\n".join(out)


def _line(line: str, replaced: Callable[[str, str], str]) -> str:
    code = [m.span() for m in _CODE.finditer(line)]
    out, end = "", 0
    for found in _IMPORT.finditer(line):
        if any(a <= found.start() < b for a, b in code):
            continue
        out += line[end : found.start()] + replaced(found[1], found[0])
        end = found.end()
    return out + line[end:]


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes, cut at the end of a line."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return os.fsdecode(data[:limit]).rpartition("\n")[0]
