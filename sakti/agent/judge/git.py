"""Tell the git commands that only read from those that may run programs or write elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sakti.agent.judge.call_forms import match_form
from sakti.agent.judge.programs import UNKNOWN, Condition, ProgramEntry, cut_at_dashes, find_program, has_option
from sakti.agent.judge.rules import skip_git_options
from sakti.core.patterns import lazy_pattern

_QUIET = frozenset(("--no-pager", "-P", "--paginate", "-p", "--no-replace-objects", "--literal-pathspecs"))

_PRIVATE = lazy_pattern(r"credential|extraheader|token|password|secret|proxy", re.IGNORECASE)


def find_command(argv: Sequence[str]) -> tuple[ProgramEntry, Sequence[str]]:
    """Return the entry of a git command's subcommand, and its arguments."""
    words = skip_git_options(argv)
    return find_program("git").commands.get(words[1], UNKNOWN) if len(words) > 1 else UNKNOWN, words[2:]


def writes_configuration(argv: Sequence[str]) -> bool:
    """Return whether a command writes a repository's configuration, which no sandbox lets it do."""
    if not argv or argv[0].rpartition("/")[2] != "git" or reads_only(argv):
        return False
    command, arguments = find_command(argv)
    if skip_git_options(argv)[1:2] == ("config",):
        return not any(_READS_CONFIG.fullmatch(a) for a in arguments)
    return _is_begun(command.configures, arguments)


def _is_begun(condition: Condition, arguments: Sequence[str]) -> bool:
    """Return whether the first argument is one of the words, or any argument begins with one of the options."""
    if isinstance(condition, bool):
        return condition
    options = tuple(c for c in condition if c.startswith("-"))
    return arguments[0] in condition or any(a.startswith(options) for a in arguments) if arguments else False


_READS_CONFIG = lazy_pattern(r"--get.*|--list|-l|get|list|--show-origin|--show-scope")


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether a git command only reads, as far as the repository names no program; `argv` is exact."""
    before = argv[1 : len(argv) - len(skip_git_options(argv)) + 1]
    if any(option not in _QUIET for option in before) or len(skip_git_options(argv)) < 2:
        return list(argv[1:]) in (["--version"], ["version"])
    command, arguments = find_command(argv)
    return not any(map(_is_refused, cut_at_dashes(arguments))) and _is_listing(
        skip_git_options(argv)[1], command, arguments
    )


def _is_listing(name: str, command: ProgramEntry, arguments: Sequence[str]) -> bool:
    """Return whether arguments make a subcommand show what there is."""
    if name == "reflog":
        return not arguments or arguments[0] == "show" or arguments[0].startswith("-")
    if name == "config":
        return len(arguments) == 2 and arguments[0] in ("--get", "get") and not _PRIVATE.search(arguments[1])
    if arguments and arguments[0] in command.commands:
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command.reads is not None and match_form(command.reads, arguments) is not None


def list_rule_words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a rule for a git command begins with: the subcommand, or two of them."""
    words = skip_git_options(argv)
    nested = find_program("git").nested
    return words[: 3 if any(word in nested for word in words[1:2]) else 2]


def can_escape(argv: Sequence[str]) -> bool:
    """Return whether a git command may run other programs, write files elsewhere or act on another repository."""
    words = skip_git_options(argv)
    return (
        len(words) != len(argv)
        or words[1:2] == ()
        or find_command(argv)[0].runs_programs
        or any(_is_refused(w) for w in words[2:])
        or any(re.match(r"-[a-zA-Z]*x|--e[xe]|--te|--re[cf]|--sep", w) for w in words[2:])
    )


def changes_settings(words: Sequence[str]) -> bool:
    """Return whether a git command that does not only read writes a configuration."""
    return words[1:2] == ("config",) or (words[1:2] == ("remote",) and words[2:3] not in ((), ("show",), ("update",)))


def _is_refused(option: str) -> bool:
    return has_option((option,), find_program("git").refused)
