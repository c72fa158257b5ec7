"""Word lists and phrase patterns of statements, from `lexicon.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from sakti.core.lazy import lazy_pattern

# Precedes a full stop that only ends an abbreviation or an initial.
_SHORT_WORDS = (
    "Dr Mr Mrs Ms Prof Hr Fr Nr St Str Abs Abt Tel Std MwSt Mio Mrd ca vs bzw vgl gem approx inkl exkl zzgl max min "
    "evtl ggf [A-Z]"
)
_NOT_SHORT = "".join(rf"(?<!\b{word}\.)" for word in _SHORT_WORDS.split())
# The boundary between two sentences, with any number of spaces.
BETWEEN_SENTENCES = (
    rf"(?<=[.!?…]){_NOT_SHORT}\s+(?=[\"'`(\[]?[A-Z0-9`]|\[(?!earlier|replaces|unverified)[a-z])"
    r"(?!(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-zä]*\b)"
)
MONTHS = lazy_pattern(
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?|"
    r"sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)",
    re.IGNORECASE,
)
DAYS = lazy_pattern(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|noon|midnight|"
    r"mittags|mitternacht)",
    re.IGNORECASE,
)
NUMBERS = {
    word: str(value)
    for words in ("two three four five six seven eight nine ten", "zwei drei vier fünf sechs sieben acht neun zehn")
    for value, word in enumerate(words.split(), 2)
}


@cache
def _load_sections() -> dict[str, str]:
    return tomllib.loads((Path(__file__).with_name("lexicon.toml")).read_text("utf-8"))


@cache
def load_words(name: str) -> frozenset[str]:
    return frozenset(_load_sections()[name].split())


@cache
def compile_phrases(name: str) -> re.Pattern[str]:
    """Return a pattern that finds any of the phrases of a list, ignoring case, at word boundaries."""
    listed = re.split(r",\s+", _load_sections()[name].strip().replace("|\n", "|"))
    plain = "|".join(p for p in listed if p[:1].isalnum() or p[:1] in "(\\[")
    signs = "|".join(p for p in listed if not (p[:1].isalnum() or p[:1] in "(\\["))
    return re.compile(rf"\b(?:{plain})(?!\w)" + (f"|{signs}" if signs else ""), re.IGNORECASE)


@cache
def load_synonyms() -> dict[str, str]:
    """Map each word to a representative of all words with its meaning."""
    lines = (line.split() for line in _load_sections()["same"].strip().split("\n"))
    return {word: line[-1] for line in lines for word in line}
