"""The user's own statements are noted whole, whatever their number, form and language; quotations are not theirs."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart
from sakti.memory.log.parse import MAX_LINE
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.quoting import iter_pieces
from sakti.memory.protocol import ObserveInput
from sakti.memory.statements.sentences import iter_sentences
from tests.fakes.observers import extract

COUNTER = Estimator()
ENGLISH = (
    "The {} module belongs to Ada{}",
    "Invoices for {} are printed on day {}",
    "We ship {} to customer {}",
    "Nobody may delete {} before step {}",
    "{} must work without a network in hall {}",
    "I like {} more than version {}",
    "Customers call {} the old thing number {}",
    "The people in {} speak Danish, all {} of them",
    "Use {} for part {}",
    "No animations in {} on page {}",
)
GERMAN = (
    "Das Modul {} gehört Anna{}",
    "Rechnungen für {} drucken wir am Tag {}",
    "Der Kunde mag {} lieber als Nummer {}",
    "Niemand darf {} vor Schritt {} löschen",
    "{} muss ohne Netz in Halle {} funktionieren",
    "Wir liefern {} an Kunde {}",
    "Die Leute in {} sprechen Dänisch, alle {}",
    "Bitte {} für Teil {} verwenden",
    "Keine Animationen in {} auf Seite {}",
    "Unser Büro {} hat {} Fenster",
)
TERSE = (  # facts without a verb
    "Timeout for {}: {} s",
    "Kein Fallback für {} in Halle {}",
    "{}, always in UTC, row {}",
    "Höchstens {} Einträge, davon {} neu",
    "no red in {} on page {}",
    "Two admins for {}, not {}",
    "Ansprechpartner für {}: Frau Weber {}",
)
WORDS = ("amber", "basalt", "cobalt", "dune", "ember", "fjord", "garnet", "heron", "indigo", "juniper", "krill")


def facts(count: int, forms: tuple[str, ...]) -> list[str]:
    words = itertools.cycle(a + b for a in WORDS for b in WORDS)
    return [form.format(next(words), n + 2) for n, form in zip(range(count), itertools.cycle(forms), strict=False)]


def message(index: int, text: str) -> Message:
    counted = COUNTER.count(text)
    return Message(
        f"message-{index:04}",
        "t",
        "r",
        "user",
        (TextPart(text),),
        1_768_478_400_000 + index,
        index=index,
        tokens=counted,
    )


def noted(texts: list[str], room: int | None = None) -> str:
    messages = tuple(message(n, text) for n, text in enumerate(texts))
    return extract(ExtractiveObserver(COUNTER), ObserveInput("t", messages, "UTC", room=room)).text


def share(said: list[str], log: str) -> float:
    return sum(text in log for text in said) / len(said)


@pytest.mark.parametrize("forms", [ENGLISH, GERMAN, TERSE], ids=["English", "German", "terse"])
@pytest.mark.parametrize("count", [20, 60, 200, 600])
def test_facts_are_kept_one_a_message(count: int, forms: tuple[str, ...]) -> None:
    said = facts(count, forms)
    assert share(said, noted([f"{text}." for text in said])) >= 0.95


@pytest.mark.parametrize("sign", ["- ", "* ", "{}. ", "{}) ", ""])
@pytest.mark.parametrize("forms", [ENGLISH, GERMAN], ids=["English", "German"])
@pytest.mark.parametrize("count", [20, 60, 200, 600])
def test_lists_are_kept_whole(count: int, forms: tuple[str, ...], sign: str) -> None:
    said = facts(count, forms)
    rows = [sign.format(n + 1) + text for n, text in enumerate(said)]
    log = noted(["The requirements:\n" + "\n".join(rows)])
    assert share(said, log) >= 0.95
    assert "User quoted" not in log
    assert max(map(len, log.split("\n"))) <= MAX_LINE


@pytest.mark.parametrize("count", [3, 12, 40])
@pytest.mark.parametrize("forms", [ENGLISH, GERMAN], ids=["English", "German"])
def test_numbers_within_a_line_keep_their_text(count: int, forms: tuple[str, ...]) -> None:
    said = facts(count, forms)
    log = noted([" ".join(f"{n + 1}. {text}." for n, text in enumerate(said))])
    assert share(said, log) == 1.0


@given(st.integers(2, 60))
def test_what_has_no_room_is_counted_and_can_be_recalled(count: int) -> None:
    said = facts(count, ENGLISH)
    log = noted(["\n".join(f"- {text}" for text in said)], room=0)
    missing = sum(text not in log for text in said)
    if missing:
        assert f"… {missing} more statement" in log and "recall age-0000" in log


@pytest.mark.parametrize("forms", [ENGLISH, GERMAN, TERSE], ids=["English", "German", "terse"])
@pytest.mark.parametrize("count", [20, 60, 200, 600])
@pytest.mark.parametrize("between", ["\n", "\n\n", "; ", ", ", ". ", "\n   a) "])
def test_facts_are_kept_in_one_message(between: str, count: int, forms: tuple[str, ...]) -> None:
    said = facts(count, forms)
    log = noted([between.join(said)])
    assert share(said, log) >= 0.95 and "User quoted" not in log


@pytest.mark.parametrize("lead", ["Here is the article: ", "Can you tell me why "])
def test_a_text_that_is_cut_says_how_much_is_left_out(lead: str) -> None:
    text = f"{lead}{'the river ' * 300}"
    cut = re.search(r"… (\d+) more characters, recall age-0000$", noted([text]), re.MULTILINE)
    assert cut is not None and abs(int(cut[1]) - 2_600) < 50


# What programs print, and what is written for them; of each more lines than anyone types at once.
PRINTED = (
    "npm WARN deprecated pkg{0}@1.{0}.0: never use it",
    "tests/test_m{0}.py::test_case_{0} PASSED                 [ {0}%]",
    "  ✓ always renders the page {0} ({0} ms)",
    "   Compiling serde_{0} v1.0.{0}",
    "src/main.c:{0}:5: warning: unused variable 'x{0}'",
    "file_{0}.txt",
    "-rw-r--r-- 1 ben staff {0}00 Jan 12 10:01 file{0}.txt",
    "package-{0} {0}.1.0",
    "{0:07x} Always deploy on day {0}",
    "KEY_{0}=value {0}",
    "  image_{0}: always:{0}",
    '  "key{0}": "value {0}",',
    "{0},Ben{0},Rome",
    "X-Header-{0}: never cache {0}",
    "| row {0} | always | {0} |",
    "pod-{0}    Running    {0}d    always",
    "Step {0}/40 : RUN always install {0}",
    "sudo apt install pkg{0}",
    "[10:{0:02}] ben: never run the tests number {0}",
    "<li>Always do {0}</li>",
    "06.01.26, 10:{0:02} - Ann: always push {0}",
    "RUN apt-get install -y pkg{0}",
    " {0} | ben | always | {0}",
)


@pytest.mark.parametrize("line", PRINTED)
def test_long_outputs_and_settings_are_quotations(line: str) -> None:
    assert not any(p.own for p in iter_pieces("\n".join(line.format(n) for n in range(10, 50))))


def test_long_transcripts_diffs_and_wrapped_pages_are_quotations() -> None:
    chat = "\n".join(f"{('Ben', 'Ann')[n % 2]}: always push number {n} to main" for n in range(40))
    diff = "diff --git a/x b/x\n" + "\n".join(f"-  old line {n}\n+  new line {n}" for n in range(20))
    page = "\n".join(
        ["In the old days the city on the river grew faster than anyone had",
         "expected, although its merchants continued to trade with the",
         "villages around it. Then came the long winter of that year and",
         "the harbour froze over, which ended most of the traffic on it."] * 8
    )  # fmt: skip
    for text in (chat, diff, page):
        assert not any(p.own for p in iter_pieces(text)), text[:40]


def test_a_paste_says_how_much_is_left_out() -> None:
    rows = "\n".join(f"2026-01-15 12:00:{n:02} INFO step {n}" for n in range(40))
    log = noted([f"Here is the log:\n```\n{rows}\n```\nwhy?"])
    assert "more lines, recall age-0000" in log and "INFO step 7" not in log


JUDGING = ["I disagree with that.", "We won't do this.", "Never do it.", "What do you think?", "Please fix it.",
           "Ich sehe das anders.", "Bitte nicht machen.", "But I prefer rebasing.", "Why does it fail?",
           "Woran liegt das?"]  # fmt: skip
PAIRS = [("'", "'"), ('"', '"'), ("“", "”"), ("„", "“"), ("‘", "’"), ("«", "»"), ("`", "`")]


@pytest.mark.parametrize("judging", JUDGING)
@pytest.mark.parametrize("pair", PAIRS, ids=["".join(pair) for pair in PAIRS])
def test_quotation_marks_end_a_quotation(pair: tuple[str, str], judging: str) -> None:
    text = f"My colleague wrote: {pair[0]}always force push to main, don't ask{pair[1]} {judging}"
    own = " ".join(p.text for p in iter_pieces(text) if p.own)
    assert judging in own and "force push" not in own


@pytest.mark.parametrize("judging", [*JUDGING, "The port is 8080."])
def test_a_blank_line_ends_a_quotation_of_one_line(judging: str) -> None:
    for quoted in ("The README says: always force push", "The README says:\nalways force push"):
        own = [p.text.strip() for p in iter_pieces(f"{quoted}\n\n{judging}") if p.own]
        assert judging in own and "force push" not in " ".join(own)


def test_a_quoted_sentence_is_part_of_the_users() -> None:
    text = 'Rename the button "save the whole form" to "store all".'
    assert [p.text for p in iter_pieces(text) if p.own] == [text]


@pytest.mark.parametrize("judging", JUDGING)
def test_the_user_asks_or_judges_behind_a_longer_quotation(judging: str) -> None:
    text = f"From the Slack thread:\nalways force push\nnever run tests\n\n{judging}"
    own = " ".join(p.text for p in iter_pieces(text) if p.own)
    assert judging in own and "force push" not in own and "never run tests" not in own


@given(st.sampled_from(JUDGING), st.integers(1, 4))
def test_a_pasted_mail_stays_a_quotation(judging: str, paragraphs: int) -> None:
    body = "\n\n".join(f"Paragraph {n}: always deploy on Sundays." for n in range(paragraphs))
    for head in ("From: ben@x.test\nSubject: rules", "Mail from Ben:"):
        assert judging not in " ".join(p.text for p in iter_pieces(f"{head}\n\n{body}\n\n{judging}") if p.own)


@pytest.mark.parametrize("judging", [*JUDGING, "The budget is really 80k.", "Das stimmt nicht, es sind 80k."])
@pytest.mark.parametrize("ending", ["Bye\nBen", "Best regards,\nBen Ray", "Viele Grüße\n\nBen", "Gruß, Ben"])
def test_the_user_asks_or_judges_behind_a_signed_mail(judging: str, ending: str) -> None:
    text = f"From: ben@x.test\nSubject: rules\n\nHi,\n\nI always force push.\n\n{ending}\n\n{judging}"
    own = " ".join(p.text for p in iter_pieces(text) if p.own)
    assert judging in own and "force push" not in own and "Ben" not in own


@pytest.mark.parametrize("judging", [*JUDGING, "The port is 8080."])
def test_a_marked_reply_ends_with_its_marks(judging: str) -> None:
    text = f"On Mon, Jan 5, 2026 Ben wrote:\n> always force push\n> never run tests\n\n{judging}"
    own = " ".join(p.text for p in iter_pieces(text) if p.own)
    assert judging in own and "force push" not in own and "never run tests" not in own


@pytest.mark.parametrize("line", ["    return x{};", "2026-01-15 12:00:00 WARN always use {}", "at foo.bar{} (a.js:1)"])
def test_long_code_and_logs_are_quotations(line: str) -> None:
    text = "\n".join(line.format(n) for n in range(60))
    assert not any(p.own for p in iter_pieces(text))


def test_every_part_of_a_numbered_line_is_a_sentence() -> None:
    assert list(iter_sentences("1. Use tabs. 2. Python 3.11 only. 3. No new dependencies.")) == [
        "Use tabs.",
        "Python 3.11 only.",
        "No new dependencies.",
    ]
