"""Say in words what a setting takes: its choices, or the kind of its value with the bounds."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from sakti.core.config.fields import Config
from sakti.core.config.load import meaning


@cache
def choices(name: str) -> tuple[str, ...]:
    """Return the allowed values of a setting, empty if it is not a choice."""
    hint = _hint(name)
    if hint is bool:
        return ("true", "false")
    return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()


@cache
def takes(name: str) -> str:
    """Describe the values of a setting: `off, bell or desktop`, `a number above 0`."""
    if words := choices(name):
        return _either(words)
    kinds = dict.fromkeys(_kind(part) for part in _parts(_hint(name)))
    bounds = meaning(name).bounds
    return _either([f"{kind} {bounds}" if bounds and "number" in kind else kind for kind in kinds if kind])


def _either(words: typing.Sequence[str]) -> str:
    return " or ".join(p for p in (", ".join(words[:-1]), *words[-1:]) if p)


def _parts(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(part for one in typing.get_args(hint) for part in _parts(one))
    return (hint,)


def _kind(hint: Any) -> str:
    if hint is type(None):
        return "none"
    if typing.get_origin(hint) is Literal:
        return _either([str(a).lower() for a in typing.get_args(hint)])
    kind = typing.get_origin(hint) or hint
    if kind is tuple:
        return "a list of tables" if dataclasses.is_dataclass(typing.get_args(hint)[0]) else "a list of texts"
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, "a table" if kind in (Mapping, dict) else "")


def _hint(name: str) -> Any:
    """Return the type of a setting; of one that does not exist, none."""
    kind: Any = Config
    path = name.split(".")
    while path:
        hint: Any = _hints(kind).get(path.pop(0))
        if hint is None:
            return type(None)
        if typing.get_origin(hint) is not None and path:
            hint = typing.get_args(hint)[-1]  # what a mapping holds, behind the key that the user chose
            path.pop(0)
        kind = hint
    return kind


def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
