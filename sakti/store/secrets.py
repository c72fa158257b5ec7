"""Mask keys, tokens and passwords in what is indexed; messages themselves stay unchanged."""

from __future__ import annotations

import re
from itertools import product

MASK = "[secret]"

_DASHES = ("", "_", "-")
_NAMES = (
    *("".join(w) for w in product(("api", "secret", "access"), _DASHES, ("key",))),
    *("".join(w) for w in product(("auth", "access"), _DASHES, ("token",))),
    "password",
    "passwd",
)

# A text without any of a pattern's signs (in lower case) is not searched for it: looking for a plain string is a
# hundred times faster, and most texts have no secret in them. What stands before a secret stays, as group 1.
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        ("private key-----",),
        re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    (("eyj",), re.compile(r"()\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),  # JSON Web Token, RFC 7519
    (
        ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),
        re.compile(r"()(?<!\w)(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}"),
    ),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-"),
        re.compile(r"()\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|npm_|pypi-)[\w-]{16,}"),
    ),
    (("akia", "asia"), re.compile(r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    (("aiza",), re.compile(r"()\bAIza[\w-]{35}")),
    (("bearer",), re.compile(r"(\bBearer\s+)[\w.~+/=-]{16,}", re.IGNORECASE)),
    (
        _NAMES,
        re.compile(
            rf"((?:{'|'.join(_NAMES)})[\"']?\s*[:=]\s*[\"']?)(?=[^\s\"',;]*\d)[^\s\"',;()]{{8,}}", re.IGNORECASE
        ),
    ),
    (("://",), re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE)),
)


def masked(text: str) -> str:
    """Replace secrets in `text` by `[secret]`.

    These are private keys, access tokens, JSON Web Tokens, assigned passwords and passwords in addresses.
    """
    lower = text.lower()
    for signs, pattern in _PATTERNS:
        if any(sign in lower for sign in signs):
            text = pattern.sub(rf"\g<1>{MASK}", text)
    return text
