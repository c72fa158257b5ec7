"""Parse the months and days named in a question, and find texts that state a time. Pure."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from sakti.core.lazy import lazy_pattern

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
AFTER = 7 * 24 * 3_600_000  # ms: events are often reported in the days after
TOLD_AFTER = 0.7  # score of a text written in the week after the named days
LATEST = datetime.datetime(9990, 1, 1)

_ASCII = re.IGNORECASE | re.ASCII  # without ASCII, ſ matches s
_NAMES = "|".join(f"{m[:3]}(?:{m[3:]})?" if len(m) > 3 else m for m in MONTHS) + "|sept"
_CLEAR_NAMES = _NAMES.replace("|may|", "|")
_NAMED = lazy_pattern(rf"\d{{4}}|{_NAMES}")  # every named time contains one of these
_DAY_MONTH = lazy_pattern(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_NAMES})\b\.?,?\s*(\d{{4}})?", _ASCII)
_MONTH_DAY = lazy_pattern(rf"\b({_NAMES})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d),?\s*(\d{{4}})?", _ASCII)
_MONTH = lazy_pattern(rf"\b(in|of|since|during|early|late|mid|last|this)?[ -]*({_NAMES})\b,?\s*(\d{{4}})?", _ASCII)
_ISO = lazy_pattern(r"\b(\d{4})-(\d\d)(?:-(\d\d))?\b")
_YEAR = lazy_pattern(r"\b(?:in|of|during|since)\s+(\d{4})\b", _ASCII)

_ASKS_WHEN = lazy_pattern(
    r"\s*(?:(?:since|until|by|from) )?(?:when (?:did|do|does|was|were|is|are|has|have|had|will)|how (?:long|often)"
    r"|(?:on |in )?(?:what|which) (?:date|day|month|year|time))\b",
    _ASCII,
)
_WEEKDAYS = "mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs(?:day)?)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?"
_SAYS_WHEN = lazy_pattern(
    rf"\b(?:yesterday|today|tonight|last night|tomorrow|ago|recently|{_WEEKDAYS}|{_CLEAR_NAMES}"
    r"|(?:19|20)\d\d|\d\d?:\d\d|(?:minute|hour|day|week|weekend|month|year)s?|this (?:morning|afternoon|evening))\b"
)


def asks_when(text: str) -> bool:
    """Return whether a question asks for a time or a duration."""
    return _ASKS_WHEN.match(text) is not None


def says_when(text: str) -> bool:
    """Return whether a text states a time or a duration."""
    return _SAYS_WHEN.search(text.lower()) is not None  # a third of the time of IGNORECASE


def is_of(at: int, spans: Iterable[tuple[int, int]]) -> float:
    """Return 1 for a text written in one of `spans`, less for the week after, else 0 (Unix ms)."""
    return max((1.0 if at < end else TOLD_AFTER for start, end in spans if start <= at < end + AFTER), default=0.0)


def names_time(text: str) -> bool:
    """Return whether a text may name a month, a day or a year."""
    return _NAMED.search(text.lower()) is not None


def find_named_times(text: str, newest: int) -> list[tuple[int, int]]:
    """Return the spans (from, to; Unix ms, local time) that a question names.

    A month without a year is its last before `newest`, the time of the newest text.
    """
    try:
        latest = datetime.datetime.fromtimestamp(newest / 1000)
    except (ValueError, OverflowError, OSError):  # invalid time of day
        latest = LATEST
    days = [span for named in _find_named_days(text) if (span := _compute_span(latest, *named))]
    return days or [span for match in _YEAR.finditer(text) if (span := _compute_year_span(latest, int(match[1])))]


def _find_named_days(text: str) -> Iterator[tuple[str | None, int, str | None]]:
    """Yield year, month and day of the dates and months that a text names."""
    for match in _ISO.finditer(text):
        if 1 <= int(match[2]) <= 12:
            yield match[1], int(match[2]), match[3]
    for match in _DAY_MONTH.finditer(text):
        yield match[3], _parse_month(match[2]), match[1]
    rest = _DAY_MONTH.sub(" ", text)
    for match in _MONTH_DAY.finditer(rest):
        yield match[3], _parse_month(match[1]), match[2]
    for match in _MONTH.finditer(_MONTH_DAY.sub(" ", rest)):
        # "may" and "march" are ordinary words: they need "in" before or a year after them
        if match[1] or match[3] or match[2].lower() not in ("may", "mar", "march", "dec", "sep", "jan"):
            yield match[3], _parse_month(match[2]), None


def _parse_month(name: str) -> int:
    return next(i for i, m in enumerate(MONTHS, 1) if m.startswith(name.lower()[:3]))


def _compute_span(latest: datetime.datetime, year: str | None, month: int, day: str | None) -> tuple[int, int] | None:
    """Return the span of a day or a month; None if it does not exist."""
    number = int(year) if year else latest.year - (month > latest.month)
    try:
        start = datetime.datetime(number, month, int(day) if day else 1)
        end = start + datetime.timedelta(days=1) if day else (start + datetime.timedelta(days=32)).replace(day=1)
    except (ValueError, OverflowError):
        return None
    return _to_milliseconds(start, end)


def _compute_year_span(latest: datetime.datetime, year: int) -> tuple[int, int] | None:
    """Return the span of a year; None if no text can be from it."""
    return (
        _to_milliseconds(datetime.datetime(year, 1, 1), datetime.datetime(year + 1, 1, 1))
        if 1970 <= year <= latest.year
        else None
    )


def _to_milliseconds(start: datetime.datetime, end: datetime.datetime) -> tuple[int, int] | None:
    """Return a span in Unix ms; None for a year that the platform does not support."""
    try:
        return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


class RelativeTime(Struct, frozen=True):
    """Time that a query names relative to now, from `start` to `end` (Unix ms); `rest`: the other words."""

    name: str
    start: int
    end: int
    rest: str

    @property
    def described(self) -> str:
        """Return the name of the time with its first and last day."""
        first, last = (time.strftime("%Y-%m-%d", time.localtime(at / 1000)) for at in (self.start, self.end - 1))
        return f"{self.name} ({first if first == last else f'{first} to {last}'})"


_NUMBERS = {
    **{word: n for n, word in enumerate("one two three four five six seven eight nine ten".split(), 1)},
    **{"a": 1, "an": 1, "a couple of": 2},
}
_COUNT = rf"\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}"
_UNIT = "minute|hour|day|week|month|year"
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_RELATIVE = lazy_pattern(
    r"(?<![\w-])(?:(?P<since>since)\s+|from\s+|during\s+|on\s+|in\s+)?(?:the\s+)?(?:"
    r"(?P<day>day before yesterday|yesterday|today)|"
    rf"(?P<count>{_COUNT})\s+(?P<ago>{_UNIT})s?\s+ago|"
    rf"(?:last|past)\s+(?P<many>{_COUNT})\s+(?P<units>{_UNIT})s?|"
    r"(?P<which>this|last|past)\s+(?P<unit>week|month|year)|"
    rf"(?P<on>on|last|this|since)?\s*(?P<weekday>{'|'.join(_DAY_NAMES)})"
    r")(?![\w-])",
    _ASCII,
)
_BEFORE_A_DAY = ("on", "last", "this", "since", "from")
SENTENCE = 12  # words; in longer text such words are part of the content


def parse_relative_time(text: str, now: datetime.datetime) -> RelativeTime | None:
    """Parse the relative time in a short query, such as "3 days ago"; `now` is local time."""
    if len(text.split()) > SENTENCE:
        return None
    for match in _RELATIVE.finditer(text):
        name = match[0].strip()
        rest = " ".join(f"{text[: match.start()]} {text[match.end() :]}".split())
        if match["weekday"] and rest and name.lower().split()[0] not in _BEFORE_A_DAY:
            continue  # may be part of a name: the Friday release
        start, end = _parse_span(match, now)
        if match["since"] or name.lower().startswith("since"):
            end = now + datetime.timedelta(seconds=1)
        return RelativeTime(name, int(start.timestamp() * 1000), int(end.timestamp() * 1000), rest)
    return None


def _parse_span(match: re.Match[str], now: datetime.datetime) -> tuple[datetime.datetime, datetime.datetime]:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if day := match["day"]:
        back = ("today", "yesterday", "day before yesterday").index(" ".join(day.lower().split()))
        return _compute_unit_span(midnight - datetime.timedelta(days=back), "day")
    if match["count"]:
        return _compute_past_span(now, midnight, _number(match["count"]), match["ago"].lower())
    if match["many"]:
        unit = match["units"].lower()
        start, _ = _compute_past_span(now, midnight, _number(match["many"]), unit)
        return start, now + datetime.timedelta(seconds=1)
    if match["unit"]:
        start, end = _compute_unit_span(midnight, unit := match["unit"].lower())
        return (
            (start, end)
            if match["which"].lower() == "this"
            else _compute_unit_span(start - datetime.timedelta(days=1), unit)
        )
    back = (midnight.weekday() - _DAY_NAMES.index(match["weekday"].lower())) % 7
    is_last = match[0].lower().lstrip().startswith("last")
    return _compute_unit_span(midnight - datetime.timedelta(days=back or 7 * is_last), "day")


def _compute_past_span(
    now: datetime.datetime, midnight: datetime.datetime, count: int, unit: str
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the day, week, month or year at that distance; or a span around the hour or minute."""
    if unit in ("minute", "hour"):
        length = datetime.timedelta(**{f"{unit}s": 1})
        return now - (count + 1) * length, now - max(0, count - 1) * length
    start = midnight
    if unit in ("day", "week"):
        start -= datetime.timedelta(days=count * (7 if unit == "week" else 1))
    else:
        months = start.year * 12 + start.month - 1 - count * (12 if unit == "year" else 1)
        start = start.replace(year=max(1, months // 12), month=months % 12 + 1, day=1)
    return _compute_unit_span(start, unit)


def _compute_unit_span(at: datetime.datetime, unit: str) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the day, week (from Monday), month or year that contains a midnight."""
    if unit == "day":
        return at, at + datetime.timedelta(days=1)
    if unit == "week":
        start = at - datetime.timedelta(days=at.weekday())
        return start, start + datetime.timedelta(days=7)
    if unit == "month":
        start = at.replace(day=1)
        return start, (start + datetime.timedelta(days=32)).replace(day=1)
    return at.replace(month=1, day=1), at.replace(year=at.year + 1, month=1, day=1)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text.lower()]
