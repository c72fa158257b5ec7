"""Actions are found by their files; the facts of all of them fit together."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import sakti.actions
from sakti.actions import line, registry
from sakti.actions.scope import Scope
from sakti.actions.spec import Action
from sakti.cli import app, options, shell
from sakti.cli import run as run_command
from tests.fakes.shell import sakti as run

FOO = '''
from sakti.actions.spec import action, arg
from sakti.actions.values import Done


@action(arg("name", "Whom to greet.", default="you"), shell="foo", chat="foo")
async def foo(scope, name):
    """Greet somebody."""
    return Done(f"Hello {name}.", json={"greeted": name})
'''


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file more in the package."""
    (tmp_path / "foo.py").write_text(FOO)
    monkeypatch.setattr(sakti.actions, "__path__", [*sakti.actions.__path__, str(tmp_path)])
    caches = (
        registry._list_files,
        registry.find_subject,
        registry.list_subjects,
        registry.chat_commands,
        shell.find_subject,
    )
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


async def test_one_file_is_a_command_everywhere(new_file: None) -> None:
    assert "foo" in registry.chat_commands()
    assert [c.hint for c in line.list_command_choices("fo")] == ["greet somebody"]
    value = await line.run(Scope(None, lambda _: None), line.parse("/foo the world"))  # type: ignore[arg-type]
    assert value is not None and value.lines == ("Hello the world.",)


def test_one_file_is_a_command_of_the_shell(new_file: None) -> None:
    assert run("foo", "Ann").stdout == "Hello Ann.\n"
    assert json.loads(run("foo", "--json").stdout) == {"greeted": "you"}
    assert "foo" in run("--help").stdout and "Whom to greet." in run("foo", "-h").stdout
    assert run("foo", "a", "b").exit_code == 2


def every() -> list[Action]:
    own = [registry.read_subject(run_command)]
    from sakti.plain.commands import OWN

    return [*(a for s in (*registry.list_subjects(), *own) for a in s.actions), *OWN.values()]


@pytest.mark.parametrize("action", every(), ids=lambda a: a.shell or f"/{a.chat}")
def test_the_facts_of_an_action_fit_its_run(action: Action) -> None:
    assert action.shell or action.chat
    assert action.help.endswith((".", "…")) and inspect.iscoroutinefunction(action.run)
    wanted = [p for p in inspect.signature(action.run).parameters.values() if p.name != "scope"]
    if not any(p.kind is p.VAR_KEYWORD for p in wanted):
        assert {p.name for p in wanted} == {a.name for a in action.args}
    flags = [f for a in app.list_arguments(action) for f in a.flags]
    assert len(flags) == len(set(flags)) and not set(flags) & options.HELP
    if action.needs == "session":
        assert not action.shell, "the shell has no live session"


@pytest.mark.parametrize("name", registry.chat_commands())
def test_a_command_that_is_written_out_is_the_first_choice(name: str) -> None:
    assert line.list_command_choices(name)[0].insert.strip() == f"/{name}"


def test_no_name_is_given_twice() -> None:
    for names in ([a.shell for a in every() if a.shell], [a.chat for a in every() if a.chat]):
        assert len(names) == len(set(names))


def test_every_command_of_the_shell_has_its_help() -> None:
    for word in shell.list_words():
        found = shell.find_subject(word)
        assert found is not None
        for action in (a for a in found.actions if a.shell):
            told = run(*action.shell.split(), "--help")
            assert told.exit_code == 0 and f"Usage: sakti {action.shell}" in told.stdout
            assert all(f in told.stdout for a in app.list_arguments(action) for f in a.flags)
