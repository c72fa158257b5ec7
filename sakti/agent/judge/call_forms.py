"""Match commands against the forms in which their programs only read, or only change named files.

The forms are data: `reads` and `edits` in `programs.toml`. A call that matches no form counts as unknown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from sakti.agent.judge.programs import (
    UNKNOWN,
    CallForm,
    ProgramEntry,
    Use,
    find_program,
    find_subcommand,
    has_option,
    list_operands,
)
from sakti.agent.judge.words import VARIABLE
from sakti.agent.judge.workspace_view import Access
from sakti.core.lazy import lazy_pattern

_VERSION = (["--version"], ["-V"], ["--help"])
_ACCESS: dict[Use, Access] = {"read": "read", "object": "read", "name": "name", "write": "write", "archive": "write"}
_ADDRESS = r"(?:\d+|\$|/[^/\\\n]*/)"
_LINES = rf"(?:{_ADDRESS}(?:,{_ADDRESS})?!?)?"
# `s` of sed without the flags that run or write something; the text ends at the first delimiter that is not escaped.
_REPLACEMENT = (
    r"s(?P<{0}>[^\w\s\\])(?:\\.|(?!(?P={0}))[^\\\n])*(?P={0})(?:\\[\s\S]|(?!(?P={0}))[^\\\n])*(?P={0})[gpiI\d]*"
)
_FIRST, _NEXT = (rf"{_LINES}(?:[pdq=]|{_REPLACEMENT.format(name)})" for name in ("first", "next"))
_SHAPES: dict[Use, re.Pattern[str]] = {
    "sed": lazy_pattern(rf"{_ADDRESS}(?:,{_ADDRESS})?p(?:;{_ADDRESS}(?:,{_ADDRESS})?[pq])*"),
    "edit": lazy_pattern(rf"{_FIRST}(?:\s*[;\n]\s*(?:{_NEXT})?)*"),
    # without client commands and functions that run a program
    "sql": lazy_pattern(
        r"(?!.*(?:\\|\b(?:edit|load_extension)\s*\(|\b(?:system|program|source)\b))"
        r"(?:\.(?:schema|tables|dump|indexes|databases)\b[^\n|]*|[^.\s].*)",
        re.DOTALL | re.IGNORECASE,
    ),
    "format": lazy_pattern(r"\+.*", re.DOTALL),
    "object": lazy_pattern(r"[^@].*", re.DOTALL),
    "archive": lazy_pattern(r"[^:]*|[^:]*/.*", re.DOTALL),  # not `HOST:FILE`
    "varname": VARIABLE,
    "mode": lazy_pattern(r"[0-7]{3,4}|[augo]*[+=-][rwxX]+"),
    # paths, pipes, calls: no variables (`$ENV`), texts with code, or functions that read more than the input
    "jq": lazy_pattern(
        r"(?!.*\b(?:env|inputs?|input_\w+|include|import|debug|stderr|halt\w*|getpath|get_search_list|modulemeta)\b)"
        r"[\w.\[\]{}()|,:;?*/<>=!+ \n\"'-]+",
        re.DOTALL,
    ),
}
# Tokens of an awk program that computes and prints. A `/` divides after a value, and begins a pattern elsewhere.
_AWK = lazy_pattern(
    r"""(?P<space>[ \t]+)|(?P<value>\$?(?:N[RF]|FNR|FILENAME)\b|\$?\d+(?:\.\d+)?|\+\+|--"""
    r"""|(?!(?:getline|system|close|if|else|while|for|do|in|return|delete|func|function|switch|case|print|printf)\b)"""
    r"""[a-z_]\w*\b(?!\())|(?P<text>"(?:[^"\\\n]|\\[tn"\\])*"|\))"""
    r"""|(?P<sign>(?:length|substr|tolower|toupper|int|index|split)\(|(?:print|printf|BEGIN|END)\b"""
    r"""|&&|\|\||[-+*/%=!<>]=|!?~|[-+*%=!<(,{}?:$;\n])|(?P<more>>)|(?P<slash>/)"""
)
_AWK_PATTERN = lazy_pattern(r"(?:[^/\\\n\[]|\\.)*/")


class ArgumentForm(Struct, frozen=True):
    """Arguments of a command by kind: options as listed, and each other word with its use."""

    options: tuple[str, ...]
    values: tuple[tuple[Use, str], ...]
    operands: tuple[str, ...]


def find_form(
    argv: Sequence[str], kind: Literal["reads", "edits", "plain"]
) -> tuple[ProgramEntry, CallForm, ArgumentForm] | None:
    """Return a command's entry, and its match with the form of its subcommand or its own, or None."""
    program, arguments = find_program(argv[0]), argv[1:]
    if arguments and program.commands and (below := find_subcommand(program, arguments[0])) != UNKNOWN:
        program, arguments = below, arguments[1:]
    form: CallForm | None = getattr(program, kind)
    call = match_form(form, arguments) if form is not None else None
    return (program, form, call) if form is not None and call is not None else None


def list_read_files(argv: Sequence[str], *, sandboxed: bool = False) -> tuple[tuple[str, Access], ...] | None:
    """Return the files that a command other than git opens or lists; None if it may do more than read.

    `sandboxed`: a complete sandbox encloses the command.
    """
    if not argv:
        return None
    if list(argv[1:]) in _VERSION and find_program(argv[0]).tells_version:
        return ()
    matched = find_form(argv, "reads")
    if matched is None or (matched[1].sandboxed and not sandboxed):
        return None
    return _select_files(matched)


def list_edited_files(argv: Sequence[str], *, sandboxed: bool = False) -> tuple[tuple[str, Access], ...] | None:
    """Return the files that a command changes or reads; None if it may do more than that.

    Each of them is judged as an edit of that file. `sandboxed`: a complete sandbox encloses the command.
    """
    matched = find_form(argv, "edits") if argv else None
    if matched is None or not matched[2].operands or (matched[1].sandboxed and not sandboxed):
        return None
    return _select_files(matched, default="write")


def starts_nothing(argv: Sequence[str]) -> bool:
    """Return whether a command only reads, only changes files, or is known to start nothing."""
    if list_read_files(argv, sandboxed=True) is not None or list_edited_files(argv, sandboxed=True) is not None:
        return True
    matched = find_form(argv, "plain") if argv else None
    return matched is not None and _select_files(matched) is not None


def _select_files(
    matched: tuple[ProgramEntry, CallForm, ArgumentForm], default: Use | None = None
) -> tuple[tuple[str, Access], ...] | None:
    """Return the files among the words of a call; None if another word does not have the expected form."""
    program, form, call = matched
    uses: tuple[Use, ...] = form.operands or ((default,) if default else program.operands)
    if has_option(call.options, program.pattern_options) and not default:
        uses = uses[1:]
    words = list(call.values)
    words += [(uses[min(at, len(uses) - 1)], word) for at, word in enumerate(call.operands) if uses]
    files: tuple[tuple[str, Access], ...] = tuple((word, _ACCESS[use]) for use, word in words if use in _ACCESS)
    return files if all(itertools.starmap(_has_shape, words)) else None


def _has_shape(use: Use, word: str) -> bool:
    if use == "awk":
        return _is_plain_awk(word)
    return use not in _SHAPES or _SHAPES[use].fullmatch(word) is not None


def _is_plain_awk(program: str) -> bool:
    """Return whether an awk program has only patterns, fields, arithmetic and `print`."""
    depth = 0
    for kind, text in _split_awk(program):
        if kind == "unclear" or (kind == "more" and depth):  # after `print`, `>` writes a file
            return False
        depth += (text == "{") - (text == "}")
    return True


def _split_awk(program: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each token of an awk program, up to the first `unclear` one."""
    at = 0
    last: str = "sign"
    while at < len(program):
        token = _AWK.match(program, at)
        if token is None:
            yield "unclear", ""
            return
        kind, at = token.lastgroup or "", token.end()
        if kind == "slash" and last == "sign":
            pattern = _AWK_PATTERN.match(program, at)
            if pattern is None:
                yield "unclear", ""
                return
            kind, at = "text", pattern.end()
        elif kind == "slash":
            kind = "sign" if last == "value" else "unclear"
        yield kind, token[0]
        last = {"space": last, "more": "sign"}.get(kind, kind)


def list_file_operands(program: ProgramEntry, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the words that may name files, including values of options."""
    if program.operands[:1] in (("text",), ("format",)):
        return ()
    operands = list_operands(arguments)
    if program.operands[:1] != program.operands[-1:] and not has_option(arguments, program.pattern_options):
        operands = operands[1:]
    values = [a.partition("=")[2] for a in arguments if a.startswith("--")]
    return tuple(word for word in (*operands, *values) if word)


# --- forms --------------------------------------------------------------------------------------------------------


def match_form(form: CallForm, arguments: Sequence[str]) -> ArgumentForm | None:
    """Return the parts of a call that has this form, None for another one."""
    if form.bundled and arguments and not arguments[0].startswith("-"):
        if any(f"-{letter}" in form.values for letter in arguments[0][:-1]):
            return None  # such a value is a separate word
        arguments = (f"-{arguments[0]}", *arguments[1:])
    call = ArgumentForm((), (), tuple(arguments)) if form.no_options else _parse_listed(form, arguments)
    return call if call is not None and _is_complete(form, call) else None


def _is_complete(form: CallForm, call: ArgumentForm) -> bool:
    """Return whether all requirements of a form are met, without operands that it does not allow."""
    behind = form.operands_behind
    return (
        all(o in call.options for o in form.required)
        and (form.most_operands is None or len(call.operands) <= form.most_operands)
        and (not behind or not call.operands or any(o in call.options for o in behind))
    )


def _parse_listed(form: CallForm, arguments: Sequence[str]) -> ArgumentForm | None:
    """Read arguments as getopt does: options and operands in any order, only operands after `--`."""
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
    return ArgumentForm(tuple(options), tuple(values), tuple(operands))


def _is_option(form: CallForm, word: str) -> bool:
    if form.whole_words:
        return word.startswith("-") or word in form.flags or word[:1] in ("!", "(", ")")
    return word.startswith("-") and word != "-"


def _parse_option(form: CallForm, word: str) -> tuple[list[str], str | None] | None:
    """Return the options in a word, and the value of the last one if there is one.

    None if one of them is not listed.
    """
    if form.numbers and re.fullmatch(r"-\d+", word):
        return [word], None
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
