"""A numbered list that is said, and the number that opens one of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from sakti.core.errors import SaktiError

T = TypeVar("T")


class Offer(Protocol):
    """Says lines; with `choose`, a number alone then opens the one it counts, and `what` tells so."""

    def __call__(
        self, lines: Sequence[str], what: str = "", choose: Callable[[int], Awaitable[None]] | None = None
    ) -> None: ...


def one(found: Sequence[T], number: int) -> T:
    """The one that `number` counts, from 1. Raises `SaktiError`."""
    if not 0 < number <= len(found):
        raise SaktiError(f"there are {len(found)} to choose from", title=f"Number {number}")
    return found[number - 1]
