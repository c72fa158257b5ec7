"""Write sakti's list of prices from the package genai-prices: `python .github/price_list.py`.

The package itself takes 80 ms of CPU and 13 MB to load, most of it for what sakti does not ask it; what is asked is a
table. Run it with the newest version before a release.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data_snapshot import get_snapshot

TO = Path(__file__).parents[1] / "sakti" / "core" / "data" / "prices.json"
KEYS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def price_list() -> dict[str, Any]:
    """Return all providers' models, in the order in which they are looked up."""
    providers = get_snapshot().providers
    return {
        "source": f"genai-prices {version('genai-prices')}, MIT licence",
        "providers": {p.id: {"models": [_model(m) for m in p.models], "then": _then(p)} for p in providers},
    }


def _then(provider: types.Provider) -> list[str]:
    return [str(each) for each in provider.fallback_model_providers or []]


def _model(model: types.ModelInfo) -> dict[str, Any]:
    names, pattern = _match(model.match)
    whole = model.prices if isinstance(model.prices, list) else [types.ConditionalPrice(prices=model.prices)]
    made = {"names": names, "pattern": pattern, "window": model.context_window, "prices": [_price(p) for p in whole]}
    return {k: v for k, v in made.items() if v}


def _match(clause: Any) -> tuple[list[str], str]:
    """Return the names that a clause matches as they are, and a regular expression for the others."""
    several: list[Any] = clause.or_ if isinstance(clause, types.ClauseOr) else [clause]
    names = [each.equals.lower() for each in several if isinstance(each, types.ClauseEquals)]
    return names, "|".join(_pattern(each) for each in several if not isinstance(each, types.ClauseEquals))


def _pattern(clause: Any) -> str:
    match clause:
        case types.ClauseEquals(text):
            return rf"^{re.escape(text.lower())}\Z"
        case types.ClauseStartsWith(text):
            return rf"^{re.escape(text.lower())}"
        case types.ClauseEndsWith(text):
            return rf"{re.escape(text.lower())}\Z"
        case types.ClauseContains(text):
            return re.escape(text.lower())
        case types.ClauseRegex(text):
            return f"(?:{text})"
        case types.ClauseOr(several):
            return f"(?:{'|'.join(_pattern(each) for each in several)})"
        case types.ClauseAnd(several):
            return "^" + "".join(f"(?=.*?(?:{_pattern(each)}))" for each in several)
    raise TypeError(f"a clause of an unknown kind: {clause!r}")


def _price(conditional: types.ConditionalPrice) -> dict[str, Any]:
    rates = {name: _rates(getattr(conditional.prices, key)) for name, key in KEYS.items()}
    match conditional.constraint:
        case types.StartDateConstraint(since):
            rates["since"] = since.isoformat()
        case types.TimeOfDateConstraint(begin, end):
            rates["hours"] = [_utc(begin), _utc(end)]
        case None:
            pass
    return {k: v for k, v in rates.items() if v}


def _rates(price: Any) -> list[list[float]]:
    """Return [tokens of input above which it holds, US dollars for a million tokens], the base first."""
    if price is None:
        return []
    if isinstance(price, types.TieredPrices):
        return [[0, float(price.base)], *([t.start, float(t.price)] for t in price.tiers)]
    return [[0, float(price)]]


def _utc(at: time) -> str:
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return datetime.combine(date(2026, 1, 1), at).astimezone(UTC).strftime("%H:%M:%S")


if __name__ == "__main__":
    TO.write_text(json.dumps(price_list(), separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
