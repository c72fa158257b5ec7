"""Read a command as what it does: the commands that it is made of, and the files that each of them reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge import git, hard, reading, running, shell
from sakti.agent.judge.guarded import guarded
from sakti.agent.judge.modes import Kind
from sakti.agent.judge.secrets import holds_secrets, secret_reason
from sakti.agent.judge.shell import Script, Simple, Word, with_nested
from sakti.agent.judge.where import Access, Place
from sakti.core.patterns import lazy_pattern


class Part(Struct, frozen=True):
    """One simple command.

    `paths`: files that it names, each with what is done with it. `prefix`: the words that a rule for it would begin
    with; `exact`: only a rule with all its words may allow it. `hashes`: those of the files that it runs. `changes`:
    the last of `paths`, which it is there to change (not its redirections): a rule for it covers them in the project.
    """

    kind: Kind
    reason: str
    argv: tuple[str, ...] = ()
    paths: tuple[tuple[Path, Access], ...] = ()
    prefix: tuple[str, ...] = ()
    exact: bool = False
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: tuple[Path, ...] = ()


class Judged(Struct, frozen=True):
    """What a command does. `all_argv`: its commands and those in them; `changed`: files changed here that it runs."""

    parts: tuple[Part, ...]
    all_argv: tuple[tuple[str, ...], ...]
    hard: str = ""
    changed: tuple[Path, ...] = ()

    @property
    def only_reads(self) -> bool:
        """Return whether all of it reads, so that it also runs where nothing can be written."""
        return not self.hard and all(
            part.kind in ("read", "named") and not any(access == "write" for _, access in part.paths)
            for part in self.parts
        )


def read(command: str, place: Place) -> Judged:
    """Read a command; raises nothing."""
    script = shell.parse(command)
    nested = tuple(with_nested(script))
    parts = [*_secrets(script, nested, place)]
    places = [place]
    for simple in script.commands:
        if (there := _folder_change(simple, places[-1])) is not None:
            places.append(there)
        else:
            parts += [_part(simple, where) for where in places]
    if not script.understood:
        parts.append(Part("unknown", f"Runs a command that {script.unclear}"))
    changed = tuple(dict.fromkeys(f for c in nested for f in running.changed_here(c.argv, place)))
    if changed:
        parts.append(Part("changed", f"Runs what was changed here: {', '.join(place.show(f) for f in changed)}"))
    argv = tuple(c.argv for c in nested if c.program)
    return Judged(tuple(parts) or (Part("read", ""),), argv, hard.reason(script, place), changed)


def _folder_change(simple: Simple, place: Place) -> Place | None:
    """Return where the commands behind a `cd` act; what stands behind it is judged here and there."""
    if simple.program != "cd" or len(simple.words) != 2 or simple.piped or simple.reads or simple.writes:
        return None
    there = place.resolve(simple.words[1].text)
    if not (simple.words[1].literal and place.holds(there)):
        return None
    return replace(place, cwd=there)


def _part(simple: Simple, place: Place) -> Part:
    """Judge one command by itself."""
    redirected: tuple[tuple[Path, Access], ...] = (
        *((place.resolve(w.text), "read") for w in simple.reads),
        *((place.resolve(w.text), "write") for w in simple.writes if not hard.is_harmless_device(w.text)),
    )
    argv = simple.argv
    if not argv:
        return Part("read", "", (), redirected)
    if not all(w.literal for w in simple.words):
        return Part("unknown", "Runs a command", (), redirected)
    if argv[0] == "git":
        return _git(argv, redirected, place)
    if reading.reads_only(argv):
        access: Access = "name" if argv[0] in _NAMES_ONLY else "read"
        return Part("read", "", argv, (*redirected, *((p, access) for p in _read_by(argv, place))))
    for word in simple.words[1:]:
        if why := guarded(place.resolve(word.text)):
            return Part("guarded", why, argv, redirected)
    kind: Kind = "work" if running.is_work(argv) else "unknown"
    part = Part(kind, "Runs a command", argv, redirected, _prefix(argv), _is_exact(argv), running.hashes(argv, place))
    if (changed := running.changes_inside(argv)) is None:
        return part
    paths = tuple(place.resolve(c) for c in changed)
    written: list[tuple[Path, Access]] = [(p, "write") for p in paths]
    return replace(part, kind="work", reason="Changes files", paths=(*redirected, *written), changes=paths)


def _git(argv: tuple[str, ...], redirected: tuple[tuple[Path, Access], ...], place: Place) -> Part:
    words = git.words_of(argv)
    prefix = words[: 3 if words[1:2] in (("stash",), ("remote",), ("worktree",), ("submodule",), ("config",)) else 2]
    if git.reads_only(argv):
        if setting := git.names_program(place.cwd):
            reason = f"Runs git where the repository's setting {setting} may run a program"
            return Part("unknown", reason, argv, redirected, argv, exact=True)
        outside = (w for w in words[2:] if w.startswith(("/", "..", "~")))
        paths: list[tuple[Path, Access]] = [(place.resolve(w), "read") for w in outside]
        return Part("read", "", argv, (*redirected, *paths))
    if git.changes_settings(words):
        return Part("guarded", "Changes git's settings", argv, redirected)
    exact = git.can_escape(argv)
    kind: Kind = "work" if running.is_git_work(words) and not exact else "unknown"
    return Part(kind, "Runs a command", argv, redirected, argv if exact else prefix, exact)


# --- files that a reading command names -----------------------------------------------------------------------------

_NO_FILES = frozenset("echo seq date expr tr which basename dirname true false pwd whoami id uname nproc test".split())
_PATTERN_FIRST = frozenset(("grep", "egrep", "fgrep", "rg", "sed"))


def _read_by(argv: Sequence[str], place: Place) -> Iterator[Path]:
    """Yield the files that a reading command opens."""
    if argv[0] in _NO_FILES:
        return
    operands = [a for a in argv[1:] if not a.startswith("-")]
    if argv[0] == "find":
        operands = argv[1 : next((n for n, a in enumerate(argv) if n and a[:1] in "-!("), len(argv))]
    elif argv[0] in _PATTERN_FIRST and not any(re.match(r"-[a-zA-Z]*[ef]|--regexp|--file", a) for a in argv[1:]):
        operands = operands[1:]
    for word in (*operands, *(a.partition("=")[2] for a in argv[1:] if a.startswith("--") and "=" in a)):
        if word:
            yield place.resolve(word)


# --- secrets --------------------------------------------------------------------------------------------------------

# Programs to which the name of a file is a name.
_NAMES_ONLY = frozenset(
    "echo test [ ls stat mkdir basename dirname realpath readlink which file du df find docker docker-compose openssl"
    " printf rm touch chmod chown".split()
)
_GIT_NAMES_ONLY = frozenset("add commit status check-ignore ls-files rm mv restore log tag branch config".split())
# What makes `git log` show what is in files; glued to others in a cluster too.
_SHOWS_CONTENT = lazy_pattern(r"-(?!-)\w*[puLSGcm]|--(patch|unified|cc|full-diff|pickaxe|word-d|color-w|func)")
_READERS = frozenset(
    "cat head tail less more bat nl tac rev od xxd hexdump strings base64 base32 grep egrep fgrep rg ag ack sed awk"
    " gawk cut sort uniq wc tr cp mv ln tar zip 7z gzip bzip2 xz zcat rsync scp sftp curl wget nc ncat socat source ."
    " diff cmp comm paste column fold fmt jq yq python python3 perl ruby node php vi vim nano emacs ed dd install tee"
    " split sha256sum md5sum xargs mail sqlite3 git gpg age cpio".split()
)
_TREES = frozenset(("grep", "egrep", "fgrep", "rg", "ag", "ack", "diff", "git"))


def _secrets(script: Script, nested: Sequence[Simple], place: Place) -> Iterator[Part]:
    """Yield a part for each file with secrets that a command names or comes upon."""
    for simple in nested:
        for word in (*simple.words[1:], *simple.reads, *simple.writes):
            if why := _named_secret(word, place):
                as_name = _is_name(simple) and word in simple.words
                readable = simple.program in _READERS or word not in simple.words
                if not as_name:
                    yield Part("secret" if readable else "named", why if readable else f"{word.text} {why}")
        if simple.program in _TREES and _walks(simple) and (found := _come_upon(simple, place)):
            yield Part("named", f"Would search {found}, which holds secrets")


def _is_name(simple: Simple) -> bool:
    if simple.program == "git":
        _, command, *arguments = [*git.words_of(simple.argv), ""]
        shown = command == "log" and any(_SHOWS_CONTENT.match(a) for a in arguments)
        return command in _GIT_NAMES_ONLY and not shown
    return simple.program in _NAMES_ONLY


def _named_secret(word: Word, place: Place) -> str:
    """Return why a word is not an ordinary file: itself, behind `=` or `@`, or as git names a file of a commit."""
    text = word.text
    if not text or len(text) > 1_000 or "\n" in text:
        return ""
    for candidate in dict.fromkeys((text, *re.split(r"[=:@,]", text)[1:], re.sub(r"^-\w", "", text))):
        if candidate and (why := secret_reason(place.resolve(candidate), place)):
            return why
    return ""


def _walks(simple: Simple) -> bool:
    if simple.program == "git":
        return git.words_of(simple.argv)[1:2] == ("grep",)
    return simple.program in ("rg", "ag", "ack") or any(
        re.match(r"-[a-zA-Z]*[rR]|--recursive|--dereference-r", a) for a in simple.argv
    )


def _sees_hidden(simple: Simple) -> bool:
    """Return whether a search goes into files whose names begin with a dot, which ripgrep leaves out."""
    return simple.program != "rg" or any(re.match(r"-[a-zA-Z]*[.u]|--hid|--unr", a) for a in simple.argv)


def _come_upon(simple: Simple, place: Place) -> str:
    folders = [p for p in _read_by(simple.argv, place) if p.is_dir()] or [place.cwd]
    for folder in folders:
        if (file := holds_secrets(folder, hidden=_sees_hidden(simple))) is not None:
            return place.show(file)
    return ""


# --- what a rule would say ------------------------------------------------------------------------------------------

_WITH_SUBCOMMANDS = frozenset(
    "npm pnpm yarn bun cargo go uv pip pip3 poetry pdm hatch docker podman kubectl helm terraform gh make just mvn"
    " gradle rustup brew apt apt-get dotnet bundle rake rails composer mix sakti conda".split()
)
_TWO = frozenset(("run", "compose", "exec", "tool", "mod", "pr", "issue", "repo", "get"))
_EXACT = frozenset(
    "tar sed find rg sort awk gawk env xargs ssh scp rsync zip unzip vim vi man less more tee curl wget nc socat dd"
    " sudo su chroot docker kubectl watch parallel screen tmux nohup timeout setsid time nice exec eval command".split()
)


def _prefix(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the narrowest words that are worth a rule: a program and its subcommand, else the whole command."""
    if _is_exact(argv):
        return argv
    if argv[0] in ("python", "python3") and argv[1:2] == ("-m",):
        return argv[:3]
    if argv[0] in ("pytest", "ruff", "mypy", "pyright", "black", "eslint", "tsc", "jest", "vitest"):
        return argv[:1]
    if argv[0] in _WITH_SUBCOMMANDS and len(argv) > 1 and re.fullmatch(r"[a-z][\w:-]*", argv[1]):
        return argv[: 3 if argv[1] in _TWO else 2]
    return argv


def _is_exact(argv: Sequence[str]) -> bool:
    """Return whether a command's options could run other programs or write elsewhere, so that a prefix says little."""
    known = reading.is_known(argv[0]) and not reading.reads_only(argv)
    code = argv[0] in shell.SHELLS or (
        argv[0] in ("python", "python3", "node", "ruby", "perl") and argv[1:2] != ("-m",)
    )
    return argv[0] in _EXACT or known or code
