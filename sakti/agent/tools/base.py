"""What a tool is: an async function whose own types are its JSON Schema.

    @tool(read_only=True)
    async def read(run: ToolRun, path: Annotated[str, "file to read"], offset: int = 1) -> Outcome:
        '''Read a file.'''

The first parameter is what the call runs with; the others are the model's arguments.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from sakti.core.clock import Clock
from sakti.core.errors import ToolError
from sakti.core.ids import Ids
from sakti.core.resources import has_prompt, read_prompt
from sakti.core.text import clean_surrogates, head_and_tail
from sakti.core.types import Json, ToolSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model is told, and what only the screen shows (`details`: diff, exit code, …)."""

    content: str
    is_error: bool = False
    details: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file as the model last saw it."""

    mtime_ns: int
    size: int


@dataclass(slots=True)
class Workbench:
    """What the tools of one session share: where they work, what was read, what runs in the background."""

    workspace: Path
    cwd: Path
    output_folder: Path
    clock: Clock
    ids: Ids
    env: Mapping[str, str]
    output_bytes: int = 30_000
    bash_timeout: int = 120
    seen: dict[Path, FileSeen] = field(default_factory=dict[Path, FileSeen])
    background: dict[str, Any] = field(default_factory=dict[str, Any])

    def resolve(self, path: str) -> Path:
        """`path` against the current folder, with symlinks and `..` followed."""
        return Path(os.path.realpath(self.cwd / Path(path).expanduser()))

    def show(self, path: Path) -> str:
        """`path` as people write it: relative to the workspace where it is inside."""
        try:
            return str(path.relative_to(self.workspace)) or "."
        except ValueError:
            return str(path)

    def saw(self, path: Path) -> None:
        stat = path.stat()
        self.seen[path] = FileSeen(stat.st_mtime_ns, stat.st_size)

    def check_unchanged(self, path: Path) -> None:
        """Raises `ToolError` where the file was never read here or is not as it was then."""
        seen = self.seen.get(path)
        if seen is None:
            raise ToolError(f"{self.show(path)} has not been read yet. Read it, then change it.")
        stat = path.stat()
        if (stat.st_mtime_ns, stat.st_size) != (seen.mtime_ns, seen.size):
            raise ToolError(f"{self.show(path)} has changed since it was read. Read it again, then change it.")

    def keep_whole(self, text: str, call_id: str) -> Path:
        """Write a long output where the model can read on; returns the file."""
        self.output_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.output_folder / f"{call_id[-12:]}-{self.ids.new()[-8:]}.txt"
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(clean_surrogates(text))
        return path

    def bounded(self, outcome: Outcome, call_id: str) -> Outcome:
        """`outcome` with at most `output_bytes` for the model; the whole is kept in a file."""
        content = clean_surrogates(outcome.content)
        if len(content) <= self.output_bytes:
            return Outcome(content, outcome.is_error, outcome.details)
        path = outcome.details.get("output_file") or str(self.keep_whole(content, call_id))
        short, _ = head_and_tail(content, self.output_bytes - 200)
        note = f"\n[The whole output of {len(content)} characters is in {path}; read it with offset and limit.]"
        return Outcome(short + note, outcome.is_error, {**outcome.details, "output_file": str(path)})


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call: the shared workbench, the call's id, and where its output streams to."""

    bench: Workbench
    call_id: str
    thread_id: str
    message_id: str
    stream: Callable[[str], None]


ToolFunction = Callable[..., Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    arguments: type[pydantic.BaseModel]
    function: ToolFunction
    read_only: bool
    internal: bool = False  # touches only sakti's own tasks and memory: never asks
    refuse: Callable[[str], Outcome] | None = None  # the answer to wrong arguments, where that has a form of its own

    def spec(self) -> ToolSpec:
        schema = self.arguments.model_json_schema()
        return ToolSpec(self.name, self.description, _plain_schema(schema))

    async def __call__(self, run: ToolRun, arguments: Json) -> Outcome:
        """Validate and run. Raises `ToolError` with a sentence for the model where the arguments do not fit and the
        tool has no answer of its own to that."""
        try:
            checked = self.arguments.model_validate(arguments)
        except pydantic.ValidationError as e:
            problems = "; ".join(f"{'.'.join(str(p) for p in x['loc'])}: {x['msg']}" for x in e.errors())
            sentence = f"{self.name} was called with wrong arguments: {problems}."
            if self.refuse is not None:
                return self.refuse(sentence)
            raise ToolError(sentence) from e
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        return await self.function(run, **values)


def tool(
    *,
    name: str | None = None,
    read_only: bool = False,
    internal: bool = False,
    refuse: Callable[[str], Outcome] | None = None,
) -> Callable[[ToolFunction], Tool]:
    """Make a `Tool` of an async function. Its description is `prompts/tools/<name>.md` where there is one,
    else its docstring."""

    def make(function: ToolFunction) -> Tool:
        tool_name = name or function.__name__
        hints = typing.get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            annotation = hints[parameter.name]
            extras = getattr(annotation, "__metadata__", ())
            text = next((e for e in extras if isinstance(e, str)), None)
            fields[parameter.name] = (annotation, pydantic.Field(default, description=text))
        prompt = f"tools/{tool_name}"
        description = read_prompt(prompt) if has_prompt(prompt) else inspect.cleandoc(function.__doc__ or "")
        config = pydantic.ConfigDict(extra="forbid")
        model = pydantic.create_model(f"{tool_name}_arguments", __config__=config, **fields)
        return Tool(tool_name, description, model, function, read_only, internal, refuse)

    return make


def _plain_schema(schema: Any) -> Any:
    """A pydantic schema without titles, which only cost tokens."""
    if isinstance(schema, dict):
        table = typing.cast("dict[str, Any]", schema)
        return {
            k: ({n: _plain_schema(s) for n, s in v.items()} if k == "properties" else _plain_schema(v))
            for k, v in table.items()
            if k != "title"
        }
    if isinstance(schema, list):
        return [_plain_schema(v) for v in typing.cast("list[Any]", schema)]
    return schema
