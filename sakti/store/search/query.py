"""Parse a search line: operators, words, identifiers. Pure; any input is a valid query."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.store.search.index import split_identifier
from sakti.store.search.operators import OPERATORS, read_operators, strip_quotes

MAX_TERMS = 32
ENOUGH_WORDS = 4 * MAX_TERMS  # words of a text, with those that are left out
MAX_TEXT = 4_000  # characters of a query that are read: a paste is known by its beginning
LONGEST = 200  # characters of a word
BESIDE_A_PHRASE = 5  # words outside of quotes; more are a text that quotes
PASTED = 60  # more words than that were pasted: quotes and colons in them are no operators
JOINED = 6  # up to so many plain words may be an identifier that was typed apart
ROLES = ("user", "assistant", "tool", "system")
ORIGINS = ("claude-code", "codex", "opencode", "pi", "vibe", "aider", "mastra")  # programs that are imported from
KINDS = ("message", "observation", "reflection", "task", "working_memory")

# Words that carry no meaning of their own in a question; few, since each other one tells code apart ("all", "not").
STOP_WORDS = frozenset(
    "a an and are as at be been but by can could did do does for from had has have he her hers him his how i if in"
    " into is it its me my of on or our she should so than that the their them then there these they this those to us"
    " was we were what when where which who whom why will with would you your".split()
)
# Names that say in which setting something is meant; the text that is meant rarely has them.
LANGUAGES = frozenset(
    "bash golang haskell java javascript kotlin perl php python ruby rust scala swift typescript".split()
)

_FILTER = lazy_pattern(
    r"(?<![^\s(])(-|NOT\s+)?(?ai:(path|file|role|from|thread|in|task|kind|origin|before|after)):(\"[^\"]*\"|\S+)"
)
_SIGN = lazy_pattern(r"[-:\"*]|AND|OR|NOT")  # one that every operator has
_VALUES = {"kind": KINDS, "role": ROLES, "origin": ORIGINS}
_EITHER = lazy_pattern(r"(?<![^\s(])\(?(role|kind):[\w,]+(?:\s+OR\s+\1:[\w,]+)+(?![^\s)])\)?", re.IGNORECASE | re.ASCII)
_VALUE = lazy_pattern(r":([\w,]+)")
_SHOWN = {"you": "user", "me": "user", "sakti": "assistant"}  # as hits are headed
_SYNONYMS = {"file": "path", "from": "role", "in": "thread"}  # as chats and mail have them
_LOOSE = lazy_pattern(r"^\s*(?:AND|OR)(?=\s)|(?<=\s)(?:AND|OR)\s*$|(?<=\s)(?:AND|OR)(?=\s+(?:AND|OR)\s)")
_POSITION = lazy_pattern(r":\d+(:\d+)?:?$")  # src/a.py:10
_PHRASE = lazy_pattern(r"(?<!\S)\"([^\"]+)\"(?=\s|[?!.]*$)")  # in pasted text quotes mostly touch other signs
_EXCLUDED_PHRASE = lazy_pattern(r"-\"([^\"]+)\"")
# Three letters and more (`rm -rf`, `ls -l` are no exclusions), or Chinese, Japanese or Korean ones.
# Chinese, Japanese, Korean; Thai, Lao, Burmese, Khmer
CJK_SIGNS = (
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    r"\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_CJK = lazy_pattern(rf"[{CJK_SIGNS}]")
_UNWANTED = rf"(?<!\S)-([^\W\d_](?:\w|[^\x00-\x7f])(?:[\w./@-]|[^\x00-\x7f])+\*?|[^\W\d_]\w+\*|[{CJK_SIGNS}]+)"
_EXCLUDED = lazy_pattern(_UNWANTED)
_LAST_EXCLUDED = lazy_pattern(rf"(?:{_UNWANTED}\s*)+$")
_PREFIX = lazy_pattern(r"(?<!\S)(\w{2,})\*(?!\S)")
WORD = lazy_pattern(r"\w+")
TOKEN = lazy_pattern(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_IDENTIFIER = lazy_pattern(
    r"[A-Za-z0-9]+(?:[_./:\\-][A-Za-z0-9]+)+|[a-z0-9]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*|\w*\d\w*[A-Za-z]\w*"
)


class Query(Struct, frozen=True):
    """Parsed search line; `since` and `until` in Unix ms, everything that is not an operator is `text`.

    `alternatives`: where AND or OR was typed, the words of which a text must have all, of one alternative. `avoided`:
    words in any form that no text is looked for with. `other_than`: filters (name, value) whose texts are left out.
    `role` and `kind` may be several, with commas. `unknown`: filters (name, value) that stay text, as there is no such
    value. `only_excludes`: nothing else was typed, so texts are meant that have `text` as it stands (`-fPIC`).
    """

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    path: str = ""
    role: str = ""
    thread: str = ""
    task: str = ""
    kind: str = ""
    origin: str = ""
    since: int | None = None
    until: int | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()
    other_than: tuple[tuple[str, str], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    only_excludes: bool = False


NO_QUERY = Query("")


def parse_query(
    text: str,
    is_said: Callable[[str], bool] = lambda phrase: False,
    *,
    unknown: Mapping[str, str] = MappingProxyType({}),
    needs_words: bool = True,
) -> Query:
    """Parse the operators in `text`; unknown or senseless ones stay text.

    `is_said`: see `read_operators`. `unknown`: filters that are none, as nothing has that value. `needs_words`: what
    only leaves out is text.
    """
    query = Query(text="")
    if len(text.split()) > PASTED or not _SIGN.search(text):
        return replace(query, text=text.strip())
    rest = text

    def take_filter(match: re.Match[str]) -> str:
        nonlocal query
        left_out, value = match[1], match[3].strip('"')
        name = _SYNONYMS.get(match[2].lower(), match[2].lower())
        if value.endswith(")") and value.count(")") > value.count("("):  # (role:user)
            value = value[:-1]
        if unknown.get(name) == value or (name == "path" and value.startswith("//")):
            return match[0]
        if name in ("before", "after"):
            moment = _parse_moment(value)
            if moment is None:
                query = replace(query, unknown=(*query.unknown, (name, value)))
                return match[0]
            query = replace(query, **{"until" if (name == "before") is not bool(left_out) else "since": moment})
            return " "
        if name in _VALUES:
            values = [_SHOWN.get(v, v) for v in (v.removesuffix("s") for v in value.lower().split(","))]
            if not set(values) <= set(_VALUES[name]):
                query = replace(query, unknown=(*query.unknown, (name, value)))
                return match[0]
            value = ",".join(values)
        if name == "path":
            value = _POSITION.sub("", value.strip("'`,;")).removeprefix("./")
        if left_out:
            query = replace(query, other_than=(*query.other_than, (name, value)))
        else:
            query = replace(query, **{name: value})
        return " "

    rest = _FILTER.sub(take_filter, _EITHER.sub(_merge_alternatives, rest))
    needs_words = needs_words and query == Query(text="", unknown=query.unknown)
    excluded = [m[1].strip() for m in _EXCLUDED_PHRASE.finditer(rest) if WORD.search(m[1])]
    rest = _EXCLUDED_PHRASE.sub(" ", rest) if excluded else rest
    rest, unwanted = _split_exclusions(rest, needed=needs_words)
    if rest != text:  # `a AND role:user AND b`
        rest = _LOOSE.sub(" ", rest)
    read = read_operators(rest, is_said, alone=needs_words)
    rest = read.text
    phrases, rest = _split_required_phrases(rest)
    rest = _PREFIX.sub(lambda m: m[1] if is_cjk(m[1]) else m[0], rest)
    prefixes = [m[1] for m in _PREFIX.finditer(rest)]
    rest = _PREFIX.sub(" ", rest)
    return replace(
        query,
        text=rest.strip(),
        phrases=tuple(phrases),
        excluded=(*unwanted, *read.unwanted, *excluded),
        prefixes=tuple(prefixes),
        alternatives=read.alternatives,
    )


def _split_required_phrases(text: str) -> tuple[list[str], str]:
    """Return the phrases that a text must have, and the rest.

    Quotes require only if they stand free in a short query; in other text the words in them are words.
    """
    phrases = [m[1].strip() for m in _PHRASE.finditer(text) if WORD.search(m[1])]
    rest = _PHRASE.sub(" ", text)
    if not phrases or len(WORD.findall(rest)) > BESIDE_A_PHRASE:
        return [], text
    return phrases, rest


def _merge_alternatives(match: re.Match[str]) -> str:
    """Return `role:tool OR role:user` as one filter, `role:tool,user`."""
    return f" {match[1]}:{','.join(_VALUE.findall(match[0]))} "


def _split_exclusions(text: str, *, needed: bool) -> tuple[str, list[str]]:
    """Read `-word`: return the text without the exclusions, and the excluded words.

    If that empties the text, but something is `needed`, nothing is excluded.

    In a sentence they are flags (`built with -fPIC to allow linking`), except at its end and not after a small word.
    """
    start = 0
    if not STOP_WORDS.isdisjoint(OPERATORS.sub(" ", text).lower().split()):
        last = _LAST_EXCLUDED.search(text)
        start = last.start() if last and not _ends_with_small_word(text[: last.start()]) else len(text)
    included = text[:start] + _EXCLUDED.sub(" ", text[start:])
    if needed and not included.strip():
        return text, []
    return included, [strip_quotes(m[1]) for m in _EXCLUDED.finditer(text, start)]


def _ends_with_small_word(text: str) -> bool:
    """Return whether the last word is a small one, and no operator."""
    return not STOP_WORDS.isdisjoint(w.lower() for w in text.split()[-1:] if not OPERATORS.fullmatch(w))


def _parse_moment(value: str) -> int | None:
    """Parse `2026-01-15`, `2026-01`, `today`, `yesterday`, `7d` (ago) to Unix ms in local time."""
    now = datetime.datetime.now().astimezone()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if value.lower() == "today":
        moment = midnight
    elif value.lower() == "yesterday":
        moment = midnight - datetime.timedelta(days=1)
    elif match := re.fullmatch(r"(\d{1,5})([dwh])", value.lower()):
        hours = {"h": 1, "d": 24, "w": 168}[match[2]] * int(match[1])
        moment = now - datetime.timedelta(hours=min(hours, 876_000))
    else:
        try:
            moment = datetime.datetime.fromisoformat(f"{value}-01" if re.fullmatch(r"\d{4}-\d\d", value) else value)
        except ValueError:
            return None
    try:
        return int(moment.timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # years that the platform's clock does not know
        return None


def list_terms(text: str) -> list[str]:
    """Return the words to look up, at most 32, in the order of `list_words_and_joined`."""
    words, joined = list_words_and_joined(text)
    return [*words, *joined][:MAX_TERMS]


def list_words_and_joined(text: str) -> tuple[list[str], list[str]]:
    """Return the words to look up, and the joined forms of identifiers and of adjacent words.

    Lower case, without stop words unless nothing is left, with the pieces of identifiers; `login schema` gives
    `loginschema`.
    """
    words: dict[str, None] = {}
    inside: set[str] = set()  # small words in identifiers tell them apart: has_next_page, noAutoTest
    joined: dict[str, None] = {}
    tokens = [token[:LONGEST] for token in TOKEN.findall(text[:MAX_TEXT])]
    for token in tokens:
        if len(words) >= ENOUGH_WORDS:
            break
        words.update(dict.fromkeys(w.lower() for w in WORD.findall(token)))
        if len(parts := _split_token(token)) > 1:
            telling = [p for p in parts if len(p) > 1]  # a11y: y says nothing
            words.update(dict.fromkeys(telling))
            inside.update(telling)
            joined["".join(parts)] = None
    chosen = ([w for w in words if w not in STOP_WORDS or w in inside] or list(words))[:MAX_TERMS]
    joined.update(dict.fromkeys(_join_words(tokens)))
    return chosen, [j for j in joined if j and j not in chosen]


def _split_token(token: str) -> list[str]:
    is_plain = token.isascii() and token.isalpha() and token.islower()  # as most are
    return [] if is_plain else split_identifier(token)


def _join_words(tokens: Sequence[str]) -> list[str]:
    """Return the words of a short query joined, as they may be an identifier: all, and each two."""
    plain = [t.lower() for t in tokens if t.isalnum()]
    if not len(plain) == len(tokens) <= JOINED:
        return []
    return ["".join(plain), *(a + b for a, b in itertools.pairwise(plain))]


def is_cjk(text: str) -> bool:
    """Return whether a text has a script without separate words, such as Chinese or Thai."""
    return _CJK.search(text) is not None


def split_cjk(token: str) -> list[str]:
    """Return the pieces of three signs of a Chinese, Japanese or Korean token."""
    return [token[i : i + 3] for i in range(max(1, len(token) - 2))] if is_cjk(token) else []


def is_identifier(text: str) -> bool:
    tokens = text.split()
    return len(tokens) == 1 or (0 < len(tokens) <= 3 and any(_IDENTIFIER.fullmatch(t[:LONGEST]) for t in tokens))
