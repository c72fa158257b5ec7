"""Read files that the settings of working memory name.

Their text goes to the model, and a project can bring the setting: nothing outside the workspace and the user's own
configuration is read.
"""

from __future__ import annotations

from pathlib import Path

from sakti.core.errors import ConfigError
from sakti.core.resources import config_home, read_prompt

TEMPLATE = "memory.working_memory.template"
LONGEST_TEMPLATE = 8_000  # characters: about what a page may have
_MARKDOWN = (".md", ".markdown")


def find(setting: str, name: str, workspace: Path) -> Path:
    """Return the path of file `name`, relative to the workspace, with links resolved.

    Raises `ConfigError` where it is outside of the workspace and of the user's configuration.
    """
    path = (workspace / Path(name).expanduser()).resolve()
    if not any(path.is_relative_to(folder.resolve()) for folder in (workspace, config_home())):
        raise ConfigError(f"{setting}: {path} must be in the workspace or in {config_home()}.")
    return path


def read(setting: str, path: Path, longest: int) -> str:
    """Read a file of at most `longest` characters. Raises `ConfigError`."""
    try:
        if not path.is_file():
            raise ConfigError(f"{setting}: there is no file {path}.")
        with path.open(encoding="utf-8") as file:
            text = file.read(longest + 1)
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{setting}: {path} cannot be read: {e}.") from e
    if len(text) > longest:
        raise ConfigError(f"{setting}: {path} has more than {longest} characters.")
    return text


def template(name: str | None, workspace: Path) -> str:
    """Return the initial page: the Markdown file `name`, or the built-in one for None.

    Raises `ConfigError`.
    """
    if name is None:
        return read_prompt("working-memory")
    path = find(TEMPLATE, name, workspace)
    if path.suffix.lower() not in _MARKDOWN:
        raise ConfigError(f"{TEMPLATE}: {path} must be a Markdown file ({' or '.join(_MARKDOWN)}).")
    return read(TEMPLATE, path, LONGEST_TEMPLATE).strip()
