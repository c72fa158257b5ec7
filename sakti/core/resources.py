"""Find prompts and themes: in the user's folder, then the installed data, then the repository."""

from __future__ import annotations

import os
import re
import shutil
import string
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern

PACKAGE = Path(__file__).resolve().parent.parent
_PART = lazy_pattern(r"^<!-- ([a-z0-9_-]+) -->$", re.MULTILINE)


def config_home() -> Path:
    """Return the folder of settings and of the user's own prompts and themes.

    `$XDG_CONFIG_HOME/sakti` or `~/.config/sakti`; on macOS and Windows the platform's.
    """
    return _choose_home("XDG_CONFIG_HOME", ".config", "config")


def data_home() -> Path:
    """Return the folder of the database and of local models.

    `$XDG_DATA_HOME/sakti` or `~/.local/share/sakti`; on macOS and Windows the platform's.
    """
    return _choose_home("XDG_DATA_HOME", ".local/share", "data")


def state_home() -> Path:
    """Return the folder of logs and long outputs.

    `$XDG_STATE_HOME/sakti` or `~/.local/state/sakti`; on macOS and Windows the platform's.
    """
    return _choose_home("XDG_STATE_HOME", ".local/state", "state")


def _choose_home(variable: str, usual: str, kind: str) -> Path:
    """Return the XDG folder if it is set or exists, else the platform's."""
    xdg_folder = Path(os.environ.get(variable) or Path.home() / usual) / "sakti"
    if sys.platform not in ("darwin", "win32") or os.environ.get(variable) or xdg_folder.is_dir():
        return xdg_folder
    import platformdirs  # imported only there: it takes 10 ms, a tenth of a short command

    places: dict[str, Path] = {
        "config": platformdirs.user_config_path("sakti", appauthor=False),
        "data": platformdirs.user_data_path("sakti", appauthor=False),
        "state": platformdirs.user_state_path("sakti", appauthor=False),
    }
    return places[kind]


def iter_folders(kind: str) -> Iterator[Path]:
    """Yield the existing folders of `kind` ("prompts" or "themes") in order of precedence."""
    for folder in (config_home() / kind, PACKAGE / "resources" / kind, PACKAGE.parent / kind):
        if folder.is_dir():
            yield folder


@lru_cache(maxsize=256)
def read_prompt(name: str) -> str:
    """Return the stripped text of `prompts/<file>.md`, or of its part `<!-- part -->` for `file#part`.

    A part in the user's own file overrides the installed part. Raises FileNotFoundError for an unknown name, and
    `ConfigError` for a file that cannot be read as text.
    """
    file, _, part = name.partition("#")
    for folder in iter_folders("prompts"):
        if part in (parts := _split_parts(folder / f"{file}.md")):
            return parts[part]
    raise FileNotFoundError(f"prompt {name} is neither installed nor in {config_home() / 'prompts'}")


@lru_cache(maxsize=256)
def has_prompt(name: str) -> bool:
    file, _, part = name.partition("#")
    return any(part in _split_parts(folder / f"{file}.md") for folder in iter_folders("prompts"))


def list_modes() -> tuple[str, ...]:
    """Return the names of all modes that have a file."""
    files = (p for folder in iter_folders("prompts") for p in (folder / "modes").glob("*.md") if p.is_file())
    return tuple(sorted({p.stem for p in files}))


def list_themes() -> tuple[str, ...]:
    """Return the names of all themes that have a file."""
    return tuple(sorted({p.stem for folder in iter_folders("themes") for p in folder.glob("*.toml")}))


def fill_prompt(name: str, **values: str) -> str:
    """Return `read_prompt(name)` with its $names replaced."""
    return string.Template(read_prompt(name)).safe_substitute(values)


def _split_parts(path: Path) -> dict[str, str]:
    """Split a prompt file into its parts by name; "" is the text before them. Raises `ConfigError`."""
    if not path.is_file():
        return {}
    try:
        head, *rest = _PART.split(path.read_text("utf-8-sig"))
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text (byte {e.start + 1}): save it as UTF-8.") from e
    except OSError as e:
        raise ConfigError(f"{path} cannot be read ({e.strerror}).") from e
    parts = {name: text.strip() for name, text in zip(rest[::2], rest[1::2], strict=True)}
    # if a custom file has only named parts, the installed text before them applies: a mode's tools and limits
    return parts if rest and not head.strip() else {"": head.strip(), **parts}


# System folders are searched even if the workspace contains them.
_SYSTEM = frozenset({"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"})
_ENDS = ("", ".exe") if os.name == "nt" else ("",)


def search_path(workspace: Path, path: str | None = None) -> str:
    """Return `path` without relative entries and without the workspace and its folders.

    If `path` is None, the process's PATH is used.
    """
    entries = path if path is not None else os.environ.get("PATH", os.defpath)
    return os.pathsep.join(e for e in entries.split(os.pathsep) if _is_outside(e, workspace))


def find_program(name: str, workspace: Path, path: str | None = None) -> str | None:
    """Return the absolute path of a program outside the workspace, or None."""
    for folder in search_path(workspace, path).split(os.pathsep):
        for end in _ENDS if folder else ():
            program = shutil.which(os.path.join(folder, name + end))  # noqa: PTH118 - a folder keeps its spelling
            if program and _is_outside(str(Path(os.path.realpath(program)).parent), workspace):
                return program
    return None


def build_safe_environment(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return `env` with a safe PATH, for a program that starts others."""
    # the C library treats an empty PATH as the current folder
    return {**env, "PATH": search_path(workspace, env.get("PATH", os.defpath)) or os.defpath}


def _is_outside(folder: str, workspace: Path) -> bool:
    if not os.path.isabs(folder):  # noqa: PTH117 - as written: an empty entry is the current folder
        return False
    if folder.rstrip("/") in _SYSTEM or workspace == Path(workspace.anchor):
        return True  # nothing is outside the root folder
    try:
        top = workspace.stat()
    except OSError:
        return True  # a missing folder contains nothing
    return not any(os.path.samestat(top, seen) for seen in _iter_parent_stats(Path(os.path.realpath(folder))))


def _iter_parent_stats(folder: Path) -> Iterator[os.stat_result]:
    """Yield the stat of `folder` and its parents: files are compared by identity, not by spelling."""
    for place in (folder, *folder.parents):
        try:
            yield place.stat()
        except OSError:
            continue
