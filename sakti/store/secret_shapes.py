"""Find secrets by their form: tokens with a prefix, private keys, headers, addresses.

A text without the literal marker of a form (in lower case) is not searched for it: looking for a plain string is a
hundred times faster, and most texts contain no secret. Every pattern begins at its marker and is bounded, so that the
time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from sakti.store import secret_names

Span = tuple[str, int, int]  # kind, begin and end of the value
PEM_LIMIT = 20_000  # characters of a private key

_DIGIT = r"(?=[\w.-]{0,200}?\d)"

_KEY_DATA = r"client-key-data\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?([A-Za-z0-9+/]{20,20000}={0,2})"
_YESCRYPT = r"\$(?:g?y|7)\$[./\w]{1,86}(?:\$[./\w]{1,86})?\$[./0-9A-Za-z]{43}(?![./\w])"
_ARGON2 = r"\$argon2(?:id|i|d)\$(?:v=\d{1,3}\$)?[\w=,]{5,60}\$[A-Za-z0-9+/]{8,128}\$[A-Za-z0-9+/]{16,256}"

# three digits, or two apart: a name such as hf_Qwen2Model has one
_SHORT_HUGGINGFACE = (
    r"(?<!\w)hf_(?=[a-z\d]{0,14}[A-Z])(?=[A-Z\d]{0,14}[a-z])"
    r"(?=(?:[A-Za-z]{0,12}\d){3}|[A-Za-z]{0,12}\d[A-Za-z]{1,12}\d)[A-Za-z0-9]{8,15}(?!\w)"
)

_NAMED_HUGGINGFACE = (
    r"(?:(?<=(?i:token)=)|(?<=(?i:token): )|(?<=(?i:token)[=:][\"'])|(?<=(?i:token): [\"'])|(?<=(?i:token) = [\"'])"
    r"|(?<=--token ))hf_[A-Za-z0-9]{6,255}(?!\w)"
)

# kind, marker in lower case, pattern at the marker; the value is group 1 if there is one, else the match
_TOKENS: tuple[tuple[str, str, str], ...] = (
    *(("github", sign, r"gh[pousr]_[A-Za-z0-9]{16,255}") for sign in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("github", "github_pat_", r"github_pat_\w{16,255}"),
    *(("gitlab", sign, r"gl(?:pat|dt|rt|ptt|soat)-[\w-]{16,255}") for sign in ("glpat-", "gldt-", "glrt-", "glptt-")),
    *(("slack", sign, rf"xox[abeoprs]-{_DIGIT}[\w-]{{15,255}}") for sign in ("xoxa-", "xoxb-", "xoxe-", "xoxo-")),
    *(("slack", sign, rf"xox[abeoprs]-{_DIGIT}[\w-]{{15,255}}") for sign in ("xoxp-", "xoxr-", "xoxs-")),
    ("slack", "xapp-", rf"xapp-{_DIGIT}[\w-]{{16,255}}"),
    ("slack_hook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{16,255})"),
    ("discord_hook", "/api/webhooks/", r"/api/webhooks/(\d{10,24}/[\w-]{30,255})"),
    ("anthropic", "sk-ant-", rf"sk-ant-{_DIGIT}[\w-]{{16,255}}"),
    ("stripe", "whsec_", r"whsec_[A-Za-z0-9+/=]{20,255}"),
    ("groq", "gsk_", r"(?<!\w)gsk_[A-Za-z0-9]{20,255}"),
    ("xai", "xai-", r"(?<!\w)xai-[A-Za-z0-9]{30,255}"),
    ("replicate", "r8_", r"(?<!\w)r8_[A-Za-z0-9]{30,64}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{30,255}"),
    ("huggingface", "hf_", r"hf_[A-Za-z0-9]{30,255}"),
    ("huggingface", "hf_", r"(?<!\w)hf_(?=[A-Za-z]{0,28}\d)[A-Za-z0-9]{16,29}(?!\w)"),
    ("huggingface", "hf_", r"(?<!\w)hf_(?=(?:[A-Za-z]{0,12}\d){5})[A-Za-z0-9]{10,15}(?!\w)"),
    ("huggingface", "hf_", _SHORT_HUGGINGFACE),
    ("huggingface", "hf_", _NAMED_HUGGINGFACE),
    ("npm", "npm_", r"npm_[A-Za-z0-9]{30,255}"),
    ("pypi", "pypi-", rf"pypi-(?=[\w-]{{0,200}}?[A-Z]){_DIGIT}[\w-]{{16,512}}"),
    *(("aws", sign, r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])") for sign in ("akia", "asia")),
    ("google", "aiza", r"AIza[\w-]{35}"),
    ("google", "ya29.", r"ya29\.[\w-]{20,512}"),
    ("google", "gocspx-", r"GOCSPX-[\w-]{20,255}"),
    ("jwt", "eyj", r"(?<![\w/])eyJ[\w-]{8,16384}\.[\w-]{8,16384}\.[\w-]{0,16384}"),  # RFC 7519
    ("sendgrid", "sg.", r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    ("twilio", "sk", r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("azure", "accountkey=", r"(?i:accountkey)=([A-Za-z0-9+/]{20,128}={0,2})"),
    ("azure", "sharedaccesskey=", r"(?i:sharedaccesskey)=([A-Za-z0-9+/]{20,128}={0,2})"),
    ("azure", "sig=", r"(?<=[?&])sig=([\w%+/-]{20,255}={0,2})"),
    ("age", "age-secret-key-1", r"(?i:age-secret-key-1)[A-Za-z0-9]{30,128}"),
    ("telegram", ":", r"(?<=\d{8}):(?=[\w-]{0,34}?[A-Za-z])([\w-]{33,40})(?![\w-])"),
    ("doppler", "dp.", r"(?<!\w)dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{20,255}"),
    ("digitalocean", "_v1_", r"(?<=\bdo[por])_v1_[0-9a-f]{40,128}"),
    ("shopify", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("square", "sq0", r"sq0(?:atp|csp|idp)-[\w-]{20,64}"),
    ("linear", "lin_api_", r"lin_api_[A-Za-z0-9]{20,64}"),
    ("notion", "ntn_", r"(?<!\w)ntn_[A-Za-z0-9]{30,64}"),
    ("databricks", "dapi", r"(?<!\w)dapi[0-9a-f]{32}(?:-\d)?(?!\w)"),
    ("vault", "hvs.", r"(?<!\w)hvs\.[\w-]{24,255}"),
    ("mailgun", "key-", r"(?<!\w)(?<!\w-)key-[0-9a-f]{32}(?!\w)"),
    ("grafana", "gls", r"gls[ac]_[\w]{30,128}"),
    ("sentry", "sntry", r"sntry[su]_[\w=+/-]{30,512}"),
    ("postman", "pmak-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("docker", "dckr_pat_", r"dckr_pat_[\w-]{20,64}"),
    ("tailscale", "tskey-", r"tskey-[\w-]{20,128}"),
    ("newrelic", "nrak-", r"NRAK-[A-Z0-9]{20,64}"),
    ("fly", "fm2_", r"(?<!\w)fm2_[\w+/=]{40,2048}"),
    ("django", "django-insecure-", r"django-insecure-[^\s\"'`\\]{20,255}"),
    ("sentry", "://", r"://([0-9a-f]{32}(?::[0-9a-f]{32})?)@[\w.-]{1,253}(?::\d{1,5})?/[\w/-]{0,99}\d"),
    ("kubernetes", "client-key-data", _KEY_DATA),
    # crypt(5) and the formats of web servers and frameworks: salt and digest have a fixed length
    *(("hash", sign, r"\$(?:1|apr1)\$[./\w]{1,8}\$[./0-9A-Za-z]{22}(?![./\w])") for sign in ("$1$", "$apr1$")),
    *(("hash", f"$2{c}$", r"\$2[abxy]\$\d\d\$[./0-9A-Za-z]{53}(?![./\w])") for c in "abxy"),
    ("hash", "$5$", r"\$5\$(?:rounds=\d{1,9}\$)?[./\w]{1,16}\$[./0-9A-Za-z]{43}(?![./\w])"),
    ("hash", "$6$", r"\$6\$(?:rounds=\d{1,9}\$)?[./\w]{1,16}\$[./0-9A-Za-z]{86}(?![./\w])"),
    *(("hash", sign, _YESCRYPT) for sign in ("$y$", "$gy$", "$7$")),
    ("hash", "$argon2", _ARGON2),
    ("hash", "pbkdf2_sha", r"pbkdf2_sha(?:1|256|512)\$\d{1,9}\$[\w./+-]{1,64}\$[A-Za-z0-9+/]{20,128}={0,2}"),
    *(("hash", sign, r"\{S?SHA(?:\d{3})?\}[A-Za-z0-9+/]{27,128}={0,2}") for sign in ("{sha", "{ssha")),
)
_API_KEY = r"(?<!\w)(?<!\w-)[spr]k[-_][\w-]{20,255}"
_BEARER = r"(?i)bearer[ \t]{1,4}(?=[\w.~+/=-]{0,200}?\d|[A-Za-z]{20})([\w.~+/=-]{16,4096})"
_HEADER = (
    r"(?i)authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?(?!basic\b|bearer\b|[\w.]{1,99}\()"
    r"(?:[a-z][\w-]{1,20}[ \t]{1,4})?(?=[\w.~+/=-]{0,200}?\d)([\w.~+/=-]{16,4096})"
)
_BASIC = r"(?i)basic[ \t]{1,4}([A-Za-z0-9+/]{8,1024}={0,2})"
_COOKIE = (
    r"(?i)cookie\\?[\"']?(?:[ \t]{0,4}[:=][ \t]{0,4}|[ \t]{1,4})\\?[\"']?"
    r"((?!https?:)[^\s=;:\"'\\(){}\[\],]{1,64}=(?=[^\s;\"'\\]{0,200}?\d|\w{16})[^\s;\"'\\(){}\[\],<>]{8,4096}"
    r"(?:;[ \t]{0,4}[^\s=;\"'\\]{1,64}(?:=[^\s;\"'\\]{0,4096})?){0,40})"
)
_ADDRESS = r"://[^\s/:@\"'<>{}$]{0,100}:([^\s/@\"'`<>]{1,200})@(?=[\w\[{$.-])"
_PORTS = "543[2-9]|6432|6543"  # of PostgreSQL and its poolers
# host:port:database:user:password, with the host before the marker (PostgreSQL's password file)
_PGPASS = (
    rf":(?:{_PORTS}|\*):[^\s:]{{1,63}}:[^\s:\"']{{1,63}}:"
    r"((?:[^\s:\\\"'`]|\\[:\\]){4,200})[ \t\r]{0,4}(?:\n|\Z)"
)
_LONGEST_HOST = 500  # characters, with the prefix of a search
_PGPASS_HOST = r"(?:[^\n]{1,200}[:-]\d{1,7}[:-]| {0,8}\d{1,7}[:\t]|[+\-<>]?[ \t]{0,8})?(?:[\w.-]{1,253}|\*)"
_CURL = (
    r"curl(?:\.exe)?\b(?:(?!curl)[^\n|;&]){0,1000}?[ \t\"'](?:-[a-zA-Z#]{0,8}[uU]|--(?:proxy-)?user)[ \t=\\\"',]{0,6}"
    r"[^\s:\"'`,]{1,100}:([^\s\\\"'`|;&<>]{4,200})"
)
_MYSQL = (
    r"(?<![\w.])(?<![A-Za-z]-)(?:mysql(?:dump|admin|import|check|show|sh|binlog)?|mariadb(?:-\w{1,12})?)"
    r"(?:\.exe)?(?=[ \t])(?:(?!mysql|mariadb)[^\n|;&]){0,300}?[ \t]-p[\"']?([^\s\\\"'`|;&<>]{4,200})"
)
_SSHPASS = r"sshpass\b(?:[ \t]{1,4}-[veP][\w:]{0,40}){0,3}[ \t]{1,4}-p[ \t]{0,4}\\?[\"']?([^\s\\\"'`|;&<>]{4,200})"
_IDENTIFIED = (
    r"(?i)identified[ \t]{1,4}(?:with[ \t]{1,4}[^\s;]{1,60}[ \t]{1,4})?(?:by|as)[ \t]{1,4}(?:password[ \t]{1,4})?"
    r"\\?([\"'])([^\s\"'\\;]{4,200})\\?\1"
)
_STATEMENT = r"(?i)\b(?:create|alter)\s+(?:or\s+replace\s+)?(?:user|role|login)\b|\bgrant\s"
_LONGEST_STATEMENT = 400  # characters before its password
_GO_DSN = r"@(?:tcp|udp|unix)\("
_GO_USER = r"(?<![\w./$%{}-])(?:[^\s\"'`:]{1,150}:\d{1,7}:)?([\w.$%{}-]{1,64}):([^\s\"'`]{1,128})\Z"
_ORACLE = r"jdbc:oracle:(?:thin|oci\d?):[\w.$#-]{1,64}/([^\s\"'`@]{1,128})@"
_AUTH = r"_?auth\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?([A-Za-z0-9+/]{8,1024}={0,2})"
_PHRASE = (
    r"(?i)(?:mnemonic|seed|recovery|backup)[\w \t-]{0,24}\\?[\"']?[ \t]{0,4}(?:[:=]|\bis\b)[ \t]{0,4}\\?[\"']?"
    r"((?:[a-z]{3,8}[ \t,]{1,3}){11,23}[a-z]{3,8})(?![\w])"
)
_PEM = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_RUN = r"[A-Za-z0-9+/=]{24}"
_PEM_PLAIN = r"(?:\s|\\[nr])++[A-Za-z0-9+/=][A-Za-z0-9+/=\s\\]{5,}"  # no quotes: not the text of a program
_PEM_CUT = r"[A-Za-z0-9+/=\s\\:.,-]*"


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on the first occurrence of its marker: most are never needed."""
    return re.compile(pattern)


def _match_span(match: re.Match[str]) -> tuple[int, int]:
    return match.span(match.lastindex or 0)


def _locate_api_key(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of a key with some random piece in it, not of a name made of words."""
    word = match[0]
    pieces = re.split("[-_]", word)
    if any(len(p) >= 16 and (any(map(str.isdigit, p)) or (len(p) >= 24 and not p.isupper())) for p in pieces):
        return match.span()
    digits = sum(c.isdigit() for c in word)
    return match.span() if len(word) >= 40 and word[2] == "-" and digits >= 3 and word.lower() != word else None


def _locate_credentials(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of Basic credentials: a value that decodes to user and password (RFC 7617).

    Not just the next word.
    """
    word = match[1]
    try:
        decoded = base64.b64decode(word + "=" * (-len(word) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return match.span(1) if b":" in decoded and decoded.isascii() and decoded.decode().isprintable() else None


def _locate_password(match: re.Match[str]) -> tuple[int, int] | None:
    return None if secret_names.is_placeholder(match[1]) else match.span(1)


def _locate_password_in_line(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the password in a line of PostgreSQL's password file, after a host only."""
    text, at = match.string, match.start()
    first = max(0, at - _LONGEST_HOST)
    host = text[max(first, text.rfind("\n", first, at) + 1) : at]
    return _locate_password(match) if _compile(_PGPASS_HOST).fullmatch(host) and match[1][0] not in "/.{" else None


def _locate_password_of_user(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the password in `curl -u user:password`; `admin:admin` is an example."""
    user = match.string[match.start() : match.start(1) - 1]
    return None if user.endswith(match[1]) or match[1].startswith("//") else _locate_password(match)


def _locate_password_of_option(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the password in `-pPASSWORD`; `-p3306:3306` is a port of a container."""
    return None if _compile(r"[\d.:/-]+(?:tcp|udp)?").fullmatch(match[1]) else _locate_password(match)


def _locate_password_of_statement(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the password of a user in SQL, not of a word in a sentence in lower case."""
    before = match.string[max(0, match.start() - _LONGEST_STATEMENT) : match.start()]
    sql = match[0].startswith("IDENTIFIED") or _compile(_STATEMENT).search(before.rpartition(";")[2])
    return match.span(2) if sql and not secret_names.is_placeholder(match[2]) else None


def _locate_password_in_dsn(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the password before `@tcp(host:port)`."""
    first = max(0, match.start() - 200)
    user = _compile(_GO_USER).search(match.string[first : match.start()])
    if user is None:
        return None
    before, _, last = user[0].rpartition(":")  # a file's name may precede the user's
    if not last or before.endswith(last) or secret_names.is_placeholder(last):
        return None
    return first + user.start(2), first + user.end(2)


def _locate_private_key(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of a private key with a body; a truncated one ends with its last valid character."""
    text, body = match.string, match.end()
    limit = body + PEM_LIMIT
    dashes = text.find("-----", body, limit)
    if dashes >= 0 and (end := _compile(_PEM_END).match(text, dashes)):
        plain = _compile(_PEM_PLAIN).fullmatch(text, body, dashes) or _compile(_PEM_RUN).search(text, body, dashes)
        return (match.start(), end.end()) if plain else None
    cut = _compile(_PEM_CUT).match(text, body, dashes if dashes >= 0 else limit)
    stop = body + len(cut[0].rstrip()) if cut else body
    return (match.start(), stop) if _compile(_PEM_RUN).search(text, body, stop) else None


Check = Callable[[re.Match[str]], tuple[int, int] | None]
_FORMS: tuple[tuple[str, str, str, Check], ...] = (
    *((kind, sign, pattern, _match_span) for kind, sign, pattern in _TOKENS),
    *(("api_key", f"{sign}{end}", _API_KEY, _locate_api_key) for sign in ("sk", "pk", "rk") for end in "-_"),
    ("private_key", "-----begin ", _PEM, _locate_private_key),
    ("bearer", "bearer", _BEARER, _match_span),
    ("basic", "basic", _BASIC, _locate_credentials),
    ("authorization", "authorization", _HEADER, _match_span),
    ("cookie", "cookie", _COOKIE, _match_span),
    ("password", "://", _ADDRESS, _locate_password),
    ("password", "curl", _CURL, _locate_password_of_user),
    *(("password", f":{port}", _PGPASS, _locate_password_in_line) for port in (*range(5432, 5440), 6432, 6543, "*")),
    *(("password", sign, _MYSQL, _locate_password_of_option) for sign in ("mysql", "mariadb")),
    ("password", "sshpass", _SSHPASS, _locate_password),
    ("password", "identified", _IDENTIFIED, _locate_password_of_statement),
    *(("password", f"@{sort}(", _GO_DSN, _locate_password_in_dsn) for sort in ("tcp", "udp", "unix")),
    ("password", "jdbc:oracle:", _ORACLE, _locate_password),
    ("basic", "auth", _AUTH, _locate_credentials),
    *(("mnemonic", sign, _PHRASE, _match_span) for sign in ("mnemonic", "seed", "recovery", "backup")),
)

_SPACED = frozenset(
    ("private_key", "bearer", "basic", "authorization", "cookie", "mnemonic", "password", "kubernetes", "huggingface")
)  # of several words, or of short ones
_IN_TEXT = tuple(form for form in _FORMS if form[0] in _SPACED)
_IN_WORDS = tuple(form for form in _FORMS if form[0] not in _SPACED)
_LONG = 20  # characters of a word that may be a token


def find_shapes(text: str, lower: str) -> Iterator[Span]:
    """Yield the secrets of these forms; `lower` is the text in lower case, with the same positions."""
    if len(lower) >= _LONG:
        words = "\n".join([word for word in lower.split() if len(word) >= _LONG])  # most of a text is shorter words
        if words:
            yield from _find_forms(text, lower, [form for form in _IN_WORDS if form[1] in words])
    yield from _find_forms(text, lower, [form for form in _IN_TEXT if form[1] in lower])


def _find_forms(text: str, lower: str, forms: Iterable[tuple[str, str, str, Check]]) -> Iterator[Span]:
    for kind, sign, pattern, place in forms:
        at = lower.find(sign)
        while at >= 0:
            match = _compile(pattern).match(text, at)
            span = place(match) if match else None
            if span is None:
                at = lower.find(sign, at + len(sign))
            else:
                yield kind, *span
                at = lower.find(sign, max(span[1], at + 1))
