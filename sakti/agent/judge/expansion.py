"""Expand words of a command as the shell does, and find the files that it lists, removes or writes.

The files of `read_targets` are stored before the command runs, so every recognisable file counts, even if the command
is not understood: storing one file too many is harmless.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge import call_forms, shell
from sakti.agent.judge.call_forms import list_read_files
from sakti.agent.judge.policy import skip_git_options
from sakti.agent.judge.programs import find_program, has_option, list_operands
from sakti.agent.judge.syntax import Simple, Word
from sakti.agent.judge.words import has_plain_sets
from sakti.agent.judge.workspace_view import LISTS, WorkspaceView, explain_secret
from sakti.core.lazy import lazy_pattern

MOST_MATCHES = 2_000  # of a pattern
MOST_COMMANDS = 300  # commands that loops make of one
MOST_LISTED = 20_000  # entries of folders that are examined
LISTED = "./listed"  # placeholder for each file of a list in the command that gets it
PRINTED = "$()"  # placeholder for the output of a command
_DIVIDES = re.compile(r"[\s*?\[\\'\"]")
# Programs that pass on some of their input lines, and options with which they do nothing else.
_FILTERS = {
    "sort": lazy_pattern(r"-[nrufVbd]+"),
    "head": lazy_pattern(r"-n\d*|-\d+"),
    "tail": lazy_pattern(r"-n\d*|-\d+"),
    "grep": lazy_pattern(r"-[viEFwxa]+|-e"),
}


def expand(words: Sequence[Word], place: WorkspaceView) -> list[tuple[str, ...]] | None:
    """Return the commands that words expand to, one for each choice of a loop; None if unclear."""
    out: list[tuple[str, ...]] = [()]
    for word in words:
        if (options := _expand_word(word, place)) is None:
            return None
        out = [(*argv, *more) for argv, more in itertools.product(out, options)]
        if len(out) > MOST_COMMANDS:
            return None
    return out


def _expand_word(word: Word, place: WorkspaceView) -> list[tuple[str, ...]] | None:
    """Return the expansions of a word: all matches of a pattern, or each choice of a loop."""
    if word.literal:
        return [(word.text,)]
    if word.output or word.stream:
        return [(PRINTED,)]
    if word.pattern:
        matches = list_matches(word.pattern, place.cwd)
        return [tuple(matches)] if matches is not None else None
    out: list[tuple[str, ...]] = []
    for choice in word.choices:
        if (texts := _expand_choice(choice, place)) is None:
            return None
        out += [(text,) for text in texts]
    return out[: MOST_COMMANDS + 1] or None


def _expand_choice(choice: Word, place: WorkspaceView) -> list[str] | None:
    if choice.literal:
        return [choice.text]
    if not choice.pattern or (matches := list_matches(choice.pattern, place.cwd)) is None:
        return None
    if choice.split and any(_DIVIDES.search(m) for m in matches if m != choice.pattern):
        return None
    before, behind = choice.around
    return [f"{before}{m}{behind}" for m in matches]


def list_matches(pattern: str, folder: Path) -> list[str] | None:
    """Return the matches of a pattern, the pattern itself without any; None if too many or unclear.

    `**` is `*`, as in a shell without `globstar`; only a dot matches a leading dot.
    """
    if not has_plain_sets(pattern):
        return None
    names = ["/"] if pattern.startswith("/") else [""]
    for part in [p for p in pattern.split("/") if p]:
        names = list(itertools.islice(_match_part(names, part, folder), MOST_MATCHES + 1))
        if len(names) > MOST_MATCHES:
            return None
    return sorted(names) or [pattern]


def _match_part(names: Sequence[str], part: str, folder: Path) -> Iterator[str]:
    is_pattern = re.search(r"[*?\[]", part) is not None
    for name in names:
        start = name if not name or name.endswith("/") else f"{name}/"
        if is_pattern:
            yield from (f"{start}{entry}" for entry in _list_entries(folder / (start or "."), part))
        elif os.path.lexists(folder / f"{start}{part}"):
            yield f"{start}{part}"


def _list_entries(folder: Path, part: str) -> Iterator[str]:
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return
    extra = (".", "..") if part.startswith(".") else ()
    for entry in (*entries, *extra):
        if (part[0] == "." or entry[0] != ".") and fnmatch.fnmatchcase(entry, part.replace("[^", "[!")):
            yield entry


# --- lists of files for another command -------------------------------------------------------------------------------


def find_listed(simple: Simple, commands: Sequence[Simple], place: WorkspaceView) -> list[tuple[str, ...]] | None:
    """Return the commands in a read-only `find -exec` or `xargs`, with `LISTED` for the listed files.

    None if they are unclear, or if a listed file may not be an ordinary file of the workspace.
    """
    if simple.argv[:1] == ("find",):
        return _find_executed(simple, place)
    if simple.argv[:1] != ("xargs",) or not _gets_ordinary_files(simple, commands, place):
        return None
    inner = _find_inner(simple)
    placed = find_placeholder(simple.argv)
    inner = _replace_all(inner, placed) if placed else (*inner, LISTED, LISTED)
    return [inner] if inner[0] and _has_whole_files(inner) else None


def _find_inner(simple: Simple) -> tuple[str, ...]:
    """Return the command in the arguments of xargs, without a name if it is not clear."""
    scripts = list(shell.list_started(simple))
    if len(scripts) != 1 or scripts[0].unclear:
        return ("",)
    return scripts[0].commands[0].argv if scripts[0].commands else ("echo",)


def _has_whole_files(words: Sequence[str]) -> bool:
    """Return whether each listed file is a separate word: inside another word, it names another file."""
    return not any(LISTED in w and w != LISTED for w in words)


def _replace_all(words: Sequence[str], placed: str) -> tuple[str, ...]:
    return tuple(w.replace(placed, LISTED) for w in words)


def _gets_ordinary_files(simple: Simple, commands: Sequence[Simple], place: WorkspaceView) -> bool:
    """Return whether the input of a command is a list of ordinary files."""
    source = simple
    while source is simple or _is_filter(source):
        if source.before is None or source.reads or source.input:
            return False
        source = commands[source.before]
    is_literal = all(w.literal for w in (*simple.words, *source.words))
    return is_literal and bool(source.words) and _lists_files(source.argv) and _are_ordinary(source.argv, place)


def _is_filter(source: Simple) -> bool:
    options = _FILTERS.get(source.program)
    if options is None or not all(w.literal for w in source.words):
        return False
    is_plain = all(options.fullmatch(w) for w in source.argv[1:] if w.startswith("-"))
    return is_plain and list_read_files(source.argv) == ()


def find_placeholder(argv: Sequence[str]) -> str | None:
    """Return the word that xargs replaces with each file; None if it adds them at the end."""
    for at, word in enumerate(argv[1:-1], 1):
        if word == "-I":
            return argv[at + 1]
        if re.fullmatch(r"-I.+", word):
            return word.removeprefix("-I")
    return None


def _find_executed(simple: Simple, place: WorkspaceView) -> list[tuple[str, ...]] | None:
    """Return the commands after each `-exec` of a find that otherwise only lists."""
    inner, argv = list[tuple[str, ...]](), list(simple.argv)
    while "-exec" in argv:
        at = argv.index("-exec")
        end = next((n for n in range(at + 1, len(argv)) if argv[n] in (";", "+")), at)
        inner.append(_replace_all(argv[at + 1 : end], "{}"))
        del argv[at : end + 1]
    is_list = all(map(_has_whole_files, inner)) and list_read_files(argv) is not None
    return inner if inner and is_list and _are_ordinary(argv, place) else None


def _lists_files(argv: Sequence[str]) -> bool:
    """Return whether a command prints names of files below its folder, and nothing else."""
    if list_read_files(argv) is None:
        return False
    if argv[0] == "find":
        return not any(a in ("-printf", "-ls") for a in argv)
    if argv[0] == "grep":
        return has_option(argv[1:], ("-l", "--files-with-matches")) and has_option(argv[1:], ("-r", "--recursive"))
    return argv[0] == "rg" and has_option(argv[1:], ("-l", "--files-with-matches", "--files"))


def _are_ordinary(argv: Sequence[str], place: WorkspaceView) -> bool:
    """Return whether a command can only list ordinary files: no secret, outside link or unusual name."""
    patterns = _find_names(argv) if argv[0] == "find" else []
    operands = list_operands(list(itertools.takewhile(lambda a: argv[0] != "find" or a[:1] not in "-!(", argv[1:])))
    folders = [p for p in map(place.resolve, operands) if p.is_dir()]
    budget = itertools.count()
    return all(_is_ordinary_folder(f, patterns, budget, place) for f in folders or [place.cwd])


def _is_ordinary_folder(root: Path, patterns: Sequence[str], budget: Iterator[int], place: WorkspaceView) -> bool:
    if not place.holds(root):
        return False
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            is_listed = all(fnmatch.fnmatch(name.lower(), p.lower()) for p in patterns)
            if next(budget) > MOST_LISTED or (is_listed and not _is_ordinary(folder, name, place)):
                return False
        if any(map(_DIVIDES.search, folders)):
            return False  # a name with a space in it is two words for xargs
    return True


def _is_ordinary(folder: str, name: str, place: WorkspaceView) -> bool:
    if _DIVIDES.search(name) or name.startswith("-"):
        return False
    path = Path(os.path.realpath(os.path.join(folder, name)))  # noqa: PTH118 - for each file of a workspace
    return place.holds(path) and not explain_secret(path, place)


def _find_names(argv: Sequence[str]) -> list[str]:
    """Return the patterns that all files listed by a find match."""
    if any(a in ("-o", "-or", "!", "-not", ",") for a in argv):
        return []
    return [b for a, b in itertools.pairwise(argv) if a in ("-name", "-iname")]


def is_walker(argv: Sequence[str]) -> bool:
    """Return whether a command searches its folders recursively."""
    walks = find_program(argv[0]).walks
    return walks if isinstance(walks, bool) else has_option(argv, walks)


MOST = 1_000  # paths that a pattern may name
_COMBINING = frozenset(("-o", "-or", "!", "-not", "-path"))


class Targets(Struct, frozen=True):
    """Resolved paths that a command names; anything below them may be removed or written.

    `mentioned` paths may be written by a program without documentation of it; in `unignored` folders, git removes or
    replaces files that it does not ignore.
    """

    removed: tuple[Path, ...] = ()
    written: tuple[Path, ...] = ()
    mentioned: tuple[Path, ...] = ()
    unignored: tuple[Path, ...] = ()


NOTHING = Targets()


def read_targets(command: str, place: WorkspaceView) -> Targets:
    """Return the files that a command names; raises nothing."""
    targets = NOTHING
    for simple in shell.list_commands(shell.parse(command)):
        if simple.program == "cd" and len(simple.words) == 2:
            place = replace(place, cwd=place.resolve(simple.words[1].text))
            continue
        one = _find_targets(simple, place)
        targets = Targets(
            (*targets.removed, *one.removed),
            (*targets.written, *one.written, *_resolve_words(simple.writes, place)),
            (*targets.mentioned, *one.mentioned),
            (*targets.unignored, *one.unignored),
        )
    return targets


def _find_targets(simple: Simple, place: WorkspaceView) -> Targets:
    program, words = simple.program, list_operand_words(simple.words[1:])
    read = _READERS.get(program)
    if read is not None:
        return read(simple, words, place)
    if not program or call_forms.list_read_files(simple.argv) is not None:
        return NOTHING
    return Targets(mentioned=tuple(p for p in _resolve_words(words, place) if p.is_file()))


def _find_removed(_: Simple, words: Sequence[Word], place: WorkspaceView) -> Targets:
    return Targets(removed=_resolve_words(words, place))


def _find_written(_: Simple, words: Sequence[Word], place: WorkspaceView) -> Targets:
    return Targets(written=tuple(p for p in _resolve_words(words, place) if p.is_file()))


def _find_moved(_: Simple, words: Sequence[Word], place: WorkspaceView) -> Targets:
    return Targets(removed=_resolve_words(words[:-1], place), written=_list_destinations(words, place))


def _find_copied(simple: Simple, words: Sequence[Word], place: WorkspaceView) -> Targets:
    if simple.program == "rsync" and any(a.startswith("--del") for a in simple.argv):
        return Targets(removed=_resolve_words(words[-1:], place))
    return Targets(written=_list_destinations(words, place))


def _find_written_by_dd(simple: Simple, _: Sequence[Word], place: WorkspaceView) -> Targets:
    return Targets(
        written=_resolve_words([Word(a.removeprefix("of=")) for a in simple.argv if a.startswith("of=")], place)
    )


def _find_removed_by_find(simple: Simple, _: Sequence[Word], place: WorkspaceView) -> Targets:
    return Targets(removed=tuple(_list_removed_by_find(simple, place)))


def _find_targets_of_git(simple: Simple, _words: Sequence[Word], place: WorkspaceView) -> Targets:
    name, *arguments = [*skip_git_options(simple.argv)[1:], ""]
    if name not in LISTS.git_writers:
        return NOTHING
    if name != "clean" or not any(re.match(r"-[a-zA-Z]*[xX]", a) for a in arguments):
        return Targets(unignored=(place.workspace,))
    named = _resolve_words([Word(a) for a in arguments if a and not a.startswith("-")], place)
    return Targets(removed=named or (place.cwd,))


def _removes_by_find(argv: Sequence[str]) -> bool:
    starters = find_program("find").exec_options
    programs = {b.rpartition("/")[2] for a, b in pairwise(argv) if a in starters}
    return "-delete" in argv or not programs <= LISTS.lookers


def _list_removed_by_find(simple: Simple, place: WorkspaceView) -> Iterator[Path]:
    """Yield the files below the start of a `find` that removes some; only one name test is considered."""
    argv = simple.argv
    if not _removes_by_find(argv):
        return
    end = next((n for n, a in enumerate(argv) if n and a[:1] in "-!("), len(argv))
    starts = _resolve_words(simple.words[1:end] or (Word("."),), place)
    names = [b.lower() for a, b in pairwise(argv) if a in ("-name", "-iname")]
    yield from starts if len(names) != 1 or _COMBINING & set(argv) else _list_matching(starts, names[0])


def _list_matching(starts: Sequence[Path], pattern: str) -> Iterator[Path]:
    for start in starts:
        yield from (path for path in start.rglob("*") if fnmatch.fnmatch(path.name.lower(), pattern))


def _list_destinations(words: Sequence[Word], place: WorkspaceView) -> tuple[Path, ...]:
    """Return the files that copying or moving to the last operand would replace."""
    out: list[Path] = []
    for target in _resolve_words(words[-1:], place):
        out += [target / p.name for p in _resolve_words(words[:-1], place)] if target.is_dir() else [target]
    return tuple(out)


def list_operand_words(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words that are not options, and all words after `--`."""
    ends = next((n for n, w in enumerate(words) if w.text == "--"), len(words))
    return (*(w for w in words[:ends] if not w.text.startswith("-")), *words[ends + 1 :])


def _resolve_words(words: Sequence[Word], place: WorkspaceView) -> tuple[Path, ...]:
    """Resolve words, with patterns expanded; a link names the link itself."""
    out: list[Path] = []
    for word in words:
        if not word.literal and "$" not in word.text and re.search(r"[*?\[]", word.text):
            out += _expand_pattern(word.text, place)
        elif "$" not in word.text and len(word.text) < 4_096 and "\0" not in word.text:
            path = Path(place.cwd, word.text.rstrip("/") or "/")
            out.append(place.resolve(str(path.parent)) / path.name if path.name not in ("", "..") else path.resolve())
    return tuple(out)


def _expand_pattern(pattern: str, place: WorkspaceView) -> list[Path]:
    start, rest = ("/", pattern.lstrip("/")) if pattern.startswith("/") else (place.cwd, pattern)
    try:
        return [p for p, _ in zip(Path(start).glob(rest.rstrip("/")), range(MOST), strict=False)]
    except (ValueError, NotImplementedError, OSError, IndexError):
        return []


Reader: TypeAlias = Callable[[Simple, Sequence[Word], WorkspaceView], Targets]
_READERS: Mapping[str, Reader] = {
    **dict.fromkeys(LISTS.removers, _find_removed),
    **dict.fromkeys(LISTS.writers, _find_written),
    **dict.fromkeys(LISTS.copiers, _find_copied),
    "mv": _find_moved,
    "dd": _find_written_by_dd,
    "find": _find_removed_by_find,
    "git": _find_targets_of_git,
}
