"""Analyse a command line: its commands, and the files that they read and write."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge import call_forms, execution, expansion, git, irreversible, repositories, shell
from sakti.agent.judge.execution import Visibility, explain_guard
from sakti.agent.judge.policy import Kind, skip_git_options
from sakti.agent.judge.programs import find_program, has_option, list_operands
from sakti.agent.judge.shell import Script, list_commands
from sakti.agent.judge.syntax import Simple, Word, has_output
from sakti.agent.judge.workspace_view import (
    Access,
    WorkspaceView,
    explain_secret,
    find_secret,
    list_exclusions,
    list_secret_files,
)
from sakti.core.lazy import lazy_pattern

_GIT = lazy_pattern(r"(?<![a-zA-Z0-9.])git(?![a-zA-Z0-9])")
Paths: TypeAlias = tuple[tuple[Path, Access], ...]


class SimpleCommand(Struct, frozen=True):
    """One simple command.

    `paths`: files that it names, each with its use. `prefix`: the first words of a rule for it; `exact`: only a rule
    with all its words may allow it. `hashes`: hashes of the files that it runs. `changes`: the files among `paths` that
    it exists to change (not its redirections), which a rule for it covers inside the project.
    """

    kind: Kind
    reason: str
    argv: tuple[str, ...] = ()
    paths: Paths = ()
    prefix: tuple[str, ...] = ()
    exact: bool = False
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: tuple[Path, ...] = ()


class CommandAnalysis(Struct, frozen=True):
    """What a command does.

    `all_argv`: its commands and nested ones; `harm`: irreversible effects; `changed`: files changed in this session
    that it runs; `visibility`: whether it may hide others; `rewritten`: the command to run instead, so that git and
    searches show no secrets; `omission`: the files that this one leaves out.
    """

    parts: tuple[SimpleCommand, ...]
    all_argv: tuple[tuple[str, ...], ...]
    harm: str = ""
    changed: tuple[Path, ...] = ()
    visibility: Visibility = Visibility()
    rewritten: str = ""
    omission: str = ""

    @property
    def only_reads(self) -> bool:
        """Return whether every part reads, so that it runs in a read-only workspace."""
        return not self.harm and all(
            (part.kind == "read" or (part.kind == "named" and not part.argv))
            and not any(access == "write" for _, access in part.paths)
            for part in self.parts
        )


def analyse(command: str, place: WorkspaceView) -> CommandAnalysis:
    """Read a command; raises nothing."""
    script = shell.parse(command)
    nested = tuple(list_commands(script))
    left_out = _leave_out_secrets(script, place)
    limited = [c for at, c in enumerate(script.commands) if at in left_out or _is_limited_search(c, script, place)]
    look = execution.check_visibility(script, place)
    changed = tuple(dict.fromkeys(f for c in nested for f in execution.list_changed(c.argv, place)))
    parts = (
        *_list_secret_parts(nested, limited, place),
        *_judge_all(script, place),
        *_list_risks(script, _may_show_tracked(command, script, nested, look), changed, place),
    )
    return CommandAnalysis(
        parts or (SimpleCommand("read", ""),),
        tuple(_list_all_names(nested, place)),
        irreversible.explain_loss(script, place),
        changed,
        look,
        _rewrite(command, script, left_out, place),
        _describe_omission(place) if left_out else "",
    )


def _list_all_names(nested: Sequence[Simple], place: WorkspaceView) -> Iterator[tuple[str, ...]]:
    for simple in nested:
        if simple.program:
            yield from _list_names(simple.argv, place)


def _list_risks(
    script: Script, may_show_tracked: bool, changed: Sequence[Path], place: WorkspaceView
) -> Iterator[SimpleCommand]:
    """Yield parts for unclear text, for secrets that git keeps, and for `changed` files that are run."""
    if not script.understood:
        yield SimpleCommand("unknown", f"Runs a command that {script.unclear}")
    if may_show_tracked and (file := git.find_tracked_secret(place)):
        yield SimpleCommand("named", f"May show {file}, which holds secrets and is kept in git")
    if changed:
        names = ", ".join(map(place.show, changed))
        yield SimpleCommand("changed", f"Runs a file changed here: {names}")


def _judge_all(script: Script, place: WorkspaceView) -> Iterator[SimpleCommand]:
    """Judge each command in every folder in which it may run."""
    folders = FolderTracker(place)
    for simple in script.commands:
        if simple.program == "cd" and not (simple.reads or simple.writes):
            yield folders.change(simple)
            continue
        judged = [p for where in folders.places for p in _judge(simple, script.commands, where)]
        if not folders.is_stable and any(map(_may_match_option, simple.words)):
            judged.append(SimpleCommand("unknown", "Uses a pattern that may match a file made just before"))
        judged += _warn_of_substitution(simple, judged)
        folders.note(judged)
        yield from judged
        yield from _warn_of_links(simple, script, folders.places)


def _warn_of_substitution(simple: Simple, judged: Sequence[SimpleCommand]) -> Sequence[SimpleCommand]:
    """Return the part for a command whose output is substituted into another one, unless it only reads."""
    if not simple.substituted or all(p.kind == "read" and not _has_writes(p) for p in judged):
        return ()
    return (SimpleCommand("unknown", "Uses the output of a command that may do more than read"),)


def _may_match_option(word: Word) -> bool:
    """Return whether a word is a pattern that may also match names such as `--output=x`."""
    return word.pattern.startswith(("*", "?", "[")) or any(map(_may_match_option, word.choices))


def _warn_of_links(simple: Simple, script: Script, places: Sequence[WorkspaceView]) -> Iterator[SimpleCommand]:
    if simple is not script.commands[-1] and any(_may_move_link(simple, p) for p in places):
        yield SimpleCommand("unknown", "May replace a file that is used later with a link")


def _may_move_link(simple: Simple, place: WorkspaceView) -> bool:
    """Return whether a command may make a path lead elsewhere than when it was judged."""
    if simple.program == "git":
        return git.may_bring_links(simple.argv)
    if simple.program not in ("ln", "mv", "cp"):
        return False
    paths = [os.path.join(place.cwd, w.text) for w in simple.words[1:]]  # noqa: PTH118 - links are not followed
    return simple.program == "ln" or any(os.path.islink(p) or os.path.isdir(p) for p in paths[:-1])  # noqa: PTH112, PTH114


def _leave_out_secrets(script: Script, place: WorkspaceView) -> dict[int, list[str]]:
    """Return options with which searches leave out secrets, by the number of the command.

    In a complete sandbox, searches only need them if the workspace contains secrets.
    """
    if not script.understood:
        return {}
    return {at: options for at, c in enumerate(script.commands) if (options := _list_exclusions(c, place))}


def _list_exclusions(simple: Simple, place: WorkspaceView) -> list[str]:
    program = find_program(simple.program)
    is_plain = bool(simple.ends) and not simple.inside and "--" not in simple.argv
    if (
        not (program.leaves_out and is_plain and _searches_folders(simple))
        or call_forms.list_read_files(simple.argv) is None
    ):
        return []
    if place.level == "sandboxed" and not any(map(find_secret, place.roots)):
        return []
    return list_exclusions(place, *program.leaves_out)


def _is_limited_search(simple: Simple, script: Script, place: WorkspaceView) -> bool:
    """Return whether a search by git is rewritten so that it shows no secrets."""
    is_plain = script.understood and simple.program == "git" and bool(simple.ends) and not simple.inside
    return is_plain and bool(git.omit_secrets(simple.argv, place.cwd)) and bool(list_exclusions(place, "", ""))


def _describe_omission(place: WorkspaceView) -> str:
    """Return a note on the secret files that searches leave out, for the result; empty without any."""
    names = list(itertools.islice((place.show(f) for root in place.roots for f in list_secret_files(root)), 4))
    return f"left out because they hold secrets: {', '.join(names[:3])}{' …' * (len(names) > 3)}" if names else ""


def _rewrite(command: str, script: Script, options: Mapping[int, Sequence[str]], place: WorkspaceView) -> str:
    """Return a command that excludes secrets by pathspecs or options; empty if it runs unchanged."""
    added = [
        (simple.ends[at], text)
        for simple in script.commands
        if simple.program == "git" and simple.ends and not simple.inside
        for at, text in git.omit_secrets(simple.argv, place.cwd)
    ]
    added += [(script.commands[at].ends[-1], f" {shlex.join(words)}") for at, words in options.items()]
    source = command.encode("utf-8", "surrogatepass")
    for at, text in reversed(sorted(added, key=lambda a: a[0])):  # noqa: C413 - keeps the order at one place
        source = source[:at] + text.encode() + source[at:]
    return source.decode("utf-8", "surrogatepass") if added and script.understood else ""


def _list_names(argv: tuple[str, ...], place: WorkspaceView) -> Iterator[tuple[str, ...]]:
    """Yield a command as written, and with the program name that its link points to."""
    yield argv
    if "/" in argv[0] and (name := place.resolve(argv[0]).name) != argv[0].rpartition("/")[2]:
        yield (name, *argv[1:])


def _may_show_tracked(command: str, script: Script, nested: Sequence[Simple], look: Visibility) -> bool:
    """Return whether git may show any tracked file, through a command that is hidden or not rewritten."""
    runs = [simple for simple in nested if simple.program == "git"]
    is_unseen = bool(look.hidden) and len(_GIT.findall(command)) > len(runs)
    return is_unseen or any(_may_copy_secrets(simple, script) for simple in runs)


def _may_copy_secrets(simple: Simple, script: Script) -> bool:
    is_open = not script.understood and not all(w.literal for w in simple.words)
    if is_open and git.find_command(simple.argv)[0].pathspecs:
        return True
    return git.may_copy_secrets(simple.argv, rewritten=script.understood and not simple.inside)


class FolderTracker:
    """The folders in which a command may run after each `cd`.

    For `..`, a shell returns from a link to the folder of the link, a program to the parent of its target: the
    following commands are judged in both. They are also judged in the previous folder, since a `cd` may fail.
    """

    MOST = 12

    def __init__(self, place: WorkspaceView) -> None:
        self._place = place
        self._all = [str(place.cwd)]
        self._last = list(self._all)  # the command is in one of these
        self._is_sure = True  # the command before ran, and succeeded
        self.is_stable = True  # no folder was removed so far

    @property
    def places(self) -> list[WorkspaceView]:
        """Return the distinct folders, with links resolved."""
        self._is_sure = False
        return [replace(self._place, cwd=Path(p)) for p in _drop_copies(map(os.path.realpath, self._all))]

    def change(self, simple: Simple) -> SimpleCommand:
        """Record a `cd` and judge it."""
        word = simple.words[1] if len(simple.words) == 2 else Word(str(Path.home()), len(simple.words) == 1)
        if word.literal and word.text == "-":
            self._is_sure, self._last = False, list(self._all)
            return SimpleCommand("read", "")
        if not _is_written_out(word, simple) or len(self._all) > self.MOST:
            self._is_sure = False
            return SimpleCommand("unknown", "Changes to a folder that its text does not name", simple.argv, exact=True)
        after = self._list_after(os.path.expanduser(word.text))  # noqa: PTH111 - raises nothing
        self._enter(after, simple)
        return SimpleCommand("read", "", simple.argv, tuple((Path(os.path.realpath(f)), "name") for f in after))

    def _enter(self, after: list[str], simple: Simple) -> None:
        """Record the folders in which the next command may run after a `cd`."""
        runs = simple.sure and (self._is_sure or not simple.chained)
        self._is_sure = runs and self.is_stable and all(map(os.path.isdir, after))
        self._last = after if self._is_sure else _drop_copies((*self._last, *after))
        self._all = _drop_copies((*self._all, *after))

    def _list_after(self, path: str) -> list[str]:
        paths = [os.path.join(f, path) for f in self._last]  # noqa: PTH118 - `..` is to stay
        return _drop_copies((*map(os.path.normpath, paths), *map(os.path.realpath, paths)))

    def note(self, parts: Sequence[SimpleCommand]) -> None:
        """Record other commands: one that does not only read may remove an existing folder."""
        self.is_stable = self.is_stable and not any(p.kind != "read" or _has_writes(p) for p in parts)


def _is_written_out(word: Word, simple: Simple) -> bool:
    """Return whether the folder of a `cd` is known from its text, even if the `cd` is repeated."""
    is_clear = word.literal and not (simple.repeated and not word.text.startswith(("/", "~")))
    return is_clear and not word.text.startswith("-")


def _drop_copies(folders: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(folders))


def _has_writes(part: SimpleCommand) -> bool:
    return any(access == "write" for _, access in part.paths)


def _judge(simple: Simple, commands: Sequence[Simple], place: WorkspaceView) -> Iterator[SimpleCommand]:
    """Judge one command by itself, for each choice of loop variables."""
    if inner := _unwrap(simple):
        parts = list(_judge(replace(simple, words=inner), commands, place))
        if all(p.kind == "read" for p in parts):
            yield from parts
            return
    redirected = _list_redirected(simple, place)
    if simple.assigned:
        yield SimpleCommand("unknown", f"Sets {simple.assigned[0]} for a command")
    if not simple.words:
        yield SimpleCommand("read", "", (), redirected)
    elif all(w.literal for w in simple.words):
        yield _judge_written_out(simple, commands, redirected, place)
    else:
        yield from _judge_expanding(simple, commands, redirected, place)


def _unwrap(simple: Simple) -> tuple[Word, ...]:
    """Return the command that a plain `time` or `timeout` starts, empty for another program."""
    skipped = {"time": 1, "timeout": 2}.get(simple.argv[0] if simple.words else "", 0)
    if not skipped or any(w.text.startswith("-") for w in simple.words[1 : skipped + 1]):
        return ()
    return simple.words[skipped:]


def _list_redirected(simple: Simple, place: WorkspaceView) -> Paths:
    return (
        *((place.resolve(w.text), "read") for w in simple.reads),
        *((place.resolve(w.text), "write") for w in simple.writes if not irreversible.is_harmless_device(w.text)),
    )


def _judge_expanding(
    simple: Simple, commands: Sequence[Simple], redirected: Paths, place: WorkspaceView
) -> Iterator[SimpleCommand]:
    """Judge a command with patterns, loop variables or the output of commands: it must only read."""
    variants = expansion.expand(simple.words, place) or []
    if simple.program == "git" and any(map(git.names_object, itertools.chain.from_iterable(variants))):
        variants = []  # an object id, which may be that of a file
    parts = [
        _judge_written_out(replace(simple, words=tuple(map(Word, argv))), commands, redirected, place)
        for argv in variants
    ]
    if parts and all(p.kind == "read" for p in parts) and _takes_output(simple):
        yield from parts
    else:
        yield SimpleCommand("unknown", "Runs a command with a word that the shell expands", (), redirected)


def _takes_output(simple: Simple) -> bool:
    """Return whether a command treats substituted output only as text, however it is split into words."""
    form = find_program(simple.program).reads
    if not has_output(simple.words):
        return True
    if simple.program == "test":  # a word that is only compared; elsewhere it could be an operator
        operators = ("=", "!=", "==")
        return len(simple.words) == 4 and simple.argv[2] in operators and not any(w.split for w in simple.words)
    return form is not None and form.no_options


def _judge_written_out(
    simple: Simple, commands: Sequence[Simple], redirected: Paths, place: WorkspaceView
) -> SimpleCommand:
    """Judge a command of literal words."""
    argv = simple.argv
    sandboxed = place.level == "sandboxed"
    if argv[0] == "git":
        return _judge_git(argv, redirected, place)
    files = call_forms.list_read_files(argv, sandboxed=sandboxed)
    if files is None:
        files = _list_files_read_by_list(simple, commands, place)
    if files is not None:
        return SimpleCommand("read", "", argv, (*redirected, *_resolve_all(files, place)))
    for word in simple.words[1:]:
        if why := explain_guard(place.resolve(word.text)):
            return SimpleCommand("guarded", why, argv, redirected)
    kind: Kind = "work" if execution.is_work(argv) else "unknown"
    prefix, exact = _choose_rule_words(argv, place), _is_exact(argv, place)
    part = SimpleCommand(kind, "Runs a command", argv, redirected, prefix, exact, execution.hash_files_run(argv, place))
    if (changed := call_forms.list_edited_files(argv, sandboxed=sandboxed)) is None:
        return part
    return _judge_edit(part, _resolve_all(changed, place), place)


def _resolve_all(files: Sequence[tuple[str, Access]], place: WorkspaceView) -> Paths:
    return tuple((place.resolve(word), access) for word, access in files)


def _list_files_read_by_list(
    simple: Simple, commands: Sequence[Simple], place: WorkspaceView
) -> list[tuple[str, Access]] | None:
    """Return the listed files that a command only reads; None if it may do more."""
    listed = expansion.find_listed(simple, commands, place)
    if listed is None:
        return None
    inner = [call_forms.list_read_files(a) if a and not expansion.is_walker(a) else None for a in listed]
    return None if None in inner else [f for i in inner for f in i or ()]


def _judge_edit(part: SimpleCommand, files: Paths, place: WorkspaceView) -> SimpleCommand:
    """Judge a command that only changes files: a secret file whose content is not shown needs a question."""
    changes = tuple(p for p, access in files if access == "write")
    secret = [p for p in changes if explain_secret(p, place)]
    if secret and _writes_only(part.argv[0], secret, files):
        return replace(part, kind="named", reason=f"Changes {place.show(secret[0])}, which holds secrets")
    reads = tuple(f for f in files if f[1] != "write")
    written: Paths = tuple((p, "write") for p in changes)
    return replace(part, kind="edit", reason="Changes files", paths=(*part.paths, *reads, *written), changes=changes)


# Git hooks that run when only the index, files or branches change.
_HOOKS = ("post-checkout", "post-index-change", "reference-transaction")


def _writes_only(name: str, secret: Sequence[Path], files: Paths) -> bool:
    """Return whether a program that changes the `secret` ones of `files` reads none of them."""
    program = find_program(name)
    return program.names_operands or (program.into_last and secret == [files[-1][0]])


def _judge_git(argv: tuple[str, ...], redirected: Paths, place: WorkspaceView) -> SimpleCommand:
    words = skip_git_options(argv)
    access: Access = "read" if git.shows_contents(argv) else "name"
    paths: Paths = tuple((place.resolve(w), access) for w in list_operands(words[2:]))
    if git.reads_only(argv) and not git.can_show_any_file(argv):
        if reason := git.find_risk(words, [p for p, _ in paths], place.cwd):
            return SimpleCommand("unknown", reason, argv, redirected, argv, exact=True)
        return SimpleCommand("read", "", argv, (*redirected, *paths))
    if git.changes_settings(words):
        return SimpleCommand("guarded", "Changes git's settings", argv, redirected)
    return _judge_writing_git(argv, paths, redirected, place)


def _judge_writing_git(argv: tuple[str, ...], paths: Paths, redirected: Paths, place: WorkspaceView) -> SimpleCommand:
    """Judge a git command that does not only read."""
    exact = _is_exact(argv, place)
    prefix = argv if exact else git.list_rule_words(argv)
    if git.edits_branch(argv, place.cwd) and not exact and not repositories.find_program_setting(place.cwd, _HOOKS):
        outward: Paths = tuple((p, "write") for p, _ in paths if not place.holds(p))
        return SimpleCommand("edit", "Changes files", argv, (*redirected, *outward), prefix, exact)
    kind: Kind = "work" if git.find_command(argv)[0].work and not exact else "unknown"
    return SimpleCommand(kind, "Runs a command", argv, redirected, prefix, exact)


# --- secrets --------------------------------------------------------------------------------------------------------


def _list_secret_parts(
    nested: Sequence[Simple], limited: Sequence[Simple], place: WorkspaceView
) -> Iterator[SimpleCommand]:
    """Yield a part for each file with secrets that a command names or, if it is not `limited`, may find."""
    describe = functools.cache(
        functools.partial(_explain_secret, place=place)
    )  # nested commands contain the same words
    for simple in nested:
        yield from _list_named_secrets(simple, describe)
        if not any(simple is c for c in limited):
            yield from _list_secrets_on_the_way(simple, place)


def _list_named_secrets(simple: Simple, describe: Callable[[str], str]) -> Iterator[SimpleCommand]:
    """Yield a part for each file with secrets that a simple command names; `describe` returns the reason."""
    for word in (*simple.reads, *simple.writes):
        if why := describe(word.text):
            yield SimpleCommand("secret", why)
    readable = find_program(simple.program).reads_operands
    for word in map(Word, git.list_files(simple.argv)) if _is_name(simple) else _list_named(simple):
        if why := describe(word.text):
            yield SimpleCommand("secret" if readable else "named", why if readable else f"{word.text} {why}")


def _list_secrets_on_the_way(simple: Simple, place: WorkspaceView) -> Iterator[SimpleCommand]:
    """Yield a part for files with secrets, or links, in the folders that a command reads."""
    if place.level != "sandboxed" and _searches_folders(simple) and (file := _find_secret(simple, place)):
        yield SimpleCommand("named", f"Would search {file}, which holds secrets")
    if find_program(simple.program).follows_links and (link := _find_link(simple, place)):
        yield SimpleCommand("named", f"Would follow the link {link}")


def _list_named(simple: Simple) -> tuple[Word, ...]:
    """Return the words of a command that may name a file of which something is shown or changed."""
    program, words = find_program(simple.program), simple.words[1:]
    if program.into_last and call_forms.list_edited_files(simple.argv) is not None:
        return words[:-1]  # a copy over a secret file shows nothing of it
    if program.rule == "subcommand" and words and re.fullmatch(r"[a-z][\w-]*", words[0].text):
        return words[1:]
    return tuple(w for at, w in enumerate(words) if at == 0 or words[at - 1].text not in program.code_options)


def _is_name(simple: Simple) -> bool:
    """Return whether a command uses file names without opening the files."""
    if simple.program != "git":
        return find_program(simple.program).names_operands
    return git.find_command(simple.argv)[0].names_operands and not git.shows_contents(simple.argv)


def _explain_secret(text: str, place: WorkspaceView) -> str:
    """Return why a word names no ordinary file: by itself, after `=` or `@`, or in git's notation."""
    if not text or len(text) > 1_000 or "\n" in text:
        return ""
    for candidate in dict.fromkeys((text, *re.split(r"[=:@,]", text)[1:], re.sub(r"^-\w", "", text))):
        if candidate and (why := explain_secret(place.resolve(candidate), place)):
            return why
    return ""


def _searches_folders(simple: Simple) -> bool:
    """Return whether a command reads all files of a folder."""
    if simple.program == "git":
        return git.find_command(simple.argv)[0].walks is True
    return bool(simple.program) and expansion.is_walker((simple.program, *simple.argv[1:]))


def _find_link(simple: Simple, place: WorkspaceView) -> str:
    """Return a link in the folders that a command compares, or a folder with too many files to check."""
    operands = call_forms.list_file_operands(find_program(simple.program), simple.argv[1:])
    budget = itertools.count()
    for top in (p for p in map(place.resolve, operands) if p.is_dir()):
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                path = Path(folder, name)
                if path.is_symlink() or next(budget) > expansion.MOST_LISTED:
                    return place.show(path)
    return ""


def _find_secret(simple: Simple, place: WorkspaceView) -> str:
    """Return a file with secrets below the folders that a command searches."""
    program = find_program(simple.program)
    hidden = not program.hidden_options or has_option(simple.argv, program.hidden_options)
    paths = (place.resolve(word) for word in call_forms.list_file_operands(program, simple.argv[1:]))
    searched = [p for p in paths if p.is_dir()]
    if not searched and (program.operands[:1] == ("pattern",) or simple.program == "git"):
        searched = [place.cwd]
    for folder in searched:
        if (file := find_secret(folder, hidden=hidden)) is not None:
            return place.show(file)
    return ""


# --- what a rule would say ------------------------------------------------------------------------------------------


def _choose_rule_words(argv: tuple[str, ...], place: WorkspaceView) -> tuple[str, ...]:
    """Return the words of the narrowest useful rule: a program and its subcommand, or all words."""
    if _is_exact(argv, place):
        return argv
    words = execution.strip_runner(argv)
    program, before = find_program(words[0]), argv[: len(argv) - len(words)]
    if program.rule == "program":
        return (*before, *words[:1])
    if program.rule == "subcommand" and len(words) > 1 and re.fullmatch(r"[a-z][\w:-]*", words[1]):
        return (*before, *words[: 3 if words[1] in program.nested else 2])
    return argv


def _list_glued(word: str) -> Iterator[str]:
    """Yield possible option values in a cluster: `-aFvalue`."""
    if re.match(r"-\w", word):
        yield from (word[at:] for at in range(2, min(len(word), 10)) if word[1:at].isalnum())


def _may_name_outside(argv: Sequence[str], place: WorkspaceView) -> bool:
    """Return whether a word, or the value in an option, may be a file outside the workspace."""
    words = (w for w in argv[1:] if len(w) <= 1_000 and "\n" not in w)
    values = itertools.chain.from_iterable((w, *re.split("[=@]", w)[1:], *_list_glued(w)) for w in words)
    return any(
        v and not irreversible.is_harmless_device(v) and not place.holds(place.resolve(v))
        for v in dict.fromkeys(values)
    )


def _is_exact(argv: Sequence[str], place: WorkspaceView) -> bool:
    """Return whether only a rule with all of a command's words covers it.

    A rule for its first words suffices if it runs the workspace's own code, with options that choose no other code. All
    words are needed if one names a file outside the workspace.
    """
    if _may_name_outside(argv, place):
        return True
    if argv[0] == "git":
        return git.can_escape(argv)
    words = execution.strip_runner(argv)
    program, inner = find_program(argv[0]), find_program(words[0])
    if program.reads is not None or execution.is_install(words):
        return True
    if inner.builds is not None:
        return not execution.builds_inside(words, inner.builds, place)
    if execution.runs_workspace_code(argv) or len(words) != len(argv):
        return True
    return program.rule == "exact"
