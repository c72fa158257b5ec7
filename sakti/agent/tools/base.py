"""Define a tool: an async function whose own types are its JSON Schema.

    @tool(effect="read")
    async def read(run: ToolRun, path: Annotated[str, "file to read"], offset: int = 1) -> Outcome:
        '''Read a file.'''

The first parameter is the context of the call; the others are the model's arguments.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge.where import Effect, Place, resolved
from sakti.agent.sandbox.boundary import Level
from sakti.agent.tools import arguments as forms
from sakti.agent.tools.parameters import Parameters, checked, parameters_of, schema_of
from sakti.agent.tools.seen import SeenFiles
from sakti.core.clock import Clock
from sakti.core.errors import ToolError
from sakti.core.ids import Ids
from sakti.core.resources import has_prompt, read_prompt
from sakti.core.text import clean_surrogates, head_and_tail
from sakti.core.types import ImagePart, Json, ToolSpec
from sakti.store.secrets import masked

if TYPE_CHECKING:
    from sakti.agent.sandbox.proxy import Network
    from sakti.agent.sandbox.sandbox import Sandbox


class Outcome(Struct, frozen=True):
    """Result of a tool: text and images for the model, `details` for the screen only.

    `details`: diff, exit code, …; `characters`: the length of the content before it was cut.
    """

    content: str
    is_error: bool = False
    details: Json = field(default_factory=dict[str, Any])
    images: tuple[ImagePart, ...] = ()


class Recorder(Protocol):
    """Records what calls do to files, so that it can be undone."""

    def writing(self, files: Sequence[tuple[Path, bytes | None, int]]) -> None:
        """Hear of files that are about to be written: path, content (None: deleted), permissions of a new one."""
        ...

    async def refuses(self, effect: str, arguments: Mapping[str, Any], place: Place) -> str:
        """Return which files that a call names could not be restored, and why; "" if there are none."""
        ...

    def around(
        self, effect: str, arguments: Mapping[str, Any], place: Place
    ) -> contextlib.AbstractAsyncContextManager[list[str]]:
        """Surround a call of a tool with this effect; the list gets the names of files that cannot be restored."""
        ...


class NoRecorder:
    """Records nothing."""

    def writing(self, files: Sequence[tuple[Path, bytes | None, int]]) -> None:
        return None

    async def refuses(self, effect: str, arguments: Mapping[str, Any], place: Place) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def around(self, effect: str, arguments: Mapping[str, Any], place: Place) -> AsyncGenerator[list[str]]:
        yield []


class Workbench(Struct):
    """State shared by the tools of one session.

    Where they work, which files were read, what runs in the background. `secret` explains why a file's content is
    withheld, empty where it may be read. `sandbox` encloses what the model runs.
    """

    workspace: Path
    cwd: Path
    output_folder: Path
    clock: Clock
    ids: Ids
    env: Mapping[str, str]
    output_bytes: int = 30_000
    bash_timeout: int = 120
    own: tuple[Path, ...] = ()
    files: SeenFiles = field(default_factory=SeenFiles)
    background: dict[str, Any] = field(default_factory=dict[str, Any])
    changed: dict[Path, str] = field(default_factory=dict[Path, str])  # files that run later, with what was changed
    judged: frozenset[Path] | None = None  # files that the call which runs may change; None: none was judged
    shown: dict[Path, str | None] = field(default_factory=dict[Path, str | None])  # their texts in what was asked
    recorder: Recorder = field(default_factory=NoRecorder)
    sandbox: Sandbox | None = None
    readable: tuple[Path, ...] = ()  # folders of skills
    added: tuple[Path, ...] = ()  # folders that the user opened beside the workspace
    network: Network | None = None  # how commands in the sandbox reach hosts
    own_env: Mapping[str, str] | None = None  # of commands that the user types
    started: int = 0  # commands that ever went to the background: no number is given twice

    def resolve(self, path: str) -> Path:
        """Resolve `path` against the current folder, with symlinks and `..` followed; raises nothing."""
        return resolved(self.cwd, path)

    def place(self) -> Place:
        """Return where calls act, for judging them."""
        return Place(
            self.workspace,
            self.cwd,
            self.own,
            self.output_folder,
            self.changed,
            self.level.name,
            self.readable,
            self.network.allowed if self.network is not None else (),
            self.added,
            self.level.own_network,
        )

    @property
    def level(self) -> Level:
        """Return what holds commands; the sandbox is tried when this is asked for first."""
        return self.sandbox.level if self.sandbox is not None else Level("unsandboxed", "no sandbox was asked for")

    def show(self, path: Path) -> str:
        """Return `path` relative to the workspace where it is inside."""
        try:
            return str(path.relative_to(self.workspace)) or "."
        except ValueError:
            return str(path)

    def saw(self, path: Path, data: bytes | None = None) -> None:
        """Note that the model knows the file's content; `data` is that content where the caller has it."""
        self.files.saw(path, data)

    def check_unchanged(self, path: Path, *, whole: bool = False) -> None:
        """Raise `ToolError` where the model does not know the file's content.

        It was never read or written here, or has changed since. `whole` is for replacing all of it.
        """
        match self.files.state(path, whole=whole):
            case "unknown":
                raise ToolError(f"{self.show(path)} has not been read yet. Read it, then change it.")
            case "changed":
                raise ToolError(f"{self.show(path)} has changed since it was read. Read it again, then change it.")
            case _:
                pass

    def save_output(self, text: str, call_id: str) -> Path:
        """Write a long output, secrets masked, where the model can read it; return the file."""
        self.output_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.output_folder / self.output_name(call_id)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(clean_surrogates(text))
        return path

    def output_name(self, call_id: str) -> str:
        """Make a unique file name; a model's call id is not safe as a path."""
        return f"{re.sub(r'[^0-9A-Za-z_-]', '', call_id)[-12:]}-{self.ids.new()[-8:]}.txt"

    def bounded(self, outcome: Outcome, call_id: str) -> Outcome:
        """Mask secrets in `outcome` and cut it to `output_bytes` for the model; the whole is kept in a file."""
        content = masked(clean_surrogates(outcome.content))
        if len(content) <= self.output_bytes:
            return replace(outcome, content=content)
        size = max(len(content), outcome.details.get("characters", 0))
        path = outcome.details.get("output_file") or str(self.save_output(content, call_id))
        short, _ = head_and_tail(content, self.output_bytes - 200)
        what = "The beginning of the output" if outcome.details.get("cut") else "The whole output"
        note = f"\n[{what} of {size:,} characters is in {path}: read it with offset and limit, or grep it.]"
        return replace(outcome, content=short + note, details={**outcome.details, "output_file": str(path)})


class ToolRun(Struct, frozen=True):
    """Context of one call: the shared workbench, the call's id, and where its output streams to."""

    bench: Workbench
    call_id: str
    thread_id: str
    message_id: str
    stream: Callable[[str], None]


ToolFunction = Callable[..., Awaitable[Outcome]]


# The paths that a call names, by its arguments.
Paths: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]


def _no_path(_arguments: Mapping[str, Any]) -> Sequence[str]:
    return ()


def one_path(arguments: Mapping[str, Any]) -> Sequence[str]:
    """Return the argument `path`; the current folder where it is left out."""
    return (str(arguments.get("path", ".")),)


class Tool(Struct, frozen=True):
    """Tool, with all that permissions, parallel calls and small models need to know of it.

    `small` ranks it among the tools of a small model (None: not offered), which does not get the arguments
    `small_without`; `rule_name` is its name in rules; `refuse` makes the answer to wrong arguments where that has its
    own form; `preview` takes the workbench and the arguments, and returns the diff of what a call would change.
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

    def named(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths in a call, as written; raises nothing."""
        return self.paths(arguments)

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, schema_of(self.parameters))

    async def __call__(self, run: ToolRun, arguments: Json) -> Outcome:
        """Validate and run.

        Raises `ToolError` with a sentence for the model where the arguments are invalid and the tool has no own
        answer to that.
        """
        try:
            values = self.check(arguments, run.bench.cwd)
        except ToolError as e:
            if self.refuse is not None:
                return self.refuse(e.message)
            raise
        return await self.function(run, **values)

    def check(self, arguments: Json, cwd: Path) -> Json:
        """Return the arguments as the function takes them. Raises `ToolError` where they are invalid."""
        if forms.known(self.name):
            arguments = forms.repaired(self.name, arguments, cwd)
        return checked(self.name, self.parameters, arguments)


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
