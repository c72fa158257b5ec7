"""Find the commands of the shell, run one and print its result."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from sakti.actions import registry
from sakti.actions.spec import Action
from sakti.actions.values import Open, Text, Value
from sakti.cli import common
from sakti.cli.scope import ShellScope
from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.cli import loop

if TYPE_CHECKING:
    from sakti.actions.registry import Subject

# Commands that stand above the actions: they open a chat.
OWN = {"run": "sakti.cli.run", "tour": "sakti.cli.tour"}


@functools.cache
def subject(word: str) -> Subject | None:
    """Return the declarations of `sakti WORD`, None if it is no command."""
    if word in OWN:
        return registry.subject_of(importlib.import_module(OWN[word]))
    return registry.subject(word) if word.isidentifier() else None


def words() -> list[str]:
    """Return the first words of all commands."""
    return sorted({*OWN, *registry.shell_words()})


def explain_unknown(word: str) -> str:
    """Return the error for a word that is no command, with the nearest one."""
    import difflib

    near = difflib.get_close_matches(word, words(), 1)
    hint = f"Did you mean `sakti {near[0]}`?" if near else "`sakti --help` shows the commands."
    return f"Unknown command `sakti {word}`. {hint}"


def execute(action: Action, values: dict[str, Any]) -> None:
    """Run an action and print its result.

    Ends in SystemExit if its exit code is not 0. Raises `SaktiError`.
    """
    as_json: bool = values.pop("json", False)
    try:
        _show(_run(action, values, as_json), as_json)
    except TaskError as e:
        _refuse(e, as_json)


def _run(action: Action, values: dict[str, Any], as_json: bool) -> Value | None:
    async def work(scope: ShellScope) -> Value | None:
        value = await action.run(scope, **values)
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
    raise RuntimeError("an action that needs nothing must be awaited")


_PRINTERS = {"findings": common.say_finding, "markdown": common.say_markdown, "document": common.say_document}


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
