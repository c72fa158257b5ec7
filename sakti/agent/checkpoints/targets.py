"""Read from a command which files it names to remove or write, so that they are kept before it.

Everything that can be read counts, even if the command is not understood: keeping a file too many harms nothing.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge import call_forms, shell
from sakti.agent.judge.policy import skip_git_options
from sakti.agent.judge.shell import Simple, Word
from sakti.agent.judge.where import Place

MOST = 1_000  # paths that a pattern may name
# Programs that remove the files that they name, or put another in their place under another name.
_REMOVERS = frozenset("rm rmdir unlink shred trash gzip bzip2 xz zstd".split())
# Programs that write into the files that they name.
_WRITERS = frozenset("tee truncate touch sed perl sqlite3 patch ed ex".split())
_COPIERS = frozenset("cp install ln scp rsync".split())
_STARTERS = ("-exec", "-execdir", "-ok", "-okdir")
_LOOKING = frozenset("grep cat ls wc head stat file echo".split())
_COMBINING = frozenset(("-o", "-or", "!", "-not", "-path"))
# Commands of git that write or remove files of the work tree.
_GIT = frozenset(
    "am apply checkout cherry-pick clean merge mv pull read-tree rebase reset restore revert rm stash switch".split()
)


class Targets(Struct, frozen=True):
    """Resolved paths that a command names; anything below them may be removed or written.

    `mentioned` may be written by a program that says nothing of it; `unignored` are folders in which git removes or
    replaces files that it does not ignore.
    """

    removed: tuple[Path, ...] = ()
    written: tuple[Path, ...] = ()
    mentioned: tuple[Path, ...] = ()
    unignored: tuple[Path, ...] = ()


NOTHING = Targets()


def read_targets(command: str, place: Place) -> Targets:
    """Return the files that a command names; raises nothing."""
    targets = NOTHING
    for simple in shell.with_nested(shell.parse(command)):
        if simple.program == "cd" and len(simple.words) == 2:
            place = replace(place, cwd=place.resolve(simple.words[1].text))
            continue
        one = _of_one(simple, place)
        targets = Targets(
            (*targets.removed, *one.removed),
            (*targets.written, *one.written, *_paths(simple.writes, place)),
            (*targets.mentioned, *one.mentioned),
            (*targets.unignored, *one.unignored),
        )
    return targets


def _of_one(simple: Simple, place: Place) -> Targets:
    program, words = simple.program, _operands(simple.words[1:])
    read = _READERS.get(program)
    if read is not None:
        return read(simple, words, place)
    if not program or call_forms.list_read_files(simple.argv) is not None:
        return NOTHING
    return Targets(mentioned=tuple(p for p in _paths(words, place) if p.is_file()))


def _of_remover(_: Simple, words: Sequence[Word], place: Place) -> Targets:
    return Targets(removed=_paths(words, place))


def _of_writer(_: Simple, words: Sequence[Word], place: Place) -> Targets:
    return Targets(written=tuple(p for p in _paths(words, place) if p.is_file()))


def _of_move(_: Simple, words: Sequence[Word], place: Place) -> Targets:
    return Targets(removed=_paths(words[:-1], place), written=_destinations(words, place))


def _of_copy(simple: Simple, words: Sequence[Word], place: Place) -> Targets:
    if simple.program == "rsync" and any(a.startswith("--del") for a in simple.argv):
        return Targets(removed=_paths(words[-1:], place))
    return Targets(written=_destinations(words, place))


def _of_dd(simple: Simple, _: Sequence[Word], place: Place) -> Targets:
    return Targets(written=_paths([Word(a.removeprefix("of=")) for a in simple.argv if a.startswith("of=")], place))


def _of_find(simple: Simple, _: Sequence[Word], place: Place) -> Targets:
    return Targets(removed=tuple(_removed_by_find(simple, place)))


def _of_git(simple: Simple, _words: Sequence[Word], place: Place) -> Targets:
    name, *arguments = [*skip_git_options(simple.argv)[1:], ""]
    if name not in _GIT:
        return NOTHING
    if name != "clean" or not any(re.match(r"-[a-zA-Z]*[xX]", a) for a in arguments):
        return Targets(unignored=(place.workspace,))
    named = _paths([Word(a) for a in arguments if a and not a.startswith("-")], place)
    return Targets(removed=named or (place.cwd,))


def _removed_by_find(simple: Simple, place: Place) -> Iterator[Path]:
    """Yield the files below the start of a `find` that removes some; only one test of a name is looked at."""
    argv = simple.argv
    programs = {b.rpartition("/")[2] for a, b in pairwise(argv) if a in _STARTERS}
    if "-delete" not in argv and programs <= _LOOKING:
        return
    end = next((n for n, a in enumerate(argv) if n and a[:1] in "-!("), len(argv))
    starts = _paths(simple.words[1:end] or (Word("."),), place)
    names = [b.lower() for a, b in pairwise(argv) if a in ("-name", "-iname")]
    yield from starts if len(names) != 1 or _COMBINING & set(argv) else _named_so(starts, names[0])


def _named_so(starts: Sequence[Path], pattern: str) -> Iterator[Path]:
    for start in starts:
        yield from (path for path in start.rglob("*") if fnmatch.fnmatch(path.name.lower(), pattern))


def _destinations(words: Sequence[Word], place: Place) -> tuple[Path, ...]:
    """Return the files that copying or moving to the last operand would replace."""
    out: list[Path] = []
    for target in _paths(words[-1:], place):
        out += [target / p.name for p in _paths(words[:-1], place)] if target.is_dir() else [target]
    return tuple(out)


def _operands(words: Sequence[Word]) -> tuple[Word, ...]:
    ends = next((n for n, w in enumerate(words) if w.text == "--"), len(words))
    return (*(w for w in words[:ends] if not w.text.startswith("-")), *words[ends + 1 :])


def _paths(words: Sequence[Word], place: Place) -> tuple[Path, ...]:
    """Resolve words, with patterns expanded; of a link the link itself is meant."""
    out: list[Path] = []
    for word in words:
        if not word.literal and "$" not in word.text and re.search(r"[*?\[]", word.text):
            out += _expand(word.text, place)
        elif "$" not in word.text and len(word.text) < 4_096 and "\0" not in word.text:
            path = Path(place.cwd, word.text.rstrip("/") or "/")
            out.append(place.resolve(str(path.parent)) / path.name if path.name not in ("", "..") else path.resolve())
    return tuple(out)


def _expand(pattern: str, place: Place) -> list[Path]:
    start, rest = ("/", pattern.lstrip("/")) if pattern.startswith("/") else (place.cwd, pattern)
    try:
        return [p for p, _ in zip(Path(start).glob(rest.rstrip("/")), range(MOST), strict=False)]
    except (ValueError, NotImplementedError, OSError, IndexError):
        return []


Reader: TypeAlias = Callable[[Simple, Sequence[Word], Place], Targets]
_READERS: Mapping[str, Reader] = {
    **dict.fromkeys(_REMOVERS, _of_remover),
    **dict.fromkeys(_WRITERS, _of_writer),
    **dict.fromkeys(_COPIERS, _of_copy),
    "mv": _of_move,
    "dd": _of_dd,
    "find": _of_find,
    "git": _of_git,
}
