"""Look up prices of models in the list that ships with the package, made by `.github/price_list.py`."""

from __future__ import annotations

import functools
import re
from datetime import UTC, date, datetime, time
from importlib import resources

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from sakti.core.types import Usage
from sakti.providers.presets import PRESETS

Rates = tuple[tuple[int, float], ...]  # (tokens of input above which it holds, US dollars for a million), base first


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

    Of the prices that hold the last counts.
    """

    names: frozenset[str] = frozenset()
    pattern: str = ""
    window: int | None = None
    prices: tuple[Price, ...] = ()

    def price(self, now: datetime) -> Price:
        return next((p for p in reversed(self.prices) if p.holds(now)), self.prices[0])


class _PricedProvider(Struct, frozen=True):
    """Models in the order of the search, and the providers whose models are searched next."""

    models: tuple[PriceEntry, ...]
    then: tuple[str, ...] = ()


class _File(Struct, frozen=True):
    source: str
    providers: dict[str, Raw]


def cost(usage: Usage, provider: str, model: str) -> float | None:
    """Return the US dollars for `usage`, None without a known price; 0 for the embedded model."""
    if provider == "local":
        return 0.0
    if (listed := find(provider, model)) is None:
        return None
    price = listed.price(datetime.now(UTC))
    plain = usage.input_tokens
    dollars = 0.0
    for tokens, rates in ((usage.cached_tokens, price.cached), (usage.cache_write_tokens, price.cache_write)):
        if rates:  # what has no price of its own costs what other input costs
            plain -= tokens
            dollars += tokens * _rate(rates, usage.input_tokens)
    if plain < 0:  # numbers that contradict each other
        return None
    dollars += plain * _rate(price.input, usage.input_tokens)
    dollars += usage.output_tokens * _rate(price.output, usage.input_tokens)
    return dollars / 1_000_000


def with_cost(usage: Usage, provider: str, model: str) -> Usage:
    """Return `usage` with its cost, unless the server has said it."""
    return usage if usage.cost_usd is not None else replace(usage, cost_usd=cost(usage, provider, model))


def find(provider: str, model: str) -> PriceEntry | None:
    """Return a model's entry in the price list, None without one."""
    preset = PRESETS.get(provider)
    if preset is None or not preset.prices:
        return None
    name = model.lower()
    # some servers write dates without dashes
    dashed = re.sub(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)", r"-\1-\2-\3", name)
    return next((f for n in dict.fromkeys((name, dashed)) if (f := _search(preset.prices, n)) is not None), None)


def per_million(found: PriceEntry | None) -> tuple[float | None, float | None]:
    """Return US dollars per million tokens, input and output; the lowest if prices are tiered."""
    if found is None:
        return None, None
    price = found.price(datetime.now(UTC))
    return (price.input[0][1] if price.input else None), (price.output[0][1] if price.output else None)


@functools.cache
def _search(provider: str, name: str) -> PriceEntry | None:
    provider_prices = _provider(provider)
    for each in (provider_prices, *map(_provider, provider_prices.then)):
        for model in each.models:
            if name in model.names or (model.pattern and re.search(model.pattern, name)):
                return model
    return None


@functools.cache
def _provider(name: str) -> _PricedProvider:
    raw = _file().providers.get(name)
    return msgspec.json.decode(raw, type=_PricedProvider) if raw is not None else _PricedProvider(())


@functools.cache
def _file() -> _File:
    data = resources.files("sakti.core.data").joinpath("prices.json").read_bytes()
    return msgspec.json.decode(data, type=_File)


def _rate(rates: Rates, size: int) -> float:
    """Return the rate that holds for an input of `size` tokens."""
    return next((rate for above, rate in reversed(rates[1:]) if size > above), rates[0][1] if rates else 0.0)
