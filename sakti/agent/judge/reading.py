"""Know the commands that only read: their programs, and of each the options that keep it so.

A program stands here only with a list of what it may be given, or a list of what makes it write, run or reach out;
what is not listed is not known. `git` has a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Check: TypeAlias = Callable[[Sequence[str]], bool]


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether a command other than git only reads the files that it names; `argv` is exact."""
    if not argv:
        return False
    if list(argv[1:]) in (["--version"], ["-V"], ["--help"]) and argv[0] in _TELL:
        return True
    check = _PROGRAMS.get(argv[0])
    return check is not None and check(argv[1:])


def is_known(program: str) -> bool:
    """Return whether a program is read-only with some of its options."""
    return program in _PROGRAMS


def _any(_: Sequence[str]) -> bool:
    return True


def _without(*refused: str) -> Check:
    """Allow all but the options `refused`.

    `-x` also inside a cluster and with its value glued to it, `--name` also cut short and with `=value`.
    """
    letters = {r[1] for r in refused if not r.startswith("--")}
    names = [r for r in refused if r.startswith("--")]

    def check(arguments: Sequence[str]) -> bool:
        for word in _options(arguments):
            if word.startswith("--"):
                name = word.partition("=")[0]
                if any(n.startswith(name) for n in names):
                    return False
            elif letters & set(word[1:]):
                return False
        return True

    return check


def _options(arguments: Sequence[str]) -> list[str]:
    """Return the words that a program may take for options, those behind `--` left out."""
    words = list(arguments)
    if "--" in words:
        words = words[: words.index("--")]
    return [w for w in words if w.startswith("-") and w != "-"]


def _only(pattern: str) -> Check:
    """Allow only options that match `pattern` as a whole."""
    shape = re.compile(pattern)
    return lambda arguments: all(shape.fullmatch(o) for o in _options(arguments))


def _one_operand(arguments: Sequence[str]) -> bool:
    """Allow at most one file: a second one would be written to."""
    operands = [a for a in arguments if not a.startswith("-")]
    return len(operands) <= 1 and _only(r"-[cdiuDz]+|--(count|repeated|unique|ignore-case)")(arguments)


def _sort(arguments: Sequence[str]) -> bool:
    return _only(r"-[bdfghinMRrsuVcz]+|-k[\d.,a-zA-Z]*|-t.?")(arguments)


def _date(arguments: Sequence[str]) -> bool:
    return all(a.startswith("+") or a in ("-u", "-R", "--utc", "-I") or re.fullmatch(r"-I\w+", a) for a in arguments)


def _sed(arguments: Sequence[str]) -> bool:
    """Allow `sed -n 3,7p FILE…` only: most else can write or run."""
    return len(arguments) >= 2 and arguments[0] == "-n" and _is_range(arguments[1]) and not _options(arguments[2:])


def _is_range(script: str) -> bool:
    return re.fullmatch(r"(\d+|\$)(,(\d+|\$))?p", script) is not None


_FIND_ALONE = frozenset(
    "-print -print0 -depth -xdev -mount -empty -daystart -true -false -readable -ls -prune -o -a -or -and -not ! ( )"
    " -nouser -nogroup -executable -quit".split()
)
_FIND_VALUED = frozenset(
    "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -maxdepth -mindepth -size -mtime -mmin -atime"
    " -amin -ctime -cmin -newer -perm -user -group -links -inum -samefile -printf".split()
)


def _find(arguments: Sequence[str]) -> bool:
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word in _FIND_VALUED:
            at += 2
        elif word in _FIND_ALONE or not word.startswith(("-", "!", "(", ")")):
            at += 1
        else:
            return False
    return True


def _tail(arguments: Sequence[str]) -> bool:
    return _without("-f", "-F", "--follow", "--retry")(arguments)


def _test(arguments: Sequence[str]) -> bool:
    """Refuse what asks for a variable: the shell evaluates an index of it, `x[$(id)]`."""
    return not {"-v", "-R"} & set(arguments)


_COUNTS = _without("-f", "-C", "-m", "--files0-from", "--files-from", "--magic-file", "--compile")
_SUMS = _without("-c", "--check")  # else the files are those that a list names

_PROGRAMS: Mapping[str, Check] = {
    **dict.fromkeys(
        "pwd true false whoami id uname nproc basename dirname realpath seq echo cat head nl stat cmp cut tr rev fold"
        " paste column ls df grep egrep fgrep od strings tac which diff comm"
        " readlink sleep".split(),
        _any,
    ),
    **dict.fromkeys("sha256sum sha1sum md5sum cksum".split(), _SUMS),
    "tail": _tail,
    "test": _test,
    "wc": _COUNTS,
    "du": _COUNTS,
    "file": _COUNTS,
    "uniq": _one_operand,
    "sort": _sort,
    "date": _date,
    "sed": _sed,
    "find": _find,
    "rg": _without(*"--pre --pre-glob --hostname-bin -z --search-zip -f --file --ignore-file --config".split()),
}
# Programs that may be asked for their version.
_TELL = frozenset("python python3 node npm cargo go rustc make ruff uv gcc git java".split())
