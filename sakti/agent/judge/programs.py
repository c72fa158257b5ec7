"""Look up programs in `programs.toml`: how each may be called, and what its subcommands do.

`ProgramEntry` is the schema of the file. A table is decoded when its program is first looked up, which takes about 0.1
ms; decoding the whole file would take 50 times as long.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from sakti.core.lazy import lazy_pattern

# Meaning of an operand or of an option's value. A file is read or written, or only its name and size are read; `text`
# is no file, nor is the `pattern` of grep. `object` is a file that is read, except words that begin with `@`; `archive`
# is a file that is written, except `HOST:FILE`, which tar reaches through another program. Scripts (`sed` that prints,
# `edit` for one that changes lines, `awk`, `jq`, `sql`), the `format` of date, the `mode` of chmod and the `varname` of
# read have their own syntax.
Use: TypeAlias = Literal[
    "text",
    "name",
    "read",
    "write",
    "archive",
    "pattern",
    "object",
    "sed",
    "edit",
    "awk",
    "jq",
    "sql",
    "format",
    "mode",
    "varname",
]
# Whether a fact applies to a program: always, never, or after one of these subcommands (`system prune`, in the order of
# the words; "" without any) or options (`--hard`).
Condition: TypeAlias = bool | tuple[str, ...]
# Harm of a program whatever its subcommand; for clouds, databases and processes the arguments count.
Harm: TypeAlias = Literal["superuser", "system", "disk", "cloud", "database", "processes"]


class _ProgramTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Part of the file: an unknown field is an error."""


class CallForm(_ProgramTable, frozen=True):
    """Calls with one effect: an allow-list of options, and the number of operands.

    `flags` are options without a value, `values` those with one (attached, after `=`, or the next word), `optional`
    those with an optional value, attached or after `=`. Abbreviations are not accepted. `value_uses` is the meaning of
    the value of an option in `values`; text if it is not listed. `operands` are the uses of operands in this form.
    """

    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    value_uses: Mapping[str, Use] = {}
    operands: tuple[Use, ...] = ()
    numbers: bool = False  # `-20` is an option
    no_options: bool = False  # each word is an operand
    bundled: bool = False  # the first word may be options without a dash, as in `tar czf`
    required: tuple[str, ...] = ()  # required options
    operands_behind: tuple[str, ...] = ()  # options of which one is required if there are operands
    most_operands: int | None = None
    whole_words: bool = False  # options are words such as `-name`, never clusters of letters
    sandboxed: bool = False  # applies only inside a complete sandbox


class Wrapper(_ProgramTable, frozen=True):
    """Words of a program before the command that it starts; after an unlisted option, it may be any word."""

    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # options with a value
    texts: tuple[str, ...] = ()  # options whose value is a command in one word
    any_word: bool = False  # the command may begin at each word
    assignments: bool = False  # `NAME=value` may precede the command
    skipped: int = 0  # operands before the command


class Removal(_ProgramTable, frozen=True):
    """Removal or change of entire trees of files."""

    verb: str
    options: tuple[str, ...]  # options that make it recursive
    skipped: int = 0  # operands before the files, such as a mode


class ProgramEntry(_ProgramTable, frozen=True):
    """Program of the shell, or a subcommand of one.

    Words: `operands` are the uses of its operands, the last one repeats; empty if its operands are not known to be
    files. One of `pattern_options` replaces the first operand. `commands` are its subcommands with tables.

    Effects: `reads` are the calls that only read, `edits` those that only change the files that they name (each operand
    is written, `into_last`: only the last one), `builds` those that run code of the workspace and no other, so that a
    rule for their first words holds. `tells_version`: may be asked for its version. `walks`: searches folders, also
    hidden files of theirs unless `hidden_options` add them. `leaves_out`: the prefixes of a file name, and of a folder
    name, to exclude from the search. `follows_links` in folders. `pathspecs`: a git subcommand that shows file
    contents.

    Code: `shell` runs the text after `-c`, `runs_input` its standard input, `runs_script` its first operand, after
    `script_flags`; `code_options` take text that it runs. another command begins after the word `runner`; after the
    words `starts`, one begins that is only inspected. `wrapper` programs and `exec_options` start the command in their
    arguments, `text_options` the one in their value. `sources` are files that determine what it runs, `source_options`
    name more of them. `work`: builds, checks or tests; with `targets` all operands must be listed. `runs_programs`: a
    subcommand that runs programs that its arguments or the repository name. `unseen`: it may start programs that its
    words do not show, or change which ones others start, unless the call matches `reads`, `edits` or `plain`.

    Reach: `network`: fetches or sends. `desktop`: opens a window outside of the sandbox. `other_hosts`: options with
    which it reaches hosts that its addresses do not name; null if its addresses are no evidence. `configures`: writes
    the repository's configuration.

    Loss: `irreversible`, with the `reason` shown to users, unless the call matches `harmless` with one of
    `harmless_with`. `removes`: as a command of `find -exec`. `removal`, `harm`: see there.

    Rules: `rule` is what "always" covers: the program, its subcommand (two words below one of `nested`), exactly these
    words because options could do anything (`exact`), or all commands with this prefix.
    """

    operands: tuple[Use, ...] = ()
    pattern_options: tuple[str, ...] = ()
    commands: Mapping[str, ProgramEntry] = {}
    pathspecs: bool = False
    reads: CallForm | None = None
    edits: CallForm | None = None
    builds: CallForm | None = None
    into_last: bool = False
    tells_version: bool = False
    walks: Condition = False
    hidden_options: tuple[str, ...] = ()
    leaves_out: tuple[str, ...] = ()
    follows_links: bool = False
    shell: bool = False
    runs_input: bool = False
    runs_script: bool = False
    code_options: tuple[str, ...] = ()
    script_flags: tuple[str, ...] = ()
    runner: str = ""
    starts: tuple[str, ...] = ()
    wrapper: Wrapper | None = None
    exec_options: tuple[str, ...] = ()
    text_options: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    source_options: tuple[str, ...] = ()
    work: Condition = False
    targets: bool = False
    runs_programs: bool = False
    unseen: Condition = False
    plain: CallForm | None = None
    network: Condition = False
    desktop: bool = False
    other_hosts: tuple[str, ...] | None = None
    configures: Condition = False
    irreversible: Condition = False
    reason: str = ""
    harmless: CallForm | None = None
    harmless_with: tuple[str, ...] = ()
    removes: bool = False
    removal: Removal | None = None
    harm: Harm | None = None
    rule: Literal["program", "subcommand", "exact"] | None = None
    nested: tuple[str, ...] = ("run", "compose", "exec", "tool", "mod", "pr", "issue", "repo", "get")

    @property
    def reads_operands(self) -> bool:
        """Return whether the content of a file that it names may be shown."""
        return "read" in self.operands or "object" in self.operands

    @property
    def names_operands(self) -> bool:
        """Return whether its operands are texts or only names of files, never opened."""
        return self.operands in (("text",), ("name",))


UNKNOWN = ProgramEntry()
FILE = Path(__file__).with_name("programs.toml")
_HEADER = lazy_pattern(r'^\[(?:"([^"\n]+)"|([\w-]+))(?:\.[\w." -]+)?\]$', re.MULTILINE)


def find_subcommand(program: ProgramEntry, name: str) -> ProgramEntry:
    """Return a subcommand's entry, whose table may serve several; `UNKNOWN` without one."""
    return next((entry for names, entry in program.commands.items() if name in names.split()), UNKNOWN)


def find_program(name: str) -> ProgramEntry:
    """Return a program's entry, `UNKNOWN` without one; `name` has no folder."""
    names = _index_tables().get(name)
    return _decode(*names) if names is not None else UNKNOWN


@functools.cache
def _index_tables() -> Mapping[str, tuple[int, int]]:
    """Return the part of the file that describes each program."""
    heads: list[tuple[str, int]] = []
    text = _read_text()
    for header in _HEADER.finditer(text):
        names = header[1] or header[2]
        if not heads or heads[-1][0] != names:
            heads.append((names, header.start()))
    ends = [start for _, start in heads[1:]] + [len(text)]
    return {name: (start, end) for (names, start), end in zip(heads, ends, strict=True) for name in names.split()}


@functools.cache
def _read_text() -> str:
    return FILE.read_text("utf-8")


@functools.cache
def _decode(start: int, end: int) -> ProgramEntry:
    (program,) = msgspec.toml.decode(_read_text()[start:end], type=dict[str, ProgramEntry]).values()
    return program


# --- options and subcommands --------------------------------------------------------------------------------------


def has_option(words: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether one of `options` is given.

    `-x` also counts in a cluster, `--name` also abbreviated to three characters and with a value.
    """
    letters = {o[1] for o in options if len(o) == 2}
    names = tuple(o for o in options if len(o) > 2)
    return any(_is_one_of(word, letters, names) for word in words if word.startswith("-"))


def _is_one_of(word: str, letters: Set[str], names: Sequence[str]) -> bool:
    if not word.startswith("--"):
        return not letters.isdisjoint(word[1:])
    name = word.partition("=")[0]
    return len(name) > 2 and any(n.startswith(name) for n in names)


def take_value(options: Sequence[str], text: str) -> str | None:
    """Return the value in a word that is one of `options`, empty if it is the next word; or None."""
    if text.startswith("--"):
        name, _, value = text.partition("=")
        return value if len(name) > 2 and any(o.startswith(name) for o in options) else None
    letters = [o[1] for o in options if len(o) == 2 and text.startswith("-") and o[1] in text]
    return text.partition(letters[0])[2] if letters else None


def list_operands(arguments: Sequence[str]) -> list[str]:
    """Return the words that are not options, including values of options."""
    return [a for a in arguments if not a.startswith("-")]


def cut_at_dashes(words: Sequence[str]) -> Sequence[str]:
    """Return the words before `--`; only operands follow it."""
    return words[: words.index("--")] if "--" in words else words


def is_met(condition: Condition, arguments: Sequence[str]) -> bool:
    """Return whether a condition of a table holds for the arguments of its program."""
    if isinstance(condition, bool):
        return condition
    operands = list_operands(arguments)
    if has_option(cut_at_dashes(arguments), [c for c in condition if c.startswith("-")]):
        return True
    words = (c.split() for c in list_operands(condition))
    return any(operands[: len(w) or 1] == w for w in words)
