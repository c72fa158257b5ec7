"""Load settings from defaults, user file, project file, environment and command line; later wins.

    $XDG_CONFIG_HOME/sakti/config.toml      [memory.observation] message_tokens = 20_000
    .sakti/config.toml                      the same names, but see project_may_set
    SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS=20000
    -o memory.observation.message_tokens=20000

`load` returns a frozen `Config` and, for each setting that is not at its default, its source.
"""

from __future__ import annotations

import difflib
import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field, structs
from msgspec.structs import replace

from sakti.core.config.check import check
from sakti.core.config.conversion import check_bounds, convert
from sakti.core.config.fields import (
    ALIASES,
    APPROVAL_MODES,
    Config,
    ProviderSettings,
    get_meaning,
    group_fields,
    iter_names,
    project_may_set,
)
from sakti.core.config.reading import SERVERS, TABLES, parse, parse_literal, read_table
from sakti.core.errors import ConfigError
from sakti.core.text import format_count, quote, show_value, to_one_line

_NARROWS = (  # numbers that a project may only lower
    *("agent.max_steps", "subagents.max_threads", "subagents.max_steps"),
    *("subagents.max_tokens", "subagents.max_usd", "goal.max_turns", "goal.max_usd"),
)
_STRICT_FIRST = {"approval.mode": APPROVAL_MODES, "subagents.use": ("off", "asked", "free")}  # stricter ones only
_READ_SEPARATELY = ("hooks", SERVERS)  # of a project: read with similar files once the project is trusted
LONGEST_TEXT, MOST_RULES = 1_000, 100  # limits of a project: characters of a text, number of rules
MOST_WARNINGS = 5  # warnings about one project's file
MASK = "•••"


class SourcedSetting(NamedTuple):
    """A setting as written in a source."""

    name: str
    value: Any
    origin: str


class LoadedConfig(Struct, frozen=True):
    """Merged settings, their origins and warnings.

    `origins` maps a dotted name to its source; `warnings` are sentences for the user; `changed` has the settings whose
    value the project's file changed.
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

    `project_bytes` are the bytes of the project's file if it was read before. `usable` returns why a project's value
    cannot be used, or "".

    Raises `ConfigError`, naming the source and the setting, for anything unknown, of the wrong type or contradictory
    in the user's own sources. A wrong setting in the project's file is ignored with a warning: a folder must not keep
    the program from starting.
    """
    user_values = [
        SourcedSetting(name, value, str(user_file))
        for name, value in (read_table(user_file) if user_file else {}).items()
    ]
    later = list(_iter_later_settings(env or {}, overrides))
    warnings: list[str] = []
    offered: list[SourcedSetting] = []
    if project_file is not None:
        offered = _select_project_settings(
            project_file, project_bytes, _merge_settings(user_values)[0], usable, warnings
        )
        offered = _drop_contradictions(user_values, offered, later, warnings)
        if (left_out := len(warnings) - MOST_WARNINGS) > 0:
            more = format_count(left_out, "more setting is", "more settings are")
            warnings[MOST_WARNINGS:] = [f"{project_file}: {more} not used."]
    config, origins = _merge_settings((*user_values, *offered, *later))
    check(config)
    return LoadedConfig(
        config, origins, tuple(warnings), _find_project_changes(config, (*user_values, *later)) if offered else {}
    )


def _iter_later_settings(env: Mapping[str, str], overrides: Sequence[str]) -> Iterator[SourcedSetting]:
    for key, value in sorted(env.items()):
        if key.startswith("SAKTI_") and "__" in key:
            yield SourcedSetting(key[6:].lower().replace("__", "."), parse_literal(value), key)
        elif key in ("SAKTI_MODEL", "SAKTI_MODE"):
            yield SourcedSetting(key[6:].lower(), value, key)
        elif key == "SAKTI_DB" and value:
            yield SourcedSetting("store.path", value, key)
    for text in overrides:
        name, sep, value = text.partition("=")
        if not sep:
            raise ConfigError(f"-o takes name=value, not {quote(text)}.")
        yield SourcedSetting(name.strip(), parse_literal(value.strip()), f"-o {name.strip()}")


def _merge_settings(settings: Iterable[SourcedSetting]) -> tuple[Config, dict[str, str]]:
    config, origins = Config(), dict[str, str]()
    for name, value, origin in settings:
        config = replace_setting(config, name, value, origin)
        origins[ALIASES.get(name, name)] = origin
    return config, origins


# --- a project's settings --------------------------------------------------------------------------------------------


def _select_project_settings(
    path: Path, data: bytes | None, config: Config, usable: Callable[[str, Any], str], warnings: list[str]
) -> list[SourcedSetting]:
    """Return the project settings that may extend `config`; adds to `warnings`."""
    try:
        table = read_table(path) if data is None else parse(data, path)
    except ConfigError as e:
        warnings.append(f"{e.message} Its settings are not used.")
        return []
    out: list[SourcedSetting] = []
    for name, value in table.items():
        if name in _READ_SEPARATELY:
            continue
        why = _explain_ignored(name, value, config, str(path)) or usable(name, value)
        if why:
            warnings.append(why if why.startswith(str(path)) else f"{path}: {why}")
            continue
        if name in ("approval.ask", "approval.deny"):
            value = [*_get(config, name), *([value] if isinstance(value, str) else value)]
        out.append(SourcedSetting(name, value, str(path)))
    return out


def _explain_ignored(name: str, value: Any, config: Config, origin: str) -> str:
    """Return why a project's setting is ignored, or "": projects may only narrow settings."""
    label = to_one_line(name, 80)
    if not project_may_set(name):
        return f"a project may not set {label}; put it into your own config.toml."
    try:
        new_value = _get(replace_setting(config, name, value, origin), name)
    except ConfigError as e:
        return f"{e.message} It is not used."
    order = _STRICT_FIRST.get(name, ())
    if order and order.index(new_value) > order.index(old := _get(config, name)):
        return f"{name} = {show_value(new_value)} is looser than your own setting ({old}) and is not used."
    return _explain_too_large(name, new_value, config)


def _explain_too_large(name: str, value: Any, config: Config) -> str:
    """Return why a project's number, text or list of rules exceeds its limit, or ""."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _explain_out_of_bounds(name, value, config)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{name} is not used: it has more than {LONGEST_TEXT} characters."
    rules = typing.cast("tuple[str, ...]", value) if isinstance(value, tuple) else ()
    if len(rules) > MOST_RULES or any(len(rule) > LONGEST_TEXT for rule in rules):
        return f"{name} is not used: at most {MOST_RULES} rules of {LONGEST_TEXT} characters each."
    return ""


def _explain_out_of_bounds(name: str, value: float, config: Config) -> str:
    bounds = get_meaning(name).project
    low, high = bounds if isinstance(bounds, tuple) else (-math.inf, math.inf)
    if name in _NARROWS:
        high = min(high, _get(config, name))
    if low <= value <= high:
        return ""
    return f"{name} = {show_value(value)} is not used; a project may set {low:g} to {high:.10g}."


def _drop_contradictions(
    earlier: Sequence[SourcedSetting],
    offered: Sequence[SourcedSetting],
    later: Sequence[SourcedSetting],
    warnings: list[str],
) -> list[SourcedSetting]:
    """Leave out project settings that contradict others; the user's settings win."""
    if not _find_contradiction((*earlier, *offered, *later)) or _find_contradiction((*earlier, *later)):
        return list(offered)
    good: list[SourcedSetting] = []
    for one in offered:
        if why := _find_contradiction((*earlier, *good, one, *later)):
            warnings.append(f"{one.origin}: {one.name} is not used. {why}")
        else:
            good.append(one)
    return good


def _find_contradiction(settings: Iterable[SourcedSetting]) -> str:
    try:
        check(_merge_settings(settings)[0])
    except ConfigError as e:
        return e.message
    return ""


def _find_project_changes(config: Config, without: Iterable[SourcedSetting]) -> dict[str, Any]:
    before = flatten(_merge_settings(without)[0])
    return {name: value for name, value in flatten(config).items() if value != before.get(name)}


def replace_setting(config: Config, name: str, value: Any, origin: str = "setting") -> Config:
    """Return `config` with one dotted name set; the value is checked against the field's type."""
    return _replace(config, ALIASES.get(name, name).split("."), value, name, origin)


def _replace(group: Any, path: list[str], value: Any, name: str, origin: str) -> Any:
    """Return a group of settings with the value at `path` set. Raises ConfigError."""
    head, *rest = path
    hint, meaning = group_fields(group.__class__).get(head, (None, None))
    child: Any = getattr(group, head, None)
    if meaning is None or (rest and not isinstance(child, Struct | Mapping)):
        raise ConfigError(
            f"{origin}: unknown setting {show_value(name)}.{_suggest(name) if meaning is None else _LISTED}"
        )
    if head == "providers" and isinstance(group, Config):
        new: Any = _replace_provider(group.providers, rest, value, name, origin)
    elif isinstance(child, Struct):
        if not rest:
            raise ConfigError(f"{origin}: {name} is a group of settings; name one of them.")
        new = _replace(child, rest, value, name, origin)
    elif rest:
        key, value = (".".join(rest), value) if head != SERVERS else _replace_field(group.mcp, rest, value)
        table = convert({key: value}, hint, name.removesuffix(f".{key}"), origin)
        new = {**typing.cast("Mapping[str, Any]", child), **table}
    else:
        new = check_bounds(meaning, convert(value, hint, name, origin), name, origin)
    return replace(group, **{head: new})


_LISTED = " `sakti config` lists them."


def _suggest(name: str) -> str:
    near = difflib.get_close_matches(name, list(iter_names()), 1)
    return f" Did you mean {near[0]}?" if near else _LISTED


def _replace_field(servers: Mapping[str, Any], path: list[str], value: Any) -> tuple[str, Any]:
    """Return the name of an MCP server and its table with the field at `path` replaced."""
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


def _get(config: Config, name: str) -> Any:
    node: Any = config
    for part in name.split("."):
        node = getattr(node, part)
    return node


def mask_value(name: str, value: Any) -> Any:
    """Return the value of a setting with secrets masked; the names in a secret table are kept."""
    if isinstance(value, str) and "://" in value:
        return re.sub(r"//[^/@]*@", f"//{MASK}@", re.sub(r"=[^&#]*", f"={MASK}", value))
    if not value or not get_meaning(name).secret:
        return value
    return dict.fromkeys(typing.cast("dict[str, Any]", value), MASK) if isinstance(value, dict) else MASK


def flatten(config: Config) -> dict[str, Any]:
    """Map every setting's dotted name to its value, for `sakti config`."""
    out = {name: _get(config, name) for name in iter_names()}
    for provider, settings in config.providers.items():
        out |= {f"providers.{provider}.{name}": value for name, value in structs.asdict(settings).items()}
    return out
