"""What is read of a command, and what is said not to be understood."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakti.agent.judge.shell import parse, with_nested
from tests.unit.agent.judge.cases import HARMFUL, READS, SECRETS


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("git status", [("git", "status")]),
        ("a 'b c' \"d\" e'f'g", [("a", "b c", "d", "efg")]),
        ("a && b || c; d\ne & f | g", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)]),
        ("cat < in > out 2>&1", [("cat",)]),
        ("ls # a comment", [("ls",)]),
        ("git diff HEAD~1", [("git", "diff", "HEAD~1")]),
        ("cd sub && ls", [("cd", "sub"), ("ls",)]),
        ("grep größe 'straße 1' 日本.txt|wc", [("grep", "größe", "straße 1", "日本.txt"), ("wc",)]),
    ],
)
def test_plain_commands_are_understood(text: str, argv: list[tuple[str, ...]]) -> None:
    script = parse(text)
    assert script.understood, script.unclear
    assert [c.argv for c in script.commands] == argv


def test_redirections_are_files() -> None:
    (command,) = parse("sort < in >> out 2> err").commands
    assert [w.text for w in command.reads] == ["in"]
    assert [w.text for w in command.writes] == ["out", "err"]
    (alone,) = parse("> x").commands
    assert (alone.argv, [w.text for w in alone.writes]) == ((), ["x"])


LEFT_TO_THE_SHELL = (
    *("echo $x", "echo `id`", "echo $(id)", "echo ${x}", 'echo "$x"', "echo *", "echo ?", "echo [a]", "echo {a,b}"),
    *("echo ~", "echo ~root", "a=~", "x=1 ls", "x=1", "echo a\\b", "ec\\ho", "echo $'a'", 'echo $"a"', "! ls", "(ls)"),
    *("{ ls; }", "if a; then b; fi", "for a in b; do c; done", "while a; do b; done", "case a in b) c;; esac"),
    *("f() { a; }", "cat <<E\na\nE", "cat <<< a", "cat <(a)", "a |& b", "[[ a ]]", "[ a ]", "((1))", "export A=b"),
    *("declare a", "echo 'open", 'echo "open', "echo $((1))", "echo a\u200bb", "echo a\u00a0b", "a\rb", "a\0b"),
    *("echo a \\\n b", "echo a!b", "ls;;", "&& ls", "| ls", ")", "a <> b", "exec 3<>x", "echo =ls"),
)


def test_what_is_left_to_the_shell_is_not_understood() -> None:
    assert [text for text in LEFT_TO_THE_SHELL if parse(text).understood] == []


def test_commands_in_commands_are_found() -> None:
    for text in (
        'sh -c "rm x"',
        "bash -lc 'rm x'",
        "env A=b rm x",
        "xargs -n 1 rm x",
        "nice -n 5 timeout -k 1 5 rm x",
        "sudo -u me rm x",
        "find . -exec rm x ;",
        "echo $(rm x)",
        'echo "`rm x`"',
        "eval 'rm x'",
        "if true; then rm x; fi",
        "sh -c 'sh -c \"rm x\"'",
    ):
        assert ("rm", "x") in [c.argv for c in with_nested(parse(text))], text


SHUFFLED = st.sampled_from([*HARMFUL, *SECRETS, *READS]).flatmap(lambda c: st.permutations(list(c)).map("".join))


@pytest.mark.parametrize("text", ["{\U0010ffff", "a {😀", "{\U0010ffff\n_"])
def test_a_character_far_beyond_ascii_does_not_end_the_program(text: str) -> None:
    assert parse(text).unclear


@given(st.text(max_size=200) | SHUFFLED)
@settings(max_examples=200)
def test_any_text_is_read(text: str) -> None:
    list(with_nested(parse(text)))
    assert parse("$(x); " + text).unclear


@given(st.lists(st.from_regex(r"[a-zA-Z][a-zA-Z0-9_./:,+-]{0,7}", fullmatch=True), min_size=1, max_size=6))
def test_words_without_signs_are_what_they_are(words: list[str]) -> None:
    script = parse(" ".join(words))
    assert script.understood
    assert script.commands[0].argv == tuple(words)
