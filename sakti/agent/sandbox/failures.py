"""Recognise in what a failed command wrote that the sandbox stopped it."""

from __future__ import annotations

import re

from sakti.core.patterns import lazy_pattern

_LOCAL = r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\b)"
NOBODY_LISTENS = "Nothing in the sandbox listens there, and servers outside of it are out of reach"
_SIGNS = (
    (NOBODY_LISTENS, lazy_pattern(
        rf"failed to connect to {_LOCAL}|{_LOCAL}[^\n]*refused|(?:refused|ECONNREFUSED)[^\n]*{_LOCAL}", re.IGNORECASE)),
    ("The sandbox has no network", lazy_pattern(
        r"network is (?:unreachable|down)|could not resolve|couldn't resolve|temporary failure in name resolution"
        r"|name or service not known|getaddrinfo|EAI_AGAIN|ENETUNREACH|nodename nor servname|failed to connect to"
        r"|no address associated with hostname|dns error|connection refused", re.IGNORECASE)),
    ("The sandbox keeps this from being changed", lazy_pattern(
        r"read-only file system|EROFS|could not lock config file|device or resource busy", re.IGNORECASE)),
    ("The sandbox does not permit this", lazy_pattern(r"operation not permitted|EPERM", re.IGNORECASE)),
)  # fmt: skip
_REFUSED = lazy_pattern(r"permission denied|EACCES|invalid cross-device link|EXDEV", re.IGNORECASE)
LOOKED_AT = 8_000  # characters of the end of an output


def reason(output: str, *, by_rules: bool = False) -> str:
    """Return the sandbox's refusal in an output as a sentence without its end; "" if there was none.

    `by_rules`: what is outside is there and refused (Landlock), not away.
    """
    end = output[-LOOKED_AT:]
    if by_rules and _REFUSED.search(end):
        return "The sandbox does not permit this"
    return next((sentence for sentence, pattern in _SIGNS if pattern.search(end)), "")
