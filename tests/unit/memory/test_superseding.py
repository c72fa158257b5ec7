"""What a later statement replaces, in many wordings, two languages and careless typing; what it must leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.memory.statements import superseding
from sakti.memory.statements.comparing import Found, Pair
from sakti.memory.statements.reading import STATEMENT_LIMIT, Value, read
from sakti.memory.statements.superseding import COMPARED, Replaced, is_gone, replaced
from sakti.memory.statements.values import alike

PAIRS = [
    (line[0], *line[2:].split(" || "))
    for line in (Path(__file__).parents[2] / "talks" / "pairs.txt").read_text("utf-8").splitlines()
    if line[:2] in ("+ ", "- ", "? ")
]


def found(old: str, new: str) -> list[Replaced]:
    said = ["We talk about something different first.", old, "Please have a look at the code.", new]
    return [one for one in replaced(said) if one.old == 1]


@pytest.mark.parametrize(("old", "new"), [(old, new) for sign, old, new in PAIRS if sign == "+"])
def test_a_change_is_found(old: str, new: str) -> None:
    assert found(old, new)


@pytest.mark.parametrize(("old", "new"), [(old, new) for sign, old, new in PAIRS if sign == "-"])
def test_what_speaks_of_something_else_replaces_nothing(old: str, new: str) -> None:
    assert not found(old, new)


def test_what_no_rule_can_tell_is_little() -> None:
    missed = [pair for pair in PAIRS if pair[0] == "?"]
    assert len(missed) <= 0.15 * sum(sign != "-" for sign, _, _ in PAIRS)


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("min sdk is 26, target sdk is 34", "min sdk -> 28 please", ["min sdk is 26"]),
        ("mods are kira and jonas", "jonas quit so mods are kira and pelle", ["mods are kira and jonas"]),
        ("We cache them for 7 days in ~/.cache/x.", "cache them for 3 days instead", ["We cache them for 7 days"]),
        ("Backups run at 02:30 and are kept for 14 days.", "keep backups 30 days instead", ["are kept for 14 days"]),
        ("Sword damage is 3, bow damage is 2.", "Let's nerf the bow: 1 damage", ["bow damage is 2"]),
        (
            "Der Testserver ist test-3, der Port ist 8085.",
            "Der Port stimmt nicht mehr, es ist jetzt 8099",
            ["der Port ist 8085"],
        ),
        (
            "The API listens on port 8080, the metrics server on port 9100.",
            "The metrics server stays where it is but the API moved to 8443.",
            ["The API listens on port 8080"],
        ),
    ],
)
def test_of_a_sentence_only_what_holds_no_more_is_named(old: str, new: str, gone: list[str]) -> None:
    assert [old[one.start : one.end].strip() for one in found(old, new)] == gone
    assert is_gone(old, found(old, new)) == (gone == [old.rstrip(".")])


def test_a_short_correction_means_the_newest_value_of_its_kind() -> None:
    said = ["the header height is 32px", "the cache holds 50 MB", "hm that looks squashed", "make that 36px"]
    assert [(one.old, one.new) for one in replaced(said)] == [(0, 3)]


def test_who_may_take_back_what_is_asked() -> None:
    said = ["The port is 8080.", "The port is 9090 now."]
    assert not list(replaced(said, may=lambda old, new: False))
    assert not list(replaced(said, since=2))


def test_a_question_replaces_nothing() -> None:
    assert found("The port is 8080.", "Make the port 9090 instead.")
    assert not found("The port is 8080.", "Make the port 9090 instead?")


def test_what_may_be_of_a_part_is_doubtful_and_a_plain_not_of_a_part_replaces_nothing() -> None:
    (one,) = found("The ingest worker runs 3 threads.", "The tenant ingest worker should run 5 threads.")
    assert one.verdict == "doubtful"
    assert not found("The importer skips empty rows.", "The importer does not skip empty rows of the index.")


def test_what_is_replaced_already_is_not_replaced_again() -> None:
    said = ["The port is 8080.", "The port is 9090 now.", "The port is 7070 now."]
    assert [(one.old, one.new) for one in replaced(said)] == [(0, 1), (1, 2)]


def test_the_work_grows_with_the_statements_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[Pair] = []

    def counted(pair: Pair) -> Found | None:
        pairs.append(pair)
        return None

    monkeypatch.setattr(superseding, "compared", counted)
    for count in (200, 400):
        pairs.clear()
        list(replaced([f"the port of server {n} is now {n}, says the team" for n in range(count)]))
        assert len(pairs) <= count * COMPARED * 4


@pytest.mark.parametrize("unit", ["a,", "not ", "a-", "1.", "-> ", "is ", "from ", "in every ", "'", "the x is "])
def test_a_statement_without_end_is_read_to_its_limit(unit: str) -> None:
    statement = read(unit * 5_000)
    assert len(statement.text) == STATEMENT_LIMIT
    assert sum(len(c.tokens) for c in statement.clauses) <= STATEMENT_LIMIT


@pytest.mark.parametrize(
    ("a", "b", "can"),
    [
        (Value("28", "number"), Value("30", "number"), True),
        (Value("28", "number", "mb"), Value("30", "number", "second"), False),
        (Value("28", "number"), Value("redis", "name"), False),
        (Value("2025-01-02", "date"), Value("redis", "name"), False),
        (Value("redis", "name"), Value("postgres", "word"), True),
        (Value("berlin", "place"), Value("slow", "word"), False),
        (Value("11:30", "date"), Value("10", "number"), True),
        (Value("11:30", "date"), Value("80", "number"), False),
    ],
)
def test_a_value_replaces_one_of_its_kind(a: Value, b: Value, can: bool) -> None:
    assert alike(a, b) is can and alike(b, a) is can
