"""Match commands with the forms in which their programs only read, or only change files they name.

The forms are data: `reads` and `edits` in `programs.toml`. What no form allows is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from sakti.agent.judge.programs import (
    CallForm,
    ProgramEntry,
    Use,
    cut_at_dashes,
    find_program,
    has_option,
    list_operands,
)
from sakti.agent.judge.where import Access
from sakti.core.patterns import lazy_pattern

_VERSION = (["--version"], ["-V"], ["--help"])
_ACCESS: dict[Use, Access] = {"read": "read", "name": "name", "write": "write"}
_SHAPES: dict[Use, re.Pattern[str]] = {
    "sed": lazy_pattern(r"(\d+|\$)(,(\d+|\$))?p"),
    "format": lazy_pattern(r"\+.*", re.DOTALL),
}


class Call(Struct, frozen=True):
    """Arguments of a command, told apart: options as they are listed, and each other word with its use."""

    options: tuple[str, ...]
    values: tuple[tuple[Use, str], ...]
    operands: tuple[str, ...]


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether a command other than git only reads the files that it names; `argv` is exact."""
    return list_read_files(argv) is not None


def list_read_files(argv: Sequence[str]) -> tuple[tuple[str, Access], ...] | None:
    """Return the files that a command other than git opens or lists; None if it may do more than read."""
    if not argv:
        return None
    program = find_program(argv[0])
    if program.tells_version and list(argv[1:]) in _VERSION:
        return ()
    form = program.reads
    call = match_form(form, argv[1:]) if form is not None else None
    if form is None or call is None:
        return None
    if form.refused is not None:  # it is not listed which options take a value
        access: Access = "name" if program.names_operands else "read"
        return tuple((word, access) for word in list_file_operands(program, argv[1:]))
    return _select_files((*call.values, *_assign_uses(program, call)))


def _select_files(words: Sequence[tuple[Use, str]]) -> tuple[tuple[str, Access], ...] | None:
    """Return the files among words; None if another one has not the shape of its use."""
    if any(use in _SHAPES and not _SHAPES[use].fullmatch(word) for use, word in words):
        return None
    return tuple((word, _ACCESS[use]) for use, word in words if use in _ACCESS)


def list_edited_files(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the files that a command changes; None if it may do more than change these.

    Each of them is judged as an edit of that file.
    """
    form = find_program(argv[0]).edits if argv else None
    call = match_form(form, argv[1:]) if form is not None else None
    return call.operands if call is not None and call.operands else None


def list_file_operands(program: ProgramEntry, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the words that may name files, with values of options among them."""
    if program.operands[:1] in (("text",), ("format",)):
        return ()
    operands = list_operands(arguments)
    if program.operands[:1] in (("pattern",), ("sed",)) and not has_option(arguments, program.pattern_options):
        operands = operands[1:]
    values = [a.partition("=")[2] for a in arguments if a.startswith("--")]
    return tuple(word for word in (*operands, *values) if word)


def _assign_uses(program: ProgramEntry, call: Call) -> list[tuple[Use, str]]:
    """Give each operand its use: that at its position, or the last one that the program has."""
    uses = program.operands
    if has_option(call.options, program.pattern_options):
        uses = uses[1:]
    return [(uses[min(at, len(uses) - 1)], word) for at, word in enumerate(call.operands)]


# --- forms --------------------------------------------------------------------------------------------------------


def match_form(form: CallForm, arguments: Sequence[str]) -> Call | None:
    """Return the parts of a call that has this form, None for another one."""
    call = _parse_unlisted(form, arguments) if form.refused is not None else _parse_listed(form, arguments)
    return call if call is not None and _is_complete(form, call) else None


def _is_complete(form: CallForm, call: Call) -> bool:
    """Return whether what a form requires is given, and no operand that it does not allow."""
    behind = form.operands_behind
    return (
        all(o in call.options for o in form.required)
        and (form.most_operands is None or len(call.operands) <= form.most_operands)
        and (not behind or not call.operands or any(o in call.options for o in behind))
    )


def _parse_unlisted(form: CallForm, arguments: Sequence[str]) -> Call | None:
    refused = form.refused or ()
    if form.whole_words:
        is_refused = any(a in refused for a in arguments)
    else:
        is_refused = has_option(cut_at_dashes(arguments), refused)
    return None if is_refused else Call((), (), tuple(list_operands(arguments)))


def _parse_listed(form: CallForm, arguments: Sequence[str]) -> Call | None:
    """Read arguments as getopt does: options and operands in any order, only operands behind `--`."""
    options: list[str] = []
    values: list[tuple[Use, str]] = []
    operands: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--" and not form.whole_words:
            operands += words
        elif not _is_option(form, word):
            operands.append(word)
        elif (read := _parse_option(form, word)) is None:
            return None
        else:
            names, value = read
            options += names
            if names[-1] in form.values:
                value = next(words, None) if value is None else value
                if value is None:
                    return None
                values.append((form.value_uses.get(names[-1], "text"), value))
    return Call(tuple(options), tuple(values), tuple(operands))


def _is_option(form: CallForm, word: str) -> bool:
    if form.whole_words:
        return word.startswith("-") or word in form.flags or word[:1] in ("!", "(", ")")
    return word.startswith("-") and word != "-"


def _parse_option(form: CallForm, word: str) -> tuple[list[str], str | None] | None:
    """Return the options in a word, and the value of the last one if there is one.

    None if one of them is not listed.
    """
    if not form.whole_words and not word.startswith("--"):
        return _parse_cluster(form, word)
    name, equals, value = (word, "", "") if form.whole_words else word.partition("=")
    listed = (*form.values, *form.optional) if equals else (*form.flags, *form.values, *form.optional)
    return ([name], value if equals else None) if name in listed else None


def _parse_cluster(form: CallForm, word: str) -> tuple[list[str], str | None] | None:
    """Read `-xyVALUE` as `-x`, `-y` and the value of `-y`."""
    names: list[str] = []
    for at, letter in enumerate(word[1:], 2):
        names.append(f"-{letter}")
        if names[-1] in form.values or names[-1] in form.optional:
            return names, word[at:] or None
        if names[-1] not in form.flags:
            return None
    return names, None
