"""Words of a command as the shell gets them, and the simple commands made of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern

MAX_CHOICES = 200  # choices of a word from loops
VARIABLE = lazy_pattern(r"(?!(?:auto_resume|histchars)$)[a-z_][a-z0-9_]*")  # variable that no program and no shell uses

_ANSI = lazy_pattern(r"(?s)\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(x\{|.))")
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))

_PLAIN_SET = lazy_pattern(r"\[(?:[!^]?[\w.,+@-]+|[*?\[])\]")


class Word(Struct, frozen=True):
    """Word as the program gets it; `literal`: the text determines it exactly.

    Otherwise `pattern` is a glob of files (quoted parts escaped), each between the texts `around`; `choices` are the
    words that loops put in its place. `output`: it contains a command's output, `stream`: it names a stream of that
    output. `split`: it is unquoted, so a space in its value would split it.
    """

    text: str
    literal: bool = True
    pattern: str = ""
    around: tuple[str, str] = ("", "")
    choices: tuple[Word, ...] = ()
    split: bool = False
    output: bool = False
    stream: bool = False


class Simple(Struct, frozen=True):
    """One program with its arguments.

    `assigned`: the variables that are set for it; `reads` and `writes`: the files that it is redirected from and to;
    `piped`: its input is another program's output, `before` is the index of that program among the script's commands;
    `inside`: it is part of another command's text (`sh -c`, `xargs`); `input`: the text of its standard input; `sure`:
    it runs if the command before it did, `chained`: only if that one succeeded. `repeated`: it may run more than once.
    `substituted`: another command gets its output as words or as a file. `ends`: the byte offsets at which its words
    end.
    """

    words: tuple[Word, ...]
    assigned: tuple[str, ...] = ()
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    piped: bool = False
    before: int | None = None
    inside: bool = False
    input: str = ""
    sure: bool = True
    chained: bool = False
    repeated: bool = False
    substituted: bool = False
    ends: tuple[int, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(w.text for w in self.words)

    @property
    def program(self) -> str:
        """Return the program's name without its folder; empty if the text does not say it."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].literal else ""


def join(parts: Sequence[Word], text: str) -> Word:
    """Join parts to one word, which is as undetermined as its parts."""
    open_parts = [p for p in parts if not p.literal]
    if not open_parts:
        return Word(_join_texts(parts))
    split = any(p.split for p in open_parts)
    if any(p.output for p in open_parts):
        return Word(text, literal=False, output=True, split=split)
    if any(p.choices for p in open_parts):
        return Word(text, literal=False, choices=_combine(parts), split=split)
    pattern = "".join(map(_escape_literal, parts)) if all(map(_is_plain_pattern, open_parts)) else ""
    return Word(text, literal=False, pattern=pattern)


def read_ansi(raw: str) -> Word:
    """Return the word that `$'…'` expands to.

    Control characters, NUL, `\\x{…}`, and bytes that are parts of a character leave it undetermined.
    """
    try:
        return Word(_ANSI.sub(_read_escape, raw[2:-1]))
    except ValueError:
        return Word(raw, literal=False)


def _read_escape(match: re.Match[str]) -> str:
    """Return the character of an escape; bash leaves unknown ones unchanged. Raises `ValueError`."""
    octal, byte, short, long, letter = match.groups()
    if letter in ("c", "x{"):
        raise ValueError(letter)
    if letter is not None:
        return _ANSI_LETTERS.get(letter, match[0])
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if not code or (code > 127 and (octal or byte)) or 0xD800 <= code < 0xE000:  # ends the text, or is half a character
        raise ValueError(match[0])
    return chr(code)


def _find_open(parts: Sequence[Word], pick: Sequence[Word]) -> int | None:
    """Return the first index at which the choice for a variable leaves the word undetermined."""
    return next((at for at, part in enumerate(parts) if part.choices and not pick[at].literal), None)


def _is_plain_pattern(word: Word) -> bool:
    return bool(word.pattern) and not any(word.around)


def _join_texts(parts: Sequence[Word]) -> str:
    return "".join(p.text for p in parts)


def _escape_literal(part: Word) -> str:
    """Return the pattern that a part of a word is."""
    return part.pattern or re.sub(r"([*?\[])", r"[\1]", part.text)


def _combine(parts: Sequence[Word]) -> tuple[Word, ...]:
    """Return the combinations of the parts' choices, up to one more than the limit."""
    picked = itertools.islice(itertools.product(*(p.choices or (p,) for p in parts)), MAX_CHOICES + 1)
    return tuple(_pick(parts, pick) for pick in picked)


def _pick(parts: Sequence[Word], pick: Sequence[Word]) -> Word:
    """Join parts with one choice for each variable; the word is unknown if it would be split."""
    text = _join_texts(pick)
    if any(_is_divided(part, p) for part, p in zip(parts, pick, strict=True)):
        return Word(text, literal=False)
    at = _find_open(parts, pick)
    if at is None:
        return join(pick, text)
    if not pick[at].pattern or sum(not p.literal for p in pick) > 1:
        return Word(text, literal=False)
    before, behind = pick[at].around
    around = (_join_texts(pick[:at]) + before, behind + _join_texts(pick[at + 1 :]))
    return replace(pick[at], around=around, split=pick[at].split or parts[at].split)


def _is_divided(variable: Word, choice: Word) -> bool:
    """Return whether the shell would split or expand the value of a variable."""
    is_bare = variable.split and bool(variable.choices)
    return is_bare and choice.literal and re.search(r"[\s*?\[\\]", choice.text) is not None


def has_plain_sets(pattern: str) -> bool:
    """Return whether the bracket expressions in a pattern are simple.

    Bash reads others, such as `[[:alpha:]]` and `[a"]"]`, differently from `fnmatch`.
    """
    return "[" not in _PLAIN_SET.sub("", pattern)


def has_output(words: Sequence[Word]) -> bool:
    """Return whether one of the words contains a command's output."""
    return any(w.output for w in words)
