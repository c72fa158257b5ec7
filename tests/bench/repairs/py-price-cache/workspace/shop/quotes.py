"""The quote page."""

from shop.rates import price

SIGNS = {"EUR": "€", "USD": "$", "CHF": "Fr."}


def quote(names, currency="EUR", net=False):
    """Lines of a quote and its total."""
    rows = [(name, price(name, currency=currency, net=net)) for name in names]
    total = sum(cents for _, cents in rows)
    sign = SIGNS[currency]
    return {"rows": [f"{name}: {cents / 100:.2f} {sign}" for name, cents in rows], "total": f"{total / 100:.2f} {sign}"}
