"""What is read of a command, and what is said not to be understood."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakti.agent.judge.shell import MAX_NESTED, list_commands, list_unclear, parse
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
    *("echo $x", "echo ${x}", 'echo "$x"', "echo {a,b}", "`id`", "$(id)", "*", "l?", "echo +(a|b)", "echo a$((b))"),
    *("echo ~", "echo ~root", "a=~", "x=1 ls", "x=1", "echo a\\b", "ec\\ho", "echo $'a'", 'echo $"a"'),
    *("while a; do b=c; done", "until a=b; do c; done", "case a in $b) c;; esac", "select a in b; do c; done"),
    *(
        "for a; do b; done",
        "for A in b; do c; done",
        "for a in b; do for a in c; do d; done; done",
        "for ((;;)); do a; done",
    ),
    *("for a in b; do c; done; echo $a", "for a in b; do echo ${a%x}; done", "for a in b; do a=c; done"),
    *(
        "f() { a; }",
        "cat <<E\na\nE",
        "cat <<'E' | b\na\nE",
        "a <(b)",
        "cat >(a)",
        "a |& b",
        "[[ a -eq b ]]",
        "[[ -v a ]]",
    ),
    *(
        "[[ $(a) == b ]]",
        "((a))",
        "((a=1))",
        "export A=b",
        "declare a",
        "echo 'open",
        'echo "open',
        "echo $((a[1]))",
        "a > *",
    ),
    *("echo a\u200bb", "echo a\u00a0b", "a\rb", "a\0b", "echo a \\\n b", "echo a!b", "ls;;", "&& ls", "| ls", ")"),
    *("a <> b", "exec 3<>x", "echo =ls", "sort a -onew2>&1", "a -x2>b", "a <<< $x", "a b#\\\nc"),
)


def test_what_is_left_to_the_shell_is_not_understood() -> None:
    assert [text for text in LEFT_TO_THE_SHELL if parse(text).understood] == []


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("(a; b)", ["a", "b"]),
        ("{ a; b; } > c", ["a", "b"]),
        ("! a", ["a"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for x in y z; do a; done", ["a"]),
        ("[ -f a ] && b", ["test -f a", "b"]),
        ("[[ -n a && -f b ]]", ["test -n a && -f b"]),
        ('a $(b | c) "$(d)"', ["b", "c", "d", 'a $(b | c) "$(d)"']),
        ("a `b`", ["b", "a `b`"]),
        ("while a; do b; done", ["a", "b"]),
        ("until ! a && b; do c; done", ["a", "b", "c"]),
        ("while IFS= read -r x; do echo $x; done < <(a)", ["read -r x", "echo $x", "a"]),
        ("case $x in a | b*) c;; (d) e & f;; esac", ["c", "e", "f"]),
        ("for ((i = 0; i < 3; i++)); do a; done", ["a"]),
        ("for x in {1..2} $(a); do echo $x; done", ["a", "echo $x"]),
        ("(( 1 < 2 )) && a", ["a"]),
        ("cat <(a | b)", ["a", "b", "cat <(a | b)"]),
        ("echo $((1 + 2))", ["echo $((1 + 2))"]),
        ("a <<< 'b'", ["a"]),
        ("a <<'E'\n$(b)\nE\nc", ["a", "c"]),
        ("a > b <<'E'", ["a"]),
        ("find . -exec a {} \\;", ["find . -exec a {} ;"]),
    ],
)
def test_compounds_are_their_commands(text: str, argv: list[str]) -> None:
    script = parse(text)
    assert script.understood, script.unclear
    assert [" ".join(c.argv) for c in script.commands] == argv


def test_an_input_that_is_written_out_is_known() -> None:
    assert [c.input for c in parse("a <<'E'\n$(b)\nE").commands] == ["$(b)\n"]
    assert [c.input for c in parse("a <<< 'b c'").commands] == ["b c"]


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("for x in a b; do c $x; done", ["a", "b"]),
        ("for x in a b; do c ${x}.py; done", ["a.py", "b.py"]),
        ("for x in a b; do for y in 1 2; do c $x$y; done; done", ["a1", "a2", "b1", "b2"]),
        ("for x in 'a b'; do c \"$x\"; done", ["a b"]),
    ],
)
def test_variables_of_loops_are_their_words(text: str, choices: list[str]) -> None:
    (command,) = parse(text).commands
    assert [w.text for w in command.words[1].choices] == choices
    assert all(w.literal for w in command.words[1].choices)


def test_a_word_that_the_shell_would_divide_is_not_known() -> None:
    (command,) = parse("for x in 'a b' '*'; do c $x; done").commands
    assert not any(w.literal for w in command.words[1].choices)


OTHERS = (
    *('env -S "git push"', "env -iS'git push'", "env --split-string='git push'", "env -u A --chdir b git push"),
    *("timeout --signal KILL 5 git push", "timeout -s KILL 5 git push", "timeout --foreground 5 git push"),
    *("xargs --max-args 1 git push", "xargs -n1 -r git push", "nice --adjustment 5 git push", "nice -5 git push"),
    *("exec -a x git push", "exec -ca x git push", "script -qc 'git push'", "script --command='git push' f"),
    *("git -c alias.p=push p", "git -c alias.p='!git push' p", "bash <<< 'git push'", "sh <<'E'\ngit push\nE"),
    *("watch git push", "strace -o x -f git push", "flock x -c 'git push'", "su -c 'git push'", "trap 'git push' EXIT"),
    *("time -p git push", "command -p git push", "setsid --fork git push", "stdbuf --output=L git push"),
    *("bash --norc -c 'git push'", "bash -cx 'git push'", "eval git push", "timeout --new x 5 git push"),
)


@pytest.mark.parametrize("text", OTHERS)
def test_wrappers_start_the_command_behind_their_options(text: str) -> None:
    assert any(c.argv[:2] == ("git", "push") for c in list_commands(parse(text)))


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
        assert ("rm", "x") in [c.argv for c in list_commands(parse(text))], text


def test_commands_in_too_many_others_are_not_understood() -> None:
    script = parse("strace " * 300 + "ls")
    assert len(list(list_commands(script))) <= MAX_NESTED
    assert "nests commands too deeply" in list(list_unclear(script))


SHUFFLED = st.sampled_from([*HARMFUL, *SECRETS, *READS]).flatmap(lambda c: st.permutations(list(c)).map("".join))


@pytest.mark.parametrize("text", ["{\U0010ffff", "a {😀", "{\U0010ffff\n_"])
def test_a_character_far_beyond_ascii_does_not_end_the_program(text: str) -> None:
    assert parse(text).unclear


@given(st.text(max_size=200) | SHUFFLED)
@settings(max_examples=200)
def test_any_text_is_read(text: str) -> None:
    list(list_commands(parse(text)))
    assert parse("$(x); " + text).unclear


@given(st.lists(st.from_regex(r"[a-zA-Z][a-zA-Z0-9_./:,+-]{0,7}", fullmatch=True), min_size=1, max_size=6))
def test_words_without_signs_are_what_they_are(words: list[str]) -> None:
    script = parse(" ".join(words))
    assert script.understood
    assert script.commands[0].argv == tuple(words)
