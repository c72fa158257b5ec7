"""Keys, tokens and passwords are masked in what is indexed; what was said stays as it was said."""

from __future__ import annotations

import re

MASK = "[secret]"

_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON Web Token, RFC 7519
    r"|\b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|npm_|pypi-)[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[\w-]{35}",
    re.DOTALL,
)
_BEARER = re.compile(r"(\bBearer\s+)[\w.~+/=-]{16,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(\b[\w-]*(?:api[_-]?key|secret[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token|password|passwd)"
    r"[\"']?\s*[:=]\s*[\"']?)(?=[^\s\"',;]*\d)[^\s\"',;()]{8,}",
    re.IGNORECASE,
)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE)


def masked(text: str) -> str:
    """`text` with private keys, access tokens, JSON Web Tokens, assigned passwords and passwords in addresses
    replaced by `[secret]`."""
    text = _SECRET.sub(MASK, text)
    for pattern in (_BEARER, _ASSIGNED, _URL):
        text = pattern.sub(rf"\g<1>{MASK}", text)
    return text
