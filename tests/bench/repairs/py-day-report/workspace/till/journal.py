"""Lines of a journal."""

from dataclasses import dataclass
from datetime import datetime

from till import stamps


@dataclass(frozen=True)
class Sale:
    moment: datetime
    cents: int
    item: str


def read(lines):
    """The sales of a journal; empty lines and comments (#) are skipped. Raises ValueError with the line's number."""
    sales = []
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            stamp, cents, item = line.split(";", 2)
            sales.append(Sale(stamps.parse(stamp), int(cents), item))
        except ValueError as e:
            raise ValueError(f"line {number}: {e}") from e
    return sales
