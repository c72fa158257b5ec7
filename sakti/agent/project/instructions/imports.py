"""Find what a file of instructions imports with `@path`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from sakti.agent.judge.workspace_view import WorkspaceView, secret_reason
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.patterns import lazy_pattern

LONGEST = 1_000_000  # bytes of a file that is read
DEEPEST = 5  # imports below one another
MOST = 100  # imports of one file, all in all
# A name that ends like a text is meant as an import; any other word behind an @ is one where such a file is there.
_IMPORT = lazy_pattern(r"(?<![\w`@/.])@((?:~/|(?:\.{1,2}/)+)?\w(?:[\w./-]*\w)?)(?![\w/])")
TEXT = (".md", ".markdown", ".txt")
_FENCE = lazy_pattern(r"^ {0,3}(`{3,}|~{3,})")
_CODE = lazy_pattern(r"(`+)(?:(?!\1).)*\1(?!`)")


def list_imports(sources: Iterable[Path], root: Path) -> Iterator[Path]:
    """Yield the files in a folder that texts import, and what these import, each once; links are followed.

    Only those that are there and hold no secrets. The bounds are those of reading them.
    """
    root = Path(os.path.realpath(root))
    place = WorkspaceView(root, root)
    for source in sources:
        seen, waiting = {Path(os.path.realpath(source))}, [(Path(source), 0)]
        while waiting and len(seen) <= MOST:
            path, depth = waiting.pop()
            for name in _names_in(path) if depth <= DEEPEST else ():
                target = Path(os.path.realpath(path.parent / name))
                if target not in seen and target.is_relative_to(root) and target.is_file():
                    if secret_reason(target, place):
                        continue
                    seen.add(target)
                    waiting.append((target, depth + 1))
                    yield target


def _names_in(path: Path) -> tuple[str, ...]:
    """Return the names that a text imports, those of the user's home folder left out."""
    try:
        status = path.stat()
        return _read_names(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    except (OSError, ValueError, RuntimeError):
        return ()


@lru_cache(maxsize=1_000)
def _read_names(path: Path, _changed: int, _at: int, _size: int) -> tuple[str, ...]:
    try:
        data = read_bytes(path, LONGEST)
    except ConfigError:
        return ()
    names: list[str] = []
    if data and b"@" in data:
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        outside_code(text, lambda name, written: names.append(name) or written)
    return tuple(dict.fromkeys(n for n in names if not n.startswith("~")))


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
    for match in _IMPORT.finditer(line):
        if any(a <= match.start() < b for a, b in code):
            continue
        out += line[end : match.start()] + replaced(match[1], match[0])
        end = match.end()
    return out + line[end:]
