"""Know the git commands that only read, and whether a repository's own configuration makes even those run programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sakti.agent.judge.call_forms import match_form
from sakti.agent.judge.programs import UNKNOWN, Condition, ProgramEntry, cut_at_dashes, find_program, has_option
from sakti.core.patterns import lazy_pattern

# Options before the subcommand that take the next word.
_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"))
_QUIET = frozenset(("--no-pager", "-P", "--paginate", "-p", "--no-replace-objects", "--literal-pathspecs"))

# Settings of a repository that name a program, or may.
_PROGRAMS = lazy_pattern(
    r"diff\.external|diff\..*\.(?:command|textconv)|filter\.(?!lfs\.).*\.(?:clean|smudge|process)"
    r"|core\.(?:fsmonitor|pager|editor|sshcommand|hookspath|gitproxy|askpass|attributesfile|worktree)|pager\..*"
    r"|alias\..*|gpg\..*|gpg\.program|credential\..*|include\..*|includeif\..*|interactive\..*|sequence\..*"
    r"|merge\..*\.driver|trailer\..*\.(?:command|cmd)|extensions\.(?:worktreeconfig|partialclone)|log\.showsignature"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|promisor|partialclonefilter)"
)
_PRIVATE = lazy_pattern(r"credential|extraheader|token|password|secret|proxy", re.IGNORECASE)
_SECTION = lazy_pattern(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_KEY = lazy_pattern(r"\s*([a-zA-Z][\w-]*)(?:\s*=)?(.*)")


def words_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a git command without the options before its subcommand: what rules and questions are about."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in _VALUED else 1
    return (argv[0], *argv[at:])


def find_command(argv: Sequence[str]) -> tuple[ProgramEntry, Sequence[str]]:
    """Return the entry of a git command's subcommand, and its arguments."""
    words = words_of(argv)
    return find_program("git").commands.get(words[1], UNKNOWN) if len(words) > 1 else UNKNOWN, words[2:]


def writes_configuration(argv: Sequence[str]) -> bool:
    """Return whether a command writes a repository's configuration, which no sandbox lets it do."""
    if not argv or argv[0].rpartition("/")[2] != "git" or reads_only(argv):
        return False
    command, arguments = find_command(argv)
    if words_of(argv)[1:2] == ("config",):
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
    before = argv[1 : len(argv) - len(words_of(argv)) + 1]
    if any(option not in _QUIET for option in before) or len(words_of(argv)) < 2:
        return list(argv[1:]) in (["--version"], ["version"])
    command, arguments = find_command(argv)
    return not any(map(_is_refused, cut_at_dashes(arguments))) and _is_listing(words_of(argv)[1], command, arguments)


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
    words = words_of(argv)
    nested = find_program("git").nested
    return words[: 3 if any(word in nested for word in words[1:2]) else 2]


def can_escape(argv: Sequence[str]) -> bool:
    """Return whether a git command may run other programs, write files elsewhere or act on another repository."""
    words = words_of(argv)
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


def names_program(folder: Path) -> str:
    """Return the first setting of the repository around `folder` that names a program, empty where none does.

    Only its own configuration counts: the user's is the user's. Where a file cannot be read or understood, that is said
    as a setting, too.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            other = "commondir" if (git / "commondir").exists() else ""  # another configuration than what stands here
            return other or _first(git / "config", git / "config.worktree")
        if git.is_file():
            return _linked(git)
    return ""


def _linked(file: Path) -> str:
    """Follow a worktree's or a submodule's `.git` file."""
    try:
        text = file.read_text("utf-8", "replace")[:4096]
    except OSError:
        return ".git"
    found = re.match(r"gitdir: (.+)\n?", text)
    if found is None:
        return ".git"
    folder = (file.parent / found[1].rstrip("\n")).resolve()
    try:
        common = (folder / (folder / "commondir").read_text("utf-8").strip()).resolve()
    except OSError:
        common = folder
    return _first(common / "config", folder / "config.worktree")


def _first(*files: Path) -> str:
    for file in files:
        try:
            text = file.read_text("utf-8", "replace")
        except FileNotFoundError:
            continue
        except OSError:
            return file.name
        for name in settings(text):
            if _PROGRAMS.fullmatch(name):
                return name
    return ""


def settings(text: str) -> list[str]:
    """Return the names in a git configuration, in lower case: `diff.x.textconv`."""
    return [name for name, _ in pairs(text)]


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the names in a git configuration, in lower case, with their values as they are written."""
    found: list[tuple[str, str]] = []
    section = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        rest = line
        while head := _SECTION.match(rest):  # several may stand in one line
            section = head[1].lower() + (f".{head[2].lower()}" if head[2] is not None else "")
            rest = head[3]
        if key := _KEY.match(rest):
            found.append((f"{section}.{key[1].lower()}", key[2].strip()))
    return found
