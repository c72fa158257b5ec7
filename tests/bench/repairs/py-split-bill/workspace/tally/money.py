"""Amounts of money: cents inside, text outside."""

import re

_AMOUNT = re.compile(r"[+-]?\d+(\.\d{1,2})?")


def parse(text):
    """Cents of an amount. Raises ValueError for what is none."""
    text = text.strip()
    if not _AMOUNT.fullmatch(text):
        raise ValueError(f"not an amount: {text!r}")
    return int(float(text) * 100)


def show(cents):
    """Two digits behind the point, a sign only where it is negative."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
