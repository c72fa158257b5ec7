"""Open web pages for the model: fetched once, converted to text, bounded, and marked as outside text."""

from __future__ import annotations

import asyncio
import datetime
import re
import tempfile
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import html_to_markdown
from html_to_markdown import ConversionOptions, PreprocessingOptions
from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.processors.registry import NOTE, reads_like_instructions
from sakti.agent.tools import pictures, textfile
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core import network
from sakti.core.clock import Clock
from sakti.core.errors import ToolError
from sakti.core.http import HttpAnswer, HttpClient
from sakti.core.network import Target
from sakti.core.text import byte_size, one_line
from sakti.core.tokens import Counter
from sakti.core.types import ImagePart
from sakti.store.secrets import masked

CACHE_S, CACHE_SIZE = 900.0, 50_000_000  # how long pages are kept, and how many bytes in all
MOST_PDF_PAGES = 200
NO_CONTENT = (
    "(No text could be taken from this HTML page: it has none, a script writes it, or its elements are nested too "
    "deeply. `curl` in bash shows its source.)"
)
_HEADERS = {"Accept": "text/markdown, text/html, application/xhtml+xml, text/plain;q=0.9, */*;q=0.8"}
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(r"text/.*|application/(?:json|xml|yaml|toml|javascript|x-ndjson|x-yaml|x-sh)|.*\+(?:json|xml)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_TAG = re.compile(r"<(?=/?web-page)", re.IGNORECASE)


class WebPage(Struct, frozen=True):
    """Converted page; `size` in bytes as it was received, `fetched_at` in ms."""

    target: Target
    text: str
    size: int
    fetched_at: int
    images: tuple[ImagePart, ...] = ()

    @property
    def weight(self) -> int:
        """Return the bytes that it takes in the cache, about."""
        return len(self.text) + sum(len(image.data) for image in self.images)


class WebPages:
    """Pages of one session, cached in memory; `client` is that of tests."""

    def __init__(self, counter: Counter, clock: Clock, client: HttpClient | None = None) -> None:
        self._counter, self._clock = counter, clock
        self._client = client or HttpClient()
        self._cache: dict[str, tuple[float, WebPage]] = {}

    async def open(self, run: ToolContext, url: str) -> Outcome:
        """Return a page for the model. Raises HttpError, ToolError for an unreadable type."""

        def may_open(target: Target) -> bool:
            return "*" in run.hosts or network.allows(run.hosts, target.host, target.port)

        page = self._find_cached(network.parse_url(url), may_open)
        if page is None:
            answer = await self._client.get(url, may_open, _HEADERS)
            page = await self._read(answer)
            self._keep(network.parse_url(url).url, page)
        return await asyncio.to_thread(self._describe, run, page)

    def _find_cached(self, target: Target, may_open: Callable[[Target], bool]) -> WebPage | None:
        now = self._clock.monotonic()
        self._cache = {key: entry for key, entry in self._cache.items() if now - entry[0] < CACHE_S}
        entry = self._cache.get(target.url)
        if entry is None or (entry[1].target.rule_host != target.rule_host and not may_open(entry[1].target)):
            return None
        return entry[1]

    def _keep(self, key: str, page: WebPage) -> None:
        """Put a page into the cache; the oldest ones make room."""
        self._cache.pop(key, None)
        while self._cache and page.weight + sum(p.weight for _, p in self._cache.values()) > CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        if page.weight <= CACHE_SIZE:
            self._cache[key] = self._clock.monotonic(), page

    async def _read(self, answer: HttpAnswer) -> WebPage:
        target = network.parse_url(answer.url)
        if answer.redirect:
            where = f"{target.host} redirects to {one_line(answer.redirect, 300)}"
            raise ToolError(f"{where}, on another host. Call webfetch with that URL; the user is asked about the host.")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            phrase = HTTPStatus(answer.status).phrase if answer.status in list(HTTPStatus) else ""
            raise ToolError(f"{target.host} answered {f'{answer.status} {phrase}'.strip()}.")
        page = WebPage(target, "", len(answer.body), self._clock.now())
        kind = pictures.kind(answer.body[: textfile.HEAD])
        if kind == "image":
            shown = await _draw(answer.body, target)
            return replace(page, text=shown.content, images=shown.images)
        if kind == "pdf":
            return replace(page, text=await _read_pdf(answer.body, target))
        media_type, text = await asyncio.to_thread(_decode, answer)
        if media_type in _HTML:
            markdown = await asyncio.to_thread(to_markdown, text, target.url)
            text = markdown if markdown.strip() or not text.strip() else NO_CONTENT
        return replace(page, text=text)

    def _describe(self, run: ToolContext, page: WebPage) -> Outcome:
        """Return a page marked as outside text, cut to what a model gets; a file keeps all of it."""
        text = masked(page.text.strip())
        shown, file = run.state.cut_output(text, run.call_id, self._counter)
        note = ""
        if file:
            size = f"{len(text):,} characters"
            note = f"\n[The whole page of {size} is in {file}: read it with offset and limit, or grep it.]"
        note += NOTE if reads_like_instructions(shown) else ""
        fetched = datetime.datetime.fromtimestamp(page.fetched_at // 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _TAG.sub("&lt;", shown) or "(no text)"
        content = f'<web-page url="{page.target.url}" fetched="{fetched}">\n{body}\n</web-page>{note}'
        size = f"{byte_size(page.size)} · {self._counter.count(shown):,} tokens"
        details = {"url": page.target.url, "fetched": size, **({"output_file": file} if file else {})}
        return Outcome(content, details=details, images=page.images, is_limited=True)


def to_markdown(html: str, url: str) -> str:
    """Convert the main content of a page to Markdown; its links become absolute by `url`."""
    options = ConversionOptions(
        base_url=url,
        bullets="-",
        compact_tables=True,
        inline_data_media="alt_text_only",
        extract_metadata=False,
        preprocessing=PreprocessingOptions(preset="aggressive"),
    )
    return html_to_markdown.convert(html, options).content or ""


def _decode(answer: HttpAnswer) -> tuple[str, str]:
    """Return the media type of an answer and its text. Raises ToolError if it is not a text."""
    header = answer.headers.get("content-type", "")
    media_type = header.partition(";")[0].strip().lower()
    if media_type and not _TEXT.fullmatch(media_type) and media_type not in _HTML:
        raise _unreadable(answer, media_type)
    text = _decode_by_header(answer.body, header)
    if text is None:
        decoded = textfile.decode(answer.body)
        if decoded is None:
            raise _unreadable(answer, media_type or "binary data")
        text = decoded.text
    if not media_type and text.lstrip()[:15].lower().startswith(("<!doctype html", "<html")):
        media_type = _HTML[0]
    return media_type, text


def _decode_by_header(data: bytes, header: str) -> str | None:
    """Return the text by the charset that the header names, None if it names none that fits."""
    if not (charset := _CHARSET.search(header)):
        return None
    try:
        return data.decode(charset[1])
    except (LookupError, UnicodeError):
        return None


def _unreadable(answer: HttpAnswer, media_type: str) -> ToolError:
    what = f"{answer.url} is {one_line(media_type, 60)} ({byte_size(len(answer.body))})"
    return ToolError(f"{what}; only HTML, text, JSON, XML, PDF and images can be read.")


async def _draw(data: bytes, target: Target) -> Outcome:
    with tempfile.NamedTemporaryFile(prefix="sakti-web-") as file:
        await asyncio.to_thread(Path(file.name).write_bytes, data)
        return await pictures.show(Path(file.name), target.url, "image", 1, None)


async def _read_pdf(data: bytes, target: Target) -> str:
    with tempfile.NamedTemporaryFile(prefix="sakti-web-") as file:
        await asyncio.to_thread(Path(file.name).write_bytes, data)
        return await pictures.read_pdf_text(Path(file.name), target.url, MOST_PDF_PAGES)
