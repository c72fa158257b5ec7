"""Look up answers to questions about the project, and filter what a small model invents. Pure."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json, ToolResultPart

MOST_PLACES = 5  # places that an answer names
MOST_TERMS = 3
MOST_DROPPED = 3  # rejected sentences in a row after which the rest is dropped
WORD = 4  # characters of a name that may be part of another one
SENTENCE = 20  # characters of a sentence from which repetition is checked
AROUND = 3  # lines read before a definition
LINES = 40  # lines read of it
NOT_IN_FILES = "The files that were read do not say that."
_NAMED = r"project|repo|repository|code ?base|program|app|application|package|library|service|tool|cli|script"
_WHOLE = lazy_pattern(
    rf"\b(?:this|the|my|our|your) (?:{_NAMED})\b|\bwhat (?:is|does) (?:this|it)(?: do| for| about)?\W*$|\bentry ?point"
    r"|\bdependenc(?:y|ies)\b|\bdepends? on\b|\btests?\b.{0,20}\b(?:run|executed|started)\b"
    r"|\b(?:run|execute|start)\b.{0,20}\btests?\b|\bwhere does (?:it|the \w+) (?:start|begin)\b"
    r"|\bhow is it (?:built|compiled|installed|started|run)\b"
    r"|\bhow (?:do|can) (?:i|you|we|one) (?:build|compile|install|start|run) it\b",
    re.I,
)
_WHERE = lazy_pattern(
    r"\bwhere(?:'s| is| are| do| does| can i find)\b\s+(?P<what>.+?)"
    r"(?:\s+(?:\w+ly\s+)?(?:defined|declared|implemented|located|set|done|handled|calculated|computed|stored|made|"
    r"created|checked|parsed|used|live|lives|happen|happens|come from|comes from|kept))?"
    r"(?:\s+in (?:this|the) \w+)?\W*$",
    re.I,
)
_EXISTS = lazy_pattern(r"\b(?:is|are) there (?:an?|any)\s+(?P<what>.+?)(?:\s+(?:in|here)\b.*)?\W*$", re.I)
_EXPLAIN = lazy_pattern(r"\b(?:what does|what do|how does|how do|explain|describe|what is|what are)\b", re.I)
_ASKS = lazy_pattern(r"\W*(?:what|how|which|when|why|explain|describe)\b", re.I)
_THE = lazy_pattern(r"\bthe ((?:\w+ ){0,2}\w+)", re.I)
_QUOTED = lazy_pattern(r"`([^`]+)`")
_IDENTIFIER = lazy_pattern(
    r"\b([A-Za-z]+_\w+|_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*|[A-Z][A-Z0-9]{2,}\b|[A-Za-z]\w*(?=\(\)))"
)
_AFTER_KIND = lazy_pattern(
    r"\b(?:function|method|class|constant|variable|struct|module)\s+(?:called |named )?([A-Za-z_]\w*)"
)
_BEFORE_KIND = lazy_pattern(r"\b([A-Za-z_]\w*)\s+(?:function|method|class|constant|variable|struct|module)\b")
_WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in msgspec.toml.decode(Path(__file__).with_name("words.toml").read_bytes()).items()
}
_PRONOUN = lazy_pattern(r"\b(?:i|we|you)\b", re.I)
_ROW = lazy_pattern(r"^(?P<path>[^\s:][^:\n]*):(?P<line>\d+):(?P<text>.*)$", re.M)
_FILE = lazy_pattern(
    r"(?<![\w/.-])(?:\./)?[\w-][\w./-]*\.(?:pyi?|jsx?|mjs|cjs|tsx?|go|rs|c|h|cc|cpp|hpp|java|rb|php|sh|lua|kt|swift|cs|"
    r"toml|ya?ml|json|md|rst|txt|ini|cfg|css|html?|sql|lock|xml|gradle)\b(?!\()"
)
_TEST = lazy_pattern(r"(?:^|/)(?:tests?/|test_)|[._]test\.")
_AS_CODE = lazy_pattern(r"`([^`\n]+)`")
_NAME = lazy_pattern(r"(?<![\w.-])[a-z_][\w.-]*\w|(?<![\w.-])[a-z](?![\w.-])")
_NUMBER = lazy_pattern(r"(?<![\w.,])\d[\d.,]*\d(?!\w)")
_LISTED = lazy_pattern(r"\s*\d+[.)]\s")
_SENTENCE = lazy_pattern(r".*?(?:[.!?:](?=\s)\s*|\n+)", re.S)


class ProjectLookup(Struct, frozen=True):
    """Search for the subject of a question.

    `terms` are names as in code (`exact`) or stems of words. `sure`: the subject belongs to this project; otherwise it
    may be common knowledge.
    """

    kind: Literal["where", "explain"]
    terms: tuple[str, ...]
    exact: bool
    sure: bool = True

    @property
    def name(self) -> str:
        return self.terms[0] if self.exact else " ".join(self.terms)

    @property
    def call(self) -> Json:
        """Return the search call: names match as words, stems match anywhere."""
        either = "|".join(map(re.escape, self.terms))
        return {"pattern": rf"\b{re.escape(self.name)}\b" if self.exact else rf"(?i)(?:\b|_)(?:{either})"}


class FoundLine(Struct, frozen=True):
    """Line of a search result."""

    path: str
    line: int
    text: str


def is_general_question(question: str) -> bool:
    """Return whether a question is about the project in general: purpose, setup, startup, tests."""
    return bool(_WHOLE.search(question))


def is_about_start(lookup: ProjectLookup) -> bool:
    """Return whether a question only asks where the program starts."""
    return not lookup.exact and set(lookup.terms) <= _WORDS["start"]


def find_lookup(question: str, project: str = "") -> ProjectLookup | None:
    """Return the search that answers `question` needs first; None if it names nothing to look for.

    `project` is the prompt's text about the project: words that occur in its file names are searched, too.
    """
    question = question.strip()
    if "\n" in question:
        return None
    names = list(dict.fromkeys(_find_names(question)))
    file = _FILE.search(question)
    if file and not names:
        return ProjectLookup("where", (file[0],), True) if _WHERE.search(question) or _EXISTS.search(question) else None
    phrase = _find_phrase(question)
    return _find_explained_name(question, names, project) if phrase is None else _make_lookup(names, phrase)


def _find_phrase(question: str) -> str | None:
    """Return the words that name the thing whose place or existence a question asks about."""
    where, exists = _WHERE.search(question), _EXISTS.search(question)
    if where and not _PRONOUN.search(where["what"]):
        return where["what"]
    return exists["what"] if exists else None


def _find_explained_name(question: str, names: Sequence[str], project: str) -> ProjectLookup | None:
    """Return the search for the name to explain, or for words that occur in file names."""
    if names and _EXPLAIN.search(question):
        return ProjectLookup("explain", (names[0],), True, _is_project_name(names[0], question))
    if (
        _ASKS.match(question)
        and not is_general_question(question)
        and (stems := _find_stems(question, _list_files(project)))
    ):
        return ProjectLookup("explain", stems, False, sure=False)
    return None


def _find_stems(question: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return the stems of nouns after "the" in a question that occur in file names."""
    words = _drop_empty(w for phrase in _THE.findall(question) for w in re.findall(r"[A-Za-z]{4,}", phrase))
    names = [f.rpartition("/")[2].lower() for f in files]
    stems = dict.fromkeys(_stem_word(w.lower()) for w in words)
    return tuple(s for s in stems if any(s in n for n in names))[:MOST_TERMS]


def _find_names(question: str) -> list[str]:
    quoted = [q.removesuffix("()") for q in _QUOTED.findall(question)]
    names = [q.rpartition(".")[2] for q in quoted if re.fullmatch(r"[\w.]+", q) and not _FILE.fullmatch(q)]
    return [*names, *_IDENTIFIER.findall(question), *_find_declared_names(question)]


def _find_declared_names(question: str) -> list[str]:
    """List the names next to a word such as "function"."""
    return _drop_empty([*_AFTER_KIND.findall(question), *_BEFORE_KIND.findall(question)])


def _drop_empty(words: Iterable[str]) -> list[str]:
    """Drop the words that name nothing in a project."""
    return [word for word in words if word.lower() not in _WORDS["empty"]]


def _is_project_name(name: str, question: str) -> bool:
    is_foreign = name in dir(builtins) or name in sys.stdlib_module_names or f".{name}" in question
    called = "_" in name or f"{name}()" in question or name in _find_declared_names(question)
    return bool(_WHOLE.search(question)) or (called and not is_foreign)


def _make_lookup(names: Sequence[str], phrase: str) -> ProjectLookup | None:
    if names:
        return ProjectLookup("where", (names[0],), True)
    words = _drop_empty(re.findall(r"[A-Za-z]\w+", phrase))
    stems = tuple(dict.fromkeys(_stem_word(w.lower()) for w in words))[:MOST_TERMS]
    return ProjectLookup("where", stems, False) if stems else None


def _stem_word(word: str) -> str:
    for ending in ("ies", "es", "s"):
        if len(word) > len(ending) + 3 and word.endswith(ending) and not word.endswith("ss"):
            stem = word[: -len(ending)]
            return stem if ending != "es" or stem[-1] in "sxzh" else word[:-1]
    return word


def find_places(results: Sequence[ToolResultPart]) -> list[FoundLine]:
    """Return the lines found by searches, in order, with those of tests last."""
    rows = [m for r in results if r.name == "grep" and not r.is_error for m in _ROW.finditer(r.content)]
    places_of = [FoundLine(m["path"], int(m["line"]), m["text"].strip()) for m in rows]
    return sorted(places_of, key=lambda p: bool(_TEST.search(p.path)))


def select_definitions(places: Sequence[FoundLine], lookup: ProjectLookup) -> list[FoundLine]:
    """Return the places that define the name being looked for."""
    term = "|".join(map(re.escape, lookup.terms))
    name = rf"(?:{term})\b" if lookup.exact else rf"\w*(?:{term})\w*"
    kind = r"def|class|function|func|fn|fun|const|let|var|val|type|struct|interface|enum|trait|module|sub|macro"
    pattern = re.compile(
        rf"\b(?:{kind})\s+(?:\([^)]*\)\s*)?{name}|^(?:export\s+|static\s+|public\s+|private\s+)*{name}\s*(?::[^=()]+)?=(?!=)"
        rf"|^(?:async\s+|static\s+)*{name}\s*\([^)]*\)\s*\{{",
        0 if lookup.exact else re.I,
    )
    return [p for p in places if pattern.search(p.text)]


def make_excerpt_arguments(place: FoundLine) -> Json:
    """Return the arguments that read the lines around `place`."""
    return {"path": place.path, "offset": max(1, place.line - AROUND), "limit": LINES}


def _count_terms(text: str, lookup: ProjectLookup) -> int:
    return sum(term.lower() in text.lower() for term in lookup.terms)


def _list_files_named_after(lookup: ProjectLookup, project: str) -> list[str]:
    return [file for file in _list_files(project) if _count_terms(file, lookup)]


def answer_where(lookup: ProjectLookup, places: Sequence[FoundLine], project: str) -> str:
    """Return the answer to a question about where something is.

    It names the definitions, else the mentions, else files with that name, else says that there are none.
    """
    defined = select_definitions(places, lookup)
    best = sorted(defined or places, key=lambda p: -_count_terms(p.text, lookup))
    lines = [_format_place(p) for p in best]
    if not defined:
        lines = [*(f"- `{f}`" for f in _list_files_named_after(lookup, project)), *lines]
    if not lines:
        return describe_missing(lookup)
    if not lookup.exact:
        return "\n".join([f"This is what a search for {_quote_terms(lookup)} found:", *lines[:MOST_PLACES]])
    if defined and len(lines) == 1:
        return f"`{lookup.name}` is defined in `{best[0].path}`, line {best[0].line}: `{_format_code(best[0].text)}`"
    verb = "is defined in" if defined else "is found here"
    return "\n".join([f"`{lookup.name}` {verb}:", *lines[:MOST_PLACES]])


def describe_missing(lookup: ProjectLookup) -> str:
    """Say that the project does not contain the subject."""
    if lookup.exact:
        return f"There is no `{lookup.name}` in this project: a search of all its files found nothing."
    return f"A search of all files of this project for {_quote_terms(lookup)} found nothing."


def _quote_terms(lookup: ProjectLookup) -> str:
    return " or ".join(f'"{t}"' for t in lookup.terms)


def describe_unreadable(path: str, error: str) -> str:
    """Say that a file in the question cannot be read."""
    return f"`{path}` could not be read: {error.strip().splitlines()[0] if error.strip() else 'it is not there.'}"


def resolve_name(name: str, project: str) -> str:
    """Return the project file that `name` refers to if it is unambiguous, else `name`."""
    matches = [f for f in _list_files(project) if f == name or f.endswith(f"/{name}")]
    return matches[0] if len(matches) == 1 else name


def _list_files(project: str) -> list[str]:
    """Return the files that the prompt's block lists, one per line."""
    listed = project.partition("\n\n")[2].partition("\n\n")[0]
    return [line for line in listed.splitlines() if not line.startswith("and ")]


def _format_place(place: FoundLine) -> str:
    return f"- `{place.path}`, line {place.line}: `{_format_code(place.text)}`"


def _format_code(text: str) -> str:
    return text[:120].replace("`", "'")


class GroundingFilter:
    """Filter that drops repeated sentences and sentences naming things that the model has not seen.

    It checks files, names in code formatting, and numbers of two digits or more. `seen` is the text that the model was
    sent.
    """

    def __init__(self, seen: str) -> None:
        self._seen = seen
        self._lower = seen.lower()
        self._names = {*_NAME.findall(self._lower), *_WORDS["runners"]}
        self._pending = ""
        self._accepted: set[str] = set()
        self._dropped = 0  # sentences since the last accepted one

    @property
    def is_repeating(self) -> bool:
        """Return whether the answer has begun to repeat itself."""
        return bool(self._accepted) and self._dropped >= MOST_DROPPED

    def feed(self, text: str) -> str:
        """Return the accepted sentences that are complete after `text`."""
        self._pending += text
        out: list[str] = []
        while sentence := _SENTENCE.match(self._pending):
            self._pending = self._pending[sentence.end() :]
            out.append(self._filter_sentence(sentence[0]))
        return "".join(out)

    def end(self, *, cut: bool = False) -> str:
        """Return the rest unless the answer was `cut`; if nothing was accepted, an explanation."""
        rest, self._pending = "" if cut else self._filter_sentence(self._pending), ""
        return rest if self._accepted else NOT_IN_FILES

    def _filter_sentence(self, sentence: str) -> str:
        words = " ".join(sentence.lower().split())
        if not words:
            return sentence
        if self._mentions_new(sentence) or (words in self._accepted and len(words) >= SENTENCE):
            self._dropped += 1
            return ""
        self._accepted.add(words)
        self._dropped = 0
        return sentence

    def _mentions_new(self, sentence: str) -> bool:
        files = (f[0] for f in _FILE.finditer(sentence))
        names = (n for code in _AS_CODE.finditer(sentence) for n in _NAME.findall(code[1].lower()))
        numbers = _NUMBER.finditer(_LISTED.sub("", sentence, count=1))
        return (
            any(f.lower() not in _WORDS["products"] and f.removeprefix("./") not in self._seen for f in files)
            or any(n not in self._names and (len(n) < WORD or n not in self._lower) for n in names)
            or any(n[0] not in self._seen for n in numbers)
        )
