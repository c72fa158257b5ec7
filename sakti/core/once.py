"""Compute an attribute at its first use, without the lock of `cached_property` before Python 3.12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
V = TypeVar("V")


class once(Generic[T, V]):
    """Property that is computed once for each object, and kept in its `__dict__`."""

    def __init__(self, compute: Callable[[T], V]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type[T]) -> once[T, V]: ...

    @overload
    def __get__(self, owner: T, kind: Any = None) -> V: ...

    def __get__(self, owner: T | None, kind: Any = None) -> Any:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._compute(owner)
        return value
