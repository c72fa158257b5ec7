"""What a model costs and how long its window is, from the offline snapshot of `genai-prices`."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from decimal import Decimal
from typing import Any

from sakti.core.types import ModelInfo, Usage

# Our names of providers and those of genai-prices; providers that are not here have no price.
_THEIR_NAME = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openrouter": "openrouter",
    "gemini": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "groq": "groq",
}

# Windows in tokens that genai-prices lacks, from the providers' own model pages.
_WINDOWS = (
    (r"gemini-(2\.5|3|3\.1)-pro", 1_048_576),
    (r"gemini-\d", 1_000_000),
    (r"gpt-6|gpt-5\.[45]", 1_050_000),
    (r"mistral-(medium|small)", 131_072),
    (r"llama-3\.[13]-", 131_072),
    (r"claude-", 200_000),
)


def warm() -> None:
    """Load the snapshot, so that the first answer does not wait for it. Call it in a thread."""
    import genai_prices  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from genai_prices.data_snapshot import get_snapshot

    get_snapshot()


def cost(usage: Usage, provider: str, model: str) -> float | None:
    """US dollars for `usage`, None where no price is known; the embedded model costs nothing."""
    if provider == "local":
        return 0.0
    if provider not in _THEIR_NAME:
        return None
    import genai_prices

    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(genai_prices.calc_price(counted, model, provider_id=_THEIR_NAME[provider]).total_price)
    except (LookupError, ValueError):  # an unknown model; numbers that contradict each other
        return None


async def with_cost(usage: Usage, provider: str, model: str) -> Usage:
    """`usage` with its cost; the snapshot is loaded in a thread, because that takes a while."""
    if usage.cost_usd is not None:
        return usage
    return dataclasses.replace(usage, cost_usd=await asyncio.to_thread(cost, usage, provider, model))


def model_info(
    provider: str,
    model: str,
    *,
    window: int | None = None,
    max_output: int | None = None,
    images: bool = False,
    thinking: bool = False,
) -> ModelInfo:
    """What is known of a model; what the server told (`window`, `max_output`) wins over the snapshot."""
    found = _find(provider, model)
    price = None if found is None else _prices(found)
    return ModelInfo(
        name=model,
        provider=provider,
        context_window=window or getattr(found, "context_window", None) or _known_window(provider, model),
        max_output=max_output,
        input_price=_dollars(getattr(price, "input_mtok", None)),
        output_price=_dollars(getattr(price, "output_mtok", None)),
        images=images,
        thinking=thinking,
    )


def _find(provider: str, model: str) -> Any | None:
    if provider not in _THEIR_NAME:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, _THEIR_NAME[provider], None)[1]
    except LookupError:
        return None


def _prices(found: Any) -> Any:
    from datetime import UTC, datetime

    return found.get_prices(datetime.now(UTC))


def _dollars(value: Any) -> float | None:
    """A price for a million tokens; the lowest step where it grows with the length of the prompt."""
    base = getattr(value, "base", value)
    return float(base) if isinstance(base, Decimal | int | float) else None


def _known_window(provider: str, model: str) -> int | None:
    if provider not in _THEIR_NAME:
        return None
    return next((window for pattern, window in _WINDOWS if re.search(pattern, model)), None)
