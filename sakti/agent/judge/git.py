"""Know the git commands that only read, and whether a repository's own configuration makes even those run programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sakti.core.patterns import lazy_pattern

# Options before the subcommand that take the next word.
_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"))
_QUIET = frozenset(("--no-pager", "-P", "--paginate", "-p", "--no-replace-objects", "--literal-pathspecs"))

_READ = frozenset(
    "status log diff show rev-parse ls-files blame shortlog describe cat-file ls-tree rev-list merge-base grep"
    " diff-tree name-rev count-objects check-ignore whatchanged".split()
)
# Written out or cut short, they run a program, write a file or leave the repository.
_REFUSED = tuple(
    "--output --ext-diff --textconv --open-files-in-pager --exec-path --upload-pack --config-env --git-dir --work-tree"
    " --no-index --filters --contents --show-signature --batch --batch-check --batch-command --exclude-from"
    " --exclude-per-directory --ignore-revs-file --edit-description".split()
)
_LISTS = {
    # options that list, and those with which words may follow: else a word is a new name
    "branch": (
        re.compile(r"-[avr]+|--(all|remotes|show-current|verbose)"),
        re.compile(r"-l|--(list|contains|merged|no-merged)"),
    ),
    "tag": (re.compile(r"-n\d*|--sort=.*"), re.compile(r"-l|--(list|contains|merged|points-at)")),
    "remote": (re.compile(r"-v|--verbose"), None),
}
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


def writes_configuration(argv: Sequence[str]) -> bool:
    """Return whether a command writes a repository's configuration, which no sandbox lets it do."""
    if not argv or argv[0].rpartition("/")[2] != "git" or reads_only(argv):
        return False
    words = [*words_of(argv), "", ""]
    command, arguments = words[1], words[2:]
    if command == "config":
        return not any(_READS_CONFIG.fullmatch(a) for a in arguments)
    if command in ("init", "submodule", "sparse-checkout", "maintenance", "lfs"):
        return True
    if command == "remote":
        return arguments[0] in _CHANGES_REMOTES
    tracks = _TRACKS.get(command)
    return tracks is not None and any(tracks.fullmatch(a) for a in arguments)


_READS_CONFIG = lazy_pattern(r"--get.*|--list|-l|get|list|--show-origin|--show-scope")
_CHANGES_REMOTES = ("add", "rename", "remove", "rm", "set-head", "set-branches", "set-url")
# Options of commands that note what a branch follows.
_TRACKS = {
    "branch": re.compile(r"-[um].*|-M|-t|--set-upstream-to.*|--unset-upstream|--track.*|--move|--edit-description"),
    "checkout": re.compile(r"-t|--track.*"),
    "switch": re.compile(r"-t|--track.*"),
    "fetch": re.compile(r"--set-upstream"),
    "pull": re.compile(r"--set-upstream"),
}


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether a git command only reads, as far as the repository names no program; `argv` is exact."""
    before = argv[1 : len(argv) - len(words_of(argv)) + 1]
    if any(option not in _QUIET for option in before) or len(words_of(argv)) < 2:
        return list(argv[1:]) in (["--version"], ["version"])
    _, command, *arguments = words_of(argv)
    options = [a for a in arguments[: arguments.index("--") if "--" in arguments else None] if a.startswith("-")]
    if any(_is_refused(o) for o in options):
        return False
    if command in _READ:
        # -O of grep opens a pager, -X of ls-files reads any file
        wrong = {"grep": r"-[a-zA-Z]*O", "ls-files": r"-[a-zA-Z]*X"}.get(command)
        return wrong is None or not any(re.match(wrong, o) for o in options)
    if command in _LISTS:
        alone, with_words = _LISTS[command]
        lists = [o for o in options if with_words is not None and with_words.fullmatch(o)]
        plain = all(o in lists or alone.fullmatch(o) for o in options)
        return plain and (bool(lists) or len(options) == len(arguments))
    match command:
        case "reflog":
            return not arguments or arguments[0] == "show" or arguments[0].startswith("-")
        case "stash":
            return bool(arguments) and arguments[0] in ("list", "show")
        case "worktree":
            return arguments[:1] == ["list"]
        case "config":
            return len(arguments) == 2 and arguments[0] in ("--get", "get") and not _PRIVATE.search(arguments[1])
        case "version":
            return True
        case _:
            return False


# Subcommands that run what they are told, or what a repository brings.
_RUNNERS = frozenset("difftool mergetool bisect submodule filter-branch clone archive daemon hook maintenance".split())


def can_escape(argv: Sequence[str]) -> bool:
    """Return whether a git command may run other programs, write files elsewhere or act on another repository."""
    words = words_of(argv)
    return (
        len(words) != len(argv)
        or words[1:2] == ()
        or words[1] in _RUNNERS
        or any(_is_refused(w) for w in words[2:])
        or any(re.match(r"-[a-zA-Z]*x|--e[xe]|--te|--re[cf]|--sep", w) for w in words[2:])
    )


def changes_settings(words: Sequence[str]) -> bool:
    """Return whether a git command that does not only read writes a configuration."""
    return words[1:2] == ("config",) or (words[1:2] == ("remote",) and words[2:3] not in ((), ("show",), ("update",)))


def _is_refused(option: str) -> bool:
    name = option.partition("=")[0]
    return name.startswith("--") and len(name) >= 3 and any(r.startswith(name) for r in _REFUSED)


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
