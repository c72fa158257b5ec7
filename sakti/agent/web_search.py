"""Search the web for the model, by its provider's own search or a service with a key of the user."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from msgspec import Struct

from sakti.agent.processors.registry import NOTE, reads_like_instructions
from sakti.agent.session.models import Models
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.web import KEYED
from sakti.core import network
from sakti.core.clock import Clock
from sakti.core.errors import ToolError
from sakti.core.http import HttpAnswer, HttpClient, HttpLimits
from sakti.core.text import one_line
from sakti.core.types import Json, ModelCall, Usage
from sakti.providers import registry
from sakti.providers.protocol import read_table
from sakti.providers.web_search import WebAnswer, WebHit, search
from sakti.store.database import Store
from sakti.store.secrets import masked
from sakti.store.threads import messages as stored_messages

LIMITS = HttpLimits(20.0, 2_000_000)
LONGEST_SNIPPET = 500
MOST_USD = 1.0  # a higher price of one search is not believed
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
    rows = _rows(read_table(answer.get("web")), "results")
    return [_hit(r, "description", date=r.get("page_age") or r.get("age")) for r in rows]


def _write_tavily(key: str, query: str, limit: int, site: str) -> SearchRequest:
    body: Json = {"query": query, "max_results": limit}
    if site:
        body["include_domains"] = [site]
    return SearchRequest("https://api.tavily.com/search", {"Authorization": f"Bearer {key}"}, body)


def _read_tavily(answer: Json) -> list[WebHit]:
    return [_hit(r, "content", date=r.get("published_date")) for r in _rows(answer, "results")]


def _write_exa(key: str, query: str, limit: int, site: str) -> SearchRequest:
    body: Json = {"query": query, "numResults": limit, "contents": {"highlights": True}}
    if site:
        body["includeDomains"] = [site]
    return SearchRequest("https://api.exa.ai/search", {"x-api-key": key}, body)


def _read_exa(answer: Json) -> list[WebHit]:
    return [_hit(r, "highlights", date=r.get("publishedDate")) for r in _rows(answer, "results")]


def _rows(table: Json, key: str) -> list[Json]:
    rows: Any = table.get(key)
    return [r for r in cast("list[Any]", rows) if isinstance(r, dict)] if isinstance(rows, list) else []


def _hit(row: Json, snippet: str, *, date: Any) -> WebHit:
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
        host = network.read(site) if site else None
        if site and (host is None or host.port is not None or "*" in host.name):
            raise ToolError(f"{one_line(site, 100)!r} is not a host name: site takes one like docs.python.org.")
        name, words = host.name if host is not None else "", masked(query)
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
        _, _, model = (registry.small_model(info.full_name) or info.full_name).partition("/")
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
    body = masked("\n".join(rows)).replace("</", "<\u200b/")  # nothing in it ends the results
    head = f'<web-search service="{html.escape(service)}" query="{html.escape(one_line(query, 400))}">'
    note = NOTE if reads_like_instructions(body) else ""
    return Outcome(f"{head}\n{body}\n</web-search>{note}", details={"matches": len(hits)})


def _describe_hit(number: int, hit: WebHit) -> list[str]:
    title, snippet = (_as_plain(text) for text in (hit.title, hit.snippet))
    date = f" ({one_line(hit.date, 40)})" if hit.date else ""
    rows = [f"{number}. {one_line(title, 200) or '(no title)'}{date}", f"   {one_line(hit.url, 2_000)}"]
    return [*rows, f"   {one_line(snippet, LONGEST_SNIPPET)}"] if snippet.strip() else rows


def _as_plain(text: str) -> str:
    """Return a text of a service without its markup."""
    return html.unescape(_MARKUP.sub("", text))
