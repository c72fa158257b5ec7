"""Splitting an amount."""


def split(cents, weights):
    """`cents` split by `weights`, {name: whole number}; names keep their order. Raises ValueError where nobody pays."""
    if not weights or not sum(weights.values()):
        raise ValueError("nobody is there to pay")
    weight = sum(weights.values())
    return {name: _share(cents, part, weight) for name, part in weights.items()}


def equally(cents, names):
    """`cents` split evenly."""
    return split(cents, {name: 1 for name in names})


def _share(cents, part, weight):
    return round(cents * part / weight)
