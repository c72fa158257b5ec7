"""Define a tool: an async function whose own types are its JSON Schema.

    @tool(effect="read")
    async def read(run: ToolContext, path: Annotated[str, "file to read"], offset: int = 1) -> Outcome:
        '''Read a file.'''

The first parameter is the context of the call; the others are the model's arguments.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from sakti.agent.judge.workspace_view import Effect, RemoteFacts
from sakti.agent.tools import arguments as forms
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import ToolError
from sakti.core.resources import has_prompt, read_prompt
from sakti.core.types import Json, ToolSpec

REQUIRED = inspect.Parameter.empty
# An argument of other programs: it is accepted, but not offered to models.
UNLISTED = Meta(extra_json_schema={"unlisted": True})


class Parameter(Struct, frozen=True):
    """Parameter of a tool: its type with bounds, its default or REQUIRED, and its description."""

    type: Any
    default: Any = REQUIRED
    description: str = ""


Parameters: TypeAlias = Mapping[str, Parameter]


def list_parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
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

    Raises `ToolError` with all errors in one sentence.
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


def make_schema(parameters: Parameters) -> Json:
    """Return the JSON Schema of the arguments: plain enough for all servers and grammars.

    No `$ref`, no choice with null (an optional field needs none), no titles, which only cost tokens.
    """
    types, shared = msgspec.json.schema_components([p.type for p in parameters.values()])
    properties: Json = {}
    for (name, parameter), each in zip(parameters.items(), types, strict=True):
        if each.get("unlisted"):
            continue
        plain = _simplify(each, shared)
        if parameter.default is not REQUIRED and parameter.default is not None:
            plain["default"] = _simplify(msgspec.to_builtins(parameter.default), {})
        if parameter.description:
            plain["description"] = parameter.description
        properties[name] = plain
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [n for n, p in parameters.items() if p.default is REQUIRED]
    return {**schema, "required": required} if required else schema


def _simplify(schema: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(schema, list | tuple):  # a default may be a tuple, which a stored schema is not
        return [_simplify(each, shared) for each in typing.cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = _resolve(typing.cast("dict[str, Any]", schema), shared)
    out = {k: _simplify(v, shared) for k, v in table.items() if k not in ("title", "properties")}
    if "properties" in table:
        out["properties"] = {n: _simplify(s, shared) for n, s in table["properties"].items() if not s.get("unlisted")}
    return out


def _resolve(table: dict[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a reference by its schema, and an optional value by the value's."""
    if "$ref" in table:
        referenced = shared[table["$ref"].rpartition("/")[2]]  # its description is for readers of the code
        table = {k: v for k, v in referenced.items() if k != "description"}
    if "anyOf" in table:
        some = [each for each in table["anyOf"] if each.get("type") != "null"]
        if len(some) == 1:
            table = {k: v for k, v in table.items() if k not in ("anyOf", "default")} | some[0]
    return table


ToolFunction = Callable[..., Awaitable[Outcome]]


# The paths that a call names, by its arguments.
Paths: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]


def _list_no_path(_arguments: Mapping[str, Any]) -> Sequence[str]:
    return ()


def list_path(arguments: Mapping[str, Any]) -> Sequence[str]:
    """Return the argument `path`, by default the current folder."""
    return (str(arguments.get("path", ".")),)


class Tool(Struct, frozen=True):
    """Tool, with its facts for permissions, parallel calls and small models.

    `small` ranks it among the tools of a small model (None: not offered), which does not get the arguments
    `small_without`; `rule_name` is its name in rules; `refuse` makes the answer to wrong arguments if that has a form
    of its own; `preview` takes the context and the arguments, and returns the diff that a call would make; `remote` are
    the facts of a tool of an MCP server.
    """

    name: str
    description: str
    parameters: Parameters
    function: ToolFunction
    effect: Effect
    parallel: bool = False  # neighbouring calls may run at once
    paths: Paths = _list_no_path
    rule_name: str = ""
    small: int | None = None
    small_without: frozenset[str] = frozenset()
    refuse: Callable[[str], Outcome] | None = None
    preview: Callable[..., str] | None = None
    remote: RemoteFacts | None = None

    def list_paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths in a call, as written; raises nothing."""
        return self.paths(arguments)

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, make_schema(self.parameters))

    def short_spec(self) -> ToolSpec:
        """Return its description for a small model: one sentence, and only the arguments for such models."""
        spec = self.spec()
        properties = {k: v for k, v in spec.parameters["properties"].items() if k not in self.small_without}
        sentence = re.split(r"(?<=[.!?])\s", spec.description, maxsplit=1)[0]
        return ToolSpec(spec.name, sentence, {**spec.parameters, "properties": properties})

    async def __call__(self, run: ToolContext, arguments: Json) -> Outcome:
        """Validate and run.

        Raises `ToolError` with a sentence for the model if the arguments are invalid and the tool has no answer of its
        own.
        """
        try:
            values = self.check(arguments, run.cwd)
        except ToolError as e:
            if self.refuse is not None:
                return self.refuse(e.message)
            raise
        return await self.function(run, **values)

    def check(self, arguments: Json, cwd: Path) -> Json:
        """Return the arguments as the function takes them. Raises `ToolError` if they are invalid."""
        if forms.is_translated(self.name):
            arguments = forms.translate_arguments(self.name, arguments, cwd)
        return check_arguments(self.name, self.parameters, arguments)


def tool(
    *,
    effect: Effect,
    name: str | None = None,
    parallel: bool | None = None,
    paths: Paths | None = None,
    rule_name: str = "",
    small: int | None = None,
    small_without: Iterable[str] = (),
    refuse: Callable[[str], Outcome] | None = None,
    preview: Callable[..., str] | None = None,
) -> Callable[[ToolFunction], Tool]:
    """Make a `Tool` of an async function.

    Its description is `prompts/tools/<name>.md` if that exists, else its docstring; a tool that reads may run in
    parallel; an argument `path` is judged as a path.
    """

    def make(function: ToolFunction) -> Tool:
        tool_name = name or function.__name__
        parameters = list_parameters(function)
        prompt = f"tools/{tool_name}"
        description = read_prompt(prompt) if has_prompt(prompt) else inspect.cleandoc(function.__doc__ or "")
        return Tool(
            tool_name,
            description,
            parameters,
            function,
            effect,
            effect == "read" if parallel is None else parallel,
            paths or (list_path if "path" in parameters else _list_no_path),
            rule_name or tool_name,
            small,
            frozenset(small_without),
            refuse,
            preview,
        )

    return make
