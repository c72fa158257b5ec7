"""Parameters of a tool, read from its function: their JSON Schema, and a check of arguments."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from sakti.core.errors import ToolError
from sakti.core.types import Json

REQUIRED = inspect.Parameter.empty
# Known from other programs, so it is read, but no model is told of it.
UNLISTED = Meta(extra_json_schema={"unlisted": True})


class Parameter(Struct, frozen=True):
    """Parameter of a tool: its type with bounds, its default or REQUIRED, and its description."""

    type: Any
    default: Any = REQUIRED
    description: str = ""


Parameters: TypeAlias = Mapping[str, Parameter]


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a tool's function but the first, which is the context of the call."""
    hints = typing.get_type_hints(function, include_extras=True)
    out: dict[str, Parameter] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        annotation = hints[parameter.name]
        extras = getattr(annotation, "__metadata__", ())
        out[parameter.name] = Parameter(
            annotation, parameter.default, next((each for each in extras if isinstance(each, str)), "")
        )
    return out


def check_arguments(tool: str, parameters: Parameters, arguments: Json) -> Json:
    """Return the arguments as the function takes them.

    Raises `ToolError` with all that is wrong about them in one sentence.
    """
    values: Json = {}
    problems = [f"{name}: not an argument" for name in arguments if name not in parameters]
    for name, parameter in parameters.items():
        if name not in arguments:
            values[name] = parameter.default
            if parameter.default is REQUIRED:
                problems.append(f"{name}: missing")
            continue
        try:
            values[name] = msgspec.convert(arguments[name], parameter.type, strict=False)
        except msgspec.ValidationError as e:
            problem, _, place = str(e).partition(" - at `$")
            problems.append(f"{name}{place.rstrip('`')}: {problem.replace('`', '')}")
    if problems:
        taken = ", ".join(n if p.default is REQUIRED else f"{n}?" for n, p in parameters.items())
        raise ToolError(f"{tool} was called with wrong arguments: {'; '.join(problems)}. It takes {taken}.")
    return values


def schema_of(parameters: Parameters) -> Json:
    """Return the JSON Schema of the arguments: plain enough for all servers and grammars.

    No `$ref`, no choice with null (an optional field needs none), no titles, which only cost tokens.
    """
    types, shared = msgspec.json.schema_components([p.type for p in parameters.values()])
    properties: Json = {}
    for (name, parameter), each in zip(parameters.items(), types, strict=True):
        if each.get("unlisted"):
            continue
        plain = _plain(each, shared)
        if parameter.default is not REQUIRED and parameter.default is not None:
            plain["default"] = _plain(msgspec.to_builtins(parameter.default), {})
        if parameter.description:
            plain["description"] = parameter.description
        properties[name] = plain
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [n for n, p in parameters.items() if p.default is REQUIRED]
    return {**schema, "required": required} if required else schema


def _plain(schema: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(schema, list | tuple):  # a default may be a tuple, which a stored schema is not
        return [_plain(each, shared) for each in typing.cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = _resolve(typing.cast("dict[str, Any]", schema), shared)
    out = {k: _plain(v, shared) for k, v in table.items() if k not in ("title", "properties")}
    if "properties" in table:
        out["properties"] = {n: _plain(s, shared) for n, s in table["properties"].items() if not s.get("unlisted")}
    return out


def _resolve(table: dict[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a reference by its schema, and an optional value by the value's."""
    if "$ref" in table:
        referenced = shared[table["$ref"].rpartition("/")[2]]  # its description is for who reads the code
        table = {k: v for k, v in referenced.items() if k != "description"}
    if "anyOf" in table:
        some = [each for each in table["anyOf"] if each.get("type") != "null"]
        if len(some) == 1:
            table = {k: v for k, v in table.items() if k not in ("anyOf", "default")} | some[0]
    return table
