"""Describe a workspace for the model in a few lines: languages, folders, files at its root. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from sakti.core.text import counted, one_line

LINES = 40  # folders that are named
ROOT_FILES = 25
LANGUAGES = 6
NAME = 60  # characters of a name
_ENDINGS = """
Python py pyi | JavaScript js mjs cjs jsx | TypeScript ts tsx mts | C c h | C++ cc cpp cxx hpp | C# cs | Java java
Kotlin kt kts | Go go | Rust rs | Ruby rb | PHP php | Swift swift | Shell sh bash zsh | SQL sql | HTML html htm
CSS css scss less | Vue vue | Svelte svelte | Dart dart | Scala scala | Haskell hs | Elixir ex exs | Erlang erl
Lua lua | Perl pl pm | R r | Julia jl | Zig zig | Clojure clj | Markdown md | Notebook ipynb
"""
_NAMED = (line.split() for line in _ENDINGS.strip().replace("\n", "|").split("|"))
_LANGUAGE = {ending: name for name, *endings in _NAMED for ending in endings}


def overview(paths: Sequence[str]) -> str:
    """Describe a workspace: languages by number of files, files at the root, folders.

    Folders down to two levels with their number of files. `paths` are relative, with `/`. Empty where there are none.
    """
    files = [PurePosixPath(p) for p in paths if p]
    if not files:
        return ""
    languages = Counter(_LANGUAGE[e] for f in files if (e := f.suffix[1:].casefold()) in _LANGUAGE)
    root = sorted(f.name for f in files if len(f.parts) == 1)
    spoken = ", ".join(f"{name} {count}" for name, count in languages.most_common(LANGUAGES))
    lines = [f"{counted(len(files), 'file')}{': ' if spoken else ''}{spoken}"]
    if root:
        more = f", and {len(root) - ROOT_FILES} more" if len(root) > ROOT_FILES else ""
        lines.append(f"At the root: {', '.join(map(_name, root[:ROOT_FILES]))}{more}")
    return "\n".join([*lines, *_folders(files)])


def _folders(files: Iterable[PurePosixPath]) -> list[str]:
    """Return the folders with most files below them, in the order of a listing."""
    counts: Counter[tuple[str, ...]] = Counter()
    for file in files:
        counts.update(file.parts[:depth] for depth in (1, 2) if len(file.parts) > depth)
    shown = sorted(folder for folder, _ in sorted(counts.items(), key=lambda x: (len(x[0]), -x[1], x[0]))[:LINES])
    lines = [f"{'  ' * (len(f) - 1)}{_name(f[-1])}/ {counts[f]:,}" for f in shown]
    remaining = len(counts) - len(shown)
    return [*lines, f"(and {counted(remaining, 'more folder')})"] if remaining else lines


def _name(name: str) -> str:
    return one_line(name, NAME)
