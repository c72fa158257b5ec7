"""Define every setting, those of hooks and providers too: type, default, help, bounds."""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sakti.core.resources import mode_names
from sakti.core.text import show_value
from sakti.core.types import Effort

_KEY = "meaning"


class Meaning(Struct, frozen=True):
    """Metadata of one setting.

    `help` is one sentence and gives the unit. Numbers must be more than `above`, at least `low`, at most `high`.
    `project`: a project's own file may set it, `project_bounds`: between these numbers. `at_once`: a change takes
    effect in the open window, any other after a restart. `secret`: the value is never shown. `refuse` checks a text
    (see `refuses`). Nothing that a project may set can run code, send text elsewhere or loosen an approval.
    """

    help: str = ""
    project: bool = False
    at_once: bool = False
    above: float | None = None
    low: float | None = None
    high: float | None = None
    project_bounds: tuple[float, float] | None = None
    secret: bool = False
    refuse: Callable[[str], str] | None = None

    @property
    def bounds(self) -> str:
        """Render the bounds in words, "" without bounds."""
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
        """Return why a text cannot be the value, empty if it can."""
        return self.refuse(value) if self.refuse is not None and isinstance(value, str) else ""


def setting(
    default: Any = None,
    help: str = "",
    *,
    make: Callable[[], Any] | None = None,
    project: bool | tuple[float, float] = False,
    at_once: bool = False,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    refuse: Callable[[str], str] | None = None,
) -> Any:
    """Return a dataclass field with this default (or what `make` returns) and meaning.

    `project`: whether a project's own file may set it, or between which numbers.
    """
    bounds = project if isinstance(project, tuple) else None
    metadata = {_KEY: Meaning(help, bool(project), at_once, above, low, high, bounds, secret, refuse)}
    if make is not None:
        return dataclasses.field(default_factory=make, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def of_field(field: dataclasses.Field[Any]) -> Meaning:
    """Return what a field of a settings class means."""
    return field.metadata.get(_KEY, Meaning())


ApprovalMode: TypeAlias = Literal["plan", "ask", "edits", "auto"]
# What a session may be in: `full` is asked for at its start only, and is in no setting.
SessionMode: TypeAlias = Literal["plan", "ask", "edits", "auto", "full"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("plan", "ask", "edits", "auto")  # from strict to free
SESSION_MODES: tuple[SessionMode, ...] = (*APPROVAL_MODES, "full")
MAX_OUTPUT_TOKENS = 100_000  # of an Observer's or a Reflector's answer

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=://)|(?:file|sqlite)(?=:)", re.IGNORECASE)

_COLON = re.compile(r"[^/]*:/")


def refuse_mode(name: str) -> str:
    """Return why there is no such mode, with those that exist; empty if there is one."""
    names = mode_names()
    return "" if name in names else f"there is no mode {show_value(name)}; there are {', '.join(names)}."


def _refuse_url(path: str) -> str:
    """Return why a path cannot be that of a file, without any password of a URL."""
    if scheme := _URL.match(path):
        what = f"a {scheme[0].lower()} URL"
    elif path == ":memory:":
        what = path
    elif os.name == "posix" and _COLON.match(path):
        what = "a path whose first folder ends in a colon"
    else:
        return ""
    return f"{what} cannot name the database: it is a file, so write its path."


# A number of memory: a project knows best how its talks are observed, and a window goes on with it.
# Between the numbers of `project`: a file that came with a folder must not make it call a model at every step.
_memory = partial(setting, project=True, at_once=True)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Request parameters of a model that works for memory; a model that rejects one is not sent it."""

    temperature: float | None = _memory(None, "Sampling temperature.", low=0, high=2, project=(0, 2))
    max_output_tokens: int = _memory(
        MAX_OUTPUT_TOKENS,
        "Maximum tokens of its answer.",
        low=1_000,
        high=MAX_OUTPUT_TOKENS,
        project=(1_000, MAX_OUTPUT_TOKENS),
    )
    thinking_tokens: int | None = _memory(None, "Maximum tokens of thinking; 0: none.", low=0, project=(0, 50_000))
    extra: Mapping[str, Any] = setting(
        make=dict[str, Any], help="Extra fields in the body of its requests.", at_once=True
    )


@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """Settings of observation; fractions are of the message threshold."""

    message_tokens: int = _memory(
        30_000, "Tokens of messages that fill the message window.", above=0, project=(2_000, 200_000)
    )
    buffer_tokens: float | Literal[False] = _memory(
        0.2,
        "Tokens between background observations, or a fraction of the window; false: none.",
        project=(0.05, 200_000),
    )
    buffer_activation: float = _memory(
        0.8,
        "Share of the window that an activation frees, or tokens (1000 or more) of messages that stay.",
        project=(0.05, 200_000),
    )
    block_after: float = _memory(
        1.2,
        "Wait for the Observer above this: a multiple of the threshold (below 100), or tokens.",
        project=(1, 1_000_000),
    )
    previous_observer_tokens: int = _memory(
        2_000, "Tokens of the log's end that the Observer sees.", low=0, project=(0, 20_000)
    )
    model: str | tuple[str, ...] | None = setting(
        None, 'Model that observes, or a list tried in order; "provider/name <= TOKENS" limits the input.',
        at_once=True,
    )  # fmt: skip
    model_settings: ModelSettings = ModelSettings(temperature=0.3, thinking_tokens=215)


@dataclass(frozen=True, slots=True)
class ReflectionSettings:
    """Settings of reflection; fractions are of the observation threshold."""

    observation_tokens: int = _memory(
        40_000, "Tokens of observations that fill the observation window.", above=0, project=(2_000, 200_000)
    )
    buffer_activation: float = _memory(
        0.5,
        "Share of the window at which the Reflector starts in the background.",
        above=0,
        high=1,
        project=(0.05, 1),
    )
    block_after: float = _memory(
        1.2,
        "Wait for the Reflector above this: a multiple of the threshold (below 100), or tokens.",
        project=(1, 1_000_000),
    )
    model: str | tuple[str, ...] | None = setting(
        None, "Model that reflects, or a list tried in order; not set: the Observer's.",
        at_once=True,
    )  # fmt: skip
    model_settings: ModelSettings = ModelSettings(temperature=0.0, thinking_tokens=1_024)


@dataclass(frozen=True, slots=True)
class WorkingMemorySettings:
    """Settings of the two pages of stable facts; files are relative to the workspace."""

    schema: str | None = setting(None, "File with a JSON Schema for the pages; not set: Markdown pages.", project=True)
    enabled: bool = setting(True, "Send and write working memory pages.", project=True)
    scope: Literal["resource", "thread"] = setting(
        "resource", "Page for notes and updates: the workspace's or the thread's own.", project=True
    )
    template: str | None = setting(None, "Markdown file that a new page starts with.", project=True)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    enabled: bool = _memory(True, "Observe messages; false: only the newest ones are sent.")
    model: str | None = setting(None, 'Model of Observer and Reflector; "extractive" uses no model.', at_once=True)
    scope: Literal["thread", "resource"] = _memory("thread", "One log for each thread, or one for the workspace.")
    share_token_budget: bool = _memory(False, "Let messages and observations share the sum of their windows.")
    retrieval: bool = _memory(True, "Let the model open the messages behind an observation.")
    activate_after_idle: str | int | Literal[False] = _memory(
        "auto",
        'Pause after which buffered groups are activated ("5m" or ms); auto: when the prompt cache expires.',
        project=(1_000, 86_400_000),
    )
    carry_over: int = _memory(
        1_500, "Tokens of workspace knowledge that a new thread starts with.", low=0, project=(0, 10_000)
    )
    read_only: bool = setting(False, "Save nothing: work on a copy in memory and observe nothing (--no-save).")
    thread_title: bool = _memory(True, "Let the Observer name threads.")
    last_messages: int | None = _memory(
        None, "Messages that are sent if memory is off; not set: as many as the mode sets.", above=0, project=(1, 1_000)
    )
    observe_on_exit: bool = _memory(False, "Observe pending messages before the program ends.")
    observation: ObservationSettings = setting(make=ObservationSettings)
    reflection: ReflectionSettings = setting(make=ReflectionSettings)
    working_memory: WorkingMemorySettings = setting(make=WorkingMemorySettings)


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """Settings of approvals; a rule is `tool`, `tool(pattern)`, a glob over the path, or `bash: words`."""

    mode: ApprovalMode = setting(
        "ask", "Approval mode at the start; a project can only make it stricter.", project=True, at_once=True
    )
    allow: tuple[str, ...] = setting((), 'Rules for calls that run without a question, for example "bash: git fetch".')
    ask: tuple[str, ...] = setting((), "Rules for calls that always ask.", project=True)
    deny: tuple[str, ...] = setting((), "Rules for calls that are always refused.", project=True)


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of what encloses commands; only the user's own, as a project could only widen it."""

    enabled: Literal["auto", "off"] = setting(
        "auto", "Run commands in the sandbox if there is one; without it, mode auto is not available."
    )
    env: tuple[str, ...] = setting((), "Environment variables that commands get besides the usual ones.")
    hosts: tuple[str, ...] = setting(
        (), "Hosts that commands may reach: example.org, *.example.org or example.org:8443."
    )
    write: tuple[str, ...] = setting(
        (), "Folders that commands may change besides the workspace, for example ~/.cache/pip."
    )


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Settings of the tools that reach the web; only the user's own."""

    fetch: bool = setting(True, "Let the model open web pages; each new host is asked about.")
    search: Literal["auto", "provider", "brave", "tavily", "exa", "off"] = setting(
        "auto",
        "Web search; auto: by the model's provider if it can, else by a service whose key is set.",
    )


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of the agent loop; limits are per turn, None means no limit."""

    max_steps: int = setting(
        200, "Maximum number of model calls per turn.", project=(1, 200), at_once=True,
        above=0,
    )  # fmt: skip
    max_seconds: float | None = setting(None, "Maximum seconds per turn.", at_once=True, above=0)
    max_tokens: int | None = setting(None, "Maximum tokens per turn, in and out.", at_once=True, above=0)
    max_usd: float | None = setting(None, "Maximum US dollars per turn.", at_once=True, above=0)
    effort: Effort = setting("medium", "Reasoning effort.", at_once=True)
    max_output_tokens: int | None = setting(
        None, "Maximum tokens of one answer; not set: the model's maximum.", at_once=True, above=0
    )
    thinking_tokens: int | None = setting(
        None, "Thinking budget in tokens, for models that take one; not set: chosen by the effort.", at_once=True
    )
    max_processor_retries: int = setting(
        3, "Maximum number of new answers that a processor may request.", at_once=True, low=0
    )
    tool_output_bytes: int = setting(30_000, "Maximum bytes of a tool's output that the model sees.", above=0)
    bash_timeout: int = setting(120, "Default timeout of a command in seconds.", above=0)
    checkpoints: bool = setting(True, "Record changes to files, so that /undo can restore them.")


@dataclass(frozen=True, slots=True)
class SubagentSettings:
    """Settings of child threads; the limits are for each child."""

    use: Literal["asked", "free", "off"] = setting(
        "asked", "Start child threads if asked for, whenever the model decides (free), or never (off).", project=True
    )
    max_threads: int = setting(
        4, "Maximum number of children that run at once.", at_once=True, low=1, high=16, project=(1, 16)
    )
    max_steps: int = setting(50, "Maximum number of model calls of a child.", at_once=True, above=0, project=(1, 1_000))
    max_tokens: int = setting(
        500_000, "Maximum uncached tokens of a child.", at_once=True, above=0, project=(1, 10_000_000)
    )
    max_usd: float = setting(1.0, "Maximum US dollars of a child.", at_once=True, above=0, project=(0, 100))
    model: str = setting("inherit", 'Model of children, as "provider/name"; inherit: the model of the chat.')


@dataclass(frozen=True, slots=True)
class ToolSearchSettings:
    """Settings of the search for tools."""

    top_k: int = setting(5, "Maximum number of tools that one search returns.", at_once=True, low=1, high=50)


@dataclass(frozen=True, slots=True)
class GoalSettings:
    """Limits of a goal; `/goal` can name others."""

    max_turns: int = setting(20, "Maximum number of turns of a goal.", at_once=True, above=0, project=(1, 1_000))
    max_usd: float = setting(5.0, "Maximum US dollars of a goal.", at_once=True, above=0, project=(0, 1_000))


@dataclass(frozen=True, slots=True)
class UiSettings:
    theme: str = setting("sakti-dark", "Name of the theme.", at_once=True)
    sidebar_width: int | None = setting(
        None,
        "Width of the panes in columns; not set: 36 to 56, by the width of the screen.",
        at_once=True,
        low=24,
        high=120,
    )
    mouse: bool = setting(True, "Use the mouse; false leaves it to the terminal.")
    reduced_motion: bool = setting(False, "No blinking and no animation.", at_once=True)
    notify: Literal["off", "bell", "desktop"] = setting(
        "bell",
        "Notification of a waiting question or the end of a long turn, if the window has no focus.",
        at_once=True,
    )
    vim_keys: bool = setting(False, "vim's keys in the prompt: Esc for normal mode, i to type.", at_once=True)
    plain: bool = setting(False, "Chat line by line, for screen readers (--plain).")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    path: str | None = setting(None, "File of the database (SAKTI_DB).", refuse=_refuse_url)
    synchronous: Literal["FULL", "NORMAL"] = setting(
        "FULL", "Durability of writes; NORMAL may lose the last second in a power failure."
    )
    share_worktrees: bool = setting(False, "Linked git worktrees use the task board and the page of the main checkout.")
    wait: float = setting(90.0, "Maximum seconds that a write waits for another process.", low=0)


# What happens to a tool call; a hook's `match` is a pattern of the tool's name there.
TOOL_EVENTS = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
# Events by name; what `match` is compared with, "" where it is ignored.
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


@dataclass(frozen=True, slots=True)
class HookSettings:
    """Settings of one hook; `write` names folders and files that it may change beside the workspace."""

    event: str
    command: str
    match: str = ""
    timeout: float = TIMEOUT
    write: tuple[str, ...] = ()


def event_name(name: str) -> str:
    """Return the canonical name of an event, "" for an unknown one."""
    return next((event for event in EVENTS if event.casefold() == name.strip().casefold()), "")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Settings of one provider.

    sakti writes no key into a file: `key_env` names the variable that holds it, `key_command` prints it.
    """

    api: Literal["auto", "chat", "responses", "anthropic"] = setting("auto", "The protocol of the server.")
    base_url: str | None = setting(None, "Address of the API.")
    key_env: str | None = setting(None, "Name of the variable that holds the key.")
    key_command: str | None = setting(None, "Command that prints the key; run again if the key has expired.")
    auth_token: str | None = setting(
        None, "Token sent in place of a key, for gateways with their own login.", secret=True
    )
    headers: Mapping[str, str] = setting(make=dict[str, str], help="Headers sent with every request.", secret=True)
    api_version: str | None = setting(None, "Version of the API, for Azure.")
    timeout: float = setting(120.0, "Maximum silence of a stream in seconds.", above=0)
    context_window: int | None = setting(None, "Context window in tokens, if the server does not report it.", above=0)
    images: bool | None = setting(None, "Tell sakti that these models accept images.")
    extra: Mapping[str, Any] = setting(make=dict[str, Any], help="Extra fields in the body of every request.")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    model: str | None = setting(None, 'Model that answers, as "provider/name".')
    fallback_model: str | None = setting(
        None, "Model for the rest of a turn if `model` stays overloaded.", at_once=True
    )
    title_model: str | None = setting(
        None,
        "Model that names a thread after its first answer; not set: the first line, then the Observer.",
        at_once=True,
    )
    processors: tuple[str, ...] = setting(
        (), "Names of processors for every turn, in order: built in or from an installed package."
    )
    hooks: tuple[HookSettings, ...] = setting(
        (), "Commands that run at events: tables [[hooks]] with event, match, command, timeout, write."
    )
    mode: str = setting(
        "default",
        "How the agent works and what is remembered: for example debugging.",
        project=True,
        at_once=True,
        refuse=refuse_mode,
    )
    memory: MemorySettings = setting(make=MemorySettings)
    approval: ApprovalSettings = setting(make=ApprovalSettings)
    sandbox: SandboxSettings = setting(make=SandboxSettings)
    web: WebSettings = setting(make=WebSettings)
    agent: AgentSettings = setting(make=AgentSettings)
    subagents: SubagentSettings = setting(make=SubagentSettings)
    goal: GoalSettings = setting(make=GoalSettings)
    tool_search: ToolSearchSettings = setting(make=ToolSearchSettings)
    ui: UiSettings = setting(make=UiSettings)
    store: StoreSettings = setting(make=StoreSettings)
    keys: Mapping[str, Any] = setting(
        make=dict[str, Any], help='Custom keys, by the id that F1 shows, for example "app.search" = "ctrl+l".'
    )
    providers: Mapping[str, ProviderSettings] = setting(make=dict[str, ProviderSettings])
    mcp: Mapping[str, Any] = setting(
        make=dict[str, Any],
        help="MCP servers: a table [mcp.NAME] each; `sakti help mcp` lists its fields.",
        secret=True,
    )


# Other ways to write a setting: `[model] name =, fallback =`.
ALIASES = {"model.name": "model", "model.fallback": "fallback_model"}


def names() -> Iterator[str]:
    """Return every setting's dotted name, without the free names under `providers`."""
    return (name for name in _meanings() if not name.startswith("providers"))


@cache
def _meanings() -> Mapping[str, Meaning]:
    """Map every setting's dotted name to its `Meaning`; settings of providers as `providers.*.NAME`."""
    out: dict[str, Meaning] = {}

    def walk(kind: type, prefix: str) -> None:
        hints = typing.get_type_hints(kind)
        for f in dataclasses.fields(kind):
            target = hints[f.name]
            if isinstance(target, type) and dataclasses.is_dataclass(target):
                walk(target, f"{prefix}{f.name}.")
            else:
                out[f"{prefix}{f.name}"] = of_field(f)

    walk(Config, "")
    walk(ProviderSettings, "providers.*.")
    return out


def meaning(name: str) -> Meaning:
    """Return what a setting means, by its dotted name; an empty meaning for one that does not exist."""
    name = ALIASES.get(name, name)
    if name.startswith("providers."):
        name = ".".join(["providers", "*", *name.split(".")[2:3]])
    entry = _meanings().get(name)
    if entry is None and ".extra." in name:
        entry = _meanings().get(f"{name.partition('.extra.')[0]}.extra")
    return entry or Meaning()


def project_may_set(name: str) -> bool:
    """Return whether a project's own file may set it."""
    return meaning(name).project
