"""Recognize commands with irreversible effects: they need a question in every mode, with any rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from sakti.agent.judge import git
from sakti.agent.judge.call_forms import list_edited_files, match_form
from sakti.agent.judge.execution import strip_runner
from sakti.agent.judge.expansion import list_operand_words
from sakti.agent.judge.policy import skip_git_options
from sakti.agent.judge.programs import (
    Harm,
    ProgramEntry,
    Removal,
    cut_at_dashes,
    find_program,
    has_option,
    is_met,
    list_operands,
)
from sakti.agent.judge.shell import Script, list_commands
from sakti.agent.judge.syntax import Simple, Word
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count

_HARMS: Mapping[Harm, str] = {
    "superuser": "Runs as another user",
    "system": "Changes the system",
    "disk": "Overwrites a disk",
    "processes": "May end processes of other programs",
}
_CLOUDS = lazy_pattern(
    r"^(?:rm|rb|delete\b.*|terminate\b.*|destroy\b.*|remove\b.*|purge\b.*|stop\b.*)|delete-|terminate-"
)
_HARMLESS_DEVICE = lazy_pattern(r"/dev/(?:null|stdout|stderr|tty|zero|fd/\d+)")
_SQL = lazy_pattern(r"\b(?:drop|truncate|delete\s+from)\b", re.IGNORECASE)


def explain_loss(script: Script, place: WorkspaceView) -> str:
    """Return why a script needs a question in every mode, with the files it would remove; or empty.

    All commands in it count, including those inside other commands and in parts that are not understood.
    """
    for command in list_commands(script):
        if loss := _describe_loss(command, place):
            return loss
        if command.program == "cd":
            there = command.words[1] if len(command.words) == 2 else Word(str(Path.home()))
            place = replace(place, cwd=place.resolve(there.text if "$" not in there.text else "/"))
    return ""


def _describe_loss(command: Simple, place: WorkspaceView) -> str:
    name = command.program
    if not name:
        return ""
    program, argv = find_program(name), strip_runner((name, *command.argv[1:]))
    return (
        _describe_harm(command, program)
        or _describe_remote_removal(argv, command.input)
        or _describe_redirection(command)
        or (_describe_removal(command, program.removal, place) if program.removal is not None else "")
        or (_CHECKS[name](command, place) if name in _CHECKS else "")
        or _describe_publishing(argv)
    )


def _describe_harm(command: Simple, program: ProgramEntry) -> str:
    """Return the harm that a program does on this machine."""
    harm = "disk" if command.program.startswith("mkfs") else program.harm
    if harm is None or (harm == "processes" and "-l" in command.argv):
        return ""
    return _HARMS.get(harm, "")


def _describe_redirection(command: Simple) -> str:
    """Return the harm of a command's input or output."""
    if runs_its_input(command) or _runs_printed_code(command):
        return "Runs the output of another command"
    is_to_device = any(p.startswith("/dev/") and not is_harmless_device(p) for p in _list_written(command))
    return "Writes to a device" if is_to_device else ""


def _list_written(command: Simple) -> Iterator[str]:
    """Yield the files that a command writes or removes, as it names them."""
    yield from (w.text for w in command.writes)
    yield from (path for path, access in list_edited_files(command.argv) or () if access == "write")
    if find_program(command.program).removes:
        yield from command.argv[1:]


def _describe_remote_removal(argv: Sequence[str], text_input: str) -> str:
    """Return the loss in a cloud or database that the arguments or the literal input cause."""
    harm = find_program(argv[0]).harm
    if harm == "cloud" and any(_CLOUDS.match(a) for a in argv[1:]):
        return "Removes outside this machine"
    if harm == "database" and any(_SQL.search(text) for text in (*argv[1:], text_input)):
        return "Removes from a database"
    return ""


def runs_its_input(command: Simple) -> bool:
    """Return whether an interpreter runs what another command prints."""
    return find_program(command.program).runs_input and command.piped and not _names_script(command)


def _runs_printed_code(command: Simple) -> bool:
    """Return whether an interpreter gets its code from another command.

    Examples are `bash <(COMMAND)` and `sh -c "$(COMMAND)"`.
    """
    words = command.words[1:]
    if not _runs_code(command.program):
        return False
    first = next((w for w in words if not w.text.startswith("-")), None)
    is_code = command.program == "eval" or any(re.match(r"-\w*[ce]$|--(?:command|eval)$", w.text) for w in words)
    if first is None or not is_code or not first.output:
        return first is not None and first.stream
    return first.text.startswith(("$(", "`", '"$(', '"`'))


def is_harmless_device(path: str) -> bool:
    """Return whether writing to a device changes nothing; `/dev/fd/../…` is a path to any file."""
    return _HARMLESS_DEVICE.fullmatch(path) is not None


def _names_script(command: Simple) -> bool:
    """Return whether an interpreter runs a named file or text, so that its input is only data."""
    operands = [w.text for w in command.words[1:] if not w.text.startswith("-")]
    return bool(operands) and command.argv[1:2] not in (("-s",), ("-",))


def _runs_code(name: str) -> bool:
    program = find_program(name)
    return name == "eval" or program.shell or program.runs_input or program.runs_script


def _describe_publishing(argv: Sequence[str]) -> str:
    """Return the loss outside this machine that a command may cause."""
    entries = find_program(argv[0]).irreversible
    arguments = _split_operands(argv[1:])
    listed = is_met(entries, arguments)
    if arguments[:1] and arguments[0].startswith("-") and "=" not in arguments[0]:
        listed = listed or is_met(entries, arguments[2:])  # `gh -R OWNER/NAME release delete`
    if not listed and not isinstance(entries, bool) and argv[0] != "gh":
        listed = any(o in entries for o in list_operands(arguments)[1:2])  # after the value of an option
    return "Publishes, deploys or removes outside this machine" if listed else ""


# --- removing files -----------------------------------------------------------------------------------------------


def _describe_removal(command: Simple, removal: Removal, place: WorkspaceView) -> str:
    """Return the trees that must not be lost and that a command removes or changes."""
    if not has_option(cut_at_dashes(command.argv[1:]), removal.options):
        return ""
    operands = list_operand_words(command.words[1:])[removal.skipped :]
    if not operands and (command.piped or command.inside):
        return f"{removal.verb} what another command lists: cannot be undone"
    risky = [w for w in operands if _is_vital(w, place)]
    return f"{removal.verb} {_name_targets(risky, place)}: cannot be undone" if risky else ""


def _is_vital(word: Word, place: WorkspaceView) -> bool:
    """Return whether a path may mean a tree that must not be lost.

    These are the root, the home folder, the workspace, a `.git`, anything outside the workspace, and paths that are not
    literal.
    """
    if not word.literal:
        return True
    return _is_vital_path(place.resolve(word.text), place)


def _is_vital_path(path: Path, place: WorkspaceView) -> bool:
    return not place.holds(path) or path in place.roots or ".git" in path.parts or path == Path.home()


def _split_operands(arguments: Sequence[str]) -> list[str]:
    """Split quoted operands: one may contain several words, as in `redis-cli "flushall async"`."""
    return [w for a in arguments for w in ([a] if a.startswith("-") else a.split())]


def _name_targets(words: Sequence[Word], place: WorkspaceView) -> str:
    """Name the targets of words, with patterns expanded: up to four, then the number of others."""
    names = [name for word in words for name in _expand(word, place)]
    shown = ", ".join(place.show(place.resolve(n)) if "$" not in n else n for n in names[:4])
    return (
        shown + (f" and {format_count(len(names) - 4, 'more file')}" if len(names) > 4 else "") or "nothing that exists"
    )


def _expand(word: Word, place: WorkspaceView) -> list[str]:
    """Return the paths that a pattern matches; the text of any other word."""
    if word.literal or "$" in word.text or not re.search(r"[*?\[]", word.text):
        return [word.text]
    folder, pattern = ("/", word.text.lstrip("/")) if word.text.startswith("/") else (place.cwd, word.text)
    try:
        return sorted(str(p) for _, p in zip(range(200), Path(folder).glob(pattern), strict=False))
    except (ValueError, NotImplementedError, OSError):
        return [word.text]


def _check_find(command: Simple, place: WorkspaceView) -> str:
    behind = find_program("find").exec_options
    started = [b.rpartition("/")[2] for a, b in pairwise(command.argv) if a in behind]
    if "-delete" not in command.argv and not any(find_program(s).removes for s in started):
        return ""
    start = [w for w in command.words[1:] if not w.text.startswith("-")][:1] or [Word(".")]
    return f"Removes files in {_name_targets(start, place)}: cannot be undone" if _is_vital(start[0], place) else ""


def _check_rsync(command: Simple, place: WorkspaceView) -> str:
    operands = list_operand_words(command.words[1:])
    removed = list(operands[-1:]) if any(a.startswith("--del") for a in command.argv) else []
    if any(a.startswith("--remove-so") for a in command.argv):
        removed += operands[:-1]
    risky = [w for w in removed if _is_vital(w, place)]
    return f"Removes files in {_name_targets(risky, place)}" if risky else ""


def _check_move(command: Simple, place: WorkspaceView) -> str:
    from_where = list_operand_words(command.words[1:])[:-1]
    vital = [w for w in from_where if "$" not in w.text and _is_vital_path(place.resolve(w.text), place)]
    return f"Moves {_name_targets(vital, place)}" if vital else ""


def _check_dd(command: Simple, _: WorkspaceView) -> str:
    return "Overwrites a file or a disk" if any(a.startswith("of=") for a in command.argv) else ""


# --- git ----------------------------------------------------------------------------------------------------------


def _check_git(command: Simple, place: WorkspaceView) -> str:
    words = skip_git_options(command.argv)[1:]
    entry, rest = git.find_command(command.argv)
    loses = _overwrites_files(rest, place) if words[:1] == ("checkout",) else is_met(entry.irreversible, rest)
    if loses and not _is_harmless(entry, rest):
        return entry.reason or "Discards work that git keeps nowhere else"
    return "Lets git run a command that its arguments name" if git.names_command(command.argv) else ""


def _is_harmless(entry: ProgramEntry, arguments: Sequence[str]) -> bool:
    """Return whether a call loses nothing: every option must be listed, as one could cancel another."""
    call = match_form(entry.harmless, arguments) if entry.harmless is not None else None
    return call is not None and (not entry.harmless_with or any(o in entry.harmless_with for o in call.options))


def _overwrites_files(rest: Sequence[str], place: WorkspaceView) -> bool:
    """Return whether `git checkout` would overwrite files: with paths, or with force."""
    operands = list_operands(rest)
    if "--" in rest or has_option(rest, ("-f", "-B", "--force", "--pathspec-from-file")):
        return True
    if has_option(rest, ("-b", "--orphan")):
        return False
    return (len(operands) > 1 and not has_option(rest, ("-t", "--track"))) or any(
        re.match(r"[.:]|.*[*?\[]", o) or os.path.lexists(place.cwd / o) for o in operands
    )


_CHECKS: Mapping[str, Callable[[Simple, WorkspaceView], str]] = {
    "find": _check_find,
    "rsync": _check_rsync,
    "mv": _check_move,
    "dd": _check_dd,
    "git": _check_git,
}
