"""What an Observer's or Reflector's answer becomes, and what is not taken from it."""

from __future__ import annotations

import pytest

from sakti.memory.log import lines, parse
from sakti.memory.log.parse import Parsed, clean, parse_observer_output, parse_reflector_output, take_sections

WHOLE = """Some words before.
<observations>
Date: Jan 1, 2025
* 🔴 (10:00) User wants a queue
</observations>
<observations>
* 🟡 (10:05) It drains at midnight
</observations>
<current-task>
Primary: the queue
</current-task>
<suggested-response>
Shall I go on?
</suggested-response>
<thread-title>The queue</thread-title>
"""


def test_all_blocks_and_the_other_sections_are_taken() -> None:
    parsed = parse_observer_output(WHOLE)
    assert parsed.observations.split("\n") == [
        "Date: Jan 1, 2025",
        "* 🔴 (10:00) User wants a queue",
        "* 🟡 (10:05) It drains at midnight",
    ]
    assert (parsed.current_task, parsed.suggested_response) == ("Primary: the queue", "Shall I go on?")
    assert (parsed.title, parsed.degenerate) == ("The queue", False)


def test_without_tags_lists_are_taken() -> None:
    text = "I noted this:\n* 🟡 one\n- two\n3. three\nThat is all."
    assert parse_observer_output(text).observations == "* 🟡 one\n- two\n3. three"
    assert parse_observer_output("Nothing to note.").observations == ""
    assert parse_reflector_output("Nothing to note.").observations == "Nothing to note."


REPEATED = {
    "a window": "the same words again and again. " * 200,
    "lines": "\n".join(
        f"* 🟡 (10:00) a line that stands here many times over, number {n % 8} {'x' * (n % 8) * 40}" for n in range(40)
    ),
    "one endless line": "".join(f"word{n} " for n in range(8_000)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_an_answer_that_repeats_itself_holds_nothing(name: str) -> None:
    assert parse.detect_degenerate_repetition(REPEATED[name])
    for read in (parse_observer_output, parse_reflector_output):
        assert read(f"<observations>\n{REPEATED[name]}\n</observations>") == Parsed("", degenerate=True)


def test_long_lines_are_cut_with_a_note() -> None:
    words = " ".join(f"w{n}" for n in range(3_000))
    cut = parse_observer_output(f"<observations>\n* {words}\n</observations>").observations
    assert cut == f"* {words}"[: parse.MAX_LINE] + parse.TRUNCATED


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[O1] * one\n  [O1-N1] * two", "* one\n  * two"),
        ("* one</observations>\n<obs<observations>ervations>* two", "* one\n* two"),
        ("<current-task>\nold\n</current-task>\n* one", "* one"),
        ("* o\x00n\x1b[31me\x85\ud800", "* one"),
        ("```text\n* one\n```", "* one"),
        ("- one\n  + two\n• three", "* one\n  * two\n* three"),
        ("* one\r\n\n\n\n* two  ", "* one\n\n* two"),
    ],
)
def test_nothing_of_the_form_reaches_the_store(text: str, left: str) -> None:
    assert clean(text) == left


def test_sections_of_a_mode_are_split_off() -> None:
    text = "* 🟡 one\n<lessons>\n* run the tests first\n</lessons>\n* 🟡 two\n<open>\n* the lock\n* 🟡 three"
    rest, found = take_sections(text, ("lessons", "open"))
    assert found == [("lessons", "* run the tests first"), ("open", "* the lock"), ("open", "* 🟡 three")]
    assert clean(rest) == "* 🟡 one\n\n* 🟡 two"


def test_anchors_count_lines_and_those_below_them() -> None:
    log = "Date: Jan 1, 2025\n* one\n  * below\n  * too\n* two\n<tag>"
    named = parse.inject_anchor_ids(log)
    assert named.split("\n") == [
        "Date: Jan 1, 2025", "[O1] * one", "  [O1-N1] * below", "  [O1-N2] * too", "[O2] * two", "<tag>",
    ]  # fmt: skip
    assert parse.strip_ephemeral_anchor_ids(named) == log


def test_a_log_is_read_line_by_line() -> None:
    log = "Date: Jan 1, 2025\n* 🔴 (10:00) one\n  * -> below\n\nDate: Jan 2, 2025\n* 🟡 (11:00) two"
    found = [(r.line, r.depth, r.date, r.content) for r in lines.iter_rows(log)]
    assert [(d, c) for _, _, d, c in found] == [
        ("Jan 1, 2025", "one"), ("Jan 1, 2025", "below"), ("Jan 2, 2025", "two"),
    ]  # fmt: skip
    assert [depth for _, depth, _, _ in found] == [0, 1, 0]
    numbers = [n for n, *_ in found]
    assert lines.apply_corrections(log, {numbers[1]: "changed"}).split("\n")[2] == "  * -> changed"
    assert lines.apply_corrections(log, {numbers[2]: None}) == "Date: Jan 1, 2025\n* 🔴 (10:00) one\n  * -> below"


def test_lines_of_sections_are_added_once_and_name_their_section() -> None:
    text, sections = lines.with_sections("* 🟡 one", [("lessons", "* 🟡 one"), ("lessons", "* two")])
    assert text == "* 🟡 one\n* 🟡 two"
    assert sections["two"] == "lessons"


def test_files_and_line_numbers_of_a_line() -> None:
    files, numbers = lines.find_references("see src/queue.py:12-40 and src/main.py, line 7")
    assert files == ["src/queue.py", "src/main.py"] and numbers[0] == "12-40"
