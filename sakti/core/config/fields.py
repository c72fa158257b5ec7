"""Define every setting, including those of hooks and providers: type, default, help, bounds."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Struct, field

from sakti.core.resources import list_modes
from sakti.core.text import show_value
from sakti.core.types import Effort


class Meaning(Struct, frozen=True):
    """Metadata of one setting, written beside its type.

    `help` is one sentence and gives the unit. `project`: whether a project's own file may set it, or the allowed
    range. `at_once`: a change takes effect in the open window; otherwise after a restart. Numbers must be more than
    `above`, at least `low`, at most `high`. `secret`: the value is never shown. `refuse` checks a text (see
    `refuses`). Nothing that a project may set can run code, send text elsewhere or loosen an approval.
    """

    help: str = ""
    project: bool | tuple[float, float] = False
    at_once: bool = False
    above: float | None = None
    low: float | None = None
    high: float | None = None
    secret: bool = False
    refuse: Callable[[str], str] | None = None

    @property
    def bounds(self) -> str:
        """Describe the bounds in words; "" without bounds."""
        if self.above is not None:
            return f"above {self.above:g}"
        if self.low is not None and self.high is not None:
            return f"from {self.low:.10g} to {self.high:.10g}"
        return "" if self.low is None else f"at least {self.low:.10g}"

    def allows(self, value: float) -> bool:
        return not (
            (self.above is not None and value <= self.above)
            or (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
        )

    def refuses(self, value: Any) -> str:
        """Return why a text cannot be the value, or ""."""
        return self.refuse(value) if self.refuse is not None and isinstance(value, str) else ""


ApprovalMode: TypeAlias = Literal["plan", "ask", "edits", "auto"]
# Approval modes of a session: `full` can be chosen only at its start, never by a setting.
SessionMode: TypeAlias = Literal["plan", "ask", "edits", "auto", "full"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("plan", "ask", "edits", "auto")  # from strict to free
SESSION_MODES: tuple[SessionMode, ...] = (*APPROVAL_MODES, "full")
MAX_OUTPUT_TOKENS = 100_000  # maximum tokens of an Observer's or a Reflector's answer

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=://)|(?:file|sqlite)(?=:)", re.IGNORECASE)

_COLON = re.compile(r"[^/]*:/")


def refuse_mode(name: str) -> str:
    """Return an error with the existing modes if `name` is not one of them; otherwise ""."""
    names = list_modes()
    return "" if name in names else f"there is no mode {show_value(name)}; there are {', '.join(names)}."


def _refuse_url(path: str) -> str:
    """Return why a path cannot name a file, with any password of a URL left out."""
    if scheme := _URL.match(path):
        what = f"a {scheme[0].lower()} URL"
    elif path == ":memory:":
        what = path
    elif os.name == "posix" and _COLON.match(path):
        what = "a path whose first folder ends in a colon"
    else:
        return ""
    return f"{what} cannot name the database: it is a file, so write its path."


# A number for memory, which a project may set, since it knows best how to observe its threads. The bounds of `project`
# keep a cloned folder from causing a model call at every step.
_memory = partial(Meaning, project=True, at_once=True)


class ModelSettings(Struct, frozen=True):
    """Request parameters of a memory model; a parameter that the model rejects is left out."""

    temperature: Annotated[float | None, _memory("Sampling temperature.", low=0, high=2, project=(0, 2))] = None
    max_output_tokens: Annotated[
        int,
        _memory("Maximum tokens of its answer.", low=1_000, high=MAX_OUTPUT_TOKENS, project=(1_000, MAX_OUTPUT_TOKENS)),
    ] = MAX_OUTPUT_TOKENS
    thinking_tokens: Annotated[
        int | None, _memory("Maximum tokens of thinking; 0: none.", low=0, project=(0, 50_000))
    ] = None
    extra: Annotated[Mapping[str, Any], Meaning("Extra fields in the body of its requests.", at_once=True)] = field(
        default_factory=dict[str, Any]
    )


class ObservationSettings(Struct, frozen=True):
    """Settings of observation; fractions are of the message threshold."""

    message_tokens: Annotated[
        int, _memory("Tokens of messages that fill the message window.", above=0, project=(2_000, 200_000))
    ] = 30_000
    buffer_tokens: Annotated[
        float | Literal[False],
        _memory(
            "Tokens between background observations, or a fraction of the window; false: none.", project=(0.05, 200_000)
        ),
    ] = 0.2
    buffer_activation: Annotated[
        float,
        _memory(
            "Share of the window that an activation frees, or tokens (1000 or more) of messages that stay.",
            project=(0.05, 200_000),
        ),
    ] = 0.8
    block_after: Annotated[
        float,
        _memory(
            "Wait for the Observer above this: a multiple of the threshold (below 100), or tokens.",
            project=(1, 1_000_000),
        ),
    ] = 1.2
    previous_observer_tokens: Annotated[
        int, _memory("Tokens of the log's end that the Observer sees.", low=0, project=(0, 20_000))
    ] = 2_000
    model: Annotated[
        str | tuple[str, ...] | None,
        Meaning(
            'Model that observes, or a list tried in order; "provider/name <= TOKENS" limits the input.', at_once=True
        ),
    ] = None
    model_settings: ModelSettings = ModelSettings(temperature=0.3, thinking_tokens=215)


class ReflectionSettings(Struct, frozen=True):
    """Settings of reflection; fractions are of the observation threshold."""

    observation_tokens: Annotated[
        int, _memory("Tokens of observations that fill the observation window.", above=0, project=(2_000, 200_000))
    ] = 40_000
    buffer_activation: Annotated[
        float,
        _memory(
            "Share of the window at which the Reflector starts in the background.", above=0, high=1, project=(0.05, 1)
        ),
    ] = 0.5
    block_after: Annotated[
        float,
        _memory(
            "Wait for the Reflector above this: a multiple of the threshold (below 100), or tokens.",
            project=(1, 1_000_000),
        ),
    ] = 1.2
    model: Annotated[
        str | tuple[str, ...] | None,
        Meaning("Model that reflects, or a list tried in order; not set: the Observer's.", at_once=True),
    ] = None
    model_settings: ModelSettings = ModelSettings(temperature=0.0, thinking_tokens=1_024)


class WorkingMemorySettings(Struct, frozen=True):
    """Settings of the two pages of stable facts; files are relative to the workspace."""

    schema: Annotated[
        str | None, Meaning("File with a JSON Schema for the pages; not set: Markdown pages.", project=True)
    ] = None
    enabled: Annotated[bool, Meaning("Send and write working memory pages.", project=True)] = True
    scope: Annotated[
        Literal["resource", "thread"],
        Meaning("Page for notes and updates: the workspace's or the thread's own.", project=True),
    ] = "resource"
    template: Annotated[str | None, Meaning("Markdown file that a new page starts with.", project=True)] = None


class MemorySettings(Struct, frozen=True):
    enabled: Annotated[bool, _memory("Observe messages; false: only the newest ones are sent.")] = True
    model: Annotated[
        str | None, Meaning('Model of Observer and Reflector; "extractive" uses no model.', at_once=True)
    ] = None
    scope: Annotated[Literal["thread", "resource"], _memory("One log for each thread, or one for the workspace.")] = (
        "thread"
    )
    share_token_budget: Annotated[bool, _memory("Let messages and observations share the sum of their windows.")] = (
        False
    )
    retrieval: Annotated[bool, _memory("Let the model open the messages behind an observation.")] = True
    activate_after_idle: Annotated[
        str | int | Literal[False],
        _memory(
            'Pause after which buffered groups are activated ("5m" or ms); auto: when the prompt cache expires.',
            project=(1_000, 86_400_000),
        ),
    ] = "auto"
    carry_over: Annotated[
        int, _memory("Tokens of workspace knowledge that a new thread starts with.", low=0, project=(0, 10_000))
    ] = 1_500
    read_only: Annotated[bool, Meaning("Save nothing: work on a copy in memory and observe nothing (--no-save).")] = (
        False
    )
    thread_title: Annotated[bool, _memory("Let the Observer name threads.")] = True
    last_messages: Annotated[
        int | None,
        _memory(
            "Messages that are sent if memory is off; not set: as many as the mode sets.", above=0, project=(1, 1_000)
        ),
    ] = None
    observe_on_exit: Annotated[bool, _memory("Observe pending messages before the program ends.")] = False
    observation: ObservationSettings = ObservationSettings()
    reflection: ReflectionSettings = ReflectionSettings()
    working_memory: WorkingMemorySettings = WorkingMemorySettings()


class ApprovalSettings(Struct, frozen=True):
    """Settings of approvals; a rule is `tool`, `tool(pattern)`, a glob over the path, or `bash: words`."""

    mode: Annotated[
        ApprovalMode,
        Meaning("Approval mode at the start; a project can only make it stricter.", project=True, at_once=True),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...], Meaning('Rules for calls that run without a question, for example "bash: git fetch".')
    ] = ()
    ask: Annotated[tuple[str, ...], Meaning("Rules for calls that always ask.", project=True)] = ()
    deny: Annotated[tuple[str, ...], Meaning("Rules for calls that are always refused.", project=True)] = ()


class SandboxSettings(Struct, frozen=True):
    """Settings of the sandbox; only the user's own file sets them, since a project could loosen it."""

    enabled: Annotated[
        Literal["auto", "off"],
        Meaning("Run commands in the sandbox if there is one; without it, mode auto is not available."),
    ] = "auto"
    env: Annotated[tuple[str, ...], Meaning("Environment variables that commands get besides the usual ones.")] = ()
    hosts: Annotated[
        tuple[str, ...], Meaning("Hosts that commands may reach: example.org, *.example.org or example.org:8443.")
    ] = ()
    write: Annotated[
        tuple[str, ...], Meaning("Folders that commands may change besides the workspace, for example ~/.cache/pip.")
    ] = ()


class WebSettings(Struct, frozen=True):
    """Settings of the web tools; only the user's own file sets them."""

    fetch: Annotated[bool, Meaning("Let the model open web pages; each new host is asked about.")] = True
    search: Annotated[
        Literal["auto", "provider", "brave", "tavily", "exa", "off"],
        Meaning("Web search; auto: by the model's provider if it can, else by a service whose key is set."),
    ] = "auto"


class AgentSettings(Struct, frozen=True):
    """Settings of the agent loop; limits are per turn, None means no limit."""

    max_steps: Annotated[
        int, Meaning("Maximum number of model calls per turn.", project=(1, 200), at_once=True, above=0)
    ] = 200
    max_seconds: Annotated[float | None, Meaning("Maximum seconds per turn.", at_once=True, above=0)] = None
    max_tokens: Annotated[int | None, Meaning("Maximum tokens per turn, in and out.", at_once=True, above=0)] = None
    max_usd: Annotated[float | None, Meaning("Maximum US dollars per turn.", at_once=True, above=0)] = None
    effort: Annotated[Effort, Meaning("Reasoning effort.", at_once=True)] = "medium"
    max_output_tokens: Annotated[
        int | None, Meaning("Maximum tokens of one answer; not set: the model's maximum.", at_once=True, above=0)
    ] = None
    thinking_tokens: Annotated[
        int | None,
        Meaning("Thinking budget in tokens, for models that take one; not set: chosen by the effort.", at_once=True),
    ] = None
    max_processor_retries: Annotated[
        int, Meaning("Maximum number of new answers that a processor may request.", at_once=True, low=0)
    ] = 3
    tool_output_bytes: Annotated[int, Meaning("Maximum bytes of a tool's output that the model sees.", above=0)] = (
        30_000
    )
    bash_timeout: Annotated[int, Meaning("Default timeout of a command in seconds.", above=0)] = 120
    checkpoints: Annotated[bool, Meaning("Record changes to files, so that /undo can restore them.")] = True


class SubagentSettings(Struct, frozen=True):
    """Settings of child threads; the limits are for each child."""

    use: Annotated[
        Literal["asked", "free", "off"],
        Meaning("Start child threads if asked for, whenever the model decides (free), or never (off).", project=True),
    ] = "asked"
    max_threads: Annotated[
        int, Meaning("Maximum number of children that run at once.", at_once=True, low=1, high=16, project=(1, 16))
    ] = 4
    max_steps: Annotated[
        int, Meaning("Maximum number of model calls of a child.", at_once=True, above=0, project=(1, 1_000))
    ] = 50
    max_tokens: Annotated[
        int, Meaning("Maximum uncached tokens of a child.", at_once=True, above=0, project=(1, 10_000_000))
    ] = 500_000
    max_usd: Annotated[float, Meaning("Maximum US dollars of a child.", at_once=True, above=0, project=(0, 100))] = 1.0
    model: Annotated[str, Meaning('Model of children, as "provider/name"; inherit: the model of the chat.')] = "inherit"


class ToolSearchSettings(Struct, frozen=True):
    """Settings of the search for tools."""

    top_k: Annotated[int, Meaning("Maximum number of tools that one search returns.", at_once=True, low=1, high=50)] = 5


class GoalSettings(Struct, frozen=True):
    """Default limits of a goal; `/goal` can override them."""

    max_turns: Annotated[
        int, Meaning("Maximum number of turns of a goal.", at_once=True, above=0, project=(1, 1_000))
    ] = 20
    max_usd: Annotated[float, Meaning("Maximum US dollars of a goal.", at_once=True, above=0, project=(0, 1_000))] = 5.0


class UiSettings(Struct, frozen=True):
    theme: Annotated[str, Meaning("Name of the theme.", at_once=True)] = "sakti-dark"
    sidebar_width: Annotated[
        int | None,
        Meaning(
            "Width of the panes in columns; not set: 36 to 56, by the width of the screen.",
            at_once=True,
            low=24,
            high=120,
        ),
    ] = None
    mouse: Annotated[bool, Meaning("Use the mouse; false leaves it to the terminal.")] = True
    reduced_motion: Annotated[bool, Meaning("No blinking and no animation.", at_once=True)] = False
    notify: Annotated[
        Literal["off", "bell", "desktop"],
        Meaning(
            "Notification of a waiting question or the end of a long turn, if the window has no focus.", at_once=True
        ),
    ] = "bell"
    vim_keys: Annotated[bool, Meaning("vim's keys in the prompt: Esc for normal mode, i to type.", at_once=True)] = (
        False
    )
    plain: Annotated[bool, Meaning("Chat line by line, for screen readers (--plain).")] = False


class StoreSettings(Struct, frozen=True):
    path: Annotated[str | None, Meaning("File of the database (SAKTI_DB).", refuse=_refuse_url)] = None
    synchronous: Annotated[
        Literal["FULL", "NORMAL"], Meaning("Durability of writes; NORMAL may lose the last second in a power failure.")
    ] = "FULL"
    share_worktrees: Annotated[
        bool, Meaning("Linked git worktrees use the task board and the page of the main checkout.")
    ] = False
    wait: Annotated[float, Meaning("Maximum seconds that a write waits for another process.", low=0)] = 90.0


# Events of a tool call, for which a hook's `match` is a pattern for the tool's name.
TOOL_EVENTS = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
# Events by name, with the field that `match` is compared with; "" if `match` is ignored.
EVENTS = {
    **dict.fromkeys(TOOL_EVENTS, "tool_name"),
    "SessionStart": "source",
    "SessionEnd": "reason",
    "UserPromptSubmit": "",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "Notification": "notification_type",
    "Stop": "",
    "Observed": "",
    "Reflected": "",
    "TaskClosed": "",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
}
TIMEOUT = 60.0  # seconds


class HookSettings(Struct, frozen=True):
    """Settings of one hook; `write` names folders and files outside the workspace that it may change."""

    event: str
    command: str
    match: str = ""
    timeout: float = TIMEOUT
    write: tuple[str, ...] = ()


def resolve_event_name(name: str) -> str:
    """Return the canonical name of an event; "" for an unknown one."""
    return next((event for event in EVENTS if event.casefold() == name.strip().casefold()), "")


class ProviderSettings(Struct, frozen=True):
    """Settings of one provider.

    Keys are never written to a file: `key_env` names a variable with the key, `key_command` prints it.
    """

    api: Annotated[Literal["auto", "chat", "responses", "anthropic"], Meaning("The protocol of the server.")] = "auto"
    base_url: Annotated[str | None, Meaning("Address of the API.")] = None
    key_env: Annotated[str | None, Meaning("Name of the variable that holds the key.")] = None
    key_command: Annotated[str | None, Meaning("Command that prints the key; run again if the key has expired.")] = None
    auth_token: Annotated[
        str | None, Meaning("Token sent in place of a key, for gateways with their own login.", secret=True)
    ] = None
    headers: Annotated[Mapping[str, str], Meaning("Headers sent with every request.", secret=True)] = field(
        default_factory=dict[str, str]
    )
    api_version: Annotated[str | None, Meaning("Version of the API, for Azure.")] = None
    timeout: Annotated[float, Meaning("Maximum silence of a stream in seconds.", above=0)] = 120.0
    context_window: Annotated[
        int | None, Meaning("Context window in tokens, if the server does not report it.", above=0)
    ] = None
    images: Annotated[bool | None, Meaning("Tell sakti that these models accept images.")] = None
    extra: Annotated[Mapping[str, Any], Meaning("Extra fields in the body of every request.")] = field(
        default_factory=dict[str, Any]
    )


class Config(Struct, frozen=True):
    """All settings."""

    model: Annotated[str | None, Meaning('Model that answers, as "provider/name".')] = None
    fallback_model: Annotated[
        str | None, Meaning("Model for the rest of a turn if `model` stays overloaded.", at_once=True)
    ] = None
    title_model: Annotated[
        str | None,
        Meaning(
            "Model that names a thread after its first answer; not set: the first line, then the Observer.",
            at_once=True,
        ),
    ] = None
    processors: Annotated[
        tuple[str, ...], Meaning("Names of processors for every turn, in order: built in or from an installed package.")
    ] = ()
    hooks: Annotated[
        tuple[HookSettings, ...],
        Meaning("Commands that run at events: tables [[hooks]] with event, match, command, timeout, write."),
    ] = ()
    mode: Annotated[
        str,
        Meaning(
            "How the agent works and what is remembered: for example debugging.",
            project=True,
            at_once=True,
            refuse=refuse_mode,
        ),
    ] = "default"
    memory: MemorySettings = MemorySettings()
    approval: ApprovalSettings = ApprovalSettings()
    sandbox: SandboxSettings = SandboxSettings()
    web: WebSettings = WebSettings()
    agent: AgentSettings = AgentSettings()
    subagents: SubagentSettings = SubagentSettings()
    goal: GoalSettings = GoalSettings()
    tool_search: ToolSearchSettings = ToolSearchSettings()
    ui: UiSettings = UiSettings()
    store: StoreSettings = StoreSettings()
    keys: Annotated[
        Mapping[str, Any], Meaning('Custom keys, by the id that F1 shows, for example "app.search" = "ctrl+l".')
    ] = field(default_factory=dict[str, Any])
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    mcp: Annotated[
        Mapping[str, Any],
        Meaning("MCP servers: a table [mcp.NAME] each; `sakti help mcp` lists its fields.", secret=True),
    ] = field(default_factory=dict[str, Any])


# Alternative spellings of settings: `[model] name =, fallback =`.
ALIASES = {"model.name": "model", "model.fallback": "fallback_model"}


def iter_names() -> Iterator[str]:
    """Return every setting's dotted name, without the free names under `providers`."""
    return (name for name in _build_meanings() if not name.startswith("providers"))


@cache
def group_fields(group: type) -> Mapping[str, tuple[Any, Meaning]]:
    """Map the fields of a group of settings to their types and meanings."""
    annotations = typing.get_type_hints(group, include_extras=True)
    return {
        name: typing.get_args(hint)[:2] if typing.get_origin(hint) is Annotated else (hint, Meaning())
        for name, hint in annotations.items()
    }


@cache
def _build_meanings() -> Mapping[str, Meaning]:
    """Map every setting's dotted name to its `Meaning`; settings of providers as `providers.*.NAME`."""
    out: dict[str, Meaning] = {}

    def walk(group: type, prefix: str) -> None:
        for name, (hint, meaning) in group_fields(group).items():
            if isinstance(hint, type) and issubclass(hint, Struct):
                walk(hint, f"{prefix}{name}.")
            else:
                out[prefix + name] = meaning

    walk(Config, "")
    walk(ProviderSettings, "providers.*.")
    return out


def get_meaning(name: str) -> Meaning:
    """Return the `Meaning` of a setting by its dotted name; an empty one for an unknown setting."""
    name = ALIASES.get(name, name)
    if name.startswith("providers."):
        name = ".".join(["providers", "*", *name.split(".")[2:3]])
    entry = _build_meanings().get(name)
    if entry is None and ".extra." in name:
        entry = _build_meanings().get(f"{name.partition('.extra.')[0]}.extra")
    return entry or Meaning()


def project_may_set(name: str) -> bool:
    """Return whether a project's own file may set it."""
    return bool(get_meaning(name).project)
