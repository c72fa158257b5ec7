"""Changing one setting in a config file: comments, order and everything else in it stay as they are."""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from sakti.agent.project import trust
from sakti.agent.settings import format_lines
from sakti.core.config import LoadedConfig, flatten, get_meaning, load, mask_value, replace_setting
from sakti.core.config.reading import SERVERS
from sakti.core.errors import ConfigError

if TYPE_CHECKING:
    from sakti.agent.session.session import Session


def change_setting(text: str, name: str, value: Any) -> str:
    """Return the TOML `text` with the setting `name` at `value`; None takes its line out.

    Raises `ConfigError` where `text` is no TOML or has something else in the place of a table.
    """
    *tables, key = name.split(".")
    try:
        document = tomlkit.parse(text)
        node = cast("MutableMapping[str, Any]", document)
        for number, part in enumerate(tables):
            if part not in node:
                if value is None:
                    return text
                if number == 0 and text.strip():
                    document.add(tomlkit.nl())
                node[part] = tomlkit.table(is_super_table=part != tables[-1])
            below = node[part]
            if not isinstance(below, MutableMapping):
                raise ConfigError(f"{'.'.join(tables[: number + 1])} is not a table there.")
            node = cast("MutableMapping[str, Any]", below)
        if value is not None:
            node[key] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
        elif key in node:
            del node[key]
        return tomlkit.dumps(document)
    except TOMLKitError as e:
        raise ConfigError(str(e)) from e


def add_servers(text: str, servers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the TOML `text` with tables of MCP servers at its end. Raises `ConfigError`."""
    document: Any = tomlkit.document()
    document[SERVERS] = tomlkit.table(is_super_table=True)
    for name, fields in servers.items():
        table: Any = tomlkit.table()
        for key, value in fields.items():
            inline: Any = tomlkit.inline_table()
            table[key] = inline.update(value) or inline if isinstance(value, Mapping) else value
        table.add(tomlkit.nl())
        document[SERVERS][name] = table
    after = f"{text.rstrip()}\n\n{tomlkit.dumps(document).strip()}\n".lstrip("\n")
    try:
        tables = tomllib.loads(after)[SERVERS]
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"the servers cannot be added: {e}") from e
    assert all(tables[name] == dict(fields) for name, fields in servers.items())
    return after


def remove_server(text: str, name: str) -> str:
    """Return the TOML `text` without an MCP server; comments stay. Raises `ConfigError`."""
    try:
        document: Any = tomlkit.parse(text)
        document[SERVERS].pop(name)
        if not document[SERVERS]:
            del document[SERVERS]
    except (TOMLKitError, AttributeError) as e:
        raise ConfigError(str(e)) from e
    return _keep_comments(text, tomlkit.dumps(document))


def _keep_comments(before: str, after: str) -> str:
    """Return the text `after` a table was removed, with the comments that stood behind the table."""
    common = next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(after))
    start = before.rfind("\n", 0, common) + 1
    removed, rest = before[start : start + len(before) - len(after)], after[start:]
    if before != before[:start] + removed + rest:
        return after
    lines = removed.splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    comments = "".join(lines[last + 1 :]) if any(line.strip() for line in lines[last + 1 :]) else ""
    return before[:start] + comments.lstrip("\n") + rest


def write(
    path: Path, name: str, value: Any, *, user_file: Path, project_file: Path, env: Mapping[str, str]
) -> LoadedConfig:
    """Write the setting into `path`, one of the two files, if the next start accepts it.

    Returns what that start would read. The file is replaced as a whole. It stays unchanged, and `ConfigError` says why,
    if it cannot be read, or if the value contradicts another or would not be used.
    """
    review = trust.review_settings(project_file)
    if not review.holds and path == project_file:
        raise ConfigError(f"{path} is not trusted, so nothing was written. `sakti trust` shows and trusts it.")
    target = path.resolve()  # a link stays a link
    before, after = _edit_text(path, target, name, value)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, tried = tempfile.mkstemp(dir=target.parent, prefix=".config-", suffix=".toml")  # 0600
    except OSError as e:
        raise ConfigError(f"{path} cannot be written: {e.strerror}.") from e
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        user_path, project = (
            Path(tried) if f == path else f for f in (user_file, project_file if review.holds else None)
        )
        loaded = load(user_file=user_path, project_file=project, env=env)
        if value is not None and loaded.origins.get(name) != tried:
            _refuse(name, loaded, tried)
        if before:
            Path(tried).chmod(target.stat().st_mode & 0o777)
        Path(tried).replace(target)
        if path == project_file and (now := trust.review_settings(path)).asks:
            trust.save(now.without({c.name for c in review.changes}))  # what the user writes here was seen
    except ConfigError as e:
        raise ConfigError(e.message.replace(tried, str(path))) from e
    except OSError as e:
        raise ConfigError(f"{path} cannot be written: {e.strerror}.") from e
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(tried).unlink()
    return loaded


def _edit_text(path: Path, target: Path, name: str, value: Any) -> tuple[str, str]:
    """Return the text of a settings file before and after a change. Raises `ConfigError`."""
    try:
        before = target.read_text("utf-8") if target.exists() else ""
        return before, change_setting(before, name, value)
    except (ConfigError, UnicodeDecodeError, OSError) as e:
        why = e.message if isinstance(e, ConfigError) else str(e)
        raise ConfigError(f"{path} cannot be read: {why}. Fix it or move it away; nothing was written.") from e


def _refuse(name: str, loaded: LoadedConfig, tried: str) -> None:
    for warning in loaded.warnings:
        if warning.startswith(tried) and name in warning:
            raise ConfigError(warning)
    raise ConfigError(f"It would have no effect: {loaded.origins.get(name, 'another place')} sets {name} too.")


async def change(session: Session, path: Path, name: str, value: Any, *, user_file: Path, project_file: Path) -> str:
    """Write one setting and apply it if this window can; return a sentence about it.

    Raises `ConfigError`.
    """
    if name == "approval.mode" and value == "auto" and (refused := session.workspace.refused_auto()):
        raise ConfigError(f"{refused[0].upper()}{refused[1:]}")
    loaded = write(path, name, value, user_file=user_file, project_file=project_file, env=session.workspace.env)
    now = flatten(loaded.config).get(name)
    line = (
        format_lines(name, mask_value(name, value)).replace("\n", " ")
        if value is not None
        else f"without a line for {name}"
    )
    done = f"{path}: {line}"
    if not get_meaning(name).at_once:
        return f"{done}. It takes effect after a restart."
    if session.busy:
        return f"{done}. It takes effect after a restart, because the agent is working now."
    config = replace_setting(session.workspace.config, name, now)
    if name == "mode":
        await session.set_mode(str(now))
    elif name == "approval.mode":
        session.set_approval_mode(str(now))
    await session.use_config(config, memory=name.startswith("memory."))
    return f"{done}. It takes effect now."
