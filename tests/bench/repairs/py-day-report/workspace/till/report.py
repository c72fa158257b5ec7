"""The daily report."""

from collections import defaultdict

from till import journal, stamps


def by_day(sales, zone=0):
    """Cents sold on each day by a clock that is `zone` minutes ahead of UTC, days in order."""
    days = defaultdict(int)
    for sale in sales:
        days[stamps.in_zone(sale.moment, zone).date()] += sale.cents
    return dict(sorted(days.items()))


def text(lines, zone=0):
    rows = by_day(journal.read(lines), zone)
    return "\n".join(f"{day.isoformat()}  {cents / 100:>10.2f}" for day, cents in rows.items())
