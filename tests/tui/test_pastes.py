"""A paste arrives exactly as it was sent, however the bytes are cut, and keys around it stay keys, in order."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.message import Message

from sakti.tui.driver import (
    PASTE_END,
    PASTE_START,
    PASTE_TIMEOUT_S,
    STALLED_TIMEOUT_S,
    PastedText,
    PasteSplitter,
    TerminalInput,
)

PIECES = st.one_of(
    st.text(st.characters(exclude_characters="\x1b", exclude_categories=("Cs",)), max_size=8),
    st.sampled_from(
        ["\x1b", "\x1b[", "\x1b[20", "\x1b[200", PASTE_START, "\x1b[31m", "[201~", "\x1b\x1b", "é", "🙂", "\x00"]
    ),
)
CONTENT = st.lists(PIECES, max_size=8).map("".join).filter(lambda t: PASTE_END not in t + PASTE_END[:-1])
KEYS = st.text("abcxyz019 ~[ß", max_size=5)
STREAM = st.lists(st.one_of(KEYS, CONTENT.map(PastedText)), max_size=6)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(messages: Iterable[Message]) -> list[str | PastedText]:
    """Keys as their characters, neighbours joined, and pastes."""
    out: list[str | PastedText] = []
    for message in messages:
        if isinstance(message, events.Paste):
            out.append(PastedText(message.text))
        elif isinstance(message, events.Key):
            character = message.character or f"<{message.key}>"
            if out and isinstance(out[-1], str):
                out[-1] += character
            else:
                out.append(character)
    return out


def joined(parts: Iterable[str | PastedText]) -> list[str | PastedText]:
    out: list[str | PastedText] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        elif part != "":
            out.append(part)
    return out


@given(STREAM, st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_any_stream_cut_anywhere(stream: list[str | PastedText], sizes: list[int]) -> None:
    sent = "".join(p if isinstance(p, str) else f"{PASTE_START}{p.text}{PASTE_END}" for p in stream).encode()
    source, got, at, n = TerminalInput(now=Clock()), [], 0, 0
    while at < len(sent):
        size = sizes[n % len(sizes)]
        got += source.feed(sent[at : at + size])
        at, n = at + size, n + 1
    assert shown(got) == joined(stream)


@given(CONTENT, st.lists(st.integers(0, 60), max_size=5))
def test_pauses_lose_nothing(content: str, cuts: list[int]) -> None:
    """What is shown at pauses is the paste in parts, and the end marker is known when a pause cuts it."""
    pastes, out, now = PasteSplitter(), [], 0.0
    text = f"{PASTE_START}{content}{PASTE_END}"
    places = sorted({len(PASTE_START), *(min(c + len(PASTE_START), len(text)) for c in cuts), len(text)})
    last = 0
    for place in places:
        out += pastes.feed(text[last:place], now)
        last, now = place, now + STALLED_TIMEOUT_S / 2  # no pause yet
        out += pastes.flush_pause(now)
    assert [p for p in out if isinstance(p, PastedText)] == [PastedText(content)]
    pastes, out = PasteSplitter(), []
    half = len(PASTE_START) + len(content) // 2
    out += pastes.feed(text[:half], 0.0)
    out += pastes.flush_pause(PASTE_TIMEOUT_S)
    out += pastes.feed(text[half:], PASTE_TIMEOUT_S)
    assert "".join(p.text for p in out if isinstance(p, PastedText)) == content
    assert "".join(p for p in out if isinstance(p, str)) == PASTE_START + PASTE_END


def test_an_end_marker_cut_by_a_pause_is_an_end():
    pastes = PasteSplitter()
    assert pastes.feed(f"{PASTE_START}abc{PASTE_END[:3]}", 0.0) == [PASTE_START]
    assert pastes.flush_pause(PASTE_TIMEOUT_S - 0.1) == []
    assert pastes.flush_pause(PASTE_TIMEOUT_S) == [PastedText("abc")]
    assert pastes.feed(PASTE_END[3:] + "x", PASTE_TIMEOUT_S + 0.1) == [PASTE_END, "x"]


def test_a_paste_that_never_ends_is_shown_and_left_with_escape_or_ctrl_c():
    for way in ("\x1b", "\x03", "\x1b[27u", "\x1b[99;5u"):
        clock = Clock()
        source = TerminalInput(now=clock)
        assert shown(source.feed(f"{PASTE_START}all of it\r".encode())) == []
        clock.now += PASTE_TIMEOUT_S
        assert shown(source.tick()) == [PastedText("all of it\r")]
        assert shown(source.feed(b"rm -rf x\r")) == []  # nothing is typed, nothing is sent: it may be the rest
        clock.now += STALLED_TIMEOUT_S
        assert shown(source.tick()) == [PastedText("rm -rf x\r")]
        got = [*source.feed(way.encode()), *source.feed(b"")]
        assert not any(isinstance(m, events.Paste) for m in got)
        assert shown(source.feed(b"\x1b[Aq"))[-1][-1] == "q"


def test_escape_alone_then_a_marker_typed_by_hand_is_no_paste():
    pastes = PasteSplitter()
    assert pastes.feed("\x1b", 0.0) == ["\x1b"]
    pastes.reset_match()
    assert pastes.feed("[200~abc", 1.0) == ["[200~abc"]
    assert pastes.feed("\x1b[200~abc" + PASTE_END, 2.0) == [PASTE_START, PASTE_END, PastedText("abc")]


def test_bytes_that_are_no_utf_8_and_an_empty_paste():
    source = TerminalInput(now=Clock())
    assert shown(source.feed(PASTE_START.encode() + b"a\xff\xc3" + PASTE_END.encode() + b"k")) == [
        PastedText("a\ufffd\ufffd"),
        "k",
    ]
    assert shown(source.feed(f"{PASTE_START}{PASTE_END}".encode())) == [PastedText("")]
