"""Compile regular expressions when they are first used.

Compiling one takes about a millisecond, and a program that starts uses few of the hundreds there are.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _LazyPattern:
    """Regular expression that is compiled at its first use; looked-up attributes are cached."""

    def __init__(self, source: str, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(self._source, self._flags), name)
        self.__dict__[name] = attribute  # the next look-up does not come here
        return attribute


def lazy_pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return what `re.compile(source, flags)` returns, compiled at its first use.

    Its methods and attributes are those of a pattern; functions of `re` do not take it. A mistake in `source` is
    found at the first use.
    """
    return cast("re.Pattern[str]", _LazyPattern(source, flags))
