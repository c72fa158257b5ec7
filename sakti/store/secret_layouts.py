"""Find secrets that are apart from their names: in pairs, table cells, YAML blocks and prompts.

`secret_names` finds values directly behind their names and judges all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sakti.core.patterns import lazy_pattern
from sakti.store import secret_names
from sakti.store.secret_names import LEAST

# The end of a line and the beginning of the next, with what a search or a diff prints in front of it.
_NEXT_LINE = r"[ \t]{0,8}(?:\r?\n|\\n)(?:[^\s:]{1,150}[:=-]\d{1,7}[:=-]|\d{1,7}[\t:-])?[ \t+>|-]{0,60}"
_PLAIN = r"[^\s\"'`,;(){}<>\\\[\]|\0\u2400]"
_VALUE = lazy_pattern(
    r"value\\?[\"']?[ \t]{0,4}(?P<sign>[:=])[ \t]{0,8}"
    r"(?:\\?(?P<quote>[\"'])(?P<quoted>[^\s\"'`\\]{8,512})\\?[\"']"
    rf"|(?P<plain>{_PLAIN}{{8,512}})(?=[ \t]{{0,8}}(?:[,}}\r\n]|\\n|\Z)))",
    re.IGNORECASE,
)
_LONGEST_PAIR = 320  # characters from the name's own key to the value's
_NAME = lazy_pattern(
    r"(?:name|key)\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?(?P<quote>[\"']?)(?P<name>[\w.:/-]{1,80})\\?[\"']?[ \t]{0,4},?"
    rf"(?:{_NEXT_LINE}|[ \t]{{0,8}})\\?[\"']?\w{{0,20}}\Z",
    re.IGNORECASE,
)
_APART = lazy_pattern(
    r"(?P<rest>[\w-]{0,40}+)(?:"
    r"(?P<cell>\\?[\"'`]?:?[ \t]{1,60}[|\u2502][ \t]{1,8})"
    r"|(?P<prompt>[ \t]for[ \t](?:user[ \t])?[^\s:]{1,80}(?::[^\s:]{1,80}){0,3}(?::|[ \t]is:?)[ \t]{1,4})"
    rf"|(?P<block>\\?[\"']?[ \t]{{0,4}}:[ \t]{{1,4}}[|>][\d+-]{{0,2}}{_NEXT_LINE})"
    r")(?P<value>[^\s\"'`,;<>\\|\0\u2400]{8,512})(?P<behind>[ \t]{0,60}(?:[|\u2502]|\r?\n|\\n|\Z))?"
)
_OPEN_LINE = lazy_pattern(
    r"(?:(?:name|key)\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?[\w.:/-]{1,80}\\?[\"']?,?"
    r"|:[ \t]{1,4}[|>][\d+-]{0,2})\s{0,9}\Z",
    re.IGNORECASE,
)
_LONGEST_LINE = 200  # characters at the end of a line that are looked at
_SENTENCE = lazy_pattern(
    r"(?P<rest>[\w-]{0,40}+)\\?[\"'`]?\]?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}\\?(?P<quote>[\"'])"
    r"(?P<value>[^\s\"'`\\]{1,64}(?: [^\s\"'`\\]{1,64}){3,11})\\?(?P=quote)"
)
_PHRASE_WORD = lazy_pattern(r"[a-z]{3,12}\Z")
# Words of help texts and messages about passwords; hardly a passphrase has one.
_PROSE = frozenset(
    "the and for with your you must not are has have was were will can this that from least enter please new old use"
    " used using when only characters character letters user users account login sign invalid incorrect wrong forgot"
    " reset change confirm repeat again required missing need needs should empty does match type chosen choose default"
    " secret token key value field string set been via see into contain contains long short too".split()
)


def find(text: str, lower: str) -> Iterator[tuple[str, int, int]]:
    """Yield the secrets apart from their names; `lower` is the text in lower case, same positions."""
    yield from _find_pairs(text, lower)
    for sign in secret_names.SIGNS:
        at = lower.find(sign)
        while at >= 0:
            end = at + len(sign)
            for pattern, is_secret in ((_APART, _is_apart), (_SENTENCE, _is_passphrase)):
                match = pattern.match(text, end)
                if match and is_secret(text, at, match):
                    yield secret_names.kind_of(text[at : match.end("rest")]), *match.span("value")
            at = lower.find(sign, end)


def is_name_of_next_line(line: str) -> bool:
    """Return whether the value of a secret's name at the end of `line` is expected in the next one."""
    end = line[-_LONGEST_LINE:]
    return _OPEN_LINE.search(end) is not None and secret_names.SECRET_NAME.search(end) is not None


def _find_pairs(text: str, lower: str) -> Iterator[tuple[str, int, int]]:
    at = lower.find("value")
    while at >= 0:
        value = _VALUE.match(text, at)
        name = _find_name(text, lower, at) if value else None
        if value and name and _is_pair(name, value):
            yield secret_names.kind_of(name["name"]), *value.span("quoted" if value["quote"] else "plain")
        at = lower.find("value", at + len("value"))


def _find_name(text: str, lower: str, at: int) -> re.Match[str] | None:
    """Return the name in front of a value, whose key is at `at`."""
    first = max(0, at - _LONGEST_PAIR)
    if not any(sign in lower[first:at] for sign in secret_names.SIGNS):
        return None
    for key in ("name", "key"):
        begin = lower.rfind(key, first, at)
        while begin >= 0:
            match = _NAME.match(text[begin:at])
            if match:
                return match
            begin = lower.rfind(key, first, begin)
    return None


def _is_pair(name: re.Match[str], value: re.Match[str]) -> bool:
    if value["quote"]:
        return secret_names.assigns(name["name"], value["quoted"])
    if value["sign"] == "=" or not secret_names.SECRET_NAME.search(name["name"]):
        return False
    tight = not name["quote"]  # else a variable in a program
    return secret_names.is_value(name["name"], value["plain"], quoted=False, tight=tight)


def _is_apart(text: str, at: int, match: re.Match[str]) -> bool:
    """Return whether a value in a cell, in a block or behind a prompt is a secret."""
    start, head = secret_names.before_name(text, at)
    name, value = head.rpartition(".")[2] + text[at : match.end("rest")], match["value"]
    random = secret_names.TURN.search(value[:-1])
    if match["prompt"]:
        password = secret_names.PASSWORD.search(name.lower())
        return bool(password and random) and secret_names.is_value(name, value, quoted=True, tight=False)
    if match["behind"] is None:
        return False
    if match["block"]:
        return secret_names.is_value(name, value, quoted=False, tight=False, line=True)
    alone = not start.strip(" \t|\u2502\"'`")
    return bool(alone and random) and secret_names.is_value(name, value, quoted=False, tight=False)


def _is_passphrase(text: str, at: int, match: re.Match[str]) -> bool:
    """Return whether a quoted text with spaces is a passphrase, not a sentence about one."""
    _, head = secret_names.before_name(text, at)
    name = (head.rpartition(".")[2] + text[at : match.end("rest")]).lower()
    words = match["value"].split()
    if not secret_names.PASSWORD.search(name) or len(match["value"]) < LEAST or name in match["value"].lower():
        return False
    return all(_PHRASE_WORD.match(word) for word in words) and _PROSE.isdisjoint(words)
