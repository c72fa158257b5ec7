"""Extract exact claims of a log line: addresses, quotations, paths, hashes, dates, figures, names.

Pure.

Every pattern examines a bounded part of a line, so that the time is linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.log import lines
from sakti.memory.statements import lexicon

Kind: TypeAlias = Literal[
    "url", "quote", "path", "host", "hash", "date", "number", "version", "symbol", "name", "speaker"
]

WORD = 200  # characters of a word that are examined
_LONG = lazy_pattern(rf"(?<!\S)(\S{{{WORD}}})\S+")
_URL = lazy_pattern(r"\b[a-z][a-z0-9+.-]{1,12}://[^\s)>\]\"'`]{1,200}", re.IGNORECASE)
_QUOTED = lazy_pattern(r"`([^`\n]{2,200})`|\"([^\"\n]{3,200})\"|“([^”\n]{3,200})”")
_HOST = lazy_pattern(
    r"(?<![\w@/.-])(?:[\w.+-]{1,60}@)?(?:[a-z0-9](?:[a-z0-9-]{0,60})\.){1,6}(?:com|org|net|io|dev|app|ai|co|de|eu|uk|fr|"
    r"ch|at|nl|se|no|fi|dk|es|it|pl|ru|cn|jp|us|ca|au|br|gov|edu|info|biz|cloud|local|internal|intern|lan|test|example|"
    r"invalid|home|corp)(?:/[\w.~/-]{0,100})?(?!\w|\.\w)",
    re.IGNORECASE,
)
_FOLDER = lazy_pattern(r"(?<![\w./:~-])~?(?:/[\w.@-]{1,80}){2,12}/?")
HASH = lazy_pattern(r"(?<![\w-])(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}(?![\w-])")
_TIMES = r"[kKmM](?![\w-])|\s(?:thousand|million|billion|tausend|millionen|mio|mrd|milliarden)\b"
FIGURE = rf"\d{{1,20}}(?:[.,]\d{{1,20}}){{0,6}}(?:e-?\d{{1,3}})?(?:{_TIMES})?"
UNITS = {
    "time": {
        1e-9: "ns",
        1e-6: "µs us",
        1e-3: "ms millisecond milliseconds millisekunden",
        1: "s sec secs second seconds sekunde sekunden",
        60: "m min mins minute minutes minuten",
        3_600: "h hr hrs hour hours stunde stunden",
        86_400: "d day days tag tage tagen",
        604_800: "week weeks woche wochen",
        2_628_000: "month months monat monate monaten",
        31_536_000: "year years jahr jahre jahren",
    },
    "size": {
        1: "b byte bytes",
        1_000: "kb",
        1_024: "kib",
        1_000_000: "mb",
        1_048_576: "mib",
        1_000_000_000: "gb",
        1_073_741_824: "gib",
        1_000_000_000_000: "tb",
    },
    "share": {0.01: "% percent prozent"},
    "px": {1: "px pixel pixels"},
    "rate": {1: "req/s"},
    "frequency": {1: "hz", 1_000: "khz", 1_000_000: "mhz", 1_000_000_000: "ghz"},
    "lines": {1: "lines line"},
    "tokens": {1: "tokens token"},
    "rows": {1: "rows row"},
    "times": {1: "times"},
}
OF_UNIT = {
    word: (kind, size) for kind, sizes in UNITS.items() for size, words in sizes.items() for word in words.split()
}
_UNIT = "|".join(sorted(map(re.escape, OF_UNIT), key=len, reverse=True))
WORDS = {
    word: value
    for value, words in {
        1: "one ein eine einen", 2: "two zwei", 3: "three drei", 4: "four vier", 5: "five fünf", 6: "six sechs",
        7: "seven sieben", 8: "eight acht", 9: "nine neun", 10: "ten zehn", 11: "eleven elf", 12: "twelve zwölf dozen",
        15: "fifteen fünfzehn", 20: "twenty zwanzig", 30: "thirty dreißig", 40: "forty vierzig", 50: "fifty fünfzig",
        60: "sixty sechzig", 90: "ninety neunzig", 100: "hundred hundert", 1_000: "thousand tausend",
    }.items()
    for word in words.split()
}  # fmt: skip
QUANTITY = lazy_pattern(
    rf"(?<![\w.])(?P<figure>{FIGURE}|(?:{'|'.join(WORDS)})\b)[\s-]?(?P<unit>{_UNIT})(?![\w/])", re.IGNORECASE
)
_VERSION = lazy_pattern(r"(?<![\w./:-])v?\d{1,9}\.\d{1,9}(?:\.\d{1,9}){0,4}(?:[-+][\w.]{1,40})?(?![\w/%])")
NUMBER = lazy_pattern(FIGURE, re.IGNORECASE)
_COUNTS = lazy_pattern(r"\s[^\W\d_]{3,40}")  # a single digit counts if it precedes a noun, or is assigned
_IS_VALUE = lazy_pattern(
    r"(?:\b(?:(?-i:[A-Z][a-z]+)|to|from|is|are|at|of|after|every|auf|ist|von|nach|alle)|[=:])\s$", re.IGNORECASE
)
_SYMBOL = lazy_pattern(
    r"(?<![\w./-])(?:_{0,3}[a-z0-9]{1,60}(?:_[A-Za-z0-9]{1,60}){1,9}|[A-Z]{2,60}(?:_[A-Z0-9]{1,60}){1,9}|"
    r"[a-z]{1,60}[A-Z]\w{0,90}|[A-Z][a-z]{1,60}[A-Z]\w{0,90}|[A-Za-z]\w{0,60}(?:-\w{1,60}){0,5}-[a-z]{0,20}\d{1,9}|"
    r"\w{2,60}(?=\(\)))\b"
)
_MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|mär(?:z)?|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?|"
    r"sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)"
)
DATE = lazy_pattern(
    r"(?<![\w.-])(?:(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)(?!\d)|(?P<d2>[0-3]?\d)\.\s?(?P<m2>[01]?\d)\.(?:\d{4}\b|(?![\w.]))|"
    r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/\d{2,4}\b|"
    rf"(?P<d3>\d{{1,2}})(?:st|nd|rd|th|\.)?\s(?:of\s)?(?P<m3>{_MONTH})\b\.?(?:,?\s\d{{4}}\b)?|"
    rf"(?P<m4>{_MONTH})\b\.?\s(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?(?!\w)(?:,?\s\d{{4}}\b)?|"
    rf"(?P<m5>{_MONTH})\b\.?,?\s\d{{4}}\b)",
    re.IGNORECASE,
)
WEEKDAY = lazy_pattern(
    r"\b(?P<day>mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)day(?:s|['’]s)?\b|"
    r"\b(?P<tag>mon|diens|donners|frei|sams|sonn)tags?\b|\b(?P<mitte>mittwochs?)\b",
    re.IGNORECASE,
)
WEEKDAYS = {
    name: number
    for number, names in enumerate(("mon", "tue diens", "wed mittw", "thu donne", "fri frei", "sat sams", "sun sonn"))
    for name in names.split()
}
CLOCK = lazy_pattern(
    r"(?<![\d:.])(?P<h>\d{1,2}):(?P<min>\d\d)(?::\d\d)?(?![\d:])\s?(?P<half>[ap]\.?m\b)?", re.IGNORECASE
)
_NAME = lazy_pattern(r"(?<![\w'’./@#-])[A-ZÄÖÜØÅÉ][a-zà-öø-ÿß]{2,40}(?![\w.@/-]*[\w@/])")
_BEGINS = lazy_pattern(r"(?:^|[.!?:;|*(\[\"“„→>–—/]|->)\s*$")  # the next word has a capital in any case
_TITLE = lazy_pattern(r"\b(?:Herrn?|Frau|Dr\.|Prof\.|Kolleg(?:e|in|en))\s$")
_GERMAN = frozenset(
    "die des ein eine einen einem von zu zum noch nur nie ergänzte las fand hat "
    "alle vorher waren es wurde werden dass möchte keine beim bis nach seit aus sich noch als wie".split()
)
# Names that need no source: everybody knows them.
_COMMON = frozenset(
    """user agent assistant observer english german deutsch englisch french spanish monday tuesday wednesday thursday
    friday saturday sunday internet unicode ascii boolean regex readme primary secondary next goal""".split()
)
_PERSON_DOES = lazy_pattern(
    r"\s(?:from \w+ )?(?:said|says|told|asked|asks|wants|wanted|approved|reviewed|reviews|confirmed|decided|agreed|"
    r"requested|prefers|preferred|owns|leads|maintains|joined|left|quit|signs|signed|suggested|proposed|recommended|"
    r"wrote|rebuilt|built|fixed|promised|insists|thinks|believes|takes over|took over|is (?:on (?:call|leave|vacation|"
    r"holiday|duty)|sick|ill|away|responsible|in charge|the (?:lead|owner|maintainer|contact|manager|author))|"
    r"and [A-Z][a-z]+ (?:are|maintain|own|lead|want|agreed|decided))\b"
)
_NO_PERSON = lazy_pattern(
    r".*(?:s|tion|ment|ance|ence|ity|ness|ing|er|or|age|ure|ship|ism|ed|ody|one)|Team|Client|Staff|Management|Marketing|"
    r"Finance|Support|Legal|Design|Company|Board|Nobody|They|She|The|Who|Boss|Chef|Kunde|Script|Commit|Build|Test"
)


class Claim(Struct, frozen=True):
    """Exact claim of a line, in its spelling there."""

    kind: Kind
    text: str


_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("host", _HOST),
    ("path", _FOLDER),
    ("hash", HASH),
    ("date", DATE),
    ("date", WEEKDAY),
    ("date", CLOCK),
    ("number", QUANTITY),
    ("version", _VERSION),
    ("symbol", _SYMBOL),
)


def iter_claims(content: str) -> Iterator[Claim]:
    """Yield all claims of a line that can be checked, without duplicates."""
    rest = original = cut(content)
    for match in _URL.finditer(rest):
        yield Claim("url", match[0].rstrip(".,;:"))
    rest = _URL.sub(_replace_by_blanks, rest)
    for match in _QUOTED.finditer(rest):  # the complete quotation, before the paths inside it are removed
        yield Claim("quote", match[0])
    rest = _QUOTED.sub(_replace_by_blanks, rest)
    for path in lines.find_references(rest)[0]:
        if _HOST.fullmatch(path):
            continue
        yield Claim("path", path)
        rest = rest.replace(path, " " * len(path))
    for kind, pattern in _KINDS:
        for match in pattern.finditer(rest):
            yield Claim(kind, match[0] if kind == "date" else match[0].rstrip(".,:"))
        rest = pattern.sub(_replace_by_blanks, rest)
    for match in NUMBER.finditer(rest):
        if len(match[0]) == 1 and rest[: match.start()][-1:].isalnum():
            continue
        if len(match[0]) > 1 or _COUNTS.match(rest, match.end()) or _IS_VALUE.search(rest, 0, match.start()):
            yield Claim("number", match[0])
    yield from (Claim("name", name) for name in _iter_names(original, rest))


def cut(text: str) -> str:
    """Cut overlong words, on which patterns would take too long."""
    return _LONG.sub(r"\1", text)


def _replace_by_blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _iter_names(whole: str, rest: str) -> Iterator[str]:
    """Yield names: capitalised words inside sentences, and subjects of verbs that only fit people.

    In German, where every noun has a capital, those after "Herr" and "Frau".
    """
    words = {w.casefold().strip(".,:;()") for w in whole.split()}
    german = bool(words & (_GERMAN | lexicon.load_words("german")))
    for match in _NAME.finditer(rest):
        name, before = match[0], whole[max(0, match.start() - 20) : match.start()]
        low = name.casefold()
        if low in _COMMON or low in lexicon.load_words("empty") or lexicon.MONTHS.fullmatch(low):
            continue
        titled = bool(_TITLE.search(before))
        if not titled and (_BEGINS.search(before) or match.start() == 0):
            if _PERSON_DOES.match(whole, match.end()) and not _NO_PERSON.fullmatch(name) and not german:
                yield name
        elif titled or not german:
            yield name
