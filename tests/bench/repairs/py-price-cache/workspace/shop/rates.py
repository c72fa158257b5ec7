"""Prices and exchange rates; asking for them is slow."""

from shop.memo import remember

CENTS = {"12": 995, "tea": 450, "pot": 2_400, 12: 9_900, 7: 12_000}
RATES = {"EUR": 1.0, "USD": 1.1, "CHF": 0.95}

calls = []


@remember(limit=500)
def price(name, currency="EUR", *, net=False):
    """Cents of an article or a bundle in `currency`, without tax if `net`. Raises KeyError for what is not sold."""
    calls.append((name, currency, net))
    cents = CENTS[name] * RATES[currency]
    return round(cents / 1.2 if net else cents)
