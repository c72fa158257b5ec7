"""Output of commands as plain text, compared with a terminal."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyte import modes

from sakti.agent.tools import terminal_text
from sakti.agent.tools.terminal_text import LONGEST, ROWS, TerminalText, split_unfinished, to_plain_text

WORDS = st.text("abXY 0_%|█⠋é", max_size=12)
SMALL = st.integers(0, 9).map(str)
ON_ONE_LINE = st.one_of(
    WORDS,
    st.sampled_from(["\r", "\b", "\b\b", "\x07", "\x1b[K", "\x1b[0K", "\x1b[1K", "\x1b[2K", "\x1b[31m", "\x1b[m"]),
    st.sampled_from(
        ["\x1b[0;1;38;5;3m", "\x1b[?25l", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b(B", "\x1b=", "\x9b1m"]
    ),
    st.builds("\x1b[{}{}".format, SMALL, st.sampled_from("CDGm")),
)
ON_SEVERAL = st.one_of(
    ON_ONE_LINE,
    st.sampled_from(["\n", "\r\n", "\n\n", "\x1b[J", "\x1b[0J", "\x1b[1J", "\x1b[H", "\x1b[3;4H", "\x1b[;5f"]),
    st.builds("\x1b[{}{}".format, SMALL, st.sampled_from("ABEF")),
)


def on_a_terminal(output: str) -> str:
    """Return the lines that a terminal shows, without the spaces at their ends."""
    screen = pyte.Screen(1_000, ROWS)
    screen.set_mode(modes.LNM)  # a line feed returns to the first column, as after a pipe
    stream = pyte.Stream(screen)
    stream.feed(output)
    return bare("\n".join(screen.display))


def bare(text: str) -> str:
    return "\n".join(line.rstrip(" ") for line in text.split("\n")).rstrip("\n")


@given(st.lists(ON_ONE_LINE, max_size=30).map("".join))
def test_a_line_is_what_a_terminal_shows(output: str) -> None:
    assert bare(to_plain_text(output)) == on_a_terminal(output)


@given(st.lists(ON_SEVERAL, max_size=40).filter(lambda parts: "".join(parts).count("\n") < ROWS).map("".join))
def test_several_lines_are_what_a_terminal_shows(output: str) -> None:
    assert bare(to_plain_text(output)) == on_a_terminal(output)


@given(
    st.lists(ON_SEVERAL | st.sampled_from(["日本", "\x1b[2J", "👍🏽", "\t", "\x1b", "\x1b[", "\0"]), max_size=80),
    st.data(),
)
def test_pieces_make_no_difference(parts: list[str], data: st.DataObject) -> None:
    output = "".join(parts)
    screen, shown, at = TerminalText(), "", 0
    while at < len(output):
        size = data.draw(st.integers(1, 20))
        shown += screen.feed(output[at : at + size])
        at += size
    assert shown + screen.flush() == to_plain_text(output)


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"]) | st.sampled_from("\n\t\f\v")))
def test_text_without_controls_stays_as_it_is(text: str) -> None:
    assert to_plain_text(text) == text
    assert to_plain_text(text.replace("\n", "\r\n")) == text


@given(st.lists(ON_SEVERAL, max_size=40).map("".join))
def test_plain_text_has_no_control_left(output: str) -> None:
    assert not set(to_plain_text(output)) & {chr(n) for n in (*range(9), *range(13, 32), 0x7F, 0x9B)}


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("\rfetch 1%\rfetch 100%\ndone", "fetch 100%\ndone"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("_\bX", "X"),
        ("long text\rshort\x1b[K\n", "short\n"),
        ("日本語\rab", "ab本語"),
        ("日本語\ra", "a 本語"),
        ("日本\b\bx", "日x"),
        ("進捗 10%\r進捗 20%", "進捗 20%"),
        ("e\u0301te\u0301\ru", "ute\u0301"),
        ("a\nb\nc\x1b[2A\rX\x1b[2B\n", "X\nb\nc\n"),
        ("one\x1b[2Jtwo", "one\ntwo"),
        ("one\n\x1b[H\x1b[2J\x1b[3Jtwo", "one\ntwo"),
        ("one\nmore\n\x1b[2J\x1b[Htwo\n\x1b[2J\x1b[Hthree", "one\nmore\ntwo\nthree"),
        ("\x1b[2J\x1b[Hone", "one"),
        ("\x1b[1;38:2::9:9:9mred\x1b[0m", "red"),
        ("trailing  \nspaces \r\n", "trailing  \nspaces \n"),
        ("\x1b]0;no end", ""),
        ("a\x1bPq\x1b\\b", "ab"),
        ("bell\a nul\0 del\x7f", "bell nul del"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"),
        ("\x1b[9999999999Cx\x1b[999999999;9999999999Hy", f"{' ' * 1_000}x" + "\n" * 49 + f"{' ' * 999}y"),
    ],
)  # fmt: skip
def test_what_is_left_after_the_last_redraw(output: str, shown: str) -> None:
    assert to_plain_text(output) == shown


def test_three_bars_that_move_at_once_are_three_lines() -> None:
    bars = "".join(f"\x1b[3A\x1b[2Ka {n}%\n\x1b[2Kb {n}%\n\x1b[2Kc {n}%\n" for n in range(101))
    assert to_plain_text(f"pulling\n\n\n\n{bars}done\n") == "pulling\na 100%\nb 100%\nc 100%\ndone\n"


def test_only_the_lines_of_a_screen_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = TerminalText()
    assert screen.feed("".join(f"{n}\n" for n in range(200))).endswith("150\n")
    assert screen.feed("x" * (LONGEST + 1)).endswith("\n" + "x" * (LONGEST + 1))
    assert screen.feed("y\rz") == "" and screen.flush() == "z"
    for _ in range(50):
        screen.feed("\x1b[999B\x1b[999Cx" * 1_000)
        assert sum(map(len, screen._rows)) < ROWS * (LONGEST + 20_000)


@pytest.mark.parametrize(
    "end", ["\x1b", "\x1b[", "\x1b[3", "\x1b[38;5", "\x1b]0;ti", "\x1b]0;ti\x1b", "\x1b(", "\x9b1"]
)
def test_an_escape_sequence_that_is_still_arriving_is_kept_apart(end: str) -> None:
    assert split_unfinished(f"text{end}") == ("text", end)
    assert split_unfinished("text\x1b[0m") == ("text\x1b[0m", "")


@given(
    st.sampled_from("]PX^_"),
    st.text(st.characters(exclude_characters="\n\x07\x1b\x9b", exclude_categories=["Cs"]), max_size=30),
    st.lists(st.text("abc 012;", min_size=1, max_size=20), min_size=1, max_size=120),
    st.integers(1, 40),
)
def test_a_string_without_an_end_hides_nothing_behind_its_line(
    kind: str, title: str, lines: list[str], size: int
) -> None:
    rest = "".join(f"{line}\n" for line in lines)
    output = f"before\x1b{kind}{title}\n{rest}"
    assert to_plain_text(output) == f"before\n{rest}"
    screen = TerminalText()
    pieces = [screen.feed(output[at : at + size]) for at in range(0, len(output), size)]
    assert "".join(pieces) + screen.flush() == f"before\n{rest}"
    assert split_unfinished(output) == (output, "")


def test_an_endless_escape_sequence_is_not_waited_for() -> None:
    screen = TerminalText()
    screen.feed("\x1b]" + "x" * 1_000_000)
    assert len(screen._unfinished) <= terminal_text.LONGEST_ESCAPE + 3
    assert "after" in screen.feed("after\n") + screen.flush()
