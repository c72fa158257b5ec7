"""Compute with dates in the log: distances to today, and gaps between them. Pure; times in UTC ms.

The log has absolute dates, so that it never has to be rewritten. The distance to today is added when it is rendered;
it is computed from the day, so it changes once a day.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count

# The characters of \s and String.trim in JavaScript. Python's \s also has 0x1c-0x1f and 0x85, and lacks 0xfeff.
SPACE = "\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
S = f"[{SPACE}]"
_SPACES = re.sub(r"\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))), SPACE)
# ^ and $ with the m flag
BOL = r"(?:\A|(?<=[\n\r\u2028\u2029]))"
EOL = r"(?=[\n\r\u2028\u2029]|\Z)"


def trim(text: str) -> str:
    return text.strip(_SPACES)


def count_utf16(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text) if text.isascii() else len(encode_utf16(text)) // 2


def encode_utf16(text: str) -> bytes:
    """Encode as UTF-16 code units, two bytes each, for slicing."""
    return text.encode("utf-16-le", "surrogatepass")


def cut(text: str, limit: int) -> str:
    """Return the first `limit` UTF-16 units; a surrogate pair across the end is dropped."""
    if count_utf16(text) <= limit:
        return text
    head = encode_utf16(text)[: 2 * limit].decode("utf-16-le", "surrogatepass")
    return head[:-1] if "\ud800" <= head[-1:] <= "\udbff" else head


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse_date(month: str, day: int, year: int) -> int | None:
    """Return midnight of a date whose month is given by its first three letters; None for an invalid date.

    Days past the month's end run on into the next (31 February is 3 March), years below 100 are of the 1900s and
    2000s.
    """
    number = _MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in _MONTHS else 0
    if not number or not 1 <= day <= 31:
        return None
    if year < 100:
        year += 2000 if year < 50 else 1900
    start = datetime(year, number, 1, tzinfo=UTC) + timedelta(days=day - 1)
    return int(start.timestamp()) * 1000


def format_relative_time(date: int, now: int) -> str:
    """Format a distance: `yesterday`, `3 weeks ago`, `in 2 months`.

    Whole days between the two, then weeks, months of 30 days and years of 365.
    """
    days = (now - date) // DAY
    if days == 0:
        return "today"
    if abs(days) == 1:
        return "yesterday" if days > 0 else "tomorrow"
    size = abs(days)
    for limit, length, unit in ((7, 1, "day"), (30, 7, "week"), (365, 30, "month"), (math.inf, 365, "year")):
        if size < limit:
            text = format_count(size // length, unit)
            return f"{text} ago" if days > 0 else f"in {text}"
    raise AssertionError


def format_gap_between_dates(previous: int, current: int) -> str | None:
    """Format the gap between two dates, as `[2 weeks later]`, from two days on, else None."""
    days = (current - previous) // DAY
    if days < 2:
        return None
    for limit, length, unit in ((7, 1, "day"), (30, 7, "week"), (math.inf, 30, "month")):
        if days < limit:
            return f"[{format_count(days // length, unit)} later]"
    raise AssertionError


_EXACT = lazy_pattern(rf"([A-Z][a-z]+){S}+([0-9]{{1,2}})(?:-[0-9]{{1,2}})?,?{S}+([0-9]{{4}})")
_PART = lazy_pattern(
    rf"(early|mid|late)[- ]?(?:to[- ]?(?:early|mid|late)[- ]?)?([A-Z][a-z]+){S}+([0-9]{{4}})",
    re.IGNORECASE | re.ASCII,
)
_SPAN = lazy_pattern(rf"([A-Z][a-z]+){S}+to{S}+([A-Z][a-z]+){S}+([0-9]{{4}})", re.IGNORECASE | re.ASCII)
_PART_DAY = {"early": 7, "mid": 15, "late": 23}


def parse_date_from_content(text: str) -> int | None:
    """Return the date that a phrase names; None if it is too vague.

    `May 27-28, 2023` gives its first day, `late April 2023` the 23rd, `May to June 2023` the first of June.
    """
    if (m := _EXACT.search(text)) and (date := parse_date(m[1], int(m[2]), int(m[3]))) is not None:
        return date
    if (m := _PART.search(text)) and (date := parse_date(m[2], _PART_DAY[m[1].lower()], int(m[3]))) is not None:
        return date
    if m := _SPAN.search(text):
        return parse_date(m[2], 1, int(m[3]))
    return None


_INTENT = lazy_pattern(
    rf"\bwill{S}+\w+\b|\b(?:plans?|planning|going|wants?|about|intends?|needs?|looking{S}+forward){S}+to\b",
    re.IGNORECASE | re.ASCII,
)


def is_future_intent_observation(text: str) -> bool:
    return bool(_INTENT.search(text))


_INLINE = lazy_pattern(rf"\((estimated|meaning){S}+([^)]+[0-9]{{4}})\)", re.IGNORECASE)


def expand_inline_estimated_dates(text: str, now: int) -> str:
    """Add the distance to inline dates such as `(meaning May 20, 2023)`.

    Also `likely already happened` where the line's text before it states a plan and the day is past.
    """

    def replace_date(match: re.Match[str]) -> str:
        date = parse_date_from_content(match[2])
        if date is None:
            return match[0]
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        past = ", likely already happened" if date < now and is_future_intent_observation(before) else ""
        return f"({match[1]} {match[2]} - {format_relative_time(date, now)}{past})"

    return _INLINE.sub(replace_date, text)


_HEADER = lazy_pattern(rf"{BOL}(Date:{S}*)([A-Z][a-z]+ [0-9]{{1,2}}, [0-9]{{4}}){EOL}")
_HEADER_DATE = lazy_pattern(r"([A-Z][a-z]+) (\d{1,2}), (\d{4})")


def parse_header_date(text: str) -> int | None:
    match = _HEADER_DATE.fullmatch(text)
    return parse_date(match[1], int(match[2]), int(match[3])) if match else None


def last_header(text: str) -> int | None:
    """Return the date of the last `Date:` line of a text, or None."""
    dates = [d for m in _HEADER.finditer(text) if (d := parse_header_date(m[2])) is not None]
    return dates[-1] if dates else None


def add_relative_time_to_observations(text: str, now: int, previous: int | None = None) -> str:
    """Add distances to `now` to date headers, gap lines between headers, and expand inline dates.

    A gap line is added where days were skipped since the previous header (`previous` for the first).
    """
    text = expand_inline_estimated_dates(text, now)

    def replace_header(match: re.Match[str]) -> str:
        nonlocal previous
        date = parse_header_date(match[2])
        if date is None:
            return match[0]
        gap = None if previous is None else format_gap_between_dates(previous, date)
        previous = date
        before = f"\n{gap}\n\n" if gap else ""
        return f"{before}{match[1]}{match[2]} ({format_relative_time(date, now)})"

    return _HEADER.sub(replace_header, text)


# unit, its length in ms, the smaller unit that may follow
_GAP_UNITS: tuple[tuple[str, int, tuple[Literal["month", "week", "day", "hour", "minute"], int]], ...] = (
    ("year", 365 * DAY, ("month", 30 * DAY)),
    ("month", 30 * DAY, ("week", 7 * DAY)),
    ("week", 7 * DAY, ("day", DAY)),
    ("day", DAY, ("hour", HOUR)),
    ("hour", HOUR, ("minute", MINUTE)),
)
GAP_FROM = 10 * MINUTE


def format_temporal_gap(gap: float) -> str | None:
    """Format `gap` milliseconds in the two largest units; None below ten minutes.

    Example: `1 hour 5 minutes later`.
    """
    if gap < GAP_FROM:
        return None
    for unit, length, (smaller, smaller_length) in _GAP_UNITS:
        if gap >= length:
            quantity = int(gap // length)
            rest = int((gap - quantity * length) // smaller_length)
            return f"{format_count(quantity, unit)}{f' {format_count(rest, smaller)}' if rest else ''} later"
    return f"{format_count(math.floor(gap / MINUTE + 0.5), 'minute')} later"


# --- relative dates ---------------------------------------------------------------------------------------

_WEEKDAYS = {
    name: number
    for number, names in enumerate(("mon montag", "tues dienstag", "wednes mittwoch", "thurs donnerstag", "fri freitag",
                                    "satur samstag", "sun sonntag"))
    for name in names.split()
}  # fmt: skip
_DAYS = {
    "the day before yesterday": -2, "vorgestern": -2, "yesterday": -1, "gestern": -1, "tomorrow": 1, "morgen": 1,
    "the day after tomorrow": 2, "übermorgen": 2,
}  # fmt: skip
_RELATIVE = lazy_pattern(
    r"\b(?P<day>the day (?:before yesterday|after tomorrow)|yesterday|tomorrow|vorgestern|gestern|übermorgen)\b|"
    r"(?<!heute )(?<!gestern )(?<!jeden )(?<!am )(?<!guten )\b(?P<morning>morgen)\b|"
    r"\b(?P<which>next|this|coming|last|nächste[nr]?|kommende[nr]?|diese[nr]?|letzte[nr]?|vergangene[nr]?)\s"
    r"(?:(?P<english>mon|tues|wednes|thurs|fri|satur|sun)day|"
    r"(?P<german>(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch))\b|"
    r"\b(?P<ahead>in )(?P<count>\d{1,3}) (?P<unit>days?|weeks?|tagen?|wochen?)\b|"
    r"\b(?P<back>vor )?(?P<count2>\d{1,3}) (?P<unit2>days?|weeks?|tagen?|wochen?)\b(?P<ago> ago)?",
    re.IGNORECASE,
)


def resolve_relative(text: str, time: int, timezone: str | None) -> str:
    """Return the dates, such as "Jan 16, 2026", of "tomorrow" or "vor 3 Tagen", relative to `time`."""
    today = datetime.fromtimestamp(time / 1000, load_zone(timezone)).date()
    days = (_count_days_ahead(match, today.weekday()) for match in _RELATIVE.finditer(text))
    dates = (today + timedelta(days=ahead) for ahead in days if ahead is not None)
    return ", ".join(dict.fromkeys(f"{_NAMES[d.month - 1]} {d.day}, {d.year}" for d in dates))


def _count_days_to_weekday(match: re.Match[str], weekday: int) -> int:
    """Return the days to the next or last weekday of that name; 1 to 7 in either direction."""
    target = _WEEKDAYS[(match["english"] or match["german"]).casefold()]
    if match["which"].casefold().startswith(("last", "letzte", "vergangene")):
        return -((weekday - target - 1) % 7 + 1)
    return (target - weekday - 1) % 7 + 1


def _count_days_ahead(match: re.Match[str], weekday: int) -> int | None:
    if day := match["day"] or match["morning"]:
        return _DAYS[day.casefold()]
    if match["which"]:
        return _count_days_to_weekday(match, weekday)
    number, unit = match["count"] or match["count2"], match["unit"] or match["unit2"]
    days = int(number) * (7 if unit[0] in "wW" else 1)
    return days if match["ahead"] else -days if match["ago"] or match["back"] else None


# --- local time -------------------------------------------------------------------------------------------


def load_zone(name: str | None) -> ZoneInfo:
    """Return the time zone of that name; UTC if it is unknown."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def format_day(time: int, timezone: str | None) -> str:
    """Format the local day as headers do: `Dec 4, 2025`."""
    local = datetime.fromtimestamp(time / 1000, load_zone(timezone))
    return f"{_NAMES[local.month - 1]} {local.day}, {local.year}"


def format_clock(time: int, timezone: str | None) -> str:
    return datetime.fromtimestamp(time / 1000, load_zone(timezone)).strftime("%H:%M")


def get_noon(time: int, timezone: str | None) -> int:
    """Return noon (as UTC) of the local day: a `now` that gives the same distances all day long."""
    return _compute_noon(time // 60_000, timezone)


@lru_cache(16)
def _compute_noon(minute: int, timezone: str | None) -> int:
    local = datetime.fromtimestamp(minute * 60, load_zone(timezone))
    return int(datetime(local.year, local.month, local.day, 12, tzinfo=UTC).timestamp()) * 1000
