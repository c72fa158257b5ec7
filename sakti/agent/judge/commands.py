"""Read a command as what it does: the commands that it is made of, and the files that each of them reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge import call_forms, git, hard, repository_config, running, shell
from sakti.agent.judge.guarded import guarded
from sakti.agent.judge.modes import Kind
from sakti.agent.judge.programs import ProgramEntry, find_program, has_option
from sakti.agent.judge.rules import skip_git_options
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
    if (files := call_forms.list_read_files(argv)) is not None:
        return Part("read", "", argv, (*redirected, *((place.resolve(word), access) for word, access in files)))
    for word in simple.words[1:]:
        if why := guarded(place.resolve(word.text)):
            return Part("guarded", why, argv, redirected)
    kind: Kind = "work" if running.is_work(argv) else "unknown"
    part = Part(kind, "Runs a command", argv, redirected, _prefix(argv), _is_exact(argv), running.hashes(argv, place))
    if (changed := call_forms.list_edited_files(argv)) is None:
        return part
    paths = tuple(place.resolve(c) for c in changed)
    written: list[tuple[Path, Access]] = [(p, "write") for p in paths]
    return replace(part, kind="work", reason="Changes files", paths=(*redirected, *written), changes=paths)


def _git(argv: tuple[str, ...], redirected: tuple[tuple[Path, Access], ...], place: Place) -> Part:
    words = skip_git_options(argv)
    if git.reads_only(argv):
        if setting := repository_config.names_program(place.cwd):
            reason = f"Runs git where the repository's setting {setting} may run a program"
            return Part("unknown", reason, argv, redirected, argv, exact=True)
        outside = (w for w in words[2:] if w.startswith(("/", "..", "~")))
        paths: list[tuple[Path, Access]] = [(place.resolve(w), "read") for w in outside]
        return Part("read", "", argv, (*redirected, *paths))
    if git.changes_settings(words):
        return Part("guarded", "Changes git's settings", argv, redirected)
    exact = git.can_escape(argv)
    kind: Kind = "work" if git.find_command(argv)[0].work and not exact else "unknown"
    return Part(kind, "Runs a command", argv, redirected, argv if exact else git.list_rule_words(argv), exact)


# --- secrets --------------------------------------------------------------------------------------------------------

# What makes `git log` show what is in files; glued to others in a cluster too.
_SHOWS_CONTENT = lazy_pattern(r"-(?!-)\w*[puLSGcm]|--(patch|unified|cc|full-diff|pickaxe|word-d|color-w|func)")


def _secrets(script: Script, nested: Sequence[Simple], place: Place) -> Iterator[Part]:
    """Yield a part for each file with secrets that a command names or comes upon."""
    for simple in nested:
        for word in (*simple.words[1:], *simple.reads, *simple.writes):
            if why := _named_secret(word, place):
                as_name = _is_name(simple) and word in simple.words
                readable = find_program(simple.program).reads_operands or word not in simple.words
                if not as_name:
                    yield Part("secret" if readable else "named", why if readable else f"{word.text} {why}")
        if _walks(simple) and (file := _secret_below(simple, place)):
            yield Part("named", f"Would search {file}, which holds secrets")


def _is_name(simple: Simple) -> bool:
    """Return whether a command takes the names of files only as names."""
    if simple.program != "git":
        return find_program(simple.program).names_operands
    command, arguments = git.find_command(simple.argv)
    shown = skip_git_options(simple.argv)[1:2] == ("log",) and any(_SHOWS_CONTENT.match(a) for a in arguments)
    return command.names_operands and not shown


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
    """Return whether a command reads all files of a folder."""
    if simple.program == "git":
        return git.find_command(simple.argv)[0].walks is True
    walks = find_program(simple.program).walks
    return walks if isinstance(walks, bool) else has_option(simple.argv, walks)


def _secret_below(simple: Simple, place: Place) -> str:
    """Return a file with secrets below the folders that a command searches."""
    program = find_program(simple.program)
    hidden = not program.hidden_options or has_option(simple.argv, program.hidden_options)
    paths = (place.resolve(word) for word in call_forms.list_file_operands(program, simple.argv[1:]))
    for folder in [p for p in paths if p.is_dir()] or [place.cwd]:
        if (file := holds_secrets(folder, hidden=hidden)) is not None:
            return place.show(file)
    return ""


# --- what a rule would say ------------------------------------------------------------------------------------------


def _prefix(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the narrowest words that are worth a rule: a program and its subcommand, else the whole command."""
    if _is_exact(argv):
        return argv
    program = find_program(argv[0])
    if _is_module(program, argv):
        return argv[:3]
    if program.rule == "program":
        return argv[:1]
    if program.rule == "subcommand" and len(argv) > 1 and re.fullmatch(r"[a-z][\w:-]*", argv[1]):
        return argv[: 3 if argv[1] in program.nested else 2]
    return argv


def _is_module(program: ProgramEntry, argv: Sequence[str]) -> bool:
    return program.runner == "-m" and argv[1:2] == ("-m",)


def _is_exact(argv: Sequence[str]) -> bool:
    """Return whether a command's options could run other programs or write elsewhere, so that a prefix says little."""
    program = find_program(argv[0])
    if program.reads is not None and not call_forms.reads_only(argv):
        return True
    return program.rule == "exact" and not _is_module(program, argv)
