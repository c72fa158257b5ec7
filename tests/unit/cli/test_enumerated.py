"""Options that take one of a few values, and settings that do."""

from __future__ import annotations

import io
import typing
from pathlib import Path

import pytest

from sakti.actions.spec import Action, Arg
from sakti.cli import options, shell
from sakti.core.config import SessionMode, load
from sakti.core.errors import ConfigError
from sakti.core.resources import list_modes
from sakti.core.types import Effort
from sakti.store.search import search
from tests.fakes.shell import sakti

ACTIONS = [a for word in shell.list_words() if (s := shell.find_subject(word)) for a in s.actions if a.shell]
ENUMERATED = [(a, x) for a in ACTIONS for x in a.args if x.choices]


@pytest.fixture(autouse=True)
def _no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))


def line_with(action: Action, wanted: Arg, value: str) -> list[str]:
    """Return a command line that gives `value` to `wanted` and fills the positional arguments before it."""
    words = action.shell.split()
    if wanted.flags:
        return [*words, wanted.flags[-1], value]
    positional = [x for x in action.args if not x.flags]
    return [*words, *("1" for _ in positional[: positional.index(wanted)]), value]


@pytest.mark.parametrize(("action", "arg"), ENUMERATED, ids=[f"{a.shell} {x.name}" for a, x in ENUMERATED])
def test_an_unknown_value_is_refused_with_those_allowed(action: Action, arg: Arg) -> None:
    shown = sakti(*line_with(action, arg, "nonsense"))
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert len(shown.stderr.splitlines()) == 1
    assert all(choice in shown.stderr for choice in arg.choices)


def test_every_option_with_a_list_of_values_takes_no_others() -> None:
    args = [*options.CHAT, *(x for a in ACTIONS for x in a.args)]
    listed = [x for x in args if x.flags and isinstance(x.offers, tuple) and x.offers]
    assert all(set(x.offers) <= set(x.choices) for x in listed)


def test_the_declared_values_are_those_of_the_program() -> None:
    choices = {(a.shell, x.name): x.choices for a, x in ENUMERATED}
    assert choices["search", "kind"] == search.KINDS
    assert set(choices["run", "effort"]) == set(typing.get_args(Effort))
    assert set(choices["run", "approval"]) == set(typing.get_args(SessionMode))


@pytest.mark.parametrize("value", ["nope", "../modes/default", "Default", 'a"b', "", "x" * 5_000])
def test_a_mode_without_a_file_is_refused_wherever_it_is_set(value: str, tmp_path: Path) -> None:
    user_file = tmp_path / "config.toml"
    user_file.write_text(f"mode = '{value}'")
    for source in ({"user_file": user_file}, {"env": {"SAKTI_MODE": value}}, {"overrides": [f"mode='{value}'"]}):
        with pytest.raises(ConfigError) as refused:
            load(**source)  # type: ignore[arg-type]
        assert all(name in refused.value.message for name in list_modes())
        assert len(refused.value.message) < 400


@pytest.mark.parametrize("mode", ["nope", "", " "])
@pytest.mark.parametrize(
    "line", [("run", "--mode", "{}", "hi"), ("--mode", "{}", "fix the bug"), ("run", "--mode={}", "hi")]
)
def test_an_unknown_mode_ends_the_program_with_two(line: tuple[str, ...], mode: str) -> None:
    shown = sakti(*(word.format(mode) for word in line))
    assert shown.exit_code == 2 and len(shown.stderr.splitlines()) == 1
    assert all(name in shown.stderr for name in list_modes())


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hidden@db/x", "sqlite:///x.db", "sqlite:x.db", "http://h/x.db", "file:x.db", "file:///x.db",
     "mysql+pymysql://me:hidden@h/x", "POSTGRES://h/x", ":memory:", "http:/x/y", "c:/data/x.db", "me:hidden:/x"],
)  # fmt: skip
def test_a_database_named_by_a_url_is_refused_in_one_sentence(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAKTI_DB", url)
    for line in (("tasks", "ready"), ("run", "hi"), ("threads", "list"), ("search", "x")):
        shown = sakti(*line)
        assert shown.exit_code == 2 and len(shown.stderr.splitlines()) == 1
        assert "SAKTI_DB" in shown.stderr and "hidden" not in shown.stderr
    assert "SAKTI_DB" in sakti("doctor").stdout
    assert "hidden" not in sakti("doctor").stdout
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("path", ["x.db", "./a:b.db", "notes:2024.db", "C:\\data\\x.db", "/c:/x.db", "~/x.db"])
def test_a_path_with_a_colon_is_no_url(path: str) -> None:
    assert load(env={"SAKTI_DB": path}).config.store.path == path
