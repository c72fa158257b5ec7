"""Time stamps of the journals."""

from datetime import datetime, timedelta, timezone


def parse(text):
    """The moment that a stamp means, in UTC. Raises ValueError for what is no stamp."""
    text = text.strip()
    if len(text) < 19:
        raise ValueError(f"not a time stamp: {text!r}")
    return datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)


def in_zone(moment, minutes):
    """`moment` as a clock shows it that is `minutes` ahead of UTC."""
    return moment.astimezone(timezone(timedelta(minutes=minutes)))
