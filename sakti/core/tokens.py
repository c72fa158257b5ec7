"""Count tokens offline. Each part is counted once, when its message is made, and stored.

Texts are counted by tiktoken's o200k_base, built from ranks in the package (tiktoken itself would download them). If it
cannot be built, the estimator replaces it and sets `approximate`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import re
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from sakti.core.lazy import lazy_pattern
from sakti.core.resources import PACKAGE
from sakti.core.text import cut_middle
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    ImageRule,
    MarkerPart,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)

log = logging.getLogger(__name__)

# A message costs a few tokens beyond its text: role, separators (OpenAI cookbook, "How to count tokens").
MESSAGE_OVERHEAD = 4
# Name and framing of a tool call or result, measured on the same models.
CALL_OVERHEAD = 12

# Images. OpenAI: 85 for the image and 170 for each 512-pixel tile of it, fitted into 2048 × 2048 and then to
# 768 on its short edge (platform docs, "Images and vision"). Anthropic: width × height / 750 after its long
# edge is fitted to 1568 (docs, "Vision").
OPENAI_IMAGE_BASE, OPENAI_IMAGE_TILE = 85, 170
ANTHROPIC_PIXELS_PER_TOKEN, ANTHROPIC_LONG_EDGE = 750, 1568
# Gemini: 258 for an image of at most 384 pixels a side, else for each tile of 768 (API docs, "Understand and count
# tokens").
GEMINI_SMALL, GEMINI_TILE, GEMINI_TILE_TOKENS = 384, 768, 258
IMAGE_UNKNOWN = 1105  # for 1024 × 1024, OpenAI's and Anthropic's rules differ by less than a third

O200K_SHA256 = "984d380f9253a9270605707e16fb1ede25302689eee577b9c6feabf3f5d31b9c"
O200K_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


class Counter(Protocol):
    """Token counter; `name` is stored with each count, `approximate` puts ~ before displayed figures."""

    name: str
    approximate: bool

    def count(self, text: str) -> int: ...


class O200k:
    """Counter by the o200k_base encoding.

    Loading takes about 0.3 s and 60 MB, so it happens at the first count or in `warm`. If loading fails (the rank file
    or tiktoken is damaged), the estimator counts, and `name` and `approximate` say so.
    """

    name: str = "o200k_base"
    approximate: bool = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count: Callable[[str], int] | None = None

    def warm(self) -> None:
        """Build the encoding; safe to call from any thread, more than once."""
        with self._lock:
            if self._count is not None:
                return
            try:
                encode = _build_o200k_encoder()
            except (ImportError, OSError, ValueError) as e:
                log.warning("tokens are estimated: %s", e)
                self.name, self.approximate, self._count = Estimator.name, True, estimate_tokens
            else:
                self._count = lambda text: len(encode(text))

    def count(self, text: str) -> int:
        if self._count is None:
            self.warm()
        assert self._count is not None
        return self._count(text)


def load_o200k_tokens() -> list[bytes]:
    """Return all tokens by rank. Raises OSError or ValueError if the file is missing or damaged.

    The file takes half the space of the public one and a tenth of its time to read: all tokens, separated by two bytes
    that occur together in none of them.
    """
    data = (PACKAGE / "core/data/o200k_base.ranks").read_bytes()
    if hashlib.sha256(data).hexdigest() != O200K_SHA256:
        raise ValueError("o200k_base.ranks is damaged: install sakti again")
    return data.split(b"\xff\x00")


def _build_o200k_encoder() -> Callable[[str], list[int]]:
    """Build the encoder. Raises ImportError, OSError or ValueError."""
    import tiktoken

    ranks = {token: rank for rank, token in enumerate(load_o200k_tokens())}
    encoding = tiktoken.Encoding(
        "o200k_base",
        pat_str=O200K_PATTERN,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    )
    # tiktoken keeps the Python dict (20 MB) only for pickling; encoding uses its own copy
    encoding._mergeable_ranks = {}  # pyright: ignore[reportPrivateUsage]
    return encoding.encode_ordinary


# --- the estimator, if no encoding is available ------------------------------------------------------


class Estimator:
    """Counter that estimates by scripts and character classes; golden vectors fix its results."""

    name = "estimate"
    approximate = True

    def count(self, text: str) -> int:
        return estimate_tokens(text)


_SEGMENT = lazy_pattern(r"(\s+|[.,!?;(){}\[\]<>:/\\|@#$%^&*+=`~_-]+)")
_PUNCTUATION = lazy_pattern(r"[.,!?;(){}\[\]<>:/\\|@#$%^&*+=`~_-]")
_NUMBER = lazy_pattern(r"\d+(?:[.,]\d+)*")
_CJK = lazy_pattern(
    "[\u1100-\u11ff\u2e80-\u2eff\u3000-\u303f\u30a0-\u30ff\u3130-\u318f\u31c0-\u31ef\u3200-\u33ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uff00-\uffef]"
)
# Letters that identify a language, and its characters per token.
_LANGUAGES = (
    (re.compile("[äöüßẞ]", re.IGNORECASE), 3.0),
    (re.compile("[éèêëàâîïôûùüÿçœæáíóúñ]", re.IGNORECASE), 3.0),
    (re.compile("[ąćęłńóśźżěščřžýůúďťň]", re.IGNORECASE), 3.5),
)
_CHARS_PER_TOKEN = 6.0


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text` without an encoding.

    A short word, a number or a CJK character counts as one token, a punctuation character as half; the length of other
    words is divided by the language's mean token length.
    """
    return sum(_known_segment(s) if len(s) <= _WORD else _estimate_segment(s) for s in _SEGMENT.split(text) if s)


_WORD = 32  # maximum characters of cached segments; longer ones rarely repeat


def _estimate_segment(segment: str) -> int:
    length = len(segment.encode("utf-16-le", "surrogatepass")) // 2
    if segment.isspace():
        return 0
    if _CJK.search(segment):
        return length
    if _NUMBER.fullmatch(segment) or length <= 3:
        return 1
    if _PUNCTUATION.search(segment):
        return math.ceil(length / 2)
    mean = next((chars for letters, chars in _LANGUAGES if letters.search(segment)), _CHARS_PER_TOKEN)
    return math.ceil(length / mean)


# words repeat within a text: a look-up costs a tenth
_known_segment = functools.lru_cache(1 << 14)(_estimate_segment)


# --- parts and tools ------------------------------------------------------------------------------------


def cut_to_tokens(counter: Counter, text: str, most: int) -> str:
    """Cut a text of more than `most` tokens to its beginning and end."""
    looked_at = most * 20  # characters from which on a text is cut without counting it, which would take long
    if len(text) <= most:
        return text
    tokens = counter.count(text[:looked_at])
    if tokens <= most and len(text) <= looked_at:
        return text
    size = min(len(text), looked_at) * (most - 200) // max(tokens, 1)
    shown, _ = cut_middle(text, size)
    while counter.count(shown) > most - 100:
        size = size * 9 // 10
        shown, _ = cut_middle(text, size)
    return shown


def count_part(counter: Counter, part: Part, rule: ImageRule = "") -> int:
    """Count the tokens of a part as it is sent; a marker is never sent and counts 0.

    `rule` selects the provider's formula for images.
    """
    match part:
        case TextPart(text) | ThinkingPart(text):
            return counter.count(text)
        case ContextPart():
            return counter.count(part.text) + MESSAGE_OVERHEAD
        case ToolCallPart(name=name, arguments=arguments, raw=raw):
            body = raw if arguments is None else json.dumps(arguments, ensure_ascii=False)
            return counter.count(name) + counter.count(body) + CALL_OVERHEAD
        case ToolResultPart(content=content):
            return counter.count(content) + CALL_OVERHEAD
        case OutputPart(command, text):
            return counter.count(command) + counter.count(text) + CALL_OVERHEAD
        case FilePart(path, text):
            return counter.count(path) + counter.count(text) + MESSAGE_OVERHEAD
        case ImagePart(width=width, height=height):
            return count_image_tokens(width, height, rule)
        case MarkerPart():
            return 0


def count_parts(counter: Counter, parts: Sequence[Part], rule: ImageRule = "") -> tuple[int, ...]:
    return tuple(count_part(counter, part, rule) for part in parts)


def sum_message_tokens(part_tokens: Sequence[int]) -> int:
    """Add up a message's tokens: its parts and its overhead; 0 if nothing of it is sent."""
    total = sum(part_tokens)
    return total + MESSAGE_OVERHEAD if total else 0


def count_tools(counter: Counter, tools: Sequence[ToolSpec]) -> int:
    return sum(
        counter.count(t.name)
        + counter.count(t.description)
        + counter.count(json.dumps(t.parameters, ensure_ascii=False))
        + CALL_OVERHEAD
        for t in tools
    )


def count_image_tokens(width: int, height: int, rule: ImageRule = "") -> int:
    """Return the tokens of an image by a provider's formula; `width` and `height` in pixels.

    Without a formula, the larger of OpenAI's and Anthropic's is used; an image of unknown size counts as a typical one.
    """
    if width <= 0 or height <= 0:
        return GEMINI_TILE_TOKENS * 4 if rule == "gemini" else IMAGE_UNKNOWN
    match rule:
        case "openai":
            return _count_openai_image(width, height)
        case "anthropic":
            return _count_anthropic_image(width, height)
        case "gemini":
            return _count_gemini_image(width, height)
        case _:
            return max(_count_openai_image(width, height), _count_anthropic_image(width, height))


def _count_openai_image(width: int, height: int) -> int:
    shrink = min(1.0, 2048 / max(width, height))
    w, h = width * shrink, height * shrink
    shrink = min(1.0, 768 / min(w, h))
    return OPENAI_IMAGE_BASE + OPENAI_IMAGE_TILE * math.ceil(w * shrink / 512) * math.ceil(h * shrink / 512)


def _count_anthropic_image(width: int, height: int) -> int:
    shrink = min(1.0, ANTHROPIC_LONG_EDGE / max(width, height))
    return math.ceil(width * shrink * height * shrink / ANTHROPIC_PIXELS_PER_TOKEN)


def _count_gemini_image(width: int, height: int) -> int:
    if max(width, height) <= GEMINI_SMALL:
        return GEMINI_TILE_TOKENS
    return GEMINI_TILE_TOKENS * math.ceil(width / GEMINI_TILE) * math.ceil(height / GEMINI_TILE)
