"""Theme files: `themes/*.toml`, one a theme, their keys those of `textual.theme.Theme`.

The user's folder wins over the installed one. A broken file is reported and left out, never fatal.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct
from textual.theme import Theme

from sakti.core.patterns import lazy_pattern
from sakti.core.resources import folders
from sakti.tui.palette import variable_defaults

FALLBACK = "sakti-dark"
SIXTEEN = "sakti-sixteen"  # its replacement in terminals with sixteen colours
_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
_HEX = lazy_pattern(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


class Themes(Struct, frozen=True):
    """`problems` are sentences for the user, each naming its file."""

    themes: dict[str, Theme]
    problems: tuple[str, ...]


def list_theme_files() -> tuple[tuple[str, int, int], ...]:
    """Path, time of change and size of every theme file: it differs when one of them changed."""
    files: list[tuple[str, int, int]] = []
    for folder in folders("themes"):
        for path in sorted(folder.glob("*.toml")):
            with contextlib.suppress(OSError):  # it went while we looked
                stat = path.stat()
                files.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(files)


def load_first(name: str) -> Themes:
    """Return the installed theme `name` alone, or every theme if the user has theme files."""
    places = list(folders("themes"))
    with contextlib.suppress(ValueError, OSError, TypeError):  # `load_themes` reports it
        if len(places) == 1 and (theme := read_theme(places[0] / f"{name}.toml")).name == name:
            return Themes({name: theme}, ())
    return load_themes()


def load_themes() -> Themes:
    """Return every theme that can be read. `sakti-dark` is always among them."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in folders("themes"):
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except (ValueError, OSError, TypeError) as e:
                problems.append(f"{path}: {e}")
                continue
            themes.setdefault(theme.name, theme)
    themes.setdefault(
        FALLBACK,
        Theme(
            name=FALLBACK,
            primary="#7fb0e8",
            background="#10141b",
            surface="#151a22",
            panel="#1e2530",
            foreground="#d8dde6",
            variables=variable_defaults(True),
        ),
    )
    return Themes(themes, tuple(problems))


def read_theme(path: Path) -> Theme:
    """Read one theme file. Raises ValueError or OSError with a description of the problem."""
    table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    name = table.pop("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise ValueError("`name` takes letters, digits and dashes.")
    variables: dict[str, Any] = table.pop("variables", {})
    for key, value in [*table.items(), *variables.items()]:
        is_colour = key in _COLOURS or key.startswith("sakti-")
        if is_colour and not (isinstance(value, str) and _HEX.fullmatch(value)):
            raise ValueError(f"{key} = {value!r} is not a colour such as #1e2530.")
    if "primary" not in table:
        raise ValueError("`primary` is missing.")
    defaults = variable_defaults(bool(table.get("dark", True)))
    return Theme(name=name, variables=defaults | {str(k): str(v) for k, v in variables.items()}, **table)
