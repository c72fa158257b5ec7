"""Distinguish git commands that only read from those that may run programs or write elsewhere."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sakti.agent.judge import repositories
from sakti.agent.judge.call_forms import match_form
from sakti.agent.judge.policy import skip_git_options
from sakti.agent.judge.programs import (
    UNKNOWN,
    Condition,
    ProgramEntry,
    find_program,
    find_subcommand,
    has_option,
    is_met,
    list_operands,
    take_value,
)
from sakti.agent.judge.workspace_view import LISTS, SECRET_NAMES, WorkspaceView, make_secret_filter
from sakti.core.lazy import lazy_pattern

_PRIVATE = lazy_pattern(r"credential|extraheader|token|password|secret|proxy", re.IGNORECASE)


def find_command(argv: Sequence[str]) -> tuple[ProgramEntry, Sequence[str]]:
    """Return the entry of a git command's subcommand, and its arguments."""
    words = skip_git_options(argv)
    return find_subcommand(find_program("git"), words[1]) if len(words) > 1 else UNKNOWN, words[2:]


def names_command(argv: Sequence[str]) -> bool:
    """Return whether a git command names a program in a setting, or in an option that takes one."""
    words = skip_git_options(argv)
    before = argv[1 : len(argv) - len(words) + 1]
    if any(_names_program(s) for s in _list_settings(before)) or any(
        re.match(r"--(?:exec|config-)", w) for w in before
    ):
        return True
    command, arguments = find_command(argv)
    return is_met(command.unseen, arguments) or any(re.match(r"\w+::", w) for w in arguments)


def _list_settings(options: Sequence[str]) -> list[str]:
    """Return the settings made by options before the subcommand: `KEY=VALUE`."""
    glued = [w.removeprefix("-c") for w in options if w.startswith("-c") and w != "-c"]
    return [*glued, *(b for a, b in itertools.pairwise(options) if a == "-c")]


def _names_program(setting: str) -> bool:
    name, _, value = setting.partition("=")
    return not (
        not value
        or value in LISTS.harmless_values
        or repositories.is_harmless(name.lower())
        or name.lower().startswith("safe.")
    )


def find_hidden(argv: Sequence[str]) -> str:
    """Return why a git command may start programs that its words do not show; empty if it cannot."""
    if not is_known(argv):
        return "names an alias of git, or an unknown subcommand"
    if names_command(argv):
        return "lets git run a command"
    return "sets what git runs" if _sets_program(argv) else ""


def _sets_program(argv: Sequence[str]) -> bool:
    arguments = find_command(argv)[1]
    if skip_git_options(argv)[1:2] != ("config",) or reads_only(argv):
        return False
    names = [a for a in arguments if "." in a and not a.startswith("-")][:1]
    edits = has_option(arguments, ("-e", "--edit", "-f", "--file"))
    return edits or any(_names_program(f"{name}={arguments[-1]}") for name in names)


def is_known(argv: Sequence[str]) -> bool:
    """Return whether a git command names a subcommand; another word may be an alias for anything."""
    words = skip_git_options(argv)
    return len(words) < 2 or words[1].startswith("-") or find_command(argv)[0] != UNKNOWN or words[1] in ("help",)


def writes_configuration(argv: Sequence[str]) -> bool:
    """Return whether a command writes a repository's configuration, which the sandbox forbids."""
    if not argv or argv[0].rpartition("/")[2] != "git" or reads_only(argv):
        return False
    command, arguments = find_command(argv)
    if skip_git_options(argv)[1:2] == ("config",):
        return not any(_READS_CONFIG.fullmatch(a) for a in arguments)
    return _is_begun(command.configures, arguments)


def _is_begun(condition: Condition, arguments: Sequence[str]) -> bool:
    """Return whether the first argument is one of the words, or any argument begins with such an option."""
    if isinstance(condition, bool):
        return condition
    options = tuple(c for c in condition if c.startswith("-"))
    return arguments[0] in condition or any(a.startswith(options) for a in arguments) if arguments else False


_READS_CONFIG = lazy_pattern(r"--get.*|--list|-l|get|list|--show-origin|--show-scope")


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether a git command only reads if the repository names no program; `argv` is literal."""
    words = skip_git_options(argv)
    if not _is_plain(argv) or len(words) < 2:
        return list(argv[1:]) in (["--version"], ["version"])
    command, arguments = find_command(argv)
    if words[1] == "config":
        return _reads_setting(arguments)
    if words[1] == "cat-file" and any(map(names_object, arguments)) and arguments[0] not in ("-e", "-s", "-t"):
        return False
    return _has_form(command, arguments, "reads")


def _reads_setting(arguments: Sequence[str]) -> bool:
    name = arguments[-1] if len(arguments) == 1 or arguments[:1] in (("--get",), ("get",)) else ""
    return len(arguments) <= 2 and re.fullmatch(r"\w+\..+", name) is not None and not _PRIVATE.search(name)


def edits_only(argv: Sequence[str]) -> bool:
    """Return whether a git command changes only files, the index and branches, without programs."""
    command, arguments = find_command(argv)
    return _is_plain(argv) and _has_form(command, arguments, "edits")


def may_bring_links(argv: Sequence[str]) -> bool:
    """Return whether a git command replaces workspace files by those of another commit."""
    name, operands = skip_git_options(argv)[1:2], list_operands(find_command(argv)[1])
    if name in (("checkout",), ("switch",)):
        return len(operands) > 1
    return name in (("stash",), ("mv",)) and not reads_only(argv)


def _is_plain(argv: Sequence[str]) -> bool:
    """Return whether no option before the subcommand changes what git does."""
    return all(option in LISTS.git_quiet_options for option in argv[1 : len(argv) - len(skip_git_options(argv)) + 1])


def _has_form(command: ProgramEntry, arguments: Sequence[str], kind: Literal["reads", "edits"]) -> bool:
    if arguments and (below := find_subcommand(command, arguments[0])) != UNKNOWN:
        command, arguments = below, arguments[1:]
    form = command.reads if kind == "reads" else command.edits
    return form is not None and match_form(form, arguments) is not None


def list_files(argv: Sequence[str]) -> list[str]:
    """Return the files whose content a git command shows or stores because of its options."""
    values = (
        [take_value(LISTS.git_file_options, word) for word in argv]
        if argv[:1] and argv[0].rpartition("/")[2] == "git"
        else []
    )
    behind = (word for value, word in zip(values, argv[1:], strict=False) if value == "")
    return [*(value for value in values if value), *behind]


def names_object(word: str) -> bool:
    """Return whether a word may be the id of a file's content, which does not show the file's name."""
    return re.fullmatch(r"[0-9a-fA-F]{4,64}", word) is not None


# Options that make `git log` show contents of files, also in a cluster.
_SHOWS_CONTENT = lazy_pattern(r"-(?!-)\w*[puULSGcmW]|--(patch|unified|cc|full-diff|pickaxe|word-d|color-w|func|binary)")


def shows_contents(argv: Sequence[str]) -> bool:
    """Return whether a git command prints the contents of files."""
    name, (command, arguments) = skip_git_options(argv)[1:2], find_command(argv)
    if name in (("log",), ("whatchanged",)):
        return any(_SHOWS_CONTENT.match(a) for a in arguments)
    return command.pathspecs


def may_copy_secrets(argv: Sequence[str], *, rewritten: bool) -> bool:
    """Return whether a git command may show secret files of commits; `rewritten`: without them."""
    if shows_contents(argv):
        return not (rewritten and reads_only(argv)) or can_show_any_file(argv)
    name = skip_git_options(argv)[1:2]
    is_copy = not LISTS.git_copiers.isdisjoint(name) or (name == ("stash",) and "show" in argv) or not is_known(argv)
    return is_copy and not reads_only(argv)


def can_show_any_file(argv: Sequence[str]) -> bool:
    """Return whether a git command may show a file that it does not name, even with pathspecs."""
    is_single = shows_contents(argv) and any(a.startswith(LISTS.git_single_file_options) for a in argv)
    return is_single and any(re.search(r"[*?\[]|^:", a) for a in list_operands(argv))


def omit_secrets(argv: Sequence[str], folder: Path) -> list[tuple[int, str]]:
    """Return the texts to add to a git command so that it shows no secrets, with the word they follow.

    An object id must name a commit or a tree, because it could name a single file. A command that selects no files
    still shows all commits, including those that changed only secrets.
    """
    if not shows_contents(argv) or any(a.startswith(LISTS.git_single_file_options) for a in argv):
        return []
    name = skip_git_options(argv)[1]
    behind = len(argv) - len(skip_git_options(argv)) + 1
    start = behind + (2 if name == "grep" else 1)
    selects = name not in _ALL_COMMITS or _selects_files(argv[start:], folder)
    commits = [] if selects else [(behind, f" {_ALL_COMMITS[name]}")]
    return [*commits, *_type_objects(argv, start, name), (len(argv) - 1, _exclude_secrets())]


def _type_objects(argv: Sequence[str], start: int, name: str) -> list[tuple[int, str]]:
    """Return the suffixes that force object ids to name commits or trees."""
    kind = "tree" if name in ("diff", "grep") else "commit"
    ends = argv.index("--") if "--" in argv else len(argv)
    return [(at, f"^{{{kind}}}") for at in range(start, ends) if names_object(argv[at])]


# With pathspecs git leaves out commits that change none of the files, except with these options.
_ALL_COMMITS = {"log": "--full-history --sparse", "show": "--sparse"}


def _selects_files(arguments: Sequence[str], folder: Path) -> bool:
    """Return whether a git command selects files, after `--` or without it."""
    if "--" in arguments:
        return arguments[-1] != "--"
    return any(re.search(r"[*?\[]", a) or os.path.lexists(folder / a) for a in list_operands(arguments))


@functools.cache
def _exclude_secrets() -> str:
    """Return pathspecs without the files with secret names, quoted for the shell."""
    names = (*(f"**/{n}" for n in SECRET_NAMES), *(f"**/{f}/**" for f in sorted(LISTS.secret_folders)))
    return "".join(f" ':(top,exclude,glob,icase){n}'" for n in names)


def list_rule_words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a rule for a git command begins with: the subcommand, or two of them."""
    words = skip_git_options(argv)
    nested = find_program("git").nested
    return words[: 3 if any(word in nested for word in words[1:2]) else 2]


def can_escape(argv: Sequence[str]) -> bool:
    """Return whether a git command may run programs, write elsewhere or use another repository."""
    words = skip_git_options(argv)
    command = find_command(argv)[0]
    return (
        len(words) != len(argv)
        or words[1:2] == ()
        or command.runs_programs
        or (command.reads is not None and command.edits is None)
        or has_option(words[2:], LISTS.git_escapes)
        or any(re.match(r"-[a-zA-Z]*x|--e[xe]|--te|--re[cf]|--sep", w) for w in words[2:])
    )


def changes_settings(words: Sequence[str]) -> bool:
    """Return whether a git command that does not only read writes a configuration."""
    return words[1:2] == ("config",) or (words[1:2] == ("remote",) and words[2:3] not in ((), ("show",), ("update",)))


def find_risk(words: Sequence[str], paths: Sequence[Path], folder: Path) -> str:
    """Return why a read-only git command may do more in `folder`, "" if it does not."""
    if setting := repositories.find_program_setting(folder):
        return f"Runs git in a repository whose setting {setting} may run a program"
    compares = words[1:2] == ("diff",) and any(map(Path.is_dir, paths))
    if compares and not repositories.has_repository(folder):
        return "Compares folders that are in no repository"
    return ""


def edits_branch(argv: Sequence[str], folder: Path) -> bool:
    """Return whether git changes only files, index and branches, or checks out a branch in `folder`."""
    words = skip_git_options(argv)
    is_name = words[1:2] == ("checkout",) and len(words) == 3 and re.fullmatch(r"\w[\w./-]*", words[2])
    return edits_only(argv) or (bool(is_name) and not os.path.lexists(folder / words[2]))


def find_tracked_secret(place: WorkspaceView) -> str:
    """Return a file with secrets that is in a repository's index, or the index if it cannot be read."""
    tracked = repositories.list_tracked(place.cwd)
    if tracked is None:
        return "the index"
    is_secret = make_secret_filter(place.workspace, place)
    return next(filter(is_secret, tracked), "")
