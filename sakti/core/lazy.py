"""Defer executing modules, compiling patterns and computing attributes to their first use.

`lazy_imports` is a context manager: modules of this package that are imported in it are executed at their first use. A
missing file is an error at once; errors of its execution are raised at the first use. `importlib.util.LazyLoader` shows
a second thread a half-executed module (Python 3.11); here that thread waits.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Generic, TypeVar, cast, overload

# Attributes that the import system reads without using the module.
_PLACE = frozenset(
    ("__class__", "__name__", "__spec__", "__path__", "__file__", "__cached__", "__loader__", "__package__")
)


class LazyModule(ModuleType):
    """A module that is executed by the first thread that uses one of its names; other threads wait."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _PLACE:
            if lazy_imports.active and (child := _import_child(self, name)) is not None:
                return child
            load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PLACE and not isinstance(value, ModuleType):
            load(self)  # executing the module later would undo this
        ModuleType.__setattr__(self, name, value)


def _import_child(package: ModuleType, name: str) -> ModuleType | None:
    """Import a module of a package without executing the package; None if it does not exist."""
    full = f"{package.__name__}.{name}"
    try:
        return sys.modules.get(full) or importlib.import_module(full)
    except ModuleNotFoundError as e:
        if e.name != full:
            raise
        return None


def load(module: ModuleType) -> None:
    """Execute a module that is still lazy. Errors of its file propagate; the next use tries again."""
    pending = module.__spec__.loader_state if type(module) is LazyModule and module.__spec__ is not None else None
    if isinstance(pending, _Pending):
        pending.execute(module)


class _Pending:
    """The loader of one lazy module.

    Locks are taken in import order, which has no cycles, so that threads cannot deadlock.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = threading.RLock()
        self._running = False

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that the import system creates a plain module, which `exec_module` makes lazy."""

    def exec_module(self, module: ModuleType) -> None:
        """Make the module lazy instead of executing it; called by an import statement."""
        spec = module.__spec__
        assert spec is not None
        spec.loader_state, spec.loader, module.__loader__ = self, self._loader, self._loader
        object.__setattr__(module, "__class__", LazyModule)

    def execute(self, module: ModuleType) -> None:
        with self._lock:
            if self._running or type(module) is not LazyModule:
                return  # this thread is executing it, or another one has
            was_active, lazy_imports.active, self._running = lazy_imports.active, False, True
            try:
                self._loader.exec_module(module)
                object.__setattr__(module, "__class__", ModuleType)
            finally:
                lazy_imports.active, self._running = was_active, False


class _LazyImports(threading.local):
    """Context manager that makes this thread's imports lazy, and their finder."""

    active = False

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if not self.active or not name.startswith("sakti."):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Pending(spec.loader)  # pyright: ignore[reportAttributeAccessIssue]
        return spec


lazy_imports = _LazyImports()
sys.meta_path.insert(0, lazy_imports)


T = TypeVar("T")
V = TypeVar("V")


class once(Generic[T, V]):
    """Property that is computed once per object and kept in its `__dict__`."""

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


class _LazyPattern:
    """Regular expression that is compiled at its first use; looked-up attributes are cached."""

    def __init__(self, source: str | Callable[[], str], flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        source = self._source if isinstance(self._source, str) else self._source()
        attribute = getattr(re.compile(source, self._flags), name)
        self.__dict__[name] = attribute  # later look-ups bypass this method
        return attribute


def lazy_pattern(source: str | Callable[[], str], flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like `re.compile(source, flags)`, compiled at its first use.

    A callable `source` is called then. The result has the methods and attributes of a pattern, but functions of `re` do
    not accept it. Errors in `source` are raised at the first use.
    """
    return cast("re.Pattern[str]", _LazyPattern(source, flags))
