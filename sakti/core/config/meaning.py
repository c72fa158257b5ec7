"""Define the metadata of a setting: help, bounds, who may set it, when a change takes effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from msgspec import Struct

_KEY = "meaning"


class Meaning(Struct, frozen=True):
    """Metadata of one setting.

    `help` is one sentence and gives the unit. Numbers must be more than `above`, at least `low`, at most `high`.
    `project`: a project's own file may set it, `project_bounds`: between these numbers. `at_once`: a change takes
    effect in the open window, any other after a restart. `secret`: the value is never shown. `refuse` checks a text
    (see `refuses`). Nothing that a project may set can run code, send text elsewhere or loosen an approval.
    """

    help: str = ""
    project: bool = False
    at_once: bool = False
    above: float | None = None
    low: float | None = None
    high: float | None = None
    project_bounds: tuple[float, float] | None = None
    secret: bool = False
    refuse: Callable[[str], str] | None = None

    @property
    def bounds(self) -> str:
        """Render the bounds in words, "" without bounds."""
        if self.above is not None:
            return f"above {self.above:g}"
        if self.low is not None and self.high is not None:
            return f"from {self.low:.10g} to {self.high:.10g}"
        return "" if self.low is None else f"at least {self.low:.10g}"

    def allows(self, value: float) -> bool:
        return not (
            (self.above is not None and value <= self.above)
            or (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
        )

    def refuses(self, value: Any) -> str:
        """Return why a text cannot be the value, empty if it can."""
        return self.refuse(value) if self.refuse is not None and isinstance(value, str) else ""


def setting(
    default: Any = None,
    help: str = "",
    *,
    make: Callable[[], Any] | None = None,
    project: bool | tuple[float, float] = False,
    at_once: bool = False,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    refuse: Callable[[str], str] | None = None,
) -> Any:
    """Return a dataclass field with this default (or what `make` returns) and meaning.

    `project`: whether a project's own file may set it, or between which numbers.
    """
    bounds = project if isinstance(project, tuple) else None
    metadata = {_KEY: Meaning(help, bool(project), at_once, above, low, high, bounds, secret, refuse)}
    if make is not None:
        return dataclasses.field(default_factory=make, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def of_field(field: dataclasses.Field[Any]) -> Meaning:
    """Return what a field of a settings class means."""
    return field.metadata.get(_KEY, Meaning())
