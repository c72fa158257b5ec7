"""A call has a form only if each of its options is listed, wherever it is and however it is spelled."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.agent.judge.call_forms import list_edited_files, list_read_files, match_form
from sakti.agent.judge.programs import CallForm

FORM = CallForm(flags=("-a", "-b", "--all"), values=("-n", "--lines"), optional=("-i", "--color"))


@pytest.mark.parametrize(
    ("words", "options", "operands"),
    [
        ("-ab x", ("-a", "-b"), ("x",)),
        ("x -a y --all", ("-a", "--all"), ("x", "y")),
        ("-an3 x", ("-a", "-n"), ("x",)),
        ("-n 3 x", ("-n",), ("x",)),
        ("-n -z x", ("-n",), ("x",)),  # a value, whatever it looks like
        ("--lines=3 --lines 4 x", ("--lines", "--lines"), ("x",)),
        ("-i x -ifoo", ("-i", "-i"), ("x",)),
        ("--color x --color=never", ("--color", "--color"), ("x",)),
        ("- x", (), ("-", "x")),
        ("-a -- -z --", ("-a",), ("-z", "--")),
    ],
)
def test_options_are_read_as_getopt_does(words: str, options: tuple[str, ...], operands: tuple[str, ...]) -> None:
    call = match_form(FORM, words.split())
    assert call is not None
    assert (call.options, call.operands) == (options, operands)


@pytest.mark.parametrize(
    "words", ["-z", "-az", "-za x", "--al", "--all=x", "--alle", "--line=3", "-n", "--lines", "--z"]
)
def test_other_options_have_no_form(words: str) -> None:
    assert match_form(FORM, words.split()) is None


@given(
    st.lists(st.sampled_from(["-a", "-ab", "-n3", "--all", "--lines=x", "x", "-"])),
    st.sampled_from(["-z", "-zb", "-az", "--other", "--other=x", "--a", "--lin=3"]),
    st.data(),
)
def test_an_unlisted_option_has_no_form_at_any_place(words: list[str], unlisted: str, data: st.DataObject) -> None:
    assert match_form(FORM, words) is not None
    at = data.draw(st.integers(0, len(words)))
    assert match_form(FORM, [*words[:at], unlisted, *words[at:]]) is None


@given(st.lists(st.sampled_from(["-a", "-q", "--quick", "--sum", "--output", "x", "-x"])))
def test_refused_options_are_refused_in_every_spelling(words: list[str]) -> None:
    form = CallForm(refused=("-q", "--quick", "--output"))
    spelled = {"-q", "--quick", "--output"} & set(words)
    assert (match_form(form, words) is None) is bool(spelled)
    for word in spelled & {"--quick", "--output"}:
        for length, end in itertools.product(range(3, len(word)), ("", "=x")):
            assert match_form(form, [word[:length] + end]) is None


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("head -n 3 a b", [("3", "read"), ("a", "read"), ("b", "read")]),  # options with values are not listed yet
        ("sort -k 2 -t , a", [("a", "read")]),
        ("grep x a", [("a", "read")]),
        ("grep -e x a", [("x", "read"), ("a", "read")]),
        ("rg --files src", [("src", "read")]),
        ("sed -n 3,7p a", [("a", "read")]),
        ("find src -newer a -name b", [("a", "name"), ("src", "name")]),
        ("ls a", [("a", "name")]),
        ("date -u +%F", []),
        ("echo .env", []),
        ("node --version", []),
    ],
)
def test_reading_names_the_files_that_it_opens(command: str, files: list[tuple[str, str]]) -> None:
    assert list(list_read_files(command.split()) or ()) == files


@pytest.mark.parametrize(
    "command",
    [
        "uniq a b",
        "uniq - b",
        "sed -n d a",
        "sed 3p a",
        "date 0101",
        "find . -delete",
        "find . ( -exec x )",
        "sort -o a a",
    ],
)
def test_what_may_write_is_no_reading(command: str) -> None:
    assert list_read_files(command.split()) is None


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("mkdir -p a b", ("a", "b")),
        ("cp -r a -- -b", ("a", "-b")),
        ("cp -t x a", None),
        ("mv --backup a b", None),
        ("touch", None),
        ("ls a", None),
    ],
)
def test_edits_are_the_operands_of_listed_options(command: str, files: tuple[str, ...] | None) -> None:
    assert list_edited_files(command.split()) == files
