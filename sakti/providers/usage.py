"""Numbers that a server states of an answer, read so that none of them can cost the answer. Pure."""

from __future__ import annotations

import math
from typing import Any, cast

from sakti.core.types import Json

MOST = 10**9  # tokens; a larger number is none of a single answer


def tokens(value: Any) -> int:
    """A number of tokens as a server states it, 0 for what is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
    return int(value) if known else 0


def dollars(value: Any) -> float | None:
    """A price as a server states it, None for what is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if known else None


def table(value: Any) -> Json:
    """A part of what was stated, empty where it is no object."""
    return cast("Json", value) if isinstance(value, dict) else {}
