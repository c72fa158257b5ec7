"""What the extractive Observer makes of "tomorrow": the date, at the end of the line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart
from sakti.memory.log import dates
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.protocol import ObserveInput
from tests.fakes.observers import extract

THURSDAY = 1_768_478_400_000  # 2026-01-15 12:00 UTC
ENGLISH = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
GERMAN = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("The demo is tomorrow.", "Jan 16, 2026"),
        ("We shipped it yesterday", "Jan 14, 2026"),
        ("the day after tomorrow we freeze", "Jan 17, 2026"),
        ("due in 3 weeks", "Feb 5, 2026"),
        ("it broke 10 days ago", "Jan 5, 2026"),
        ("Die Demo ist morgen.", "Jan 16, 2026"),
        ("Das ging vorgestern kaputt", "Jan 13, 2026"),
        ("in 2 Tagen ist Abgabe", "Jan 17, 2026"),
        ("vor 2 Wochen war es gut", "Jan 1, 2026"),
        ("yesterday and tomorrow", "Jan 14, 2026, Jan 16, 2026"),
        ("Guten morgen, heute morgen ging es noch", ""),
        ("recently, soon, 3 days of work", ""),
    ],
)
def test_relative_dates_are_resolved(text: str, date: str) -> None:
    assert dates.resolve_relative(text, THURSDAY, "UTC") == date


@given(st.integers(0, 400), st.integers(0, 6), st.sampled_from([ENGLISH, GERMAN]))
def test_weekdays_are_within_a_week(offset: int, weekday: int, names: tuple[str, ...]) -> None:
    said = datetime.fromtimestamp(THURSDAY / 1000, UTC) + timedelta(days=offset)
    for word, sign in (("next", 1), ("last", -1)) if names is ENGLISH else (("nächsten", 1), ("letzten", -1)):
        text = dates.resolve_relative(f"{word} {names[weekday]}", int(said.timestamp() * 1000), "UTC")
        meant = datetime.strptime(text, "%b %d, %Y").date()
        assert meant.weekday() == weekday
        assert 1 <= sign * (meant - said.date()).days <= 7


def test_lines_of_the_user_end_with_the_date_that_is_meant() -> None:
    late = THURSDAY + 11 * 3_600_000 + 1_800_000  # 23:30 UTC is the next day in Berlin
    message = Message("m", "t", "r", "user", (TextPart("The release is tomorrow."),), late, tokens=9)
    for zone, date in (("UTC", "Jan 16, 2026"), ("Europe/Berlin", "Jan 17, 2026")):
        text = extract(ExtractiveObserver(Estimator()), ObserveInput("t", (message,), zone)).text
        assert text.endswith(f"The release is tomorrow. (meaning {date})")
