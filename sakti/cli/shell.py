"""Run the commands of the shell: find one, read its line, run it, print what it returns."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from sakti.actions import reader, registry
from sakti.actions.spec import JSON, Action, Arg
from sakti.actions.values import Open, Text, Value
from sakti.cli import common
from sakti.cli.scope import ShellScope
from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.cli import completion, loop, options
    from sakti.cli import help as help_texts

if TYPE_CHECKING:
    from sakti.actions.registry import Subject

# Commands that stand above the actions: they open a chat or check the program itself.
OWN = {"run": "sakti.cli.run", "tour": "sakti.cli.tour", "bench": "sakti.cli.bench"}


@functools.cache
def subject(word: str) -> Subject | None:
    """Return what `sakti WORD` is, if it is a command."""
    if word in OWN:
        return registry.subject_of(importlib.import_module(OWN[word]))
    return registry.subject(word) if word.isidentifier() else None


def words() -> list[str]:
    """Return the first words of all commands."""
    return sorted({*OWN, *registry.shell_words()})


def arguments(action: Action) -> tuple[Arg, ...]:
    """Return an action's arguments in the shell."""
    return (*action.args, JSON) if action.json else action.args


def run(argv: Sequence[str]) -> None:
    """Run the command that `argv` names; ends in SystemExit where its exit code is not 0. Raises `SaktiError`."""
    action, rest = _find(argv)
    try:
        given = reader.read(arguments(action), rest, f"sakti {action.shell}")
    except reader.UsageError as e:
        common.fail(str(e), common.USAGE)
    except reader.HelpWanted:
        common.say(help_texts.of_action(action, arguments(action)))
        return
    as_json: bool = given.pop("json", False)
    try:
        _show(_run(action, given, as_json), as_json)
    except TaskError as e:
        _refuse(e, as_json)


def _find(argv: Sequence[str]) -> tuple[Action, Sequence[str]]:
    word, rest = argv[0], argv[1:]
    if word.startswith("--") and word not in reader.HELP:
        return completion.ACTIONS[word], rest
    found = subject(word)
    if found is None:
        if word not in reader.HELP:
            common.fail(unknown(word), common.USAGE)
        _say_help()
    if found.group is None:
        return next(a for a in found.actions if a.shell == word), rest
    commands = {a.shell.partition(" ")[2]: a for a in found.actions if a.shell}
    if not rest or rest[0] in reader.HELP:
        common.say(help_texts.of_group(found.group, found.actions))
        raise SystemExit(common.OK if rest else common.USAGE)
    if rest[0] not in commands:
        common.fail(unknown(rest[0], f"{word} ", commands), common.USAGE)
    return commands[rest[0]], rest[1:]


def listed() -> list[tuple[str, str, str]]:
    """Panel, name and help of every command, by name."""
    out: list[tuple[str, str, str]] = []
    for name in words():
        if found := subject(name):
            about = found.group or next(a for a in found.actions if a.shell == name)
            out.append((about.panel, name, about.help))
    return out


def _say_help() -> NoReturn:
    common.say(
        help_texts.of_all(options.ABOUT, (*options.CHAT, options.PRINT, options.INSTALL, options.SHOW), listed())
    )
    raise SystemExit(common.OK)


def unknown(word: str, behind: str = "", known: Any = ()) -> str:
    """Say that there is no such command, and which one may be meant."""
    import difflib

    near = difflib.get_close_matches(word, known or words(), 1)
    hint = f"Did you mean `sakti {behind}{near[0]}`?" if near else f"`sakti {behind}--help` shows the commands."
    return f"Unknown command `sakti {behind}{word}`. {hint}"


def _run(action: Action, given: dict[str, Any], as_json: bool) -> Value | None:
    async def work(scope: ShellScope) -> Value | None:
        value = await action.run(scope, **given)
        return await value.instead() if isinstance(value, Open) and value.instead is not None else value

    if action.needs == "store":
        return common.in_store(lambda store: work(ShellScope(store, json=as_json)))
    if action.needs == "nothing":
        return _drive(work(ShellScope(json=as_json)))
    return loop.run(work(ShellScope(json=as_json)))


def _drive(work: Coroutine[Any, Any, Value | None]) -> Value | None:
    """Run what never waits without an event loop, whose import costs more than a question to the board."""
    try:
        work.send(None)
    except StopIteration as e:
        return e.value
    raise RuntimeError("an action that needs nothing has to wait")


_PRINTERS = {"findings": common.say_finding, "markdown": common.say_markdown}


def _show(value: Value | None, as_json: bool) -> None:
    if value is None:
        return
    if as_json:
        common.say_json(value.as_json())
    else:
        say = _PRINTERS.get(value.kind if isinstance(value, Text) else "", common.say)
        for line in value.lines:
            say(line)
    if value.exit:
        raise SystemExit(value.exit)


def _refuse(error: TaskError, as_json: bool) -> NoReturn:
    """Exit with a refusal of the board; programs read why."""
    code = common.USAGE if error.code in ("no_input", "unreadable", "bad_text") else common.FAILED
    if as_json:
        common.say_json({"success": False, "error": error.message, "code": error.code})
        raise SystemExit(code)
    common.fail(error.message, code)
