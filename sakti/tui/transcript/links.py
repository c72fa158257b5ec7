"""Find links in a text: addresses and file locations.

The target of a link is kept in the metadata of its segments and never sent to the terminal, so that no text can break
out of a link.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, cast
from urllib.parse import quote

from rich.style import Style

from sakti.core.lazy import lazy_pattern
from sakti.tui.transcript.wrap import Span

Target: TypeAlias = tuple[Literal["url", "file"], str]

_URL = lazy_pattern(r"\b(?:https?://|mailto:)[^\s<>\"'`|\\^{}\u2400-\u2421]+", re.IGNORECASE)
_PLACE = lazy_pattern(r"(?<![\w./@:-])(?:[.~]{0,2}/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}:\d+(?![\w/])")
_PATH = lazy_pattern(r"(?:[.~]{0,2}/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}(?::\d+(?:[-:]\d+)?)?")
_EITHER = lazy_pattern(f"{_URL.pattern}|{_PLACE.pattern}", re.IGNORECASE)
_SAFE = "!#$%&'()*+,/:;=?@[]~-._"


def parse_address(href: str) -> str | None:
    """Return the http, https or mailto address `href` in quoted form; None for anything else."""
    href = href.strip()
    if not re.match(r"(?:https?://[^\s/]|mailto:[^\s])", href, re.IGNORECASE) or re.search(r"[\s\x00-\x20\x7f]", href):
        return None
    return quote(href, safe=_SAFE)


def parse_place(text: str) -> str | None:
    """Return the file named by `text`, without line number; None if it may not be a path."""
    if not _PATH.fullmatch(text) or not ("/" in text or ":" in text):
        return None
    return text.partition(":")[0]


def add_target(style: Style, kind: Literal["url", "file"], target: str) -> Style:
    return style + Style(meta={"to": (kind, target)})


def get_target(style: Style | None) -> Target | None:
    """Return the link target stored in a style."""
    if style is None or not style.meta:
        return None
    return cast("Target | None", style.meta.get("to"))


def add_links(text: str, style: Style, link: Style) -> list[Span]:
    """Return `text` with its addresses and file locations as links."""
    if ":" not in text:
        return [(text, style)]
    out: list[Span] = []
    at = 0
    for match in _EITHER.finditer(text):
        matched = match[0]
        if _URL.match(matched):
            matched = trim_address(matched)
            target = parse_address(matched)
            styled = None if target is None else add_target(style + link + Style(underline=True), "url", target)
        else:
            styled = add_target(style + link, "file", matched.partition(":")[0])
        if styled is None:
            continue
        if match.start() > at:
            out.append((text[at : match.start()], style))
        out.append((matched, styled))
        at = match.start() + len(matched)
    if at < len(text) or not out:
        out.append((text[at:], style))
    return out


def trim_address(url: str) -> str:
    """Strip the punctuation of the surrounding sentence from the end of a URL."""
    while url:
        if url[-1] in ".,;:!?*_~" or (url[-1] in ")]" and url.count(url[-1]) > url.count("(["[url[-1] == "]"])):
            url = url[:-1]
        else:
            break
    return url
