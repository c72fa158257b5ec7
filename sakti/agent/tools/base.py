"""Define a tool: an async function whose own types are its JSON Schema.

    @tool(effect="read")
    async def read(run: ToolContext, path: Annotated[str, "file to read"], offset: int = 1) -> Outcome:
        '''Read a file.'''

The first parameter is the context of the call; the others are the model's arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from sakti.agent.judge.where import Effect, RemoteFacts
from sakti.agent.tools import arguments as forms
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.parameters import Parameters, check_arguments, parameters_of, schema_of
from sakti.core.errors import ToolError
from sakti.core.resources import has_prompt, read_prompt
from sakti.core.types import Json, ToolSpec

ToolFunction = Callable[..., Awaitable[Outcome]]


# The paths that a call names, by its arguments.
Paths: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]


def _no_path(_arguments: Mapping[str, Any]) -> Sequence[str]:
    return ()


def one_path(arguments: Mapping[str, Any]) -> Sequence[str]:
    """Return the argument `path`, by default the current folder."""
    return (str(arguments.get("path", ".")),)


class Tool(Struct, frozen=True):
    """Tool, with all that permissions, parallel calls and small models need to know of it.

    `small` ranks it among the tools of a small model (None: not offered), which does not get the arguments
    `small_without`; `rule_name` is its name in rules; `refuse` makes the answer to wrong arguments where that has its
    own form; `preview` takes the context and the arguments, and returns the diff of what a call would change; `remote`
    are the facts of a tool of an MCP server.
    """

    name: str
    description: str
    parameters: Parameters
    function: ToolFunction
    effect: Effect
    parallel: bool = False  # neighbouring calls may run at once
    paths: Paths = _no_path
    rule_name: str = ""
    small: int | None = None
    small_without: frozenset[str] = frozenset()
    refuse: Callable[[str], Outcome] | None = None
    preview: Callable[..., str] | None = None
    remote: RemoteFacts | None = None

    def named(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths in a call, as written; raises nothing."""
        return self.paths(arguments)

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, schema_of(self.parameters))

    def short_spec(self) -> ToolSpec:
        """Return its description for a small model: one sentence, and only the arguments for such models."""
        spec = self.spec()
        properties = {k: v for k, v in spec.parameters["properties"].items() if k not in self.small_without}
        sentence = re.split(r"(?<=[.!?])\s", spec.description, maxsplit=1)[0]
        return ToolSpec(spec.name, sentence, {**spec.parameters, "properties": properties})

    async def __call__(self, run: ToolContext, arguments: Json) -> Outcome:
        """Validate and run.

        Raises `ToolError` with a sentence for the model where the arguments are invalid and the tool has no own
        answer to that.
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
        parameters = parameters_of(function)
        prompt = f"tools/{tool_name}"
        description = read_prompt(prompt) if has_prompt(prompt) else inspect.cleandoc(function.__doc__ or "")
        return Tool(
            tool_name,
            description,
            parameters,
            function,
            effect,
            effect == "read" if parallel is None else parallel,
            paths or (one_path if "path" in parameters else _no_path),
            rule_name or tool_name,
            small,
            frozenset(small_without),
            refuse,
            preview,
        )

    return make
