"""Read a settings file; anything else at its path gives one clear error."""

from __future__ import annotations

import os
import stat
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sakti.core.errors import ConfigError
from sakti.core.text import to_one_line

LONGEST = 100_000  # maximum bytes of a settings file
TABLES = ("extra", "headers")  # settings whose value is a table
SERVERS = "mcp"  # top-level table whose entries are checked one by one, so it is not flattened
_ADVICE = "Fix it or move it elsewhere."


def read_bytes(path: Path, longest: int = LONGEST) -> bytes | None:
    """Return the bytes of a regular file, following links; None if it is missing.

    Never blocks: a FIFO, a device, or a file of more than `longest` bytes raises `ConfigError`.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a regular file. Move it away.")
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ConfigError(f"{path} is not a regular file. Move it away.")
            data = file.read(longest + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as e:
        raise ConfigError(f"{path} cannot be read: {_describe_error(e)}. {_ADVICE}") from e
    if len(data) > longest:
        raise ConfigError(f"{path} has more than {longest:,} bytes. {_ADVICE}")
    return data


def read_table(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file by dotted name; empty without a file. Raises `ConfigError`."""
    data = read_bytes(path)
    return {} if data is None else parse(data, path)


def parse(data: bytes, path: Path) -> dict[str, Any]:
    """Return the settings of a TOML text by their dotted names. Raises `ConfigError` that names `path`."""
    try:
        return dict(_flatten(tomllib.loads(data.decode("utf-8-sig"))))
    except RecursionError as e:
        raise ConfigError(f"{path} cannot be read: it is nested too deep. {_ADVICE}") from e
    except ValueError as e:  # invalid TOML or UTF-8, or a number with thousands of digits
        raise ConfigError(f"{path} cannot be read: {_describe_error(e)}. {_ADVICE}") from e


def parse_literal(text: str) -> Any:
    """Parse a value as TOML, else as a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return to_one_line(str(error), 200).rstrip(".")


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and key not in TABLES and (prefix or key != SERVERS):
            yield from _flatten(typing.cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
