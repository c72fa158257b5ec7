"""Combine the facts about a model: the table of presets, the price list, its server, the settings.

Later sources win: the settings over the server, the server over the price list and the table. The table's values never
apply to self-hosted servers, whose users choose the window. The price list ships with the package and is made by
`.github/price_list.py`.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, date, datetime, time

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from sakti.core.config.fields import ProviderSettings
from sakti.core.network import is_loopback
from sakti.core.resources import PACKAGE
from sakti.core.types import Effort, ModelInfo, Usage
from sakti.providers.presets import DEFAULT_TTL, PRESETS, Family, Preset

# Tokens, if neither the tables nor the server state a window. A server on this machine is often started with less
# than its model has. The first overflow error that names a limit corrects either.
ASSUMED_WINDOW, ASSUMED_ON_LOOPBACK = 128_000, 32_768
UNKNOWN = Family("")
_OPENAI_RETENTION = {"24h": 60 * 60_000, "in_memory": DEFAULT_TTL}
_EFFORTS: tuple[Effort, ...] = ("off", "low", "medium", "high")


class ServedLimits(Struct, frozen=True):
    """Limits that a server states for one of its models, in tokens; None if it states none."""

    window: int | None = None
    max_output: int | None = None


def find_family(provider: str, model: str) -> Family:
    """Return the facts of a model by its name: from its provider's families, else from any provider's."""
    preset = PRESETS.get(provider)
    first = preset.families if preset is not None else ()
    others = (f for p in PRESETS.values() for f in p.families)
    name = _strip_cloud_name(model.lower()) if preset is not None and preset.cloud else model.lower()
    return next((f for f in (*first, *others) if re.search(f.pattern, name)), UNKNOWN)


def _strip_cloud_name(name: str) -> str:
    """Strip what a cloud adds to a name: `us.anthropic.claude-x-v1:0`, `claude-x@20250929`."""
    return re.sub(r"^([\w-]+\.)?anthropic\.|-v\d+(:\d+)?$", "", name).replace("@", "-")


def get_model_info(
    provider: str, model: str, settings: ProviderSettings | None = None, served: ServedLimits | None = None
) -> ModelInfo:
    """Return all facts about `model`."""
    provider_settings, preset = settings or ProviderSettings(), PRESETS.get(provider)
    model_family = find_family(provider, model)
    listed = find_price(provider, model)
    window, output = _combine_limits(provider_settings, preset, served or ServedLimits(), listed, model_family)
    input_price, output_price = list_prices(listed)
    return ModelInfo(
        model,
        provider,
        window,
        output,
        input_price,
        output_price,
        images=takes_images(provider, model, provider_settings),
        thinking=model_family.thinking,
        image_rule=(_find_maker(model_family) or preset or _NO_PRESET).image_rule,
        cache_ttl=resolve_auto_activation_ttl(provider, model),
        tokens=model_family.tokens,
        observes=model_family.observes,
    )


def _combine_limits(
    settings: ProviderSettings, preset: Preset | None, served: ServedLimits, listed: PriceEntry | None, family: Family
) -> tuple[int | None, int | None]:
    """Return a model's context window and longest answer; None if neither server nor table has them."""
    window, output = settings.context_window or served.window, served.max_output
    if not _sets_own_limits(settings, preset):
        window = window or (listed.window if listed is not None else None) or family.window
        output = output or family.max_output
    return window, min(output, window) if output and window else output


def _sets_own_limits(settings: ProviderSettings, preset: Preset | None) -> bool:
    """Return whether the server sets its own context window, as servers on this machine do."""
    return preset.local if preset is not None else is_loopback(settings.base_url or "")


def explain_assumed_window(info: ModelInfo) -> str:
    """Explain which context window is assumed for a model whose window is unknown."""
    return (
        f"The context window of {info.full_name} is not known: {info.context_window:,} tokens are assumed. Set "
        f"providers.{info.provider}.context_window to the size its server uses."
    )


def takes_images(provider: str, model: str, settings: ProviderSettings | None = None) -> bool:
    """Return whether a model accepts images, by the settings, else its family, else its provider."""
    if settings is not None and settings.images is not None:
        return settings.images
    model_family, preset = find_family(provider, model), PRESETS.get(provider)
    if preset is None or preset.local:
        return False
    return preset.images if model_family.images is None else model_family.images


_NO_PRESET = Preset("", "chat", "")


def _find_maker(family: Family) -> Preset | None:
    return next((p for p in PRESETS.values() if family in p.families and p.image_rule), None)


def resolve_auto_activation_ttl(provider: str | None, model: str | None, retention: str | None = None) -> int:
    """Return the milliseconds after which the prompt cache of `provider` is cold.

    `retention` is OpenAI's own setting ("24h" or "in_memory"). Without it, models up to 5.4 keep the cache for five
    minutes, newer ones for an hour.
    """
    name = (provider or "").lower()
    preset = next(
        (p for p in PRESETS.values() if name.startswith((p.name, p.prices if p.prices and not p.cloud else p.name))),
        None,
    )
    if preset is None:
        return DEFAULT_TTL
    if preset.name == "openai" and retention in _OPENAI_RETENTION:
        return _OPENAI_RETENTION[retention]
    lowered = (model or "").lower()
    model_family = next((f for f in preset.families if lowered and re.search(f.pattern, lowered)), UNKNOWN)
    return model_family.cache_ttl or preset.cache_ttl


def get_effort_word(family: Family, effort: Effort) -> str:
    """Return the API's value for `effort` in a family of models, "" if none is sent."""
    return family.efforts[_EFFORTS.index(effort)] if family.thinking else ""


def convert_to_effort(tokens: int) -> Effort:
    """Convert a budget of thinking tokens to the nearest effort."""
    return "off" if tokens <= 0 else "low" if tokens <= 2_048 else "medium" if tokens <= 16_384 else "high"


BUDGETS = {"off": 0, "low": 2_048, "medium": 8_192, "high": 24_576}  # tokens, for models that want a number


def compute_thinking_budget(effort: Effort | None, tokens: int | None, output: int, least: int) -> int:
    """Return the thinking tokens of an answer of at most `output` tokens.

    The requested budget, limited to half of the answer so that the other half is left for text; 0 below the API's
    minimum.
    """
    requested = tokens if tokens is not None else BUDGETS[effort or "off"]
    allowed = min(requested, output // 2) if output else requested
    return max(allowed, 0) if allowed >= least else 0


Rates = tuple[tuple[int, float], ...]  # (input tokens above which it applies, US dollars per million), base first


class Price(Struct, frozen=True):
    """Prices of a model: from a day on, at hours of the day (UTC; they may run past midnight), or always."""

    input: Rates = ()
    output: Rates = ()
    cached: Rates = ()
    cache_write: Rates = ()
    since: date | None = None
    hours: tuple[time, time] | None = None

    def holds(self, now: datetime) -> bool:
        if self.hours is None:
            return self.since is None or now.date() >= self.since
        begin, end = self.hours
        return begin <= now.time() < end if begin <= end else not end <= now.time() < begin


class PriceEntry(Struct, frozen=True):
    """Price entry of a model: names, a pattern for further names, context window in tokens, prices.

    If several prices apply, the last one counts.
    """

    names: frozenset[str] = frozenset()
    pattern: str = ""
    window: int | None = None
    prices: tuple[Price, ...] = ()

    def price(self, now: datetime) -> Price:
        return next((p for p in reversed(self.prices) if p.holds(now)), self.prices[0])


class _PricedProvider(Struct, frozen=True):
    """Models in search order, and the providers whose models are searched next."""

    models: tuple[PriceEntry, ...]
    then: tuple[str, ...] = ()


class _File(Struct, frozen=True):
    source: str
    providers: dict[str, Raw]


def compute_cost(usage: Usage, provider: str, model: str) -> float | None:
    """Return the US dollars for `usage`, None without a known price; 0 for the embedded model."""
    if provider == "local":
        return 0.0
    if (listed := find_price(provider, model)) is None:
        return None
    price = listed.price(datetime.now(UTC))
    plain = usage.input_tokens
    dollars = 0.0
    for tokens, rates in ((usage.cached_tokens, price.cached), (usage.cache_write_tokens, price.cache_write)):
        if rates:  # input without a separate price costs as much as other input
            plain -= tokens
            dollars += tokens * _select_rate(rates, usage.input_tokens)
    if plain < 0:  # the numbers contradict each other
        return None
    dollars += plain * _select_rate(price.input, usage.input_tokens)
    dollars += usage.output_tokens * _select_rate(price.output, usage.input_tokens)
    return dollars / 1_000_000


def with_cost(usage: Usage, provider: str, model: str) -> Usage:
    """Return `usage` with its cost, unless the server reported one."""
    return usage if usage.cost_usd is not None else replace(usage, cost_usd=compute_cost(usage, provider, model))


def find_price(provider: str, model: str) -> PriceEntry | None:
    """Return a model's entry in the price list, None without one."""
    preset = PRESETS.get(provider)
    if preset is None or not preset.prices:
        return None
    name = model.lower()
    # some servers write dates without dashes
    dashed = re.sub(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)", r"-\1-\2-\3", name)
    return next((f for n in dict.fromkeys((name, dashed)) if (f := _search_prices(preset.prices, n)) is not None), None)


def list_prices(entry: PriceEntry | None) -> tuple[float | None, float | None]:
    """Return US dollars per million tokens, input and output; the lowest if prices are tiered."""
    if entry is None:
        return None, None
    price = entry.price(datetime.now(UTC))
    return (price.input[0][1] if price.input else None), (price.output[0][1] if price.output else None)


@functools.cache
def _search_prices(provider: str, name: str) -> PriceEntry | None:
    provider_prices = _load_provider(provider)
    for each in (provider_prices, *map(_load_provider, provider_prices.then)):
        for model in each.models:
            if name in model.names or (model.pattern and re.search(model.pattern, name)):
                return model
    return None


@functools.cache
def _load_provider(name: str) -> _PricedProvider:
    raw = _load_price_list().providers.get(name)
    return msgspec.json.decode(raw, type=_PricedProvider) if raw is not None else _PricedProvider(())


@functools.cache
def _load_price_list() -> _File:
    data = (PACKAGE / "core/data/prices.json").read_bytes()
    return msgspec.json.decode(data, type=_File)


def _select_rate(rates: Rates, size: int) -> float:
    """Return the rate that applies to an input of `size` tokens."""
    return next((rate for above, rate in reversed(rates[1:]) if size > above), rates[0][1] if rates else 0.0)
