"""Load settings: defaults, the user's file, the project's file, the environment, the command line; later wins.

    $XDG_CONFIG_HOME/sakti/config.toml      [memory.observation] message_tokens = 20_000
    .sakti/config.toml                      the same names, but see project_may_set
    SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS=20000
    -o memory.observation.message_tokens=20000

`load` returns a frozen `Config` and, for each setting that is not at its default, its source.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sakti.core.config.check import check
from sakti.core.config.fields import APPROVAL_MODES, Config
from sakti.core.config.meaning import Meaning, of_field
from sakti.core.config.providers import ProviderSettings
from sakti.core.errors import ConfigError

# Other ways to write a setting: `[model] name =, fallback =`.
_ALIASES = {"model.name": "model", "model.fallback": "fallback_model"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Merged settings, their origins and warnings.

    `origins` maps a dotted name to its source; `warnings` are sentences for the user.
    """

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
    """Merge all sources into one `Config`.

    Raises `ConfigError`, naming the source and the setting, for anything unknown, of the wrong type or contradictory.
    """
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
        raise ConfigError(f"{path} cannot be read: {e}. Fix it or move it away.") from e


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and key != "extra":
            yield from _flatten(typing.cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _literal(text: str) -> Any:
    """Parse a value as TOML; what is not TOML is a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


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
    found = _meanings().get(name)
    if found is None and ".extra." in name:
        found = _meanings().get(f"{name.partition('.extra.')[0]}.extra")
    return found or Meaning()


def project_may_set(name: str) -> bool:
    """Return whether a project's own file may set it."""
    return meaning(name).project


def replace_setting(config: Config, name: str, value: Any, origin: str = "setting") -> Config:
    """Return `config` with one dotted name set; the value is checked against the field's type."""
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
    found = _coerce(value, hints[head], name, origin)
    (field,) = (f for f in dataclasses.fields(node) if f.name == head)
    if isinstance(found, int | float) and not isinstance(found, bool) and not of_field(field).allows(found):
        raise ConfigError(f"{origin}: {name} = {value} must be {of_field(field).bounds}.")
    return dataclasses.replace(node, **{head: found})


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
    """Map every setting's dotted name to its value, for `sakti config`."""
    out = {name: _get(config, name) for name in names()}
    for provider, settings in config.providers.items():
        for f in dataclasses.fields(settings):
            out[f"providers.{provider}.{f.name}"] = getattr(settings, f.name)
    return out
