"""Parse a command of bash into the simple commands in it, as far as its text says what will run.

A command is *understood* if the judge can predict all that the shell expands in it: patterns, variables of loops over
literal words, and the output of commands. Other commands always need approval; their readable parts still count for
deny rules and mandatory questions.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge.policy import skip_git_options
from sakti.agent.judge.programs import Wrapper, find_program, find_subcommand, take_value
from sakti.agent.judge.syntax import Simple, SyntaxReader, Word, is_harmless_variable
from sakti.agent.judge.workspace_view import LISTS

MAX_CHARACTERS = 8_000
MAX_COMMANDS = 30
MAX_DEPTH = 4  # levels of shells in shells
MAX_NESTED = 300  # levels of nested commands


class Script(Struct, frozen=True):
    """Simple commands of a text, in order; `unclear` says why it is not understood, empty if it is."""

    commands: tuple[Simple, ...]
    unclear: str = ""

    @property
    def understood(self) -> bool:
        return not self.unclear


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Script:
    """Parse a command; raises nothing."""
    if len(text) > MAX_CHARACTERS:
        return Script((), f"is longer than {MAX_CHARACTERS:,} characters")
    reader = SyntaxReader(_end_heredoc(text))
    commands = tuple(reader.commands)
    unclear = reader.unclear
    if (odd := _find_odd_character(text)) and not unclear:
        unclear = f"contains the character {odd}"
    if len(commands) > MAX_COMMANDS and not unclear:
        unclear = f"contains more than {MAX_COMMANDS} commands"
    return Script(commands, unclear)


def _end_heredoc(text: str) -> str:
    """Add the end of a quoted heredoc without a body, as bash does at the end of the text."""
    start = re.search(r"(?<!<)<<-?[ \t]*(['\"])(\w+)\1[^\n]*\Z", text)
    return f"{text}\n{start[2]}\n" if start is not None else text


def _find_odd_character(text: str) -> str:
    """Return the first character that may hide text, written as `U+200B`, "" without one."""
    for c in text:
        if c in "\n\t" or " " <= c <= "~":
            continue
        if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Zs"):
            return f"U+{ord(c):04X}"
    return ""


# --- commands in commands -----------------------------------------------------------------------------------------


def list_commands(script: Script) -> Iterator[Simple]:
    """Yield the commands of a script and those that they start in turn, as `sh -c` and `xargs` do."""
    yield from (c for c in itertools.islice(_walk(script), MAX_NESTED) if isinstance(c, Simple))


def list_unclear(script: Script) -> Iterator[str]:
    """Yield why parts of a script, or of the scripts in it, are not understood."""
    for number, part in enumerate(_walk(script)):
        if number == MAX_NESTED:
            yield "nests commands too deeply"
            return
        if isinstance(part, str):
            yield part
        elif part.words and (not part.program or "{}" in part.program):
            yield "starts a program that its text does not name"


def _walk(script: Script, depth: int = 0) -> Iterator[Simple | str]:
    """Yield commands, each before those that it starts, and why a script is not understood."""
    if script.unclear:
        yield script.unclear
    for command in script.commands:
        yield command
        if depth < MAX_DEPTH:
            for inner in list_started(command):
                yield from _walk(inner, depth + 1)
        elif any(True for _ in list_started(command)):
            yield "nests commands too deeply"


def list_started(command: Simple) -> Iterator[Script]:
    """Yield what a command starts by its arguments or its input; more than one script if unclear."""
    yield from _find_in_values(command)
    yield from _find_in_indexes(command)
    argv, program = command.words, find_program(command.program)
    if program.shell:
        yield from _find_in_shell(command)
    elif command.program in ("eval", "trap"):
        yield _mark_inside(parse(" ".join(w.text for w in argv[1:] if w.text != "--")))
    elif command.program == "git":
        yield from _find_in_aliases(command)
    elif command.program.startswith("git-"):
        yield _make_script(command, (Word("git"), Word(command.program.removeprefix("git-")), *argv[1:]))
    elif program.starts:
        yield from _find_behind_runner(command, program.starts)
    elif program.exec_options:
        yield from _find_in_options(command, program.exec_options)
    elif program.wrapper is not None:
        yield from _find_in_wrapper(command, program.wrapper)


def _find_in_wrapper(command: Simple, wrapper: Wrapper) -> Iterator[Script]:
    if not wrapper.any_word:
        yield from _find_behind_wrapper(command, wrapper)
        return
    yield from (_make_script(command, command.words[later:]) for later in range(1, len(command.words)))
    yield from (_mark_inside(parse(w.text)) for w in command.words[1:] if " " in w.text)


def _find_in_values(command: Simple) -> Iterator[Script]:
    """Yield the commands in values of options: `split --filter=COMMAND`, `git rebase -x COMMAND`."""
    options, words = _list_text_options(command), command.words
    for at, word in enumerate(words if options else ()):
        if (text := take_value(options, word.text)) is not None:
            yield _mark_inside(parse(text or "".join(w.text for w in words[at + 1 : at + 2])))


def _list_text_options(command: Simple) -> Sequence[str]:
    program, arguments = find_program(command.program), skip_git_options(command.argv) if command.words else ()
    if command.program == "git" and len(arguments) > 1:
        program = find_subcommand(program, arguments[1])
    return program.text_options


def _find_in_indexes(command: Simple) -> Iterator[Script]:
    """Yield the commands in words that bash evaluates as names of variables: `test -v 'x[$(COMMAND)]'`."""
    words = command.words if command.program in LISTS.evaluating_commands else ()
    yield from (_mark_inside(parse(w.text)) for w in words if "$(" in w.text or "`" in w.text)


def _find_behind_runner(command: Simple, starts: Sequence[str]) -> Iterator[Script]:
    """Yield the command after a runner's options, and after a word that may be an option's value."""
    words = command.words
    begins = (at + 1 for at, word in enumerate(words) if (word.text if at else command.program) in starts)
    at = next(begins, len(words))
    while at < len(words):
        is_value = False
        while at < len(words) and words[at].text.startswith("-"):
            is_value = words[at].text != "--" and "=" not in words[at].text
            at += 1
        yield _make_script(command, words[at:])
        if not is_value:
            return
        at += 1


def _find_in_options(command: Simple, options: Sequence[str]) -> Iterator[Script]:
    argv = command.words
    for at, word in enumerate(argv):
        if word.text in options:
            ends = (n for n, w in enumerate(argv[at + 1 :], at + 1) if w.text in (";", "+"))
            yield _make_script(command, argv[at + 1 : next(ends, len(argv))])


def _find_in_shell(command: Simple) -> Iterator[Script]:
    argv = command.words
    for at, word in enumerate(argv[:-1]):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word.text):
            yield from (_mark_inside(parse(w.text)) for w in argv[at + 1 :] if not w.text.startswith("-"))
    for word in argv[1:]:
        if word.text.startswith("--command="):
            yield _mark_inside(parse(word.text.partition("=")[2]))
    if command.input:
        yield _mark_inside(parse(command.input))


def _find_in_aliases(command: Simple) -> Iterator[Script]:
    """Yield the commands of an alias that the command defines: `git -c alias.p=push p`."""
    words = command.argv
    for at, word in enumerate(words):
        name, equals, value = word.removeprefix("-c").partition("=")
        if not equals or not name.lower().startswith("alias."):
            continue
        rest = tuple(Word(w) for w in words[at + 2 :])
        parsed = _mark_inside(parse(value.removeprefix("!") if value.startswith("!") else f"git {value}"))
        yield parsed
        yield from (_make_script(command, (*c.words, *rest)) for c in parsed.commands[-1:])


def _mark_inside(script: Script) -> Script:
    return replace(script, commands=tuple(replace(c, inside=True) for c in script.commands))


def _make_script(outer: Simple, words: tuple[Word, ...], unclear: str = "") -> Script:
    return Script((replace(outer, words=words, inside=True),) if words else (), unclear)


def _find_behind_wrapper(command: Simple, wrapper: Wrapper) -> Iterator[Script]:
    """Yield the command after a wrapper's options, variables and operands.

    After an unlisted option, it may begin at each later word.
    """
    words, at = command.words[1:], 0
    while at < len(words) and (size := _count_option_words(wrapper, words[at].text)) != 0:
        if (text := take_value(wrapper.texts, words[at].text)) is not None:
            yield from _find_in_text(command, text, words[at + 1 :])
            return
        if size is None:
            why = f"has an unknown option of {command.program}: {words[at].text}"
            yield from (_make_script(command, words[later:], why) for later in range(at + 1, len(words)))
            return
        at += size
        if words[at - 1].text == "--":
            break
    yield _make_script(command, words[at + wrapper.skipped :], _describe_variables(wrapper, words[:at]))


def _describe_variables(wrapper: Wrapper, words: Sequence[Word]) -> str:
    """Return why variables before a command may change its effect, "" if they cannot."""
    names = [w.text.partition("=")[0] for w in words if "=" in w.text and wrapper.assignments]
    return "" if all(map(is_harmless_variable, names)) else "sets a variable"


def _find_in_text(command: Simple, text: str, words: tuple[Word, ...]) -> Iterator[Script]:
    """Yield the command in a text, or in the next word if the text is empty, with and without later words."""
    rest = words if text else words[1:]
    parsed = _mark_inside(parse(text or (words[0].text if words else "")))
    yield parsed
    yield from (_make_script(command, (*c.words, *rest)) for c in parsed.commands[-1:])


def _count_option_words(wrapper: Wrapper, text: str) -> int | None:
    """Return how many words an option and its value take, 0 for the command; None if not listed."""
    if text in ("--", "-") or (wrapper.assignments and re.match(r"\w+=", text)):
        return 1
    if not text.startswith("-"):
        return 0
    if text.startswith("--"):
        name, equals, _ = text.partition("=")
        if name in wrapper.values:
            return 1 if equals else 2
        return 1 if text in wrapper.flags else None
    return _count_cluster_words(wrapper, text)


def _count_cluster_words(wrapper: Wrapper, text: str) -> int | None:
    for at, letter in enumerate(text[1:], 2):
        if f"-{letter}" in wrapper.values:
            return 1 if text[at:] else 2
        if f"-{letter}" not in wrapper.flags and not letter.isdigit():
            return None
    return 1
