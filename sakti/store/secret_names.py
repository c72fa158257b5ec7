"""Find secrets by their names: `DB_PASS=…`, `--token …`, in pairs, table cells and prompts.

Names alone would mask half of any program, so the value must look like a secret, too: no type, call, variable, path
or placeholder. How strict that is depends on the name: a `key` is mostly something else, a `password` is not.
`find_assigned_secrets` finds values directly after their names, `find_apart` those in table cells, YAML blocks and
prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sakti.core.lazy import lazy_pattern

LEAST = 8  # characters of a secret

SECRET_PARTS = ("pass", "secret", "token", "key", "credential", "pwd")
SECRET_NAME = lazy_pattern(r"pass|secret|token|key|credential|pwd", re.IGNORECASE)
_REST = lazy_pattern(
    r"(?P<rest>[\w-]{0,40}+)(?P<after>\\?[\"'`]?\]?)"
    r"(?P<sign>[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}|[ \t]{1,4}is:?[ \t]{1,4}|[ \t]{1,4}|>)"
    r"(?P<quote>(?:\b[bruBRU]{1,2}(?=[\"']))?(?:\"\"\"|'''|\\?[\"'`])|)(?P<value>[^\s\"'`,;(){}<>\\\[\]|\0\u2400]{0,512})"
)
# More characters of a value, up to its closing quote or the end of its line.
_TO_QUOTE = lazy_pattern(r"[^\s\"'`\\\0\u2400]{1,512}(?=\\?[\"'`])")
_TO_LINE_END = lazy_pattern(r"(?:[(\[{]|[)\]}](?=\w))[^\s\"'`\\,;\0\u2400]{0,512}(?=[;,]?(?:[\s\0\u2400]|\Z))")
# A shell's ways to include a quote in a quoted value: 'a'"'"'b' or 'a'\''b'.
_TO_JOINED_QUOTE = lazy_pattern(r"[^\s'\"`\\]{0,200}(?:'(?:\\?\"'\\?\"|\\{1,2}')'[^\s'\"`\\]{0,200}){1,8}(?=')")
_TO_TAG = lazy_pattern(r"[^\s<]{1,512}(?=</)")
# Brackets of a placeholder, a format or a pattern.
_TEMPLATE = lazy_pattern(
    r"%\(\w+\)|[$#%]?\{(?:\w{2}[\w.:]*|\d*(?:,\d*)?)\}|<[\w -]{2,}>|\[\^|\[[^\]]{0,99}?\w-\w|[)\]][*+?]|\(\?"
    r"|\|\||\$\{|[$#][({]\w{2}"
)
_LINE_END = lazy_pattern(r"[\t\0\u2400]|[ ]{0,40}(?:\r?\n|\r|\Z)")
_OPEN = lazy_pattern(r"[(\[{<]\Z")
_CALLED = lazy_pattern(r"([A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*)[(\[{]")
_ALPHANUMERIC = lazy_pattern(r"[A-Za-z\d]+")
_STUCK = lazy_pattern(r"[)\]}]\w")  # no language has a word directly after a closing bracket
_SHOUTED = lazy_pattern(r"[!@#$%^&?~]")  # rare in calls
_RUNS = lazy_pattern(r"[A-Za-z]+|\d+|[^A-Za-z\d]+")
# Prefixes of lines printed by grep, diff, `git blame` or `nl`; a file's name may have spaces.
_LINE_PREFIX = lazy_pattern(
    r"[^\0\u2400]{1,250}[\0\u2400](?:\d{1,7}[:=\0\u2400-])?|\^?[0-9a-f]{7,40}[ \t].{0,300}?\d\)[ \t]?"
    r"|(?:[^:]{1,100}:){0,2}?(?:[^:]{1,250}?[:=|-])?[ \t]{0,8}\d{1,7}[ \t]{0,8}[:=|\u2502-](?:\d{1,7}[:=-])?"
    r"|[ \t]{0,8}\d{1,7}[ \t]{1,4}|[ |>+!*\\/]{0,20}(?:[+>!|]|< )|[ ]{1,2}[+-](?=\w|\Z)|-(?=--|[^-])"
    r"|@@ [^@]{1,80} @@ |\[-|\{\+"
    r"|[^\s:]{1,250}:(?![/=])"
)
_LONGEST_PREFIX = 400  # characters
_PREFIXES = 4  # prefixes of one line: a search may run over the output of another
_LINE_NUMBER = lazy_pattern(r"\d{1,7}:")
_PREFIX_ENDS = ": |\u2502\0\u2400\t"  # between an unknown prefix and its line
_BEFORE = lazy_pattern(r"[\w.-]{0,60}\Z")
# endings of names that describe a secret instead of naming one
_ABOUT = lazy_pattern(
    r"(?:(?<!credential)s|name|names|id|ids|file|path|dir|folder|url|uri|type|types|field|fields|len|length|count|size"
    r"|class|prefix|suffix|regex|pattern|format|label|env|var|header|param|policy|manager|provider|arn|ref|hint|error"
    r"|message|prompt|index|func|function|fn|map|list|set|dict|table|column|word|words|board|frame|stroke|press|code"
    r"|codes|down|up|event|binding|bindings|handler|callback|limit|budget|usage|ttl|expiry|expires|version|algorithm"
    r"|alg|strategy|schema|model|view|store|cache|spec|ring|stone|note|points?|through|izer|ize|ized)\Z|public"
)
PASSWORD = lazy_pattern(r"(?:passw(?:or)?d|passphrase|passcode|pwd|pass)\d{0,2}\Z")
_STRONG = lazy_pattern(
    r"passw(?:or)?d|passphrase|passcode|pwd|secret|credential|api[-_.]?key|(?:access|private|auth|encryption|signing"
    r"|account|master|service|license|deploy|session)[-_.]?key|(?:auth|access|refresh|bearer|api|bot|id|session"
    r"|deploy|personal|oauth|identity|registry)[-_.]?token|(?:^|[-_.])pass\Z"
)
_WORD_END = lazy_pattern(r"(?:^|[^a-zA-Z])(?i:key|token|pass|pwd)\d{0,2}\Z|[a-z](?:Key|Token|Pass|Pwd)\Z")
_PLACEHOLDER = lazy_pattern(
    r"your|my[-_]|the[-_]|some[-_]?|change|replace|insert|enter|place|redacted|none|null|true|false|undefined|required"
    r"|optional|string|example|dummy|sample|foobar|todo|test|default|secret|passw|token|key|cred|pass\b|user|env\b"
    r"|[xX]{4}|\*{3}|\.{3}|-{4}|_{4}|0{8}|•|…",
    re.IGNORECASE,
)
_REFERENCE = lazy_pattern(
    r"[$%&@*~#!?+=.\\{<^:]|/(?!.*[+=])|[A-Za-z]:[\\/]|https?:|file:|env:|vault:|arn:|ref\+|op:|ssh-|urn:|data:"
)
_CHAIN = lazy_pattern(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+[:.]?\Z|[a-z_]+(?:/[a-z_]+)+\Z|\w+\.\w+=\w+\.")
# words, and names made of words, with an optional number at the end
WORDS = lazy_pattern(
    r"[A-Za-z]+\d{0,1}(?:[-_.:/+][A-Za-z]+\d{0,2})+[:.!?]?\Z|[A-Za-z]+(?:[-_.][A-Za-z0-9]{1,12})+[:.]?\Z"
)
_VARIABLE = lazy_pattern(
    r"[A-Za-z_]+\d?\Z|_?[a-z]+\d?(?:_[a-z0-9]+)+\Z|(?:sha|md|utf|base|int|float|byte|bytes|uint)\d+\w*\Z"
)
_SYMBOL = lazy_pattern(r"[!@#$%^&*+=/~?]")
ENVIRONMENT = lazy_pattern(r"[A-Z][A-Z0-9_]*\Z")
_ADDRESS = lazy_pattern(r"[\w.-]+@[\w.-]+\.\w+\Z|\d+(?:[.:,-]\d+)*\Z|v?\d+(?:\.\w+)+\Z")
TURN = lazy_pattern(r"(?<=\d)[A-Za-z]|(?<=[A-Za-z])\d")
COMMON = frozenset(
    "password passwort postgres postgresql changeme localhost development production disabled undefined anonymous"
    " username password1 12345678 123456789 mongodb rabbitmq minioadmin identifier authorization description".split()
)

# The end of a line and the beginning of the next, with the prefix of a search or a diff.
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
_LONGEST_LINE = 200  # characters at the end of a line that are examined
_SENTENCE = lazy_pattern(
    r"(?P<rest>[\w-]{0,40}+)\\?[\"'`]?\]?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}\\?(?P<quote>[\"'])"
    r"(?P<value>[^\s\"'`\\]{1,64}(?: [^\s\"'`\\]{1,64}){3,11})\\?(?P=quote)"
)
_PHRASE_WORD = lazy_pattern(r"[a-z]{3,12}\Z")
# Words of help texts and messages about passwords; passphrases rarely contain one.
_PROSE = frozenset(
    "the and for with your you must not are has have was were will can this that from least enter please new old use"
    " used using when only characters character letters user users account login sign invalid incorrect wrong forgot"
    " reset change confirm repeat again required missing need needs should empty does match type chosen choose default"
    " secret token key value field string set been via see into contain contains long short too".split()
)


def find_environment_values(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with secret names, longest first.

    Paths and common words are left out.
    """
    values = {
        value
        for name, value in env.items()
        if len(value) >= LEAST
        and SECRET_NAME.search(name)
        and _may_name_secret(name.lower())
        and _is_secret_of_environment(value)
    }
    return tuple(sorted(values, key=lambda v: (-len(v), v)))


def _may_name_secret(low: str) -> bool:
    """Return whether a name, in lower case, may be a secret's own."""
    return bool(PASSWORD.search(low)) or not _ABOUT.search(low)


def _is_secret_of_environment(value: str) -> bool:
    ordinary = value.startswith(("/", "~", "./", "unix:", "http://", "https://")) or value.lower() in COMMON
    return not ordinary and len(set(value)) > 3 and not any(c in value for c in "\n\r\0")


def is_placeholder(value: str) -> bool:
    """Return whether a password in an address is a variable or a placeholder."""
    common = value.lower() in (*COMMON, "pass", "passwd", "pwd", "pw", "secret", "token", "xxx", "foo", "bar")
    return common or bool(_PLACEHOLDER.match(value)) or value[0] in "$%{<[*" or set(value) <= set("x*•.X")


def classify_name(name: str) -> str:
    """Return the kind of secret that a name holds."""
    low = name.lower()
    for sign, kind in (("pass", "password"), ("pwd", "password"), ("token", "token"), ("cred", "credential")):
        if sign in low:
            return kind
    return "secret" if "secret" in low else "key"


def is_secret_value(name: str, value: str) -> bool:
    """Return whether a value under this name, in an object or a form, is a secret."""
    if not LEAST <= len(value) <= 512 or not SECRET_NAME.search(name) or any(c.isspace() for c in value):
        return False
    return is_value(name, value, quoted=True, tight=True)


def find_assigned_secrets(text: str, lower: str) -> Iterator[tuple[str, int, int]]:
    """Yield the secrets assigned to names; `lower` is the text in lower case, same positions."""
    for sign in SECRET_PARTS:
        at = lower.find(sign)
        while at >= 0:
            match = _REST.match(text, at + len(sign))
            end = at + len(sign)
            if match and (assigned := _find_assignment(text, at, match)) is not None:
                name, end = assigned
                yield classify_name(name), match.start("value"), end
            elif match:
                end = match.end("rest")
            at = lower.find(sign, end)


def _find_assignment(text: str, at: int, match: re.Match[str]) -> tuple[str, int] | None:
    """Return the name before a value and the end of the value; None if it is no secret's name."""
    longer = _find_longer_end(text, match)
    if longer is None and match.end("value") - match.start("value") < LEAST:
        return None
    start, head = split_before_name(text, at)
    name = head.rpartition(".")[2] + text[at : match.end("rest")]
    if _is_assigned(text, match, start, head, name, longer):
        return name, longer or match.end("value")
    value = text[match.start("value") : longer or match.end("value")]
    in_tag, bare = start[-1:] == "<", not match["sign"].strip()
    fits = in_tag == (match["sign"] == ">") and (not bare or head.startswith("--"))
    if longer is not None and fits and _is_mixed_value(name, value):
        return name, longer
    return None


def _find_longer_end(text: str, match: re.Match[str]) -> int | None:
    """Return the end of a value with brackets or commas; None for any other."""
    end = match.end("value")
    if match["quote"]:
        joined = _TO_JOINED_QUOTE.match(text, match.start("value")) if match["quote"] == "'" else None
        longer = joined or _TO_QUOTE.match(text, end)
    elif match["sign"] == ">":
        longer = _TO_TAG.match(text, end)
    else:
        longer = _TO_LINE_END.match(text, end) if match["sign"] in ("=", ":", ": ", " ") else None
    return longer.end() if longer else None


def split_before_name(text: str, at: int) -> tuple[str, str]:
    """Return the line up to a name, and the beginning of the name; `at` is within the name.

    A diff's sign or the file and line number of a search are no part of it.
    """
    first = max(0, at - _LONGEST_PREFIX)
    line = text[max(first, text.rfind("\n", first, at) + 1) : at]
    for _ in range(_PREFIXES):
        prefix = _LINE_PREFIX.match(line)
        if prefix is None:
            break
        line = line[prefix.end() :]
    before = _BEFORE.search(line[-60:])
    head = before[0] if before else ""
    return line[: len(line) - len(head)], head


def _is_assigned(text: str, match: re.Match[str], start: str, head: str, name: str, longer: int | None) -> bool:
    """Return whether the value up to the first bracket is a secret, judged by the text before it."""
    sign, value = match["sign"], match["value"]
    quoted, bare = bool(match["quote"]), not sign.strip()
    if bare and not (head.startswith("--") and name.lower() == name):  # as in .netrc, and in sentences
        return _is_secret_word(name, value)
    spoken = sign.strip(" \t:") == "is"
    if spoken and not (PASSWORD.search(name.lower()) and TURN.search(value)):
        return False
    if len(value) < LEAST or not _is_end_of_value(text, match, start):
        return False
    alone = not start.rstrip(" -")[-1:].strip(_PREFIX_ENDS)
    line = quoted or (sign == ": " and alone and _LINE_END.match(text, match.end("value")) is not None)
    tight = sign in ("=", ":", ">") or bare or spoken
    return is_value(name, value, quoted=quoted, tight=tight, line=line)


def _is_secret_word(name: str, value: str) -> bool:
    """Return whether the word after a name, separated only by a space, is a secret."""
    password = len(name) > len("pass") and PASSWORD.search(name.lower()) and TURN.search(value[:-1])
    likely = password or _is_random_variable(name, value)
    return bool(likely) and is_value(name, value, quoted=True, tight=False)


def _is_end_of_value(text: str, match: re.Match[str], start: str) -> bool:
    """Return whether a match is the complete value, not the beginning of code or of a sentence."""
    sign, quoted = match["sign"], bool(match["quote"])
    if sign == ">" and start[-1:] != "<":
        return False
    if sign == ":" and not quoted and _LINE_NUMBER.match(match["value"]):  # a file named by a search
        return False
    behind = text[match.end("value") : match.end("value") + 1]
    if quoted:
        return not behind.isspace()  # a sentence in quotes
    return not behind or behind not in "([{"  # a call, a type with arguments, an index


def _is_random_variable(name: str, value: str) -> bool:
    """Return whether a variable's name, as in `ENV AUTH_TOKEN …`, precedes a random value."""
    return bool(ENVIRONMENT.match(name)) and "_" in name and value[:2] != "0x" and len(TURN.findall(value)) >= 4


def _is_mixed_value(name: str, value: str) -> bool:
    """Return whether a value with brackets or commas is a password, not code or a list."""
    low = name.lower()
    strong = _STRONG.search(low) or PASSWORD.search(low) or ENVIRONMENT.match(name)
    random = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _is_code(value)
    return bool(strong) and random and len(value) >= LEAST and is_value(name, value, quoted=True, tight=True)


def _is_code(value: str) -> bool:
    """Return whether a value with brackets is a call, an index, a format or a pattern."""
    if _TEMPLATE.search(value) or (_OPEN.search(value) and not _is_jumbled(value)):
        return True
    if len(_SHOUTED.findall(value)) > 1 and _is_jumbled(value):
        return False
    call = _CALLED.match(value)
    if call and _is_cut_by_bracket(call[1], value[call.end() :]):
        return False
    return call is not None and len(TURN.findall(call[1])) < 3 and not _STUCK.search(value, call.end())


def _is_cut_by_bracket(head: str, rest: str) -> bool:
    """Return whether an unclosed bracket is within a random value, not after a function's name."""
    if any(c in ")]}" for c in rest):
        return False
    turns = max((len(TURN.findall(run)) for run in _ALPHANUMERIC.findall(rest)), default=0)
    return turns >= 3 or (turns >= 2 and len(TURN.findall(head)) >= 2)


def _is_reference(value: str, *, quoted: bool) -> bool:
    return bool(_REFERENCE.match(value)) and not (quoted and _is_jumbled(value))


def _is_jumbled(value: str) -> bool:
    """Return whether letters, digits and symbols alternate as in a generated password."""
    runs = _RUNS.findall(value)
    symbols = {c for c in value if not c.isalnum()} - set("_-./:")
    mixed = len(symbols) > 1 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return mixed and len(value) <= 2.5 * len(runs) and not _TEMPLATE.search(value)


def is_value(name: str, value: str, *, quoted: bool, tight: bool, line: bool = False) -> bool:
    """Return whether a value is a secret; `line`: it stands alone after its name, as in YAML."""
    low = name.lower().strip("-_")
    variable = tight and bool(ENVIRONMENT.match(name) or name.startswith("--"))
    if not _may_name_secret(low) or _is_ordinary_value(value, quoted=quoted):
        return False
    if not variable and low.replace("_", "") in value.lower():
        return False
    if _STRONG.search(low) or PASSWORD.search(low) or (variable and _WORD_END.search(name)):
        return _is_likely(low, value, quoted=quoted, variable=variable, line=line)
    return bool(_WORD_END.search(name)) and is_random(value, low, quoted=quoted)


def _is_ordinary_value(value: str, *, quoted: bool) -> bool:
    """Return whether a value is a common word, address, reference, placeholder or chain of names."""
    return bool(
        value.lower() in COMMON
        or _ADDRESS.match(value)
        or _is_reference(value, quoted=quoted)
        or _PLACEHOLDER.match(value)
        or len(set(value)) < 4
        or (not quoted and _CHAIN.match(value))
    )


def _is_likely(low: str, value: str, *, quoted: bool, variable: bool, line: bool) -> bool:
    """Judge a value whose name means a secret."""
    if WORDS.match(value):
        return False
    if value.isalpha():
        return variable or (quoted and _is_password_or_lower(low, value)) or (line and _is_plain_word(low, value))
    return quoted or variable or (line and _is_plain_word(low, value)) or not _VARIABLE.match(value)


def _is_plain_word(low: str, value: str) -> bool:
    """Return whether a lower-case word, with an optional digit at the end, is a password and no name."""
    word = value[:-1] if value[-1].isdigit() else value
    password = PASSWORD.search(low) or (len(value) >= 12 and low.endswith(("secret", "credential", "credentials")))
    return bool(password) and word.isalpha() and word.islower()


def _is_password_or_lower(low: str, value: str) -> bool:
    return bool(PASSWORD.search(low)) or value.islower()


def _is_word_or_number(value: str) -> bool:
    is_word = WORDS.match(value) or _CHAIN.match(value) or not any(map(str.isdigit, value))
    return bool(is_word) or value.startswith("0x")


def is_random(value: str, low: str, *, quoted: bool) -> bool:
    """Judge a value whose name mostly means something else: only a random value is a secret."""
    if _is_word_or_number(value):
        return False
    turns = len(TURN.findall(value))
    if low.endswith("key"):
        return turns >= 4 and len(value) >= 16
    return turns >= (1 if quoted else 4) and sum(map(str.isdigit, value)) >= 3 and len(value) >= (8 if quoted else 12)


def find_apart(text: str, lower: str) -> Iterator[tuple[str, int, int]]:
    """Yield the secrets apart from their names; `lower` is the text in lower case, same positions."""
    yield from _find_pairs(text, lower)
    for sign in SECRET_PARTS:
        at = lower.find(sign)
        while at >= 0:
            end = at + len(sign)
            for pattern, is_secret in ((_APART, _is_apart), (_SENTENCE, _is_passphrase)):
                match = pattern.match(text, end)
                if match and is_secret(text, at, match):
                    yield classify_name(text[at : match.end("rest")]), *match.span("value")
            at = lower.find(sign, end)


def is_name_of_next_line(line: str) -> bool:
    """Return whether the value of a secret's name at the end of `line` is expected in the next one."""
    end = line[-_LONGEST_LINE:]
    return _OPEN_LINE.search(end) is not None and SECRET_NAME.search(end) is not None


def _find_pairs(text: str, lower: str) -> Iterator[tuple[str, int, int]]:
    at = lower.find("value")
    while at >= 0:
        value = _VALUE.match(text, at)
        name = _find_name(text, lower, at) if value else None
        if value and name and _is_pair(name, value):
            yield classify_name(name["name"]), *value.span("quoted" if value["quote"] else "plain")
        at = lower.find("value", at + len("value"))


def _find_name(text: str, lower: str, at: int) -> re.Match[str] | None:
    """Return the name before a value, whose key is at `at`."""
    first = max(0, at - _LONGEST_PAIR)
    if not any(sign in lower[first:at] for sign in SECRET_PARTS):
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
        return is_secret_value(name["name"], value["quoted"])
    if value["sign"] == "=" or not SECRET_NAME.search(name["name"]):
        return False
    tight = not name["quote"]  # else a variable in a program
    return is_value(name["name"], value["plain"], quoted=False, tight=tight)


def _is_apart(text: str, at: int, match: re.Match[str]) -> bool:
    """Return whether a value in a cell, in a block or after a prompt is a secret."""
    start, head = split_before_name(text, at)
    name, value = head.rpartition(".")[2] + text[at : match.end("rest")], match["value"]
    random = TURN.search(value[:-1])
    if match["prompt"]:
        password = PASSWORD.search(name.lower())
        return bool(password and random) and is_value(name, value, quoted=True, tight=False)
    if match["behind"] is None:
        return False
    if match["block"]:
        return is_value(name, value, quoted=False, tight=False, line=True)
    alone = not start.strip(" \t|\u2502\"'`")
    return bool(alone and random) and is_value(name, value, quoted=False, tight=False)


def _is_passphrase(text: str, at: int, match: re.Match[str]) -> bool:
    """Return whether a quoted text with spaces is a passphrase, not a sentence about one."""
    _, head = split_before_name(text, at)
    name = (head.rpartition(".")[2] + text[at : match.end("rest")]).lower()
    words = match["value"].split()
    if not PASSWORD.search(name) or len(match["value"]) < LEAST or name in match["value"].lower():
        return False
    return all(_PHRASE_WORD.match(word) for word in words) and _PROSE.isdisjoint(words)
