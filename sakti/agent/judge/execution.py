"""Find out what a command executes: workspace code, files that run code later, hidden programs.

A command is clear if it is known to start nothing (`reads`, `edits` and `plain` in `programs.toml`), or if the commands
that it starts were read from its text and are clear, too. The project's own code is not examined: tests, build files
and scripts of interpreters. A script of a shell consists of commands, and hides them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sakti.agent.judge import call_forms, expansion, git
from sakti.agent.judge.call_forms import match_form
from sakti.agent.judge.programs import UNKNOWN, CallForm, Condition, ProgramEntry, find_program, is_met, list_operands
from sakti.agent.judge.shell import Script, list_commands, list_unclear
from sakti.agent.judge.syntax import Simple, Word
from sakti.agent.judge.workspace_view import LISTS, WorkspaceView, is_system
from sakti.core.lazy import lazy_pattern

_SHELL_OPTION = lazy_pattern(r"-[a-z]*|--(?:login|noprofile|norc|posix|verbose)")
_OF_A_SHELL = re.compile(rb"#![^\n]*\b(?:ba|da|z|k|a|fi)?sh\b")
_NOT_THERE = "runs a file that does not exist yet"
_WRITTEN = "runs a file that it writes"


def is_work(argv: Sequence[str]) -> bool:
    """Return whether a command builds, checks or tests with the project's own tools."""
    words = strip_runner(argv)
    if not words:
        return False
    program = find_program(words[0])
    if program.targets and isinstance(program.work, tuple):
        targets = list_operands(words[1:])
        return bool(targets) and all(t in program.work for t in targets)
    return is_met(program.work, words[1:])


def is_install(argv: Sequence[str]) -> bool:
    """Return whether a command installs packages, which its first words do not name."""
    network = find_program(argv[0]).network if argv else False
    return isinstance(network, tuple) and is_met(network, argv[1:])


def builds_inside(argv: Sequence[str], form: CallForm, place: WorkspaceView) -> bool:
    """Return whether a command runs only code of the workspace, by its options and operands."""
    call = match_form(form, argv[1:])
    return call is not None and all(_is_inside(w, place) for w in call.operands)


def _is_inside(operand: str, place: WorkspaceView) -> bool:
    """Return whether an operand names a file of the workspace, a test in one, or a target."""
    if operand[:1] in ("-", "@", "+") or "=" in operand or "://" in operand:
        return False
    return place.holds(place.resolve(operand.partition("::")[0]))


def count_rule_words(prefix: Sequence[str]) -> int:
    """Return how many words a rule for a command needs: all that determine which code it runs."""
    words = strip_runner(prefix)
    return len(prefix) if words and find_program(words[0]).builds is not None else 1


def strip_runner(argv: Sequence[str]) -> tuple[str, ...]:
    """Return `python -m pytest x` as `pytest x`, and `uv run pytest`, `poetry run pytest` too."""
    if len(argv) > 2 and argv[1] and argv[1] == find_program(argv[0]).runner:
        return strip_runner(argv[2:])
    return tuple(argv)


def list_files_run(argv: Sequence[str], place: WorkspaceView) -> tuple[Path, ...]:
    """Return the existing workspace files that determine what a command runs."""
    words = strip_runner(argv)
    program = find_program(words[0]) if words else UNKNOWN
    named = [argv[0]] if argv and "/" in argv[0] else []
    named += list_operands(words[1:])[:1] if program.runs_script else []
    files = [*map(place.resolve, named), *(place.cwd / name for name in program.sources)]
    files += [place.resolve(file) for file in _list_sources(words, program)]
    return tuple(dict.fromkeys(f for f in files if f.is_file() and place.holds(f)))


def hash_files_run(argv: Sequence[str], place: WorkspaceView) -> dict[str, str]:
    """Return the hash of each file that a command runs, by its path as shown."""
    values: dict[str, str] = {}
    for file in list_files_run(argv, place):
        try:
            values[place.show(file)] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        except OSError:
            values[place.show(file)] = "unreadable"
    return values


def runs_workspace_code(argv: Sequence[str]) -> bool:
    """Return whether a command runs code of the workspace."""
    words = strip_runner(argv)
    if not words:
        return False
    program = find_program(words[0])
    return "/" in words[0] or program.runs_script or bool(program.sources or program.work)


def list_changed(argv: Sequence[str], place: WorkspaceView) -> tuple[Path, ...]:
    """Return files changed in this session that a command would run or load as configuration."""
    if not place.changed or not runs_workspace_code(argv):
        return ()
    files = set(list_files_run(argv, place))
    return tuple(f for f in place.changed if f in files or runs_later(f, place))


def explain_guard(path: Path) -> str:
    """Return why a change of the resolved `path` always needs a question, "" for ordinary files.

    Case is ignored, because on some systems both spellings are the same file.
    """
    parts = [part.lower() for part in path.parts]
    if path.name.lower() in LISTS.autorun_names or not LISTS.autorun_folders.isdisjoint(parts) or _is_hook_file(parts):
        return "Can run code later, without asking"
    return ""


def _is_hook_file(parts: list[str]) -> bool:
    """Return whether a path is a claude-code settings file, which holds hooks, or a hook's script."""
    if ".claude" not in parts:
        return False
    below = parts[parts.index(".claude") + 1 :]
    return below[:1] == ["hooks"] or (len(below) == 1 and below[0] in ("settings.json", "settings.local.json"))


def runs_later(path: Path, place: WorkspaceView) -> bool:
    """Return whether a change of a file takes effect when something else is run."""
    root = next((r for r in place.roots if path.is_relative_to(r)), None)
    inside = path.relative_to(root).parts if root is not None else path.parts
    return path.name in LISTS.run_later_names or bool(LISTS.run_later_folders & set(inside[:-1]))


class Visibility(Struct, frozen=True):
    """Commands that rules cannot be matched against.

    `hidden`: why a script may start programs that it does not show, each reason with the responsible command, if a rule
    can name it. `passed`: commands of a program that may start any of its words.
    """

    hidden: tuple[tuple[str, tuple[str, ...]], ...] = ()
    passed: tuple[tuple[str, ...], ...] = ()


def check_visibility(script: Script, place: WorkspaceView) -> Visibility:
    """Return the hidden commands of a script."""
    nested = tuple(list_commands(script))
    unclear: tuple[tuple[str, tuple[str, ...]], ...] = tuple((reason, ()) for reason in list_unclear(script))
    hidden = tuple(HiddenCommandFinder(script, nested, place).list_hidden())
    passed = tuple(_list_texts(c) for c in nested if c.program and _may_start_words(c))
    return Visibility((*unclear, *hidden), passed)


def find_named_program(passed: Iterable[Sequence[str]], programs: Collection[str]) -> str:
    """Return one of `programs` that a command has in its arguments; empty if none does."""
    for argv in passed:
        for name in programs:
            pattern = re.compile(rf"(?<![a-zA-Z0-9]){re.escape(name)}(?![a-zA-Z0-9])")
            if any(pattern.search(word) for word in argv[1:]):
                return name
    return ""


def _is_extracted(program: ProgramEntry) -> bool:
    """Return whether what a program starts is read from its arguments."""
    return program.shell or bool(program.exec_options or program.starts) or program.wrapper is not None


def _list_texts(command: Simple) -> tuple[str, ...]:
    """Return the words of a command, including those that loops put in their place."""
    return (*command.argv, *(choice.text for word in command.words for choice in word.choices))


def _may_start_words(command: Simple) -> bool:
    name, program = command.program, find_program(command.program)
    if name in ("cd", "eval", "trap", "git") or name.startswith("git-") or _is_extracted(program):
        return False
    return not call_forms.starts_nothing((name, *command.argv[1:]))


class HiddenCommandFinder:
    """Finds hidden commands of a script, in each folder in which they may run."""

    def __init__(self, script: Script, nested: Sequence[Simple], place: WorkspaceView) -> None:
        self._script = script
        self._nested = nested
        entered = (place.resolve(c.argv[1]) for c in nested if c.program == "cd" and len(c.argv) == 2)
        self._folders = tuple(dict.fromkeys((place.cwd, *entered)))
        self._place = place
        self._written = {path for word in self._list_written() for path in self._resolve(word)}

    def _resolve(self, word: str) -> Iterator[Path]:
        return (Path(self._place.resolve(str(folder / word))) for folder in self._folders)

    def _list_written(self) -> Iterator[str]:
        for command in self._nested:
            yield from (w.text for w in command.writes)
            files = call_forms.list_edited_files(command.argv) if command.words else None
            yield from (word for word, access in files or () if access == "write")

    def list_hidden(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the reasons why commands may start others that they do not show."""
        for command in self._nested:
            if reason := self._describe(command):
                has_input = command.piped or command.reads or command.input or command.program in ("parallel", "xargs")
                is_open = _has_open(command) or reason in (_NOT_THERE, _WRITTEN)
                yield reason, () if has_input or is_open else command.argv

    def _describe(self, command: Simple) -> str:
        """Return why a command may start others that it does not show, by the first check that decides."""
        checks = (
            *(self._check_file, _check_git, _check_shell, self._check_list, _check_input, self._check_script),
            *(_check_options, _check_words),
        )
        program = find_program(command.program)
        reasons = (check(command, program) for check in checks) if command.program not in ("", "cd") else ()
        return next((reason for reason in reasons if reason is not None), "")

    def _check_file(self, command: Simple, _: ProgramEntry) -> str | None:
        return self._describe_file(command.argv[0]) or None if "/" in command.argv[0] else None

    def _check_list(self, command: Simple, _: ProgramEntry) -> str | None:
        """Return why xargs may start programs that another command prints: its own must accept any word."""
        if command.program != "xargs":
            return None
        commands = self._script.commands if any(c is command for c in self._script.commands) else ()
        if expansion.find_listed(command, commands, self._place) is not None:
            return ""
        inner = list(list_commands(Script((command,))))[1:]
        placed = expansion.find_placeholder(command.argv)
        if placed and any(placed in c.program for c in inner):
            return "starts a program that its text does not name"
        last = inner[-1].program if inner else "echo"
        return "" if _takes_any_word(find_program(last)) else f"passes the output of another command on to {last}"

    def _check_script(self, command: Simple, program: ProgramEntry) -> str | None:
        if not (program.runs_input or program.runs_script):
            return None
        if command.program in (".", "source"):
            return "" if self._is_environment(command.argv[1:]) else "runs the commands in a file"
        words = list(itertools.dropwhile(lambda w: w in program.script_flags, command.argv[1:]))
        is_test = not words and "--test" in command.argv
        if is_test or _runs_module(words, program):  # the module is a separate command of the script
            return ""
        if _has_no_file(words, program):
            return f"runs code of {command.program} that is in no file"
        is_subcommand = program.rule == "subcommand" and words[0].isalpha()
        return "" if is_subcommand else self._describe_file(words[0], interpreted=True)

    def _is_environment(self, words: Sequence[str]) -> bool:
        """Return whether a file activates a Python virtual environment."""
        files = [path for word in words[:1] for path in self._resolve(word) if path.name == "activate"]
        return any((f.parent.parent / "pyvenv.cfg").is_file() for f in files) and self._written.isdisjoint(files)

    def _describe_file(self, word: str, *, interpreted: bool = False) -> str:
        """Return why an executed file may contain commands, or is missing; empty if it is installed."""
        paths = list(self._resolve(word))
        if not self._written.isdisjoint(paths):
            return _WRITTEN
        if all(map(is_system, paths)):
            return ""
        files = [path for path in paths if path.is_file()]
        if not files:
            return _NOT_THERE
        return "runs the commands in a file" if not interpreted and any(map(_is_shell_script, files)) else ""


def _check_git(command: Simple, _: ProgramEntry) -> str | None:
    if command.program != "git":
        return None
    return git.find_hidden(command.argv) or ("has a word that the shell expands" if _has_output(command) else "")


def _list_sources(words: Sequence[str], program: ProgramEntry) -> list[str]:
    """Return the option values that name more files determining what runs."""
    return [b for a, b in itertools.pairwise(words) if a in program.source_options]


def _has_no_file(words: Sequence[str], program: ProgramEntry) -> bool:
    """Return whether an interpreter gets its code by an option or its input."""
    return is_met(program.unseen, words) or not words or words[0].startswith("-")


def _runs_module(words: Sequence[str], program: ProgramEntry) -> bool:
    return words[:1] == [program.runner] and len(words) > 1


def _shows_shell_code(command: Simple) -> bool:
    """Return whether a shell runs only the text after `-c` or its literal input, or nothing."""
    words = command.argv[1:]
    options = list(itertools.takewhile(_SHELL_OPTION.fullmatch, words))
    letters = "".join(w for w in options if not w.startswith("--"))
    has_text = "c" in letters and len(options) < len(words)
    has_input = len(options) == len(words) and command.input and not command.reads
    return has_text or bool(has_input) or "n" in letters or words == ("--version",)  # with `-n` it only parses


def _check_shell(command: Simple, program: ProgramEntry) -> str | None:
    """Return why a shell may run more than the text after `-c` or its literal input."""
    if not program.shell:
        return None
    return "" if _shows_shell_code(command) else "runs the commands in a file or in its input"


def _check_input(command: Simple, program: ProgramEntry) -> str | None:
    has_input = command.piped or command.reads or command.input
    if has_input and program.runs_input and program.plain is not None:
        return f"runs the input of {command.program}"
    is_plain = call_forms.starts_nothing((command.program, *command.argv[1:]))
    return "" if is_plain and not (_has_output(command) and program.unseen) else None


def _strip_quotes(word: Word) -> str:
    return word.text if word.literal else re.sub(r"[\"'\\]", "", word.text)


def _check_options(command: Simple, program: ProgramEntry) -> str | None:
    words = list(map(_strip_quotes, command.words[1:]))
    if _may_start_others(command, program, words):
        return f"may start other programs by {command.program}"
    if program.starts and "-" in words:
        return f"runs the input of {command.program}"
    if program.targets and any("=" in word for word in words):
        return f"sets a variable of {command.program}"
    return "" if _is_extracted(program) or program.work or program.sources else None


def _may_start_others(command: Simple, program: ProgramEntry, words: Sequence[str]) -> bool:
    is_open = _has_output(command) and any(w.startswith(("$", "`")) for w in words)  # it may be any option
    return (is_open and bool(program.unseen)) or is_met(program.unseen, words) or _has_word(program.unseen, words)


def _check_words(command: Simple, program: ProgramEntry) -> str | None:
    if any(_starts_others(find_program(w.rpartition("/")[2])) for w in command.argv[1:] if w != "."):
        return f"may start another program by {command.program}"
    return "has a word that the shell expands" if program == UNKNOWN and any(map(_is_unsure, command.words)) else None


def _takes_any_word(program: ProgramEntry) -> bool:
    """Return whether a program only reads or edits files, and has no options that start another."""
    is_listed = program.reads is not None or program.edits is not None
    return is_listed and not program.unseen and not _starts_others(program)


def _starts_others(program: ProgramEntry) -> bool:
    return _is_extracted(program) or program.runs_input or program.runs_script


def _has_word(options: Condition, arguments: Sequence[str]) -> bool:
    """Return whether an option with one dash and several letters is given, as in Go programs."""
    names = () if isinstance(options, bool) else options
    return any(re.sub(r"^--", "-", a).partition("=")[0] in names for a in arguments)


def _has_output(command: Simple) -> bool:
    return any(w.output for w in command.words)


def _is_unsure(word: Word) -> bool:
    """Return whether a word may name a program outside the workspace without showing it."""
    if word.pattern:
        return word.pattern.startswith(("/", "~", "."))
    return not word.literal and (not word.choices or any(map(_is_unsure, word.choices)))


def _has_open(command: Simple) -> bool:
    return any(not w.literal for w in command.words)


def _is_shell_script(path: Path) -> bool:
    """Return whether a shell runs the program as a text: it runs any text without `#!`."""
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:
        return True
    return _OF_A_SHELL.match(head) is not None if head.startswith(b"#!") else b"\0" not in head
