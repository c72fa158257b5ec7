"""Search the web and open pages for the model: bounded, and marked as text from outside."""

from __future__ import annotations

import asyncio
import datetime
import html
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import html_to_markdown
from html_to_markdown import ConversionOptions, PreprocessingOptions
from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.processors.builtin import NOTE, reads_like_instructions
from sakti.agent.session.models import Models
from sakti.agent.tools import pictures, textfile
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.web import KEYED
from sakti.core import network
from sakti.core.clock import Clock
from sakti.core.errors import ToolError
from sakti.core.http import HttpAnswer, HttpClient, HttpLimits
from sakti.core.network import Target
from sakti.core.text import format_bytes, quote, to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import ImagePart, Json, ModelCall, Usage
from sakti.providers import registry
from sakti.providers.protocol import read_table
from sakti.providers.web_search import WebAnswer, WebHit, search
from sakti.store.database import Store
from sakti.store.secrets import mask_secrets
from sakti.store.threads import messages as stored_messages

LIMITS = HttpLimits(20.0, 2_000_000)
LONGEST_SNIPPET = 500
MOST_USD = 1.0  # a higher price of one search is ignored
# Of a search at the services' public price lists, November 2026; Exa's answers name their price.
_USD_PER_SEARCH = {"brave": 0.005, "tavily": 0.008, "exa": 0.005}
_MARKUP = re.compile(r"<[^<>]*>")
_REFUSED_KEY, _EXHAUSTED = (401, 403), (402, 429, 432, 433)


class SearchRequest(Struct, frozen=True):
    """Request to a service; `body` is sent as JSON, None with GET."""

    url: str
    headers: Mapping[str, str]
    body: Json | None = None


# --- the services, as their public references describe them, November 2026 -----------------------------------------


def _write_brave(key: str, query: str, limit: int, site: str) -> SearchRequest:
    words = f"{query} site:{site}" if site else query
    url = f"https://api.search.brave.com/res/v1/web/search?{urlencode({'q': words, 'count': limit})}"
    return SearchRequest(url, {"X-Subscription-Token": key})


def _read_brave(answer: Json) -> list[WebHit]:
    rows = _list_rows(read_table(answer.get("web")), "results")
    return [_make_hit(r, "description", date=r.get("page_age") or r.get("age")) for r in rows]


def _write_tavily(key: str, query: str, limit: int, site: str) -> SearchRequest:
    body: Json = {"query": query, "max_results": limit}
    if site:
        body["include_domains"] = [site]
    return SearchRequest("https://api.tavily.com/search", {"Authorization": f"Bearer {key}"}, body)


def _read_tavily(answer: Json) -> list[WebHit]:
    return [_make_hit(r, "content", date=r.get("published_date")) for r in _list_rows(answer, "results")]


def _write_exa(key: str, query: str, limit: int, site: str) -> SearchRequest:
    body: Json = {"query": query, "numResults": limit, "contents": {"highlights": True}}
    if site:
        body["includeDomains"] = [site]
    return SearchRequest("https://api.exa.ai/search", {"x-api-key": key}, body)


def _read_exa(answer: Json) -> list[WebHit]:
    return [_make_hit(r, "highlights", date=r.get("publishedDate")) for r in _list_rows(answer, "results")]


def _list_rows(table: Json, key: str) -> list[Json]:
    rows: Any = table.get(key)
    return [r for r in cast("list[Any]", rows) if isinstance(r, dict)] if isinstance(rows, list) else []


def _make_hit(row: Json, snippet: str, *, date: Any) -> WebHit:
    text: Any = row.get(snippet)
    text = " … ".join(map(str, cast("list[Any]", text))) if isinstance(text, list) else str(text or "")
    return WebHit(str(row.get("url") or ""), str(row.get("title") or ""), str(date or ""), text)


# Of each service in `KEYED`: writes a request (key, query, limit, site), reads the answer.
_FORMS: Mapping[str, tuple[Callable[[str, str, int, str], SearchRequest], Callable[[Json], list[WebHit]]]] = {
    "brave": (_write_brave, _read_brave),
    "tavily": (_write_tavily, _read_tavily),
    "exa": (_write_exa, _read_exa),
}


# --- the search of a session ---------------------------------------------------------------------------------------


class SessionSearch:
    """Search of one session by any of the services; `env` holds their keys."""

    def __init__(self, env: Mapping[str, str], models: Models, store: Store, client: HttpClient | None = None) -> None:
        self._env, self._models, self._store = env, models, store
        self._client = client or HttpClient(LIMITS)

    async def search(self, run: ToolContext, service: str, query: str, limit: int, site: str | None) -> Outcome:
        """Return results for the model. Raises ToolError, HttpError and ProviderError with one sentence."""
        host = network.parse_host(site) if site else None
        if site and (host is None or host.port is not None or "*" in host.name):
            raise ToolError(f"{quote(site, 100)} is not a host name: site takes one like docs.python.org.")
        name, words = host.name if host is not None else "", mask_secrets(query)
        clock: Clock = run.state.clock
        started = clock.monotonic()
        if service == "provider":
            label, answer = await self._ask_provider(words, limit, name)
        else:
            label, answer = await self._ask_service(service, words, limit, name)
        await self._record(run, answer, round((clock.monotonic() - started) * 1000))
        return describe(label, words, answer.hits[:limit])

    async def _ask_provider(self, query: str, limit: int, site: str) -> tuple[str, WebAnswer]:
        provider, info = self._models.provider, self._models.info
        assert provider is not None and info is not None
        _, _, model = (registry.choose_small_model(info.full_name) or info.full_name).partition("/")
        return provider.name, await search(provider, model, query, limit, site)

    async def _record(self, run: ToolContext, answer: WebAnswer, duration_ms: int) -> None:
        """Store a search as a step of the thread; its price counts for the turn."""
        run.state.spend(answer.usage)
        await self._store.write(
            stored_messages.add_step,
            run.thread_id,
            "search",
            ModelCall(answer.model, answer.usage, duration_ms, "end"),
            id=self._store.ids.new(),
            now=run.state.clock.now(),
        )

    async def _ask_service(self, name: str, query: str, limit: int, site: str) -> tuple[str, WebAnswer]:
        (label, variable), (write, read) = KEYED[name], _FORMS[name]
        request = write(self._env[variable].strip(), query, limit, site)
        headers = {"Accept": "application/json", **request.headers}
        if request.body is None:
            answer = await self._client.send("GET", request.url, headers)
        else:
            content = json.dumps(request.body).encode()
            headers["Content-Type"] = "application/json"
            answer = await self._client.send("POST", request.url, headers, content)
        if answer.status in _REFUSED_KEY:
            raise ToolError(f"{label} refused the key ({answer.status}): check {variable}.")
        table = _read_object(label, answer)
        return label, WebAnswer(tuple(read(table)), Usage(cost_usd=_read_price(name, table)), label)


def _read_price(name: str, answer: Json) -> float:
    """Return the price of a search in US dollars, by the answer (Exa) or the service's price list."""
    price: Any = read_table(answer.get("costDollars")).get("total")
    return float(price) if isinstance(price, int | float) and 0 <= price <= MOST_USD else _USD_PER_SEARCH[name]


def _read_object(label: str, answer: HttpAnswer) -> Json:
    """Return the object that a service answers with. Raises ToolError with its refusal in words."""
    if answer.status in _EXHAUSTED:
        raise ToolError(f"{label} accepts no more searches now ({answer.status}): its quota is used up.")
    try:
        value: Any = json.loads(answer.body) if answer.status == 200 else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ToolError(f"{label} sent no search results (status {answer.status}).")
    return cast("Json", value)


def describe(service: str, query: str, hits: Sequence[WebHit]) -> Outcome:
    """Return results marked as outside text."""
    if not hits:
        return Outcome(f"No results from {service}.", details={"matches": 0})
    rows = [row for number, hit in enumerate(hits, 1) for row in _describe_hit(number, hit)]
    body = mask_secrets("\n".join(rows)).replace("</", "<\u200b/")  # nothing in it ends the results
    head = f'<web-search service="{html.escape(service)}" query="{html.escape(to_one_line(query, 400))}">'
    note = NOTE if reads_like_instructions(body) else ""
    return Outcome(f"{head}\n{body}\n</web-search>{note}", details={"matches": len(hits)})


def _describe_hit(number: int, hit: WebHit) -> list[str]:
    title, snippet = (_strip_markup(text) for text in (hit.title, hit.snippet))
    date = f" ({to_one_line(hit.date, 40)})" if hit.date else ""
    rows = [f"{number}. {to_one_line(title, 200) or '(no title)'}{date}", f"   {to_one_line(hit.url, 2_000)}"]
    return [*rows, f"   {to_one_line(snippet, LONGEST_SNIPPET)}"] if snippet.strip() else rows


def _strip_markup(text: str) -> str:
    """Return a text of a service without its markup."""
    return html.unescape(_MARKUP.sub("", text))


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
            return "*" in run.hosts or network.is_allowed(run.hosts, target.host, target.port)

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
            where = f"{target.host} redirects to {to_one_line(answer.redirect, 300)}"
            raise ToolError(f"{where}, on another host. Call webfetch with that URL; the user is asked about the host.")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            phrase = HTTPStatus(answer.status).phrase if answer.status in list(HTTPStatus) else ""
            raise ToolError(f"{target.host} answered {f'{answer.status} {phrase}'.strip()}.")
        page = WebPage(target, "", len(answer.body), self._clock.now())
        kind = pictures.detect_kind(answer.body[: textfile.HEAD])
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
        text = mask_secrets(page.text.strip())
        shown, file = run.state.cut_output(text, run.call_id, self._counter)
        note = ""
        if file:
            size = f"{len(text):,} characters"
            note = f"\n[The whole page of {size} is in {file}: read it with offset and limit, or grep it.]"
        note += NOTE if reads_like_instructions(shown) else ""
        fetched = datetime.datetime.fromtimestamp(page.fetched_at // 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _TAG.sub("&lt;", shown) or "(no text)"
        content = f'<web-page url="{page.target.url}" fetched="{fetched}">\n{body}\n</web-page>{note}'
        size = f"{format_bytes(page.size)} · {self._counter.count(shown):,} tokens"
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
        raise _make_unreadable_error(answer, media_type)
    text = _decode_by_header(answer.body, header)
    if text is None:
        decoded = textfile.decode(answer.body)
        if decoded is None:
            raise _make_unreadable_error(answer, media_type or "binary data")
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


def _make_unreadable_error(answer: HttpAnswer, media_type: str) -> ToolError:
    what = f"{answer.url} is {to_one_line(media_type, 60)} ({format_bytes(len(answer.body))})"
    return ToolError(f"{what}; only HTML, text, JSON, XML, PDF and images can be read.")


async def _draw(data: bytes, target: Target) -> Outcome:
    with tempfile.NamedTemporaryFile(prefix="sakti-web-") as file:
        await asyncio.to_thread(Path(file.name).write_bytes, data)
        return await pictures.show(Path(file.name), target.url, "image", 1, None)


async def _read_pdf(data: bytes, target: Target) -> str:
    with tempfile.NamedTemporaryFile(prefix="sakti-web-") as file:
        await asyncio.to_thread(Path(file.name).write_bytes, data)
        return await pictures.read_pdf_text(Path(file.name), target.url, MOST_PDF_PAGES)
