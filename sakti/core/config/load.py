"""Load settings from defaults, user file, project file, environment and command line; later wins.

    $XDG_CONFIG_HOME/sakti/config.toml      [memory.observation] message_tokens = 20_000
    .sakti/config.toml                      the same names, but see project_may_set
    SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS=20000
    -o memory.observation.message_tokens=20000

`load` returns a frozen `Config` and, for each setting that is not at its default, its source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from sakti.core.config.check import check
from sakti.core.config.fields import APPROVAL_MODES, Config, Meaning, ProviderSettings, of_field
from sakti.core.config.reading import SERVERS, TABLES, literal, parse, read_table, show_value
from sakti.core.errors import ConfigError
from sakti.core.text import one_line

# Other ways to write a setting: `[model] name =, fallback =`.
_ALIASES = {"model.name": "model", "model.fallback": "fallback_model"}
_NARROWS = (  # numbers that a project may only lower
    *("agent.max_steps", "subagents.max_threads", "subagents.max_steps"),
    *("subagents.max_tokens", "subagents.max_usd", "goal.max_turns", "goal.max_usd"),
)
_STRICT_FIRST = {"approval.mode": APPROVAL_MODES, "subagents.use": ("off", "asked", "free")}  # only stricter ones
_ELSEWHERE = ("hooks", SERVERS)  # of a project: read with its other files of that kind, where it is trusted
LONGEST_TEXT, MOST_RULES = 1_000, 100  # characters of a project's text, rules that it may add


MOST = 5  # warnings about one project's file
MASK = "•••"


class SourcedSetting(NamedTuple):
    """A setting as a source has it."""

    name: str
    value: Any
    origin: str


class LoadedConfig(Struct, frozen=True):
    """Merged settings, their origins and warnings.

    `origins` maps a dotted name to its source; `warnings` are sentences for the user; `changed` holds what would have
    another value without the project's file.
    """

    config: Config
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    changed: Mapping[str, Any] = field(default_factory=dict[str, Any])


def load(
    *,
    user_file: Path | None = None,
    project_file: Path | None = None,
    project_bytes: bytes | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    usable: Callable[[str, Any], str] = lambda name, value: "",
) -> LoadedConfig:
    """Merge all sources into one `Config`.

    `project_bytes` is what the project's file holds, where it was read before. `usable` says why a value of the
    project's cannot be used, empty where it can.

    Raises `ConfigError`, naming the source and the setting, for anything unknown, of the wrong type or contradictory
    in the user's own sources. What is wrong in the project's file is left out with a warning: a folder must not keep
    the program from starting.
    """
    user_values = [
        SourcedSetting(name, value, str(user_file))
        for name, value in (read_table(user_file) if user_file else {}).items()
    ]
    later = list(_above_files(env or {}, overrides))
    warnings: list[str] = []
    offered: list[SourcedSetting] = []
    if project_file is not None:
        offered = _of_project(project_file, project_bytes, _merge_settings(user_values)[0], usable, warnings)
        offered = _without_contradictions(user_values, offered, later, warnings)
        if len(warnings) > MOST:
            warnings[MOST:] = [f"{project_file}: {len(warnings) - MOST} more settings are not used."]
    config, origins = _merge_settings((*user_values, *offered, *later))
    check(config)
    return LoadedConfig(
        config, origins, tuple(warnings), _project_changes(config, (*user_values, *later)) if offered else {}
    )


def _above_files(env: Mapping[str, str], overrides: Sequence[str]) -> Iterator[SourcedSetting]:
    for key, value in sorted(env.items()):
        if key.startswith("SAKTI_") and "__" in key:
            yield SourcedSetting(key[6:].lower().replace("__", "."), literal(value), key)
        elif key in ("SAKTI_MODEL", "SAKTI_MODE"):
            yield SourcedSetting(key[6:].lower(), value, key)
        elif key == "SAKTI_DB" and value:
            yield SourcedSetting("store.path", value, key)
    for text in overrides:
        name, sep, value = text.partition("=")
        if not sep:
            raise ConfigError(f"-o takes name=value, not {text!r}.")
        yield SourcedSetting(name.strip(), literal(value.strip()), f"-o {name.strip()}")


def _merge_settings(settings: Iterable[SourcedSetting]) -> tuple[Config, dict[str, str]]:
    config, origins = Config(), dict[str, str]()
    for name, value, origin in settings:
        config = replace_setting(config, name, value, origin)
        origins[_ALIASES.get(name, name)] = origin
    return config, origins


# --- what a project says --------------------------------------------------------------------------------------------


def _of_project(
    path: Path, data: bytes | None, config: Config, usable: Callable[[str, Any], str], warnings: list[str]
) -> list[SourcedSetting]:
    """Return the project's settings that are good, each on its own, after the user's file made `config`."""
    try:
        table = read_table(path) if data is None else parse(data, path)
    except ConfigError as e:
        warnings.append(f"{e.message} Its settings are not used.")
        return []
    out: list[SourcedSetting] = []
    for name, value in table.items():
        if name in _ELSEWHERE:
            continue
        why = _reason_to_ignore(name, value, config, str(path)) or usable(name, value)
        if why:
            warnings.append(why if why.startswith(str(path)) else f"{path}: {why}")
            continue
        if name in ("approval.ask", "approval.deny"):
            value = [*_get(config, name), *([value] if isinstance(value, str) else value)]
        out.append(SourcedSetting(name, value, str(path)))
    return out


def _reason_to_ignore(name: str, value: Any, config: Config, origin: str) -> str:
    """Return why a project's setting is ignored, "" if it is used: projects may only narrow settings."""
    label = one_line(name, 80)
    if not project_may_set(name):
        return f"a project may not set {label}; put it into your own config.toml."
    try:
        new_value = _get(replace_setting(config, name, value, origin), name)
    except ConfigError as e:
        return f"{e.message} It is not used."
    order = _STRICT_FIRST.get(name, ())
    if order and order.index(new_value) > order.index(old := _get(config, name)):
        return f"{name} = {new_value!r} is looser than your own setting ({old}) and is not used."
    return _reason_of_size(name, new_value, config)


def _reason_of_size(name: str, value: Any, config: Config) -> str:
    """Return why a project's number, text or list of rules is too large to be used, or ""."""
    bounds = meaning(name).project_bounds
    if bounds is not None and isinstance(value, int | float) and not isinstance(value, bool):
        low, high = bounds
        if name in _NARROWS:
            high = min(high, _get(config, name))
        if not low <= value <= high:
            return f"{name} = {show_value(value)} is not used; a project may set {low:g} to {high:.10g}."
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{name} is not used: it has more than {LONGEST_TEXT} characters."
    rules = typing.cast("tuple[str, ...]", value) if isinstance(value, tuple) else ()
    if len(rules) > MOST_RULES or any(len(rule) > LONGEST_TEXT for rule in rules):
        return f"{name} is not used: at most {MOST_RULES} rules of {LONGEST_TEXT} characters each."
    return ""


def _without_contradictions(
    own: Sequence[SourcedSetting],
    offered: Sequence[SourcedSetting],
    later: Sequence[SourcedSetting],
    warnings: list[str],
) -> list[SourcedSetting]:
    """Leave out project settings that contradict others; the user's settings win."""
    if not _contradiction((*own, *offered, *later)) or _contradiction((*own, *later)):
        return list(offered)
    good: list[SourcedSetting] = []
    for one in offered:
        if why := _contradiction((*own, *good, one, *later)):
            warnings.append(f"{one.origin}: {one.name} is not used. {why}")
        else:
            good.append(one)
    return good


def _contradiction(settings: Iterable[SourcedSetting]) -> str:
    try:
        check(_merge_settings(settings)[0])
    except ConfigError as e:
        return e.message
    return ""


def _project_changes(config: Config, without: Iterable[SourcedSetting]) -> dict[str, Any]:
    before = flat(_merge_settings(without)[0])
    return {name: value for name, value in flat(config).items() if value != before.get(name)}


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
    name = _ALIASES.get(name, name)
    if name.startswith("providers."):
        name = ".".join(["providers", "*", *name.split(".")[2:3]])
    entry = _meanings().get(name)
    if entry is None and ".extra." in name:
        entry = _meanings().get(f"{name.partition('.extra.')[0]}.extra")
    return entry or Meaning()


def project_may_set(name: str) -> bool:
    """Return whether a project's own file may set it."""
    return meaning(name).project


def replace_setting(config: Config, name: str, value: Any, origin: str = "setting") -> Config:
    """Return `config` with one dotted name set; the value is checked against the field's type."""
    return _replace(config, _ALIASES.get(name, name).split("."), value, name, origin)


def _replace(node: Any, path: list[str], value: Any, name: str, origin: str) -> Any:
    head, *rest = path
    hint = typing.get_type_hints(node.__class__).get(head)
    if hint is None:
        near = difflib.get_close_matches(name, list(names()), 1)
        advice = f" Did you mean {near[0]}?" if near else " `sakti config` lists them."
        raise ConfigError(f"{origin}: unknown setting {show_value(name)}.{advice}")
    child = getattr(node, head)
    if head == "providers" and isinstance(node, Config):
        new: Any = _replace_provider(node.providers, rest, value, name, origin)
    elif dataclasses.is_dataclass(child):
        if not rest:
            raise ConfigError(f"{origin}: {name} is a group of settings; name one of them.")
        new = _replace(child, rest, value, name, origin)
    elif rest and isinstance(child, Mapping):
        key, value = (".".join(rest), value) if head != SERVERS else _replace_field(node.mcp, rest, value)
        table = _convert({key: value}, hint, name.removesuffix(f".{key}"), origin)
        new = {**typing.cast("Mapping[str, Any]", child), **table}
    elif rest:
        raise ConfigError(f"{origin}: unknown setting {show_value(name)}. `sakti config` lists them.")
    else:
        (target,) = (f for f in dataclasses.fields(node) if f.name == head)
        new = _check_bounds(of_field(target), _convert(value, hint, name, origin), name, origin)
    return dataclasses.replace(node, **{head: new})


def _replace_field(servers: Mapping[str, Any], path: list[str], value: Any) -> tuple[str, Any]:
    """Return the name of an MCP server and its table with another value of the field that `path` names."""
    name, *field = path
    table = servers.get(name)
    fields = typing.cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    return name, {**fields, ".".join(field): value} if field else value


def _replace_provider(
    providers: Mapping[str, ProviderSettings], path: list[str], value: Any, name: str, origin: str
) -> Mapping[str, ProviderSettings]:
    if len(path) < 2 or (len(path) > 2 and path[1] not in TABLES):
        raise ConfigError(f"{origin}: write it as providers.NAME.SETTING, for example providers.ollama.base_url.")
    settings = providers.get(path[0], ProviderSettings())
    return {**providers, path[0]: _replace(settings, path[1:], value, name, origin)}


def _check_bounds(meaning: Meaning, value: Any, name: str, origin: str) -> Any:
    """Return `value` if its setting allows it. Raises ConfigError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and not meaning.allows(value):
        raise ConfigError(f"{origin}: {name} = {show_value(value)} must be {meaning.bounds}.")
    if reason := meaning.refuses(value):
        raise ConfigError(f"{origin}: {reason}")
    return value


def _convert(value: Any, hint: Any, name: str, origin: str) -> Any:
    """Convert a value to a setting's type. Raises ConfigError."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) is Mapping and kinds[1] is not Any and isinstance(value, dict):
        table = typing.cast("dict[str, Any]", value)
        return {key: _convert(v, kinds[1], f"{name}.{key}", origin) for key, v in table.items()}
    if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(kinds[0]) and isinstance(value, list | tuple):
        tables = enumerate(typing.cast("list[Any]", value), 1)
        return tuple(table_of(typing.cast("type", kinds[0]), v, f"{name}[{n}]", origin) for n, v in tables)
    for form in _forms(value):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(form, hint)
    raise ConfigError(f"{origin}: {name} cannot be {show_value(value)}; it takes {_describe(hint)}.")


def _forms(value: Any) -> Iterator[Any]:
    """Yield the possible meanings of a value: `"none"` is None, a text a list of one, `2e3` an integer."""
    if isinstance(value, float) and math.isnan(value):
        return
    yield value
    if isinstance(value, str):
        yield from (None, [value]) if value == "none" else ([value],)
    elif isinstance(value, float) and value.is_integer():
        yield int(value)


def table_of(kind: type, value: Any, name: str, origin: str) -> Any:
    """Return one of a list of tables as `kind`, a class of settings. Raises `ConfigError`."""
    if dataclasses.is_dataclass(value):
        return value
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise ConfigError(f"{origin}: {name} cannot be {show_value(value)}; it takes a table with {', '.join(hints)}.")
    table = typing.cast("dict[str, Any]", value)
    for key in table:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            hint = f" Did you mean {near[0]}?" if near else f" It takes {', '.join(hints)}."
            raise ConfigError(f"{origin}: {name} has no setting {show_value(key)}.{hint}")
    for f in dataclasses.fields(kind):
        if f.default is f.default_factory and f.name not in table:  # both are missing
            raise ConfigError(f"{origin}: {name} needs {f.name}.")
    return kind(**{key: _convert(v, hints[key], f"{name}.{key}", origin) for key, v in table.items()})


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Mapping:
        return "a table, as in {top_k = 40}"
    if typing.get_origin(hint) is Literal:
        return " or ".join(
            repr(option).lower() if isinstance(option, bool) else repr(option) for option in typing.get_args(hint)
        )
    if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(typing.get_args(hint)[0]):
        return "a list of tables"
    if args := typing.get_args(hint):
        return " or ".join(_describe(a) for a in args if a is not Ellipsis)
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): '"none"'}.get(
        hint, str(hint)
    )


def _get(config: Config, name: str) -> Any:
    node: Any = config
    for part in name.split("."):
        node = getattr(node, part)
    return node


def masked_value(name: str, value: Any) -> Any:
    """Return the value of a setting with secrets masked; the names in a secret table are kept."""
    if isinstance(value, str) and "://" in value:
        return re.sub(r"//[^/@]*@", f"//{MASK}@", re.sub(r"=[^&#]*", f"={MASK}", value))
    if not value or not meaning(name).secret:
        return value
    return dict.fromkeys(typing.cast("dict[str, Any]", value), MASK) if isinstance(value, dict) else MASK


def flat(config: Config) -> dict[str, Any]:
    """Map every setting's dotted name to its value, for `sakti config`."""
    out = {name: _get(config, name) for name in names()}
    for provider, settings in config.providers.items():
        for f in dataclasses.fields(settings):
            out[f"providers.{provider}.{f.name}"] = getattr(settings, f.name)
    return out
