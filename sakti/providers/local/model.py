"""Locate the embedded model and the GGUF file to load."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from sakti.core.errors import ConfigError
from sakti.core.resources import data_home

LABEL = "small local model: questions; check its edits"
NAME = "qwen2.5-coder-1.5b"
FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SIZE = 1_117_320_768
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_MAGIC = b"GGUF"


class Status(Struct, frozen=True):
    """State of the embedded model.

    `bytes` is the size of the weights, `partial_bytes` what an unfinished install has on disk, `runtime` says whether
    the library that runs them is installed, `own` whether the user chose the file with `sakti local use`.
    """

    ready: bool
    name: str
    path: str
    bytes: int
    partial_bytes: int
    runtime: bool
    own: bool
    label: str = LABEL


def folder() -> Path:
    return data_home() / "models"


def default_path() -> Path:
    """Return the path of installed weights."""
    return folder() / FILE


def parts_folder() -> Path:
    """Return the folder of an unfinished install."""
    return folder() / ".parts"


def prompts_folder() -> Path:
    """Return where evaluated prompts are kept."""
    return folder() / "prompts"


def _get_choice_path() -> Path:
    return folder() / "local.json"


def get_choice() -> Path | None:
    """Return the GGUF file that the user chose, None for the default or an unreadable choice."""
    try:
        value: Any = json.loads(_get_choice_path().read_text("utf-8"))
    except (OSError, ValueError):
        return None
    path = cast("dict[str, Any]", value).get("path") if isinstance(value, dict) else None
    return Path(path) if isinstance(path, str) and path else None


def path() -> Path:
    """Return the path of the GGUF file to load, whether it exists or not."""
    return get_choice() or default_path()


def name() -> str:
    """Return the part of the model's name after `local/`."""
    choice = get_choice()
    return NAME if choice is None else choice.stem


def weights_ready() -> bool:
    """Return whether the file to load exists and, for the default, is complete."""
    try:
        size = path().stat().st_size
    except OSError:
        return False
    return size > 0 if get_choice() else size == SIZE


def runtime_ready() -> bool:
    """Return whether the library that runs the weights is installed, without importing it."""
    return importlib.util.find_spec("xllamacpp") is not None


def is_ready() -> bool:
    return weights_ready() and runtime_ready()


def status() -> Status:
    file = path()
    size = file.stat().st_size if file.is_file() else 0
    partial = sum(f.stat().st_size for f in parts_folder().rglob("*") if f.is_file())
    return Status(is_ready(), name(), str(file), size, partial, runtime_ready(), get_choice() is not None)


def use_file(file: Path | None) -> Path:
    """Load `file` from now on (None: the default); return the file in use.

    Raises ConfigError for something that is not a GGUF file.
    """
    if file is None:
        _get_choice_path().unlink(missing_ok=True)
        return default_path()
    file = file.expanduser().resolve()
    try:
        with file.open("rb") as f:
            magic = f.read(len(_MAGIC))
    except OSError as e:
        raise ConfigError(f"{file} cannot be read: {e.strerror}.", title="Local model") from e
    if magic != _MAGIC:
        raise ConfigError(f"{file} is not a GGUF file.", title="Local model")
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    written = _get_choice_path().with_suffix(".new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as f:
        json.dump({"path": str(file)}, f)
    written.replace(_get_choice_path())
    return file


def remove() -> int:
    """Delete the installed weights, an unfinished install, evaluated prompts and the choice of a file.

    Returns the bytes freed. A file that the user chose is not deleted.
    """
    freed = sum(f.stat().st_size for f in parts_folder().rglob("*") if f.is_file())
    if default_path().is_file():
        freed += default_path().stat().st_size
    freed += sum(f.stat().st_size for f in prompts_folder().rglob("*") if f.is_file())
    shutil.rmtree(prompts_folder(), ignore_errors=True)
    shutil.rmtree(parts_folder(), ignore_errors=True)
    default_path().unlink(missing_ok=True)
    _get_choice_path().unlink(missing_ok=True)
    return freed
