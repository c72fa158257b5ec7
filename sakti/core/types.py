"""Define the values shared by all layers: messages, parts, calls of tools, threads, usage, requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field, structs

from sakti.core.text import clean_surrogates, to_one_line

DEEPEST = 64  # maximum nesting of a call's arguments
BRIEF_BELOW = 32_000  # tokens of a window
MEMORY_TOOLS_FROM = 16_000

Json: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
MessageState: TypeAlias = Literal["provisional", "saved", "withheld"]
ThinkingKind: TypeAlias = Literal["", "budget", "adaptive", "effort"]  # parameter style for thinking; "": none
Effort: TypeAlias = Literal["off", "low", "medium", "high"]
ImageRule: TypeAlias = Literal["", "anthropic", "openai", "gemini"]  # provider whose formula counts images


class TextPart(Struct, frozen=True):
    """Text of the user or a model.

    `opaque`: fields that the provider requires back with the text; `provider` and `model` sent them.
    """

    text: str
    opaque: Json | None = None


class ThinkingPart(Struct, frozen=True):
    """Reasoning of a model.

    `opaque` goes back to its provider unchanged: a signature, an encrypted reasoning item. It is sent only to the
    `model` of the `provider` that created it; messages older than this field have an empty model.
    """

    text: str
    provider: str = ""
    opaque: Json = field(default_factory=dict[str, Any])
    model: str = ""


class ToolCallPart(Struct, frozen=True):
    """Tool call of a model.

    `arguments` is None if the model's JSON cannot be parsed, or cannot be stored and sent again (half of a surrogate
    pair, nesting too deep); `raw` is then the model's text.
    """

    id: str
    name: str
    arguments: Json | None
    raw: str = ""

    def __post_init__(self) -> None:
        if self.arguments is not None and not is_storable(self.arguments):
            structs.force_setattr(self, "raw", self.raw or _format_value(self.arguments))
            structs.force_setattr(self, "arguments", None)
        for name in ("id", "name", "raw"):
            structs.force_setattr(self, name, clean_surrogates(getattr(self, name)))


def is_storable(value: Any, depth: int = DEEPEST) -> bool:
    """Return whether a JSON value can be stored and sent again.

    It must not be nested deeper than `depth`, and its strings must be encodable as UTF-8.
    """
    match value:
        case str():
            return value.isascii() or _is_utf8(value)
        case dict():
            entries = cast("Json", value).items()
            return depth > 0 and all(is_storable(k, depth) and is_storable(v, depth - 1) for k, v in entries)
        case list():
            return depth > 0 and all(is_storable(v, depth - 1) for v in cast("list[Any]", value))
        case _:
            return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _format_value(value: Json) -> str:
    try:
        return json.dumps(value)  # in ASCII, so that half of a pair is kept as an escape
    except RecursionError:
        return "(nested too deeply to be written)"


class ToolResultPart(Struct, frozen=True):
    """Result of a tool call.

    `content` goes to the model, already bounded. `details` are for the screen only: a diff, an exit code, a duration in
    ms, the path of the full output.
    """

    call_id: str
    name: str
    content: str
    is_error: bool = False
    details: Json = field(default_factory=dict[str, Any])


class ImagePart(Struct, frozen=True):
    """Image; `data` is base64, `width` and `height` are in pixels, 0 if unknown."""

    media_type: str
    data: str
    name: str = ""
    width: int = 0
    height: int = 0


class FilePart(Struct, frozen=True):
    """File mentioned by the user, with its text at that time."""

    path: str
    text: str


class OutputPart(Struct, frozen=True):
    """Command that the user ran (`!command`) and its output: neither the user's nor the model's words."""

    command: str
    text: str


class MarkerPart(Struct, frozen=True):
    """Event in a thread, shown to people but not sent or counted (`interrupted`, `model_changed`, …)."""

    kind: str
    text: str = ""


class ContextPart(Struct, frozen=True):
    """Volatile facts sent with a message (time, folder, git, task), by name.

    They are sent unchanged as long as the message is in the window. They are not shown, searched or observed, since
    neither the user nor the model wrote them.
    """

    facts: Mapping[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.facts.values())


Part: TypeAlias = (
    TextPart
    | ThinkingPart
    | ToolCallPart
    | ToolResultPart
    | ImagePart
    | FilePart
    | OutputPart
    | MarkerPart
    | ContextPart
)


AUTHOR = "author"  # in a message's metadata: its author if that is not the user; "agent": another agent
BY_AGENT: Json = {AUTHOR: "agent"}
PASTED = "pasted"  # in a message's metadata: spans of pasted blocks in its text, as [start, end]


class Message(Struct, frozen=True):
    """One entry of a thread.

    `part_tokens[i]` are the tokens of `parts[i]` as sent, counted once when the message was created; `tokens` is their
    sum plus the message's own overhead.
    """

    id: str
    thread_id: str
    resource_id: str
    role: Role
    parts: tuple[Part, ...]
    created_at: int
    index: int = -1
    tokens: int = 0
    part_tokens: tuple[int, ...] = ()
    token_counter: str = ""
    state: MessageState = "saved"
    sealed_at: int | None = None
    task_id: str | None = None
    metadata: Json = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def is_by_user(self) -> bool:
        """Return whether the user wrote it: a goal from another agent is sent in the same role."""
        return self.role == "user" and self.metadata.get(AUTHOR) != "agent"

    @property
    def is_by_agent(self) -> bool:
        return self.role == "assistant" or (self.role == "user" and self.metadata.get(AUTHOR) == "agent")

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        return tuple(p for p in self.parts if isinstance(p, ToolCallPart))

    @property
    def tool_results(self) -> tuple[ToolResultPart, ...]:
        return tuple(p for p in self.parts if isinstance(p, ToolResultPart))


class Thread(Struct, frozen=True):
    """One conversation. `metadata`: current_task, suggested_response, last_observed_at, active_task_id."""

    id: str
    resource_id: str
    title: str
    created_at: int
    updated_at: int
    title_pinned: bool = False
    parent_id: str | None = None
    mode: str = "default"
    metadata: Json = field(default_factory=dict[str, Any])


class Usage(Struct, frozen=True):
    """Tokens of one model call as the provider reported them.

    `input_tokens` includes cache reads and cache writes. `cost_usd` is None if the price is unknown.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [c for c in (self.cost_usd, other.cost_usd) if c is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(costs) if costs else None,
        )


class ModelCall(Struct, frozen=True):
    """One finished call of a model; `counted_tokens` is our own count of its input."""

    model: str
    usage: Usage
    duration_ms: int = 0
    stop_reason: str = ""
    counted_tokens: int = 0


class Spent(Struct, frozen=True):
    """Usage of a thread.

    `actor`: the conversation itself; `memory`: observing and reflecting; `search`: web searches.
    """

    actor: Usage = field(default_factory=Usage)
    memory: Usage = field(default_factory=Usage)
    search: Usage = field(default_factory=Usage)


class ToolSpec(Struct, frozen=True):
    """Description of a tool for a model; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Json


class Block(Struct, frozen=True):
    """Part of the system prompt.

    `kind` names it for the inspector (system, instructions, working_memory, carry_over, reflection, observations, …);
    `edge` marks a stable end, where a cache breakpoint may be set.
    """

    kind: str
    text: str
    edge: bool = False
    tokens: int = 0


class Request(Struct, frozen=True):
    """One model call.

    `model` is the provider's own name. `tail` is unstored text for this call only (why an answer was rejected,
    or where it was cut): it goes to the end of the last message, or after the answer to continue.
    `effort` is the reasoning effort, `thinking_tokens` the budget if the model has one. `schema` requests an answer of
    that JSON Schema if the provider supports it; `extra` goes into the body unchanged.
    """

    model: str
    system: tuple[Block, ...] = ()
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    tail: str = ""
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_tokens: int | None = None
    effort: Effort | None = None
    schema: Json | None = None
    extra: Json = field(default_factory=dict[str, Any])


class ModelInfo(Struct, frozen=True):
    """Facts about a model.

    `context_window` and `max_output` in tokens (None: unknown; `assumed`: the window is a cautious guess), prices in
    US dollars per million tokens, `cache_ttl` in ms. `tokens`: the maximum of the model's own tokens per token of our
    count. `observes`: whether it is good enough to observe; None if not measured. `small` marks a model that is good
    for questions only.
    """

    name: str
    provider: str
    context_window: int | None = None
    max_output: int | None = None
    input_price: float | None = None
    output_price: float | None = None
    images: bool = False
    thinking: ThinkingKind = ""
    small: bool = False
    assumed: bool = False
    image_rule: ImageRule = ""
    cache_ttl: int | None = None
    tokens: float = 1.0
    observes: bool | None = None

    @property
    def full_name(self) -> str:
        return f"{self.provider}/{self.name}"

    @property
    def brief(self) -> bool:
        """Return whether it gets a short prompt and few tools, which leave more of its window."""
        return self.small or (self.context_window is not None and self.context_window < BRIEF_BELOW)

    @property
    def has_memory_tools(self) -> bool:
        """Return whether its window has room for the tools of memory and tasks, and for the list of skills."""
        return not self.small and (self.context_window is None or self.context_window >= MEMORY_TOOLS_FROM)


def join_values(value: Any) -> str:
    """Return the values in a call's arguments as text, at any depth, without names."""
    if isinstance(value, dict):
        return " ".join(map(join_values, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if isinstance(value, list | tuple):
        return " ".join(map(join_values, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def join_plain_text(parts: Sequence[Part]) -> str:
    """Join the searchable text of `parts`, without thinking."""
    out: list[str] = []
    for part in parts:
        match part:
            case TextPart(text):
                out.append(text)
            case ToolCallPart(_, name, arguments, raw):
                values = raw if arguments is None else join_values(arguments)
                out.append(f"{name} {values}")
            case ToolResultPart(content=content):
                out.append(content)
            case FilePart(path, text):
                out.append(f"{path}\n{text}")
            case OutputPart(command, text):
                out.append(f"{command}\n{text}")
            case ImagePart(name=name):
                out.append(name)
            case MarkerPart() | ThinkingPart() | ContextPart():
                pass
    return "\n".join(t for t in out if t)


RunState: TypeAlias = Literal["running", "finished", "partial", "interrupted"]  # as it is stored
ChildState: TypeAlias = Literal["waiting", RunState]

STATE_SYMBOLS: Mapping[ChildState, str] = {
    "waiting": "◌",
    "running": "▸",
    "finished": "✓",
    "partial": "◐",
    "interrupted": "✗",
}
RUNS_ELSEWHERE = "This child thread runs in another window: stop it there."
_WORDS: Mapping[ChildState, str] = {
    "waiting": "waiting for a free slot",
    "running": "running",
    "finished": "finished",
    "partial": "ended early",
    "interrupted": "interrupted",
}


def describe_state(state: ChildState, detail: str = "") -> str:
    """Describe a state in words; `detail` is the activity of a child, or the marks of its report."""
    return _WORDS[state] if state in ("waiting", "interrupted") else detail or _WORDS[state]


PREFIX = "mcp__"
CALL = "call_tool"  # tool that runs the tools found by search


def display_name(tool: str) -> str:
    """Return the display name of a tool, such as `mcp SERVER · TOOL` for a server's tool."""
    if not tool.startswith(PREFIX) or "__" not in tool[len(PREFIX) :]:
        return tool
    server, _, name = tool[len(PREFIX) :].partition("__")
    return f"mcp {server} · {name}"


def unwrap_call(call: ToolCallPart) -> ToolCallPart:
    """Return the call that `call_tool` wraps; any other call unchanged."""
    arguments = call.arguments
    if call.name != CALL or arguments is None:
        return call
    name, inner = arguments.get("name"), arguments.get("arguments")
    if not isinstance(name, str) or not isinstance(inner, dict):
        return call
    return structs.replace(call, name=name, arguments=inner)


def list_arguments(arguments: Json) -> str:
    """Return arguments in one line, as `repo_path=., max_count=3`."""
    return to_one_line(", ".join(f"{name}={value}" for name, value in arguments.items()), 300)


def make_tool_pattern(name: str) -> str:
    """Return the pattern of a tool name in agent files: `mcp__SERVER` means all tools of a server."""
    if not name.startswith(PREFIX) or "*" in name:
        return name
    server, _, tool = name[len(PREFIX) :].partition("__")
    return f"{PREFIX}{clean_name(server)}__{clean_name(tool) if tool else '*'}"


def clean_name(text: str) -> str:
    """Return the name of a server or its tool with only the characters allowed in tool names."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text) or "_"
