"""Settings: defaults, the user's file, the project's file, the environment, the command line; later wins.

    $XDG_CONFIG_HOME/sakti/config.toml      [memory.observation] message_tokens = 20_000
    .sakti/config.toml                      the same names, but see project_may_set
    SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS=20000
    -o memory.observation.message_tokens=20000

`load` returns a frozen `Config` and, for each setting that is not at its default, where it comes from.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sakti.core.errors import ConfigError
from sakti.core.provider_settings import ProviderSettings
from sakti.core.types import Effort

ApprovalMode: TypeAlias = Literal["plan", "ask", "edits", "auto"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("plan", "ask", "edits", "auto")  # from strict to free


MAX_OUTPUT_TOKENS = 100_000  # of an Observer's or a Reflector's answer


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How a model that works for memory is asked; what it does not take is left out. Tokens; None: the API's own.
    `extra` goes into the body of the request as it stands."""

    temperature: float | None = None
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    thinking_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def model_choices(value: str | tuple[str, ...] | None) -> tuple[tuple[str, int | None], ...]:
    """(model, tokens that its inputs have at most, None: any) of a setting that names one model or several. Raises
    `ConfigError` for a limit that is none."""
    out: list[tuple[str, int | None]] = []
    for text in (value,) if isinstance(value, str) else value or ():
        name, sep, limit = (part.strip() for part in text.partition("<="))
        digits = limit.replace("_", "").replace(",", "")
        if not name or (sep and not (digits.isdecimal() and int(digits) > 0)):
            raise ConfigError(f'{text!r} is no model: write "provider/name", or "provider/name <= 20_000" (tokens).')
        out.append((name, int(digits) if sep else None))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """Numbers as in docs; fractions are of the message threshold. `model`: one, or several that are tried in order,
    each also as "provider/name <= TOKENS": for inputs of at most so many."""

    message_tokens: int = 30_000
    buffer_tokens: float | Literal[False] = 0.2
    buffer_activation: float = 0.8
    block_after: float = 1.2
    previous_observer_tokens: int = 2_000
    model: str | tuple[str, ...] | None = None
    model_settings: ModelSettings = ModelSettings(temperature=0.3, thinking_tokens=215)


@dataclass(frozen=True, slots=True)
class ReflectionSettings:
    observation_tokens: int = 40_000
    buffer_activation: float = 0.5
    block_after: float = 1.2
    model: str | tuple[str, ...] | None = None
    model_settings: ModelSettings = ModelSettings(temperature=0.0, thinking_tokens=1_024)


@dataclass(frozen=True, slots=True)
class WorkingMemorySettings:
    """`schema`: a file with the JSON schema that pages follow, none: Markdown; `template`: a Markdown file that a page
    begins as; both relative to the workspace. `scope`: the page that notes and updates go to by default."""

    schema: str | None = None
    enabled: bool = True
    scope: Literal["resource", "thread"] = "resource"
    template: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`model` sets the Observer's and the Reflector's at once; "extractive" asks no model at all."""

    enabled: bool = True
    model: str | None = None
    scope: Literal["thread", "resource"] = "thread"
    share_token_budget: bool = False
    retrieval: bool = True
    activate_after_idle: str | int | Literal[False] = "auto"
    carry_over: int = 1_500
    read_only: bool = False
    thread_title: bool = True
    last_messages: int | None = None
    observe_on_exit: bool = False
    observation: ObservationSettings = field(default_factory=ObservationSettings)
    reflection: ReflectionSettings = field(default_factory=ReflectionSettings)
    working_memory: WorkingMemorySettings = field(default_factory=WorkingMemorySettings)


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """Rules are written `tool` or `tool(pattern)`, the pattern a glob over the path or the command."""

    mode: ApprovalMode = "ask"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`effort`: how much a model that thinks shall think; `thinking_tokens`: the budget of those that take a number,
    where it is not to follow from that. `max_output_tokens`: of one answer, None: the model's own maximum. What one
    turn may take: `max_steps` model calls, `max_seconds`, `max_tokens` (in and out of all its calls), `max_usd`; None:
    no limit."""

    max_steps: int = 200
    max_seconds: float | None = None
    max_tokens: int | None = None
    max_usd: float | None = None
    effort: Effort = "medium"
    max_output_tokens: int | None = None
    thinking_tokens: int | None = None
    max_processor_retries: int = 3
    tool_output_bytes: int = 30_000
    bash_timeout: int = 120


@dataclass(frozen=True, slots=True)
class UiSettings:
    """`notify`: how the terminal calls when it is not in sight and an approval waits or a long turn has ended.
    `reduced_motion`: nothing blinks or glides. `mouse = false` leaves the mouse to the terminal. `plain`: the chat line
    by line, for screen readers."""

    theme: str = "sakti-dark"
    sidebar_width: int = 38
    mouse: bool = True
    reduced_motion: bool = False
    notify: Literal["off", "bell", "desktop"] = "bell"
    plain: bool = False


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`wait`: seconds that a write waits at most for another process that writes."""

    path: str | None = None
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    wait: float = 90.0


@dataclass(frozen=True, slots=True)
class Config:
    """`fallback_model` answers the rest of a turn when `model` stays overloaded; also written model.fallback."""

    model: str | None = None
    fallback_model: str | None = None
    mode: str = "default"
    memory: MemorySettings = field(default_factory=MemorySettings)
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])


# What a project's own file may set. Nothing in it can run code, send text elsewhere or loosen an approval:
# a repository that was just cloned is not yet to be trusted.
# Other ways to write a setting: `[model] name =, fallback =`.
_ALIASES = {"model.name": "model", "model.fallback": "fallback_model"}
# What only the program may say in the body of a request.
_NOT_EXTRA = ("messages", "input", "system", "instructions", "model", "stream")
PROJECT_MAY_SET = ("agent.max_steps", "mode", "approval.mode", "approval.ask", "approval.deny")


def project_may_set(name: str) -> bool:
    if name in PROJECT_MAY_SET:
        return True
    # who opens a project must not lose a day's work because its file says that nothing is kept
    ending = name.rpartition(".")[2]
    return name.startswith("memory.") and ending != "model" and ".extra" not in name and name != "memory.read_only"


@dataclass(frozen=True, slots=True)
class Loaded:
    """`origins` maps a dotted name to where its value was set; `warnings` are sentences for the user."""

    config: Config
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def load(
    *,
    user_file: Path | None = None,
    project_file: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Loaded:
    """Merge all sources. Raises `ConfigError` naming the source and the setting for anything unknown, of the
    wrong type or contradictory."""
    config, origins, warnings = Config(), dict[str, str](), list[str]()
    for name, value, origin in _sources(user_file, project_file, env or {}, overrides, warnings):
        if (
            origin == str(project_file)
            and name == "approval.mode"
            and (
                value not in APPROVAL_MODES or APPROVAL_MODES.index(value) > APPROVAL_MODES.index(config.approval.mode)
            )
        ):
            warnings.append(f"{origin}: approval.mode = {value!r} would loosen your approvals and is not used.")
            continue
        if origin == str(project_file) and name in ("approval.ask", "approval.deny"):
            value = [*_get(config, name), *_as_list(value)]
        config = replace_setting(config, name, value, origin)
        origins[_ALIASES.get(name, name)] = origin
    check(config)
    return Loaded(config, origins, tuple(warnings))


def _sources(
    user_file: Path | None,
    project_file: Path | None,
    env: Mapping[str, str],
    overrides: Sequence[str],
    warnings: list[str],
) -> Iterator[tuple[str, Any, str]]:
    if user_file is not None and user_file.is_file():
        for name, value in _flatten(_read_toml(user_file)):
            yield name, value, str(user_file)
    if project_file is not None and project_file.is_file():
        for name, value in _flatten(_read_toml(project_file)):
            if project_may_set(name):
                yield name, value, str(project_file)
            else:
                warnings.append(f"{project_file}: a project may not set {name}; put it into your own config.toml.")
    for key, value in sorted(env.items()):
        if key.startswith("SAKTI_") and "__" in key:
            yield key[6:].lower().replace("__", "."), _literal(value), key
        elif key in ("SAKTI_MODEL", "SAKTI_MODE"):
            yield key[6:].lower(), value, key
        elif key == "SAKTI_DB" and value:
            yield "store.path", value, key
    for text in overrides:
        name, sep, value = text.partition("=")
        if not sep:
            raise ConfigError(f"-o takes name=value, not {text!r}.")
        yield name.strip(), _literal(value.strip()), f"-o {name.strip()}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise ConfigError(f"{path} cannot be read: {e}. Mend it or move it away.") from e


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and key != "extra":
            yield from _flatten(typing.cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _literal(text: str) -> Any:
    """A value as TOML writes it; what TOML cannot read is a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def names(kind: type = Config, prefix: str = "") -> Iterator[str]:
    """Every setting's dotted name, without the free names under `providers`."""
    for f in dataclasses.fields(kind):
        target = typing.get_type_hints(kind)[f.name]
        if dataclasses.is_dataclass(target) and isinstance(target, type):
            yield from names(target, f"{prefix}{f.name}.")
        elif f.name != "providers":
            yield f"{prefix}{f.name}"


def replace_setting(config: Config, name: str, value: Any, origin: str = "setting") -> Config:
    """`config` with one dotted name set; the value is checked against the field's type."""
    return _replace(config, _ALIASES.get(name, name).split("."), value, name, origin)


def _replace(node: Any, path: list[str], value: Any, name: str, origin: str) -> Any:
    head, *rest = path
    hints: dict[str, Any] = typing.get_type_hints(node.__class__)
    if head not in hints:
        near = difflib.get_close_matches(name, list(names()), 1)
        hint = f" Did you mean {near[0]}?" if near else " `sakti config` lists them."
        raise ConfigError(f"{origin}: there is no setting {name!r}.{hint}")
    if head == "providers" and isinstance(node, Config):
        if len(rest) != 2 and rest[1:2] != ["extra"]:
            raise ConfigError(f"{origin}: write it as providers.NAME.SETTING, for example providers.ollama.base_url.")
        current = node.providers.get(rest[0], ProviderSettings())
        changed = _replace(current, rest[1:], value, name, origin)
        return dataclasses.replace(node, providers={**node.providers, rest[0]: changed})
    child = getattr(node, head)
    if dataclasses.is_dataclass(child):
        if not rest:
            raise ConfigError(f"{origin}: {name} is a group of settings; name one of them.")
        return dataclasses.replace(node, **{head: _replace(child, rest, value, name, origin)})
    if rest and isinstance(child, Mapping):
        inner = typing.cast("Mapping[str, Any]", child)
        return dataclasses.replace(node, **{head: {**inner, ".".join(rest): value}})
    if rest:
        raise ConfigError(f"{origin}: there is no setting {name!r}. `sakti config` lists them.")
    return dataclasses.replace(node, **{head: _coerce(value, hints[head], name, origin)})


def _coerce(value: Any, hint: Any, name: str, origin: str) -> Any:
    origin_type = typing.get_origin(hint)
    if origin_type in (typing.Union, types.UnionType):
        for option in typing.get_args(hint):
            try:
                return _coerce(value, option, name, origin)
            except ConfigError:
                continue
    elif origin_type is Literal:
        if any(value == option and type(value) is type(option) for option in typing.get_args(hint)):
            return value
    elif origin_type is tuple:
        if all(isinstance(v, str) for v in _as_list(value)):
            return tuple(str(v) for v in _as_list(value))
    elif origin_type is Mapping:
        if isinstance(value, dict):
            return typing.cast("dict[str, Any]", value)
    elif hint is type(None):
        if value is None or value == "none":
            return None
    elif hint is bool:
        if isinstance(value, bool):
            return value
    elif hint in (int, float):
        if isinstance(value, int | float) and not isinstance(value, bool) and hint(value) == value:
            return hint(value)
    elif hint is str and isinstance(value, str):
        return value
    raise ConfigError(f"{origin}: {name} cannot be {value!r}; it takes {_describe(hint)}.")


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Mapping:
        return "a table, as in {top_k = 40}"
    if typing.get_origin(hint) is Literal:
        return " or ".join(
            repr(option).lower() if isinstance(option, bool) else repr(option) for option in typing.get_args(hint)
        )
    if args := typing.get_args(hint):
        return " or ".join(_describe(a) for a in args if a is not Ellipsis)
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): '"none"'}.get(
        hint, str(hint)
    )


def _as_list(value: Any) -> list[Any]:
    return list(typing.cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]


def _get(config: Config, name: str) -> Any:
    node: Any = config
    for part in name.split("."):
        node = getattr(node, part)
    return node


def flat(config: Config) -> dict[str, Any]:
    """Every setting's dotted name and value, for `sakti config`."""
    out = {name: _get(config, name) for name in names()}
    for provider, settings in config.providers.items():
        for f in dataclasses.fields(settings):
            out[f"providers.{provider}.{f.name}"] = getattr(settings, f.name)
    return out


def check(config: Config) -> None:
    """Refuse settings that contradict each other, naming both."""
    memory = config.memory
    _check_limits(config.agent)
    for provider, own in config.providers.items():
        _check_extra(f"providers.{provider}.extra", own.extra)
    observation, reflection = memory.observation, memory.reflection
    if memory.working_memory.schema is not None and memory.working_memory.template is not None:
        raise ConfigError(
            "memory.working_memory.schema and memory.working_memory.template are both set: a page with a schema is "
            "JSON, a template is Markdown; keep one of them."
        )
    for name, model in (("observation", observation.model), ("reflection", reflection.model)):
        model_choices(model)
        if memory.model is not None and model is not None:
            raise ConfigError(
                f"memory.model and memory.{name}.model are both set: memory.model sets both roles, keep one of them."
            )
    for name, value in (
        ("memory.observation.message_tokens", observation.message_tokens),
        ("memory.reflection.observation_tokens", reflection.observation_tokens),
    ):
        if value <= 0:
            raise ConfigError(f"{name} = {value} must be above 0.")
    buffer = observation.buffer_tokens
    if buffer is not False:
        resolved = buffer * observation.message_tokens if 0 < buffer < 1 else buffer
        if not 0 < resolved < observation.message_tokens:
            raise ConfigError(
                f"memory.observation.buffer_tokens = {buffer} must come to less than "
                f"memory.observation.message_tokens = {observation.message_tokens}, and to more than 0."
            )
    if config.store.wait < 0:
        raise ConfigError(f"store.wait = {config.store.wait} must be at least 0 seconds.")
    keep = observation.buffer_activation
    if not (0 < keep <= 1 or keep >= 1000):
        raise ConfigError(
            f"memory.observation.buffer_activation = {keep} must be a share (0 to 1) or at least 1000 tokens to keep."
        )
    if keep >= observation.message_tokens:
        raise ConfigError(
            f"memory.observation.buffer_activation = {keep} keeps more than "
            f"memory.observation.message_tokens = {observation.message_tokens} lets in."
        )
    for name, value, threshold in (
        ("memory.observation.block_after", observation.block_after, observation.message_tokens),
        ("memory.reflection.block_after", reflection.block_after, reflection.observation_tokens),
    ):
        if value < 1 or 100 <= value < threshold:
            raise ConfigError(
                f"{name} = {value} must be a factor from 1 to 100 or at least the threshold of {threshold} tokens."
            )
    for role, settings in (("observation", observation.model_settings), ("reflection", reflection.model_settings)):
        _check_model_settings(f"memory.{role}.model_settings", settings)
    if not 0 < reflection.buffer_activation <= 1:
        raise ConfigError(
            f"memory.reflection.buffer_activation = {reflection.buffer_activation} must be a share from 0 to 1."
        )


def _check_limits(agent: AgentSettings) -> None:
    for name, value in (
        ("max_steps", agent.max_steps),
        ("max_seconds", agent.max_seconds),
        ("max_tokens", agent.max_tokens),
        ("max_usd", agent.max_usd),
        ("max_output_tokens", agent.max_output_tokens),
    ):
        if value is not None and value <= 0:
            raise ConfigError(f'agent.{name} = {value} must be above 0; "none" is no limit.')


def _check_extra(name: str, extra: Mapping[str, Any]) -> None:
    for key in _NOT_EXTRA:
        if key in extra:
            raise ConfigError(f"{name} may not set {key!r}: that is what a request is made of.")


def _check_model_settings(name: str, settings: ModelSettings) -> None:
    _check_extra(f"{name}.extra", settings.extra)
    if settings.temperature is not None and not 0 <= settings.temperature <= 2:
        raise ConfigError(f"{name}.temperature = {settings.temperature} must be from 0 to 2.")
    if not 1_000 <= settings.max_output_tokens <= MAX_OUTPUT_TOKENS:
        raise ConfigError(
            f"{name}.max_output_tokens = {settings.max_output_tokens} must be from 1000 to {MAX_OUTPUT_TOKENS}."
        )
    if settings.thinking_tokens is not None and not 0 <= settings.thinking_tokens < settings.max_output_tokens:
        raise ConfigError(
            f"{name}.thinking_tokens = {settings.thinking_tokens} must be less than "
            f"{name}.max_output_tokens = {settings.max_output_tokens}, 0 for none."
        )
