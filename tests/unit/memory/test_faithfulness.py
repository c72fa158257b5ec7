"""The guard without a model: what a line claims and its source does not have; what a reflection dropped."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.core.events import MemoryOperation
from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart
from sakti.memory.log import lines
from sakti.memory.observe import speaking
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.faithfulness import EvidenceSource, find_losses, find_unsupported
from sakti.memory.observe.speaking import Said
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.memory.worker import make_source
from sakti.store.log import lines as memory_log
from tests.fakes import claims as told_claims
from tests.fakes import talks
from tests.fakes.memory import Driver, ScriptedObserver
from tests.fakes.observers import extract

SOURCE = EvidenceSource(
    "Look at src/auth/token.py:42, refresh_tokens() there takes 350 ms with pytest 8.4.1.",
    'The user said "never touch main". See https://example.org/a?b=1. LoginSchema, MAX_RETRIES = 3, 12 %.',
    clocks={"14:30"},
)


@pytest.mark.parametrize(
    "line",
    [
        "refresh_tokens in src/auth/token.py:42 takes 350ms with pytest 8.4.1",
        'User stated "never touch  main"; see https://example.org/a?b=1.',
        "LoginSchema and `MAX_RETRIES` are 12% of it, ./src/auth/token.py",
        "The work goes on at 14:30 and nothing is claimed",
    ],
)
def test_a_faithful_line_has_no_flag(line: str) -> None:
    assert find_unsupported(line, SOURCE) == ()


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("Changed src/auth/session.py", "path: src/auth/session.py"),
        ("It takes 900 ms", "number: 900 ms"),
        ("Uses pytest 9.0.0 now", "version: 9.0.0"),
        ('User stated "always touch main"', "quote: always touch main"),
        ("revoke_tokens was renamed", "symbol: revoke_tokens"),
        ("See https://example.org/other", "url: https://example.org/other"),
    ],
)
def test_what_the_source_does_not_have_is_marked(line: str, flag: str) -> None:
    assert find_unsupported(line, SOURCE) == (flag,)


def test_what_a_reflection_dropped_is_listed() -> None:
    log = "\n".join(
        (
            "Date: Jan 2, 2026",
            "* 🔴 (10:00) User decided that tokens live in Redis",
            "* 🟡 read src/a.py",
            "* 🔴 User prefers tabs",
        )
    )
    assert find_losses([log], log).lines == ()
    lost = find_losses([log], "* 🔴 (10:00) It was decided by the user that all tokens live in Redis")
    assert lost.lines == ("User prefers tabs",)
    assert lost.paths == ("src/a.py",)


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("There are 57 of them", "number: 57"),
        ("It is due on Feb 3, 2026", "date: Feb 3, 2026"),
        ("The meeting is at 16:45", "date: 16:45"),
        ("Fixed in 4be91c7", "hash: 4be91c7"),
        ("The work was done by Miriam", "name: Miriam"),
        ("Ivana is on call", "name: Ivana"),
        ("The page is at docs.example.net", "host: docs.example.net"),
        ("It is kept in s3://bucket/a", "url: s3://bucket/a"),
        ("It runs on gha-runner-07", "symbol: gha-runner-07"),
    ],
)
def test_figures_dates_hashes_names_and_hosts_are_looked_up(line: str, flag: str) -> None:
    assert find_unsupported(line, SOURCE) == (flag,)


def test_the_same_in_other_units_and_words_is_no_invention() -> None:
    source = EvidenceSource(
        "40,000 rows of 1.2 kB, three retries, 90 s, 36 months, F1 0.874, due tomorrow, postgres 15.4",
        days={date(2026, 1, 15)},
    )
    for line in (
        "There are 40k rows of 1,200 bytes each",
        "It retries 3 times within 1.5 minutes",
        "They last for 3 years",
        "An F1 of 87.4 % (0.87)",
        "It is due on Jan 16, 2026, a Friday",
        "The database is PostgreSQL 15",
    ):
        assert find_unsupported(line, source) == (), line
    assert find_unsupported("It is due on Jan 18, 2026", source) == ("date: Jan 18, 2026",)
    assert find_unsupported("They last for 5 years", source) == ("number: 5 years",)
    assert find_unsupported("There are 57 of them", EvidenceSource("1570 of them, or 3.57")) == ("number: 57",)


def test_words_in_the_wrong_mouth_are_marked() -> None:
    said: list[Said] = [
        ("user", "Look at the README. The port has to be 8080."),
        ("agent", "I would cache the totals for a minute."),
        ("text", "Never run the tests. Users like long sessions."),
        *speaking.iter_log_sayings("* 🔴 User stated: We deploy to Fly.\n* 🟡 Agent: The sink keeps all rows."),
    ]
    source = EvidenceSource("", said=said)

    def speaker(line: str) -> bool:
        return any(flag.startswith("speaker:") for flag in find_unsupported(line, source))

    assert speaker("User stated: Never run the tests.")
    assert speaker("User wants totals to be cached for a minute")
    assert speaker("The user said that the port has to be 8080. User stated that users like long sessions.")
    assert speaker("User said that the sink keeps all rows")
    assert speaker("Agent decided that the port has to be 8080")
    assert not speaker("User agreed to cache the totals for a minute"), "who agrees need not repeat it"
    assert speaker("User agreed never to run the tests")
    assert not speaker("User wants the port to be 8080")
    assert not speaker("User deploys to Fly") and not speaker("User stated that they deploy to Fly")
    assert not speaker("User quoted: Never run the tests.")
    assert not speaker("User said: So it is.") and speaker("User said: So it is. Never run the tests.")
    assert not speaker("Agent proposed to cache the totals for a minute")


# Rules seldom see negations that are turned, values that were replaced, and a number bound to another thing beside it.
BEYOND = {"negation", "replaced", "binding"}


def test_a_quotation_is_a_text_and_not_the_users() -> None:
    text = "Can we do this?\n> Always push to main.\nI think not."
    said = list(speaking.iter_message_sayings([Message("m", "t", "r", "user", (TextPart(text),), 0)]))
    assert [words for voice, words in said if voice == "user"] == ["Can we do this?\nI think not."]
    assert [words for voice, words in said if voice == "text" and words] == ["> Always push to main."]


@pytest.mark.parametrize("file", [told_claims.FILE, told_claims.HELD_OUT, told_claims.BOUND], ids=lambda f: f.stem)
def test_most_invented_claims_are_marked_and_few_faithful_ones(file: Path) -> None:
    found: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for told in told_claims.load(file):
        source = make_source(told.request())
        for line in told.faithful:
            asked["faithful"] += 1
            found["faithful"] += bool(find_unsupported(line, source))
        for kind, line in told.invented:
            asked[kind] += 1
            found[kind] += bool(find_unsupported(line, source))
    knowable = asked.keys() - BEYOND - {"faithful"}
    assert sum(found[k] for k in knowable) >= 0.85 * sum(asked[k] for k in knowable)
    assert found["faithful"] <= 0.05 * asked["faithful"]


@pytest.mark.parametrize(
    ("answer", "line", "doubtful"),
    [
        ("yes, go ahead", "User approved deploying to staging", False),
        ("yes, go ahead", "User approved deploying to production", True),
        ("no, wait", "User approved deploying to staging", True),
        ("Please deploy to staging only.", "User wants deploys to staging only", False),
        ("Never deploy to staging.", "User wants to deploy to staging", True),
    ],
)
def test_decisions_need_the_users_words_and_their_polarity(answer: str, line: str, doubtful: bool) -> None:
    said = [("agent", "Shall I deploy it to staging?"), ("user", answer)]
    if answer.startswith("yes"):
        said.append(("agreed", said[0][1]))
    source = EvidenceSource(*(text for _, text in said), said=said)  # pyright: ignore[reportArgumentType]
    assert bool(find_unsupported(line, source)) == doubtful


@pytest.mark.parametrize(("reply", "agrees"), [("yes, go ahead", True), ("good idea", True), ("hm, later", False)])
def test_only_a_yes_agrees_to_what_the_agent_said(reply: str, agrees: bool) -> None:
    said = [Message("a", "t", "r", "assistant", (TextPart("Shall I drop the table?"),), told_claims.START)]
    said.append(Message("u", "t", "r", "user", (TextPart(reply),), told_claims.START + 1))
    assert ("agreed" in [voice for voice, _ in speaking.iter_message_sayings(said)]) == agrees


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("The budget is 40 euros, 14 tests pass", False),
        ("There are 40 stations", True),
        ("Agent: the cache has 14 entries", True),
        ("User stated: our budget is 40 euros", False),
    ],
)
def test_numbers_need_their_noun_whoever_states_them(line: str, wrong: bool) -> None:
    said = [
        ("user", "Our budget is 40 euros. Cap the stations and the cache."),
        ("text", "14 tests passed\nThe cache has entries"),
    ]
    source = EvidenceSource(*(text for _, text in said), said=said)  # pyright: ignore[reportArgumentType]
    assert bool(find_unsupported(line, source)) == wrong


@pytest.mark.parametrize("number", range(10))
def test_single_digits_that_count_are_checked(number: int) -> None:
    source = EvidenceSource("The parser retries 3 times and has 7 workers.", said=[("agent", "It retries 3 times.")])
    assert bool(find_unsupported(f"The parser has {number} workers", source)) == (number not in (3, 7))


@pytest.mark.parametrize("talk", talks.all_talks(), ids=lambda t: t.name)
def test_what_is_taken_word_for_word_has_no_flag(talk: talks.Talk) -> None:
    messages = tuple(
        Message(f"m{n}", "t", "r", "user" if role == "user" else "assistant", (TextPart(text),), told_claims.START)
        for n, (role, text) in enumerate(talk.said)
    )
    request = ObserveInput("t", messages, "UTC")
    source = make_source(request)
    for row in lines.iter_rows(extract(ExtractiveObserver(Estimator()), request).text):
        assert find_unsupported(row.content, source) == (), row.content


class AtTheLimit(ScriptedObserver):
    """Writes a line whose 10,000th UTF-16 unit is the first half of an emoji, and half a pair of its own."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        return replace(result, text="* " + "a" * 9_997 + "\U0001f600 tail\n* \ud83d alone")


async def test_an_emoji_where_a_line_is_cut_is_no_reason_to_stop(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", observer=AtTheLimit())
    for number in range(6):
        await driver.turn(f"part {number} " + "word " * 120, [{"text": "answer " * 60}])
        await driver.engine.wait_idle()
    found = await driver.store.read(
        memory_log.read_lines, driver.engine.record_id, states=("active", "buffered", "superseded")
    )
    assert {line.content for line in found if line.kind == "observation"} == {
        "a" * 9_997 + " … [truncated]",
        "alone",
    }
    failed = [e for e in driver.of(MemoryOperation) if e.kind == "failed"]
    assert not [e for e in failed if e.operation_type == "observation"]
    await driver.close()


class Inventing(ScriptedObserver):
    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        return replace(result, text=f"{result.text}\n* 🔴 (10:00) It is in lib/made_up.py")


async def test_flags_are_stored_with_the_line(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", observer=Inventing())
    for number in range(6):
        await driver.turn(f"part {number} " + "word " * 120, [{"text": "answer " * 60}])
        await driver.engine.wait_idle()
    found = await driver.store.read(
        memory_log.read_lines, driver.engine.record_id, states=("active", "buffered", "superseded")
    )
    marked = {line.content: line.flags for line in found if line.flags}
    assert marked == {"It is in lib/made_up.py [unverified]": ("path: lib/made_up.py",)}
    await driver.close()
