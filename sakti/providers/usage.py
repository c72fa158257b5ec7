"""Read the figures that a server states, so that an invalid one cannot fail the answer. Pure."""

from __future__ import annotations

import math
from typing import Any, cast

from sakti.core.types import Json

MOST = 10**9  # tokens; a larger number is none of a single answer


def tokens(value: Any) -> int:
    """Return a stated number of tokens, 0 for an invalid one."""
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
    return int(value) if is_valid else 0


def dollars(value: Any) -> float | None:
    """Return a stated price, None for an invalid one."""
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if is_valid else None


def table(value: Any) -> Json:
    """Return a stated object, or {} if it is not one."""
    return cast("Json", value) if isinstance(value, dict) else {}
