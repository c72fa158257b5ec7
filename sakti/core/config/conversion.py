"""Convert the values of settings by their types, and describe the allowed values."""

from __future__ import annotations

import contextlib
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from sakti.core.config.fields import Config, Meaning, get_meaning, group_fields
from sakti.core.errors import ConfigError
from sakti.core.text import show_value


@cache
def list_choices(name: str) -> tuple[str, ...]:
    """Return the allowed values of a setting; empty if it is not a choice."""
    hint = _get_type(name)
    if hint is bool:
        return ("true", "false")
    return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()


@cache
def describe_values(name: str) -> str:
    """Describe the values of a setting: `off, bell or desktop`, `a number above 0`."""
    if words := list_choices(name):
        return _join_with_or(words)
    return _describe(_get_type(name), get_meaning(name).bounds)


def _describe(hint: Any, bounds: str = "", *, quoted: bool = False) -> str:
    """Describe the values of a type: numbers with their bounds, texts in quotes if `quoted`."""
    kinds = dict.fromkeys(_describe_type(part, quoted) for part in _list_union_members(hint))
    return _join_with_or([f"{kind} {bounds}" if bounds and "number" in kind else kind for kind in kinds if kind])


def _join_with_or(words: typing.Sequence[str]) -> str:
    return " or ".join(p for p in (", ".join(words[:-1]), *words[-1:]) if p)


def _list_union_members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(part for one in typing.get_args(hint) for part in _list_union_members(one))
    return (hint,)


def _describe_type(hint: Any, quoted: bool) -> str:
    if hint is type(None):
        return '"none"' if quoted else "none"
    if typing.get_origin(hint) is Literal:
        return _join_with_or(
            [repr(a) if quoted and isinstance(a, str) else str(a).lower() for a in typing.get_args(hint)]
        )
    kind = typing.get_origin(hint) or hint
    if kind is tuple:
        return "a list of tables" if is_group(typing.get_args(hint)[0]) else "a list of texts"
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, "a table" if kind in (Mapping, dict) else "")


def _get_type(name: str) -> Any:
    """Return the type of a setting; None for an unknown one."""
    hint: Any = Config
    path = name.split(".")
    while path:
        if not is_group(hint) or path[0] not in group_fields(hint):
            return type(None)
        hint, _ = group_fields(hint)[path.pop(0)]
        if typing.get_origin(hint) is Mapping and path:
            hint = typing.get_args(hint)[1]  # the values of a table, whose keys the user chooses
            path.pop(0)
    return hint


def is_group(hint: Any) -> bool:
    """Return whether a type is a class of settings."""
    return isinstance(hint, type) and issubclass(hint, Struct)


def check_bounds(meaning: Meaning, value: Any, name: str, origin: str) -> Any:
    """Return `value` if it is within the bounds of its setting. Raises ConfigError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and not meaning.allows(value):
        raise ConfigError(f"{origin}: {name} = {show_value(value)} must be {meaning.bounds}.")
    if reason := meaning.refuses(value):
        raise ConfigError(f"{origin}: {reason}")
    return value


def convert(value: Any, hint: Any, name: str, origin: str) -> Any:
    """Convert a value to a setting's type. Raises ConfigError."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) is Mapping and kinds[1] is not Any and isinstance(value, dict):
        table = typing.cast("dict[str, Any]", value)
        return {key: convert(v, kinds[1], f"{name}.{key}", origin) for key, v in table.items()}
    if typing.get_origin(hint) is tuple and is_group(kinds[0]) and isinstance(value, list | tuple):
        tables = enumerate(typing.cast("list[Any]", value), 1)
        return tuple(convert_table(kinds[0], v, f"{name}[{n}]", origin) for n, v in tables)
    for form in _iter_candidates(value):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(form, hint)
    raise ConfigError(f"{origin}: {name} cannot be {show_value(value)}; it takes {_describe(hint, quoted=True)}.")


def _iter_candidates(value: Any) -> Iterator[Any]:
    """Yield the possible meanings of a value: None for `"none"`, a list for a text, an integer for `2e3`."""
    if isinstance(value, float) and math.isnan(value):
        return
    yield value
    if isinstance(value, str):
        yield from (None, [value]) if value == "none" else ([value],)
    elif isinstance(value, float) and value.is_integer():
        yield int(value)


def convert_table(group: type[Struct], value: Any, name: str, origin: str) -> Any:
    """Convert one of a list of tables to `group`, a class of settings. Raises `ConfigError`."""
    if isinstance(value, group):
        return value
    fields = {f.name: f for f in structs.fields(group)}
    if not isinstance(value, dict):
        raise ConfigError(f"{origin}: {name} cannot be {show_value(value)}; it takes a table with {', '.join(fields)}.")
    table = typing.cast("dict[str, Any]", value)
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            hint = f" Did you mean {near[0]}?" if near else f" It takes {', '.join(fields)}."
            raise ConfigError(f"{origin}: {name} has no setting {show_value(key)}.{hint}")
    for f in fields.values():
        if f.required and f.name not in table:
            raise ConfigError(f"{origin}: {name} needs {f.name}.")
    return group(**{key: convert(v, fields[key].type, f"{name}.{key}", origin) for key, v in table.items()})
