"""The table of programs fits its schema, and a table decoded alone is the one in the whole file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest

from sakti.agent.judge import programs
from sakti.agent.judge.programs import CallForm, ProgramEntry, find_program, is_met

TEXT = programs.FILE.read_text("utf-8")
TABLES: dict[str, ProgramEntry] = msgspec.toml.decode(TEXT, type=dict[str, ProgramEntry])


def entries() -> Iterator[tuple[str, ProgramEntry]]:
    """All programs and their subcommands, with what a failure calls them."""
    pending = list(TABLES.items())
    while pending:
        name, entry = pending.pop()
        yield name, entry
        pending += [(f"{name} {sub}", below) for sub, below in entry.commands.items()]


ENTRIES = sorted(entries(), key=lambda e: e[0])
FORMS = [(n, form) for n, e in ENTRIES for form in (e.reads, e.edits) if form is not None]


def test_each_program_has_one_table() -> None:
    names = [n for names in TABLES for n in names.split()]
    assert sorted(set(names)) == sorted(names)


def test_a_table_decoded_alone_is_the_one_in_the_file() -> None:
    alone = {n: find_program(n) for names in TABLES for n in names.split()}
    assert alone == {n: entry for names, entry in TABLES.items() for n in names.split()}


def test_names_of_programs_are_not_matched_in_part() -> None:
    for name in ("", "gi", "gitk", "/bin/rm", "mysql psql", "git.commands", "grep ", "programs"):
        assert find_program(name) == programs.UNKNOWN, name


@pytest.mark.parametrize(
    "wrong",
    ["network = 1", "operand = ['read']", "reads = {flag = ['-a']}", "harm = 'much'", "commands.x = {walk = true}"],
)
def test_a_field_or_value_that_the_schema_does_not_know_is_an_error(wrong: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.toml.decode(f"[x]\n{wrong}", type=dict[str, ProgramEntry])


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[n for n, _ in FORMS])
def test_a_form_is_consistent(name: str, form: CallForm) -> None:
    lists = (form.flags, form.values, form.optional)
    listed = list(itertools.chain(*lists))
    assert sorted(set(listed)) == sorted(listed), "an option has one meaning"
    assert form.refused is None or not any(lists), "either what is allowed or what is refused"
    assert {*form.required, *form.operands_behind} <= set(listed)
    assert set(form.value_uses) <= set(form.values)
    if not form.whole_words:
        assert all(is_option(o) for o in (*listed, *(form.refused or ())))


def is_option(text: str) -> bool:
    """Whether getopt takes a text for one option: a letter behind `-`, a name behind `--`."""
    return len(text) == 2 and text[0] == "-" != text[1] if not text.startswith("--") else len(text) > 3


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[n for n, _ in ENTRIES])
def test_an_entry_is_consistent(name: str, entry: ProgramEntry) -> None:
    assert entry != programs.UNKNOWN, "an entry says something"
    if (entry.reads or entry.edits) and not name.startswith("git "):
        assert entry.operands, "a form is of no use if its operands are not judged"
    assert len(entry.operands) > 1 or not entry.pattern_options, "operands follow the pattern"
    assert not entry.targets or isinstance(entry.work, tuple)
    assert entry.irreversible or not (entry.reason or entry.harmless_with)
    for condition in (entry.network, entry.work, entry.walks, entry.irreversible, entry.configures):
        if not isinstance(condition, bool):
            assert condition, "an empty list is `false`"
            assert len(set(condition)) == len(condition)


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"),
    [
        (True, "", True),
        (False, "push", False),
        (("push",), "push x", True),
        (("push",), "--all push", True),
        (("push",), "pushy", False),
        (("system prune",), "system prune -f", True),
        (("system prune",), "system df prune", False),
        (("",), "", True),
        (("",), "-v", True),
        (("",), "add", False),
        (("--hard",), "--ha HEAD", True),
        (("--hard",), "--hard=x", True),
        (("--hard",), "-- --hard", False),
        (("-D",), "-rD x", True),
        (("-D",), "-d x", False),
    ],
)
def test_a_condition_names_subcommands_and_options(condition: programs.Condition, arguments: str, holds: bool) -> None:
    assert is_met(condition, arguments.split()) is holds
