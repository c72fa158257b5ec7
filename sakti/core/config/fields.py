"""Define every setting: type, default, help, bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from sakti.core.config.hooks import HookSettings
from sakti.core.config.meaning import setting
from sakti.core.config.providers import ProviderSettings
from sakti.core.config.reading import shown
from sakti.core.resources import mode_names
from sakti.core.types import Effort

ApprovalMode: TypeAlias = Literal["plan", "ask", "edits", "auto"]
# What a session may be in: `full` is asked for at its start only, and is in no setting.
SessionMode: TypeAlias = Literal["plan", "ask", "edits", "auto", "full"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("plan", "ask", "edits", "auto")  # from strict to free
MAX_OUTPUT_TOKENS = 100_000  # of an Observer's or a Reflector's answer

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=://)|(?:file|sqlite)(?=:)", re.IGNORECASE)


def refuse_mode(name: str) -> str:
    """Return why there is no such mode, with those that exist; empty if there is one."""
    names = mode_names()
    return "" if name in names else f"there is no mode {shown(name)}; there are {', '.join(names)}."


def _refuse_url(path: str) -> str:
    scheme = _URL.match(path)
    if scheme is None:
        return ""
    # only the scheme is repeated: the rest may hold a password
    return f"a {scheme[0].lower()} URL cannot name the database: it is a file, so write its path."


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
        make=dict[str, Any], help="Extra fields for the body of its requests.", at_once=True
    )


@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """Settings of observation; fractions are of the message threshold."""

    message_tokens: int = _memory(
        30_000, "Tokens of messages at which they are observed.", above=0, project=(2_000, 200_000)
    )
    buffer_tokens: float | Literal[False] = _memory(
        0.2,
        "Tokens after which the Observer works in the background, or a fraction; false: never.",
        project=(0.05, 200_000),
    )
    buffer_activation: float = _memory(
        0.8,
        "Share of the messages that leaves the window at activation, or tokens (1000 and more) that stay.",
        project=(0.05, 200_000),
    )
    block_after: float = _memory(
        1.2,
        "When a step waits for the Observer: a factor of the threshold below 100, or tokens.",
        project=(1, 1_000_000),
    )
    previous_observer_tokens: int = _memory(
        2_000, "Tokens of the log's end that the Observer is shown.", low=0, project=(0, 20_000)
    )
    model: str | tuple[str, ...] | None = setting(
        None, 'Model that observes, or several, tried in order; "provider/name <= TOKENS" for inputs up to so many.',
        at_once=True,
    )  # fmt: skip
    model_settings: ModelSettings = ModelSettings(temperature=0.3, thinking_tokens=215)


@dataclass(frozen=True, slots=True)
class ReflectionSettings:
    """Settings of reflection; fractions are of the observation threshold."""

    observation_tokens: int = _memory(
        40_000, "Tokens of the log at which it is condensed.", above=0, project=(2_000, 200_000)
    )
    buffer_activation: float = _memory(
        0.5,
        "Share of the threshold at which the Reflector works in the background.",
        above=0,
        high=1,
        project=(0.05, 1),
    )
    block_after: float = _memory(
        1.2,
        "When a step waits for the Reflector: a factor of the threshold below 100, or tokens.",
        project=(1, 1_000_000),
    )
    model: str | tuple[str, ...] | None = setting(
        None, "Model that condenses the log, or several, tried in order; the Observer's where none is named.",
        at_once=True,
    )  # fmt: skip
    model_settings: ModelSettings = ModelSettings(temperature=0.0, thinking_tokens=1_024)


@dataclass(frozen=True, slots=True)
class WorkingMemorySettings:
    """Settings of the two pages of stable facts; files are relative to the workspace."""

    schema: str | None = setting(None, "File with the JSON Schema that pages follow; none: Markdown.", project=True)
    enabled: bool = setting(True, "Whether pages are sent and written.", project=True)
    scope: Literal["resource", "thread"] = setting(
        "resource", "The page that notes and updates go to: the workspace's or the thread's own.", project=True
    )
    template: str | None = setting(None, "Markdown file that a page begins as.", project=True)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    enabled: bool = _memory(True, "Whether messages are observed; false: the newest ones are sent.")
    model: str | None = setting(
        None, 'Model for Observer and Reflector at once; "extractive" asks no model.', at_once=True
    )
    scope: Literal["thread", "resource"] = _memory("thread", "One log a thread, or one for all of the workspace.")
    share_token_budget: bool = _memory(False, "Whether messages and log share the sum of their thresholds.")
    retrieval: bool = _memory(True, "Whether the model may recall the messages behind a line.")
    activate_after_idle: str | int | Literal[False] = _memory(
        "auto",
        'Pause after which buffered groups are activated ("5m", ms); auto: when the prompt cache is gone.',
        project=(1_000, 86_400_000),
    )
    carry_over: int = _memory(
        1_500, "Tokens of what the workspace knows that a new thread begins with.", low=0, project=(0, 10_000)
    )
    read_only: bool = setting(False, "Save nothing: work on a copy in memory, observe nothing (--no-save).")
    thread_title: bool = _memory(True, "Whether the Observer names threads.")
    last_messages: int | None = _memory(
        None, "Messages that are sent with memory off; none: the mode's.", above=0, project=(1, 1_000)
    )
    observe_on_exit: bool = _memory(False, "Whether what is pending is observed before the program ends.")
    observation: ObservationSettings = setting(make=ObservationSettings)
    reflection: ReflectionSettings = setting(make=ReflectionSettings)
    working_memory: WorkingMemorySettings = setting(make=WorkingMemorySettings)


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """Settings of approvals; a rule is `tool`, `tool(pattern)`, a glob over the path, or `bash: words`."""

    mode: ApprovalMode = setting(
        "ask", "What may run without asking; a project may make it stricter only.", project=True, at_once=True
    )
    allow: tuple[str, ...] = setting((), 'Rules for calls that need no question, as "bash: git fetch".')
    ask: tuple[str, ...] = setting((), "Rules for calls that are always asked about.", project=True)
    deny: tuple[str, ...] = setting((), "Rules for calls that are refused, whatever else allows them.", project=True)


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of what encloses commands; only the user's own, as a project could only widen it."""

    enabled: Literal["auto", "off"] = setting(
        "auto", "Whether commands run in the sandbox where this machine has one; without it there is no mode auto."
    )
    env: tuple[str, ...] = setting((), "Names of variables that commands get beside the usual ones.")
    hosts: tuple[str, ...] = setting(
        (), "Hosts that commands may reach from inside, as example.org, *.example.org or example.org:8443."
    )
    write: tuple[str, ...] = setting((), "Folders that commands may change beside the workspace, as ~/.cache/pip.")


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
    effort: Effort = setting("medium", "Thinking effort of models that think.", at_once=True)
    max_output_tokens: int | None = setting(
        None, "Maximum tokens of one answer; none: the model's own maximum.", at_once=True, above=0
    )
    thinking_tokens: int | None = setting(
        None, "Thinking budget in tokens, for models that take one; none: from the effort.", at_once=True
    )
    max_processor_retries: int = setting(3, "How often a processor may request another answer.", at_once=True, low=0)
    tool_output_bytes: int = setting(30_000, "Maximum bytes of a tool's output that the model sees.", above=0)
    bash_timeout: int = setting(120, "Default timeout of a command in seconds.", above=0)
    checkpoints: bool = setting(True, "Keep what calls do to files, so that /undo restores them.")


@dataclass(frozen=True, slots=True)
class UiSettings:
    theme: str = setting("sakti-dark", "Name of the theme.", at_once=True)
    sidebar_width: int | None = setting(
        None, "Columns of the panes; none: 36 to 56, as the screen allows.", at_once=True, low=24, high=120
    )
    mouse: bool = setting(True, "false leaves the mouse to the terminal.")
    reduced_motion: bool = setting(False, "true: no blinking, no animation.", at_once=True)
    notify: Literal["off", "bell", "desktop"] = setting(
        "bell", "How sakti notifies you when an approval waits or a long turn has ended out of sight.", at_once=True
    )
    vim_keys: bool = setting(False, "vim's keys in the prompt: Esc for normal mode, i to type.", at_once=True)
    plain: bool = setting(False, "The chat line by line, for screen readers (--plain).")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    path: str | None = setting(None, "File of the database (SAKTI_DB).", refuse=_refuse_url)
    synchronous: Literal["FULL", "NORMAL"] = setting("FULL", "How SQLite syncs; NORMAL may lose the last second.")
    wait: float = setting(90.0, "Maximum seconds that a write waits for another process.", low=0)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    model: str | None = setting(None, 'Model that answers, as "provider/name".')
    fallback_model: str | None = setting(
        None, "Model for the rest of a turn when `model` stays overloaded.", at_once=True
    )
    title_model: str | None = setting(
        None, "Model that names a thread after its first answer; none: the first line, then the Observer.", at_once=True
    )
    processors: tuple[str, ...] = setting(
        (), "Processors of every turn, by name, in order: built in, or of an installed package."
    )
    hooks: tuple[HookSettings, ...] = setting(
        (), "Commands that run at events, as tables [[hooks]] with event, match, command, timeout, write."
    )
    mode: str = setting("default", "What the Observer looks for.", project=True, at_once=True, refuse=refuse_mode)
    memory: MemorySettings = setting(make=MemorySettings)
    approval: ApprovalSettings = setting(make=ApprovalSettings)
    sandbox: SandboxSettings = setting(make=SandboxSettings)
    agent: AgentSettings = setting(make=AgentSettings)
    ui: UiSettings = setting(make=UiSettings)
    store: StoreSettings = setting(make=StoreSettings)
    keys: Mapping[str, Any] = setting(
        make=dict[str, Any], help='Keys of your own by the id that F1 shows, as "app.search" = "ctrl+l".'
    )
    providers: Mapping[str, ProviderSettings] = setting(make=dict[str, ProviderSettings])
