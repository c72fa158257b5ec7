"""Commands that are understood run in bash with the words that were read, here with stub programs."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sakti.agent.judge.expansion import expand
from sakti.agent.judge.shell import parse
from sakti.agent.judge.words import read_ansi
from sakti.agent.judge.workspace_view import WorkspaceView

BASH = shutil.which("bash")
LINES = 3_000
# Any command is a stub: it writes its words to the log and succeeds. `\x01` ends a word, `\x02` a command.
RUNNER = r"""
PATH=/nonexistent
command_not_found_handle() { local IFS=$'\x01'; printf '%s\x02' "$*" >> "$LOG"; return 0; }
n=0
while IFS= read -r -d '' line; do
  ( cd $n; eval "$line"; wait ) > /dev/null 2>&1 < /dev/null
  printf '\x03' >> "$LOG"
  n=$((n + 1))
done
"""
PIECES = (
    *(
        "sort",
        "uniq",
        "git",
        "cat",
        "a.txt",
        "-o",
        "-onew2",
        "-n1",
        "x=1",
        "2",
        "1",
        "a",
        "b#c",
        "#c",
        "'a b'",
        '"c d"',
    ),
    *(
        "'",
        '"',
        "\\",
        "$x",
        "${x}",
        "$(wc)",
        "`wc`",
        "~",
        "{a,b}",
        "*",
        "*.txt",
        "?.txt",
        "[ab].txt",
        "a\\ b",
        "''",
        '""',
    ),
    *("'a'b", '"a"2', "a'b'", "--", "-", "!", "=", "a=b", "%", "+", ",", ":", "@", "^", "é", "日本", "$", "$'a'"),
    *("a[1]", "[1]", "0", "10", "a[1]=", "\\'", '\\"', "a=(", "#"),
)
SIGNS = (
    *(
        " ",
        " ",
        " ",
        " ",
        " ",
        "",
        "",
        "\t",
        ";",
        " ; ",
        " && ",
        "&&",
        " | ",
        "|",
        " || ",
        "\n",
        " > .o",
        ">.o",
        "2>.o",
    ),
    *(" 2>&1", "2>&1", ">&2", " < a.txt", "<a.txt", " >> .o", "&>.o", " &", "(", ")", " ( ", " ) ", "{ ", "; }", " # "),
    *(
        "for f in a b; do sort $f; done",
        'for f in *.txt; do cat "$f" x$f; done',
        "if sort; then cat; fi",
        "! ",
        "[ a = a ]",
    ),
    *(
        "until sort $x; do cat a.txt\nbreak; done",
        "while read -r f; do cat a.txt; done",
        "while IFS= read -r f g; do sort $f; done < <(wc)",
        "case $x in a | b*) sort;; *) cat a.txt; uniq;; esac",
        "case a in (a) sort && cat;& b) uniq;; esac",
        "for ((n=0; n<2; n++)); do sort; cat $n; done",
        "for n in {1..3}; do sort $n; done",
        "for n in $(wc); do cat $n; done",
        "(( 1 < 2 )) && ",
        " $((1 + 2))",
        " <(sort a)",
        " < <(sort a)",
        "esac",
        ";;",
        "{1..2}",
    ),
    *("0<a.txt", " 0<a.txt", "10>.o", " 3<&0", "{x}<a.txt", "0<<< a", "|&", "\\\n"),
    *(" <<< a", " <<'E'\na $x\nE\n", "time ", "[[ a = a ]] && ", "then", "do", "done", "fi", "in"),
)


# Compounds whose places (`_`) all run, or may run, with stubs that succeed.
COMPOUNDS = (
    "while read -r f; do _; done <<< a",
    "while _; do _\nbreak; done",
    "until _; do _\nbreak; done",
    "for ((n=0; n<2; n++)); do _; done",
    "for n in {2..1} _; do _; done",
    "for n in $(_); do _; done",
    "case a in a) _;; *) _;; esac",
    "case _ in *) _ ;; esac; _",
    "case 'a b' in _) _;& b) _;; esac",
    "(( 1 )) && _ || _",
    "sort <(_) _",
    "while read -r f; do _; done < <(_)",
    "_ | while read -r f; do _; done",
    "if _; then (_); else { _; }; fi",
    "echo $((1 + 1)) _",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceView:
    folder = make_files(tmp_path_factory.mktemp("bash") / "files")
    return WorkspaceView(folder.resolve(), folder.resolve())


def make_files(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a.txt", "b.txt", "c.md", ".hidden.txt"):
        (folder / name).write_text("")
    return folder


def write_lines(seed: int = 20, count: int = LINES) -> list[str]:
    """Lines of pieces and signs in any order, most of which bash accepts."""
    chance = random.Random(seed)
    lines: list[str] = []
    for _ in range(count):
        words = [chance.choice(PIECES[:4])]
        for _ in range(chance.randint(1, 7)):
            words += [chance.choice(SIGNS), chance.choice(PIECES)]
        lines.append("".join(words))
    return lines


def write_compounds() -> list[str]:
    """Lines in which each place of a compound holds a few pieces."""
    chance = random.Random(21)

    def write_part() -> str:
        words = [chance.choice(PIECES[:4])]
        for _ in range(chance.randint(0, 2)):
            words += [chance.choice(SIGNS[:22]), chance.choice(PIECES)]
        return "".join(words)

    return [re.sub("_", lambda _: write_part(), chance.choice(COMPOUNDS)) for _ in range(LINES // 3)]


def read_argv(line: str, place: WorkspaceView) -> list[tuple[str, ...]] | None:
    """Each command that the judge sees in a line, in any order; None if it does not understand the line."""
    script = parse(line)
    commands: list[tuple[str, ...]] = []
    started = [simple.words for simple in script.commands if simple.words and simple.program != "test"]
    expanded = [None if any(w.output or w.stream for w in words) else expand(words, place) for words in started]
    if not script.understood or None in expanded:
        return None
    if any(w.pattern for words in started for w in words) and any(c.writes for c in script.commands):
        return None  # a pattern may match what the line writes
    for argv in itertools.chain.from_iterable(e or () for e in expanded):
        commands += [argv, argv[1:]] if argv[0] == "time" else [argv]  # a word of the shell, unless it is quoted
    return commands


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_words_are_those_that_bash_runs(place: WorkspaceView) -> None:
    lines = [line for line in (*write_lines(), *write_compounds()) if read_argv(line, place) is not None]
    assert len(lines) > LINES / 6
    assert list_unseen(lines, place) == []


def list_unseen(lines: list[str], place: WorkspaceView) -> list[tuple[str, tuple[str, ...]]]:
    """Run lines in bash with stubs, and return the commands that ran and that the judge did not see."""
    log = place.workspace.parent / "log"
    for number in range(len(lines)):  # one folder for each, since lines write files
        make_files(place.workspace.parent / str(number))
    subprocess.run(
        [str(BASH), "--norc", "-c", RUNNER],
        input="".join(f"{line}\0" for line in lines).encode(),
        cwd=place.workspace.parent,
        env={"LOG": str(log), "LC_ALL": "C.UTF-8"},
        check=True,
        timeout=120,
    )
    ran = log.read_bytes().decode().split("\x03")[:-1]
    assert len(ran) == len(lines)
    return [(line, argv) for line, text in zip(lines, ran, strict=True) for argv in find_unseen(line, text, place)]


def find_unseen(line: str, log: str, place: WorkspaceView) -> list[tuple[str, ...]]:
    """Commands that a line ran and that the judge did not see in it."""
    judged = read_argv(line, place) or []
    actual = [tuple(c.split("\x01")) for c in log.split("\x02")[:-1]]
    return [argv for argv in actual if argv not in judged]


ESCAPES = (
    *(r"plain", r"a\tb\n\\\'\"\?", r"\e[0m\E", r"\a\b\f\r\v", r"\101\7x\1", r"\x41\x7", r"\u41\u00e9", r"\U1F600"),
    *("é€", r"\d\N{DIGIT ONE}\q", r"\8", r"\x", r"\uzz"),
)
OPEN_ESCAPES = (r"\cA", r"a\0b", r"\xc3\xa9", r"\351", r"\U110000", r"\u0", r"\x{72}m", r"\ud800")


@pytest.mark.skipif(BASH is None, reason="no bash")
@pytest.mark.filterwarnings("error")
def test_escapes_of_ansi_words_are_read_as_bash_reads_them() -> None:
    words = [f"$'{text}'" for text in ESCAPES]
    env = {"LC_ALL": "C.UTF-8"}
    printed = subprocess.run([str(BASH), "-c", f"printf '%s\\0' {' '.join(words)}"], capture_output=True, env=env)
    read = [read_ansi(word) for word in words]
    assert [word.text for word in read] == printed.stdout.decode().split("\0")[:-1]
    assert all(word.literal for word in read)
    assert not any(read_ansi(f"$'{text}'").literal for text in OPEN_ESCAPES)
