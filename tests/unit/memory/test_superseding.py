"""Which older statements a newer one ends, in two languages, and which hold beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.memory.statements import superseding
from sakti.memory.statements.reading import STATEMENT_LIMIT, divide_text, split_clauses
from sakti.memory.statements.superseding import COMPARED, Statement, StatementIndex

FOLDER = Path(__file__).parents[2] / "talks"
FALSE_SHARE, CHANGED_SHARE = 0.02, 0.7
CHANGES = ["changes_dev.txt", "changes_heldout.txt", "changes_after.txt", "changes_parallel.txt"]


@dataclass(frozen=True, slots=True)
class EndedText:
    """Text `start` to `end` of statement `old` that statement `new` ends (positions in a talk)."""

    old: int
    new: int
    start: int
    end: int


def find_ended(talk: Sequence[str]) -> list[EndedText]:
    """What later statements of a talk end of earlier ones, each part once."""
    index = StatementIndex()
    out: dict[tuple[int, int], EndedText] = {}
    for text in talk:
        new = index.add(text)
        for old in index.sharing(new):
            for start, end in superseding.find_ended_parts(old, new):
                out.setdefault((old.place, start), EndedText(old.place, new.place, start, end))
    return list(out.values())


def pairs(name: str, sign: str) -> list[tuple[str, str]]:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    return [(old, new) for line in lines if line.startswith(f"{sign} ") for old, new in [line[2:].split(" || ")]]


def ends(old: str, new: str) -> list[EndedText]:
    said = ["We talk about something different first.", old, "Please have a look at the code.", new]
    return [one for one in find_ended(said) if one.old == 1]


@pytest.mark.parametrize("name", CHANGES)
def test_explicit_changes_are_marked(name: str) -> None:
    changes = pairs(name, "+")
    assert sum(bool(ends(*pair)) for pair in changes) >= CHANGED_SHARE * len(changes)


@pytest.mark.parametrize("name", [*CHANGES, "pairs.txt"])
def test_pairs_that_both_hold_are_not_marked(name: str) -> None:
    both_hold = pairs(name, "-")
    marked = [pair for pair in both_hold if ends(*pair)]
    assert len(marked) <= FALSE_SHARE * len(both_hold), marked


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [*CHANGES, "pairs.txt"])
def test_long_talks_of_parallel_statements_have_few_marks(name: str, seed: int) -> None:
    talk = list(dict.fromkeys(text for pair in pairs(name, "-") for text in pair))
    random.Random(seed).shuffle(talk)
    assert len(list(find_ended(talk))) <= FALSE_SHARE * len(talk)


THINGS = st.sampled_from(["#12", "#13", "PR 41", "PR 42", "a.py", "lib/b.py", "get_user", "stage-1", "HB-7", "1a2b3c4"])
ACTS = st.sampled_from(
    ["Fix {}.", "Please review {}.", "I merged {}.", "We closed {} now.", "Never touch {}.", "The build failed on {}.",
     "Delete {} now.", "Prüfe {}.", "Ich habe {} jetzt geschlossen.", "Lösche jetzt {}."]
)  # fmt: skip


@given(ACTS, ACTS, THINGS, THINGS)
def test_acts_on_different_things_hold_beside_each_other(first: str, second: str, one: str, other: str) -> None:
    assert one == other or not ends(first.format(one), second.format(other))


SUBJECTS = st.sampled_from(["retry limit", "staging port", "page size", "request timeout", "cache lifetime"])


@given(SUBJECTS, SUBJECTS, st.integers(2, 9_000), st.integers(2, 9_000))
def test_another_value_ends_the_same_subject_only(subject: str, other: str, old: int, new: int) -> None:
    for words in ("The {} is {} now.", "Set the {} to {}.", "The {} is {}."):
        marked = ends(f"The {subject} is {old}.", words.format(other, new))
        assert bool(marked) == (subject == other and old != new)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (
            "Backups run at 02:30, logs are kept for 14 days.",
            "Logs are kept for 30 days now.",
            "logs are kept for 14 days",
        ),
        (
            "The API listens on port 8080, metrics on port 9100.",
            "Metrics are on port 9200 now.",
            "metrics on port 9100",
        ),
    ],
)
def test_only_the_clause_with_the_old_value_is_named(old: str, new: str, part: str) -> None:
    assert [old[one.start : one.end].strip() for one in ends(old, new)] == [part]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The retro is on Thursdays.", "The retro is at 15 now."),  # a date and a time
        ("The staging port is 8080.", "The production port is now 9090."),
        ("Answer in English.", "Translate the page to German."),
        ("Write the docs in English.", "ab jetzt auf Deutsch"),
        ("Comments are in English.", "Answer in German."),
        ("Answer in English.", "Write the manual in German from now on."),
        ("The page size of invoices is 20.", "The page size of the orders list is 50 now."),
        ("Check the retry loop and the log rotation in sync.rs.", "Never mind the naming of things in sync.rs."),
        ("Greta changed the schema of table users.", "Greta changed the schema of table roles."),
        ("Drucke Seite 3.", "Drucke jetzt Seite 5."),
        ("The firewall blocks port 23.", "The firewall now blocks port 21."),
        ("In staging, the log level is debug.", "In production, the log level is warn now."),
        ("Job 51 finished.", "Job 52 finished now."),
    ],
)
def test_statements_of_another_kind_or_scope_hold(old: str, new: str) -> None:
    assert not ends(old, new)


def test_requests_end_when_the_user_cancels_them() -> None:
    request = Statement.of(0, "The crash in parser.py", asked=True)
    assert superseding.find_ended_parts(request, Statement.of(1, "Never mind the crash in parser.py."))
    assert not superseding.find_ended_parts(request, Statement.of(1, "Never mind the crash in lexer.py."))
    assert not superseding.find_ended_parts(request, Statement.of(1, "The crash in parser.py is back now."))


def test_questions_end_nothing() -> None:
    assert ends("The port is 8080.", "Make the port 9090 instead.") or ends(
        "The port is 8080.", "The port is 9090 now."
    )
    assert not ends("The port is 8080.", "Is the port 9090 now?")


def test_statements_about_others_end_nothing() -> None:
    assert not ends("We deploy with Ansible.", "Our competitor switched from Ansible to Terraform.")


def test_work_grows_with_the_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Statement] = []
    monkeypatch.setattr(superseding, "find_ended_parts", lambda old, new: compared.append(old) or [])
    for count in (200, 400):
        compared.clear()
        list(find_ended([f"the port of server {n} is now {n}, says the team" for n in range(count)]))
        assert len(compared) <= count * COMPARED


@pytest.mark.parametrize(
    "unit", ["a,", "not ", "a-", "1.", "-> ", "is ", "from ", "in every ", "'", "the x is ", "A b "]
)
def test_endless_statements_are_read_to_a_limit(unit: str) -> None:
    assert len(divide_text(unit * 5_000)) <= STATEMENT_LIMIT
    assert sum(len(c.words) + len(c.values) for c in split_clauses(unit * 5_000)) <= STATEMENT_LIMIT
