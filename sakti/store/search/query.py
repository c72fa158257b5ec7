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
ENOUGH_WORDS = 4 * MAX_TERMS  # most words of a text that are read, stop words included
MAX_TEXT = 4_000  # characters of a query that are read; a paste is recognised by its beginning
LONGEST = 200  # characters of a word
BESIDE_A_PHRASE = 5  # most words beside a quoted phrase; more are a text that contains a quotation
PASTED = 60  # longer queries were pasted: their quotes and colons are no operators
JOINED = 6  # up to this many plain words may be an identifier typed in pieces
ROLES = ("user", "assistant", "tool", "system")
ORIGINS = (
    "claude-code",
    "codex",
    "opencode",
    "pi",
    "vibe",
    "aider",
    "mastra",
)  # importable programs
KINDS = ("message", "observation", "reflection", "task", "working_memory")

# Words without meaning of their own in a question. The list is short, since other words distinguish code ("all",
# "not").
STOP_WORDS = frozenset(
    "a an and are as at be been but by can could did do does for from had has have he her hers him his how i if in"
    " into is it its me my of on or our she should so than that the their them then there these they this those to us"
    " was we were what when where which who whom why will with would you your".split()
)
# Names that give the setting of a question; the text in question rarely contains them.
LANGUAGES = frozenset(
    "bash golang haskell java javascript kotlin perl php python ruby rust scala swift typescript".split()
)

_FILTER = lazy_pattern(
    r"(?<![^\s(])(-|NOT\s+)?(?ai:(path|file|role|from|thread|in|task|kind|origin|before|after)):(\"[^\"]*\"|\S+)"
)
_SIGN = lazy_pattern(r"[-:\"*]|AND|OR|NOT")  # every operator contains one
_VALUES = {"kind": KINDS, "role": ROLES, "origin": ORIGINS}
_EITHER = lazy_pattern(r"(?<![^\s(])\(?(role|kind):[\w,]+(?:\s+OR\s+\1:[\w,]+)+(?![^\s)])\)?", re.IGNORECASE | re.ASCII)
_VALUE = lazy_pattern(r":([\w,]+)")
_SHOWN = {"you": "user", "me": "user", "sakti": "assistant"}  # names shown in hits
_SYNONYMS = {"file": "path", "from": "role", "in": "thread"}  # names used in chats and mail
_LOOSE = lazy_pattern(r"^\s*(?:AND|OR)(?=\s)|(?<=\s)(?:AND|OR)\s*$|(?<=\s)(?:AND|OR)(?=\s+(?:AND|OR)\s)")
_POSITION = lazy_pattern(r":\d+(:\d+)?:?$")  # src/a.py:10
_PHRASE = lazy_pattern(r"(?<!\S)\"([^\"]+)\"(?=\s|[?!.]*$)")  # in pasted text, quotes mostly touch punctuation
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
    """Parsed search line; `since` and `until` in Unix ms. `text` is everything but operators.

    `alternatives`: with AND or OR, a text must have all words of one of them. `avoided`: excluded words, in any form.
    `other_than`: excluded filters (name, value). `role` and `kind` may have several values, separated by commas.
    `unknown`: filters (name, value) that stay text, because the value does not exist. `only_excludes`: nothing else
    was typed, so texts that contain `text` literally are meant (`-fPIC`).
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
    """Parse the operators in `text`; unknown or invalid ones stay text.

    `is_said`: see `read_operators`. `unknown`: filters to ignore, since nothing has their value. `needs_words`: an
    exclusion alone is treated as text.
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
    """Return the required phrases, and the rest.

    Quotes only require a phrase if they stand alone in a short query; elsewhere the quoted words are plain words.
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
    """Parse `-word`: return the text without the exclusions, and the excluded words.

    If that empties the text, but something is `needed`, nothing is excluded. Within a sentence they are flags (`built
    with -fPIC to allow linking`), except at its end if no stop word precedes them.
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
    """Return whether the last word is a stop word, and no operator."""
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
    except (OverflowError, OSError, ValueError):  # year that the platform does not support
        return None


def list_terms(text: str) -> list[str]:
    """Return the words to look up, at most 32, in the order of `list_words_and_joined`."""
    words, joined = list_words_and_joined(text)
    return [*words, *joined][:MAX_TERMS]


def list_words_and_joined(text: str) -> tuple[list[str], list[str]]:
    """Return the words to look up, and the joined forms of identifiers and adjacent words.

    Words are in lower case, with the pieces of identifiers, and without stop words unless nothing else is left.
    `login schema` gives `loginschema`.
    """
    words: dict[str, None] = {}
    inside: set[str] = set()  # stop words distinguish identifiers: has_next_page, noAutoTest
    joined: dict[str, None] = {}
    tokens = [token[:LONGEST] for token in TOKEN.findall(text[:MAX_TEXT])]
    for token in tokens:
        if len(words) >= ENOUGH_WORDS:
            break
        words.update(dict.fromkeys(w.lower() for w in WORD.findall(token)))
        if len(parts := _split_token(token)) > 1:
            telling = [p for p in parts if len(p) > 1]  # a11y: the piece y means nothing
            words.update(dict.fromkeys(telling))
            inside.update(telling)
            joined["".join(parts)] = None
    chosen = ([w for w in words if w not in STOP_WORDS or w in inside] or list(words))[:MAX_TERMS]
    joined.update(dict.fromkeys(_join_words(tokens)))
    return chosen, [j for j in joined if j and j not in chosen]


def _split_token(token: str) -> list[str]:
    is_plain = token.isascii() and token.isalpha() and token.islower()  # fast path for most tokens
    return [] if is_plain else split_identifier(token)


def _join_words(tokens: Sequence[str]) -> list[str]:
    """Return the words of a short query joined, as a possible identifier: all of them, and each pair."""
    plain = [t.lower() for t in tokens if t.isalnum()]
    if not len(plain) == len(tokens) <= JOINED:
        return []
    return ["".join(plain), *(a + b for a, b in itertools.pairwise(plain))]


def is_cjk(text: str) -> bool:
    """Return whether a text has a script without spaces, such as Chinese or Thai."""
    return _CJK.search(text) is not None


def split_cjk(token: str) -> list[str]:
    """Return the trigrams of a Chinese, Japanese or Korean token."""
    return [token[i : i + 3] for i in range(max(1, len(token) - 2))] if is_cjk(token) else []


def is_identifier(text: str) -> bool:
    tokens = text.split()
    return len(tokens) == 1 or (0 < len(tokens) <= 3 and any(_IDENTIFIER.fullmatch(t[:LONGEST]) for t in tokens))
