"""Parse the limits that a server states when it refuses a request, and bound any answer. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from sakti.core.errors import ProviderError
from sakti.core.patterns import lazy_pattern

LEAST = 256  # tokens: with less room than that for an answer the conversation is what is too long

LONGEST_ANSWER = 4_000_000  # characters: beyond what any model writes in one answer

_NUMBER = r"`?(\d[\d,_]*)`?"
# The most that the model can write, as Anthropic, OpenAI, Groq and DeepSeek say it.
_MAXIMUM = (
    re.compile(rf"max_tokens: \d+ > {_NUMBER}, which is the maximum", re.I),
    re.compile(rf"supports at most {_NUMBER} (completion|output) tokens", re.I),
    re.compile(rf"max_(completion_|output_)?tokens`?'? must be less than or equal to {_NUMBER}", re.I),
    re.compile(rf"valid range of max_(completion_|output_)?tokens is \[\d+, ?{_NUMBER}\]", re.I),
    re.compile(rf"max_(completion_|output_)?tokens.{{0,60}}maximum( value)?( of| is|:) {_NUMBER}", re.I),
)
_NAMED = lazy_pattern(r"max_(completion_|output_|new_)?tokens|(completion|output) tokens|in the completion", re.I)
_WINDOW = lazy_pattern(
    rf"context (length|window|size|limit)( is| of|:)?( only)? {_NUMBER}|n_ctx[^\d]{{0,6}}(\d+)|"
    rf"tokens > {_NUMBER} maximum|token limit(?: of|:| is)? {_NUMBER}|token count .{{0,40}}the limit of {_NUMBER}|"
    rf"input length should be \[\d+, ?{_NUMBER}\]|maximum model length (?:of|is) {_NUMBER}|"
    rf"`?inputs`? tokens \+ .{{0,40}}must be <= ?{_NUMBER}|"
    rf"maximum number of (?:input )?tokens(?: allowed)? \(?{_NUMBER}",
    re.I,
)
_PROMPT = lazy_pattern(
    rf"{_NUMBER} (in the messages|in your prompt|input tokens|prompt tokens|tokens in the (messages|prompt))|"
    rf"input (?:has|length is|of) {_NUMBER}|token count of {_NUMBER}|{_NUMBER} `?inputs`? tokens|"
    rf"prompt is too long: {_NUMBER} tokens|prompt \(length {_NUMBER}\)|\(requested: {_NUMBER}\)",
    re.I,
)
_SUM = lazy_pattern(rf"{_NUMBER} \+ {_NUMBER} > {_NUMBER}")  # Anthropic: prompt + max_tokens > window


class Stated(Struct, frozen=True):
    """Limits in tokens that an error text states; None for those it does not.

    `output` is what this answer may have, `maximum` what the model can write at most; `named`: the answer's limit is
    mentioned, not the conversation's length alone.
    """

    output: int | None = None
    maximum: int | None = None
    window: int | None = None
    named: bool = False


def stated(said: str) -> Stated:
    """Parse the limits in a server's refusal."""
    named = bool(_NAMED.search(said))
    if match := _SUM.search(said):
        prompt, _, window = (_int(g) for g in match.groups())
        return Stated(window - prompt, None, window, True)
    for pattern in _MAXIMUM:
        if match := pattern.search(said):
            most = _int(next(g for g in reversed(match.groups()) if g and g[:1].strip("`").isdigit()))
            return Stated(most, most, None, True)
    window, prompt = _first(_WINDOW, said), _first(_PROMPT, said)
    room = window - prompt if window is not None and prompt is not None else None
    return Stated(room, None, window, named)


def check_answer_length(written: int) -> None:
    """Raise `ProviderError` (endless) for an answer of more characters than any model writes."""
    if written > LONGEST_ANSWER:
        raise ProviderError(
            f"The answer went beyond {LONGEST_ANSWER:,} characters, more than any model writes: stopped. Check the "
            "server, or choose another model with /model.",
            code="endless",
        )


def _first(pattern: re.Pattern[str], said: str) -> int | None:
    match = pattern.search(said)
    return next((_int(g) for g in match.groups() if g and g.strip("`")[:1].isdigit()), None) if match else None


def _int(text: str) -> int:
    return int(text.strip("`").replace(",", "").replace("_", ""))
