"""Look up prices of models in the offline snapshot of `genai-prices`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from msgspec import structs

from sakti.core.types import Usage
from sakti.providers.presets import PRESETS


def warm() -> None:
    """Load the snapshot, so that the first answer does not wait for it; call it in a thread."""
    import genai_prices  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from genai_prices.data_snapshot import get_snapshot

    get_snapshot()


def cost(usage: Usage, provider: str, model: str) -> float | None:
    """Return the US dollars for `usage`, None without a known price; 0 for the embedded model."""
    if provider == "local":
        return 0.0
    if not (theirs := _price_list_name(provider)):
        return None
    import genai_prices

    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(genai_prices.calc_price(counted, model, provider_id=theirs).total_price)
    except (LookupError, ValueError):  # an unknown model; numbers that contradict each other
        return None


async def with_cost(usage: Usage, provider: str, model: str) -> Usage:
    """Return `usage` with its cost; the snapshot is loaded in a thread, because that takes a while."""
    if usage.cost_usd is not None:
        return usage
    return structs.replace(usage, cost_usd=await asyncio.to_thread(cost, usage, provider, model))


def find(provider: str, model: str) -> Any | None:
    """Return a model's entry in the price list (its `context_window`, its prices), None without one."""
    if not (theirs := _price_list_name(provider)):
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, theirs, None)[1]
    except LookupError:
        return None


def per_million(found: Any | None) -> tuple[float | None, float | None]:
    """Return the US dollars per million tokens, in and out, of an entry of the price list."""
    if found is None:
        return None, None
    price = found.get_prices(datetime.now(UTC))
    return _dollars(getattr(price, "input_mtok", None)), _dollars(getattr(price, "output_mtok", None))


def _price_list_name(provider: str) -> str:
    """Return the price list's name of a provider; empty for those that it lacks."""
    preset = PRESETS.get(provider)
    return preset.prices if preset is not None else ""


def _dollars(value: Any) -> float | None:
    """Return a price per million tokens; the lowest tier where it grows with the length of the prompt."""
    base = getattr(value, "base", value)
    return float(base) if isinstance(base, Decimal | int | float) else None
