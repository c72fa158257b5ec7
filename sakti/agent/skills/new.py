"""Begin a new skill on disk."""

from __future__ import annotations

import re
from pathlib import Path

from sakti.agent.skills.load import LONGEST_NAME, SKILL
from sakti.core import resources
from sakti.core.errors import ConfigError

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TEXT = """---
name: {name}
description: What it does, and when it is to be used. Replace this with words that a request would hold.
---

# {title}

1. Say step by step what is to be done; name commands and files exactly.
2. Put long references into files beside this one and name them here.
"""


def write(workspace: Path, name: str, *, user: bool) -> Path:
    """Write the SKILL.md of a new skill; return its path. Raises `ConfigError` for a name or place that cannot be."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigError("A skill's name is 1 to 64 of a-z, 0-9 and single hyphens.")
    root = resources.config_home() if user else workspace / ".sakti"
    path = root / "skills" / name / SKILL
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(_TEXT.format(name=name, title=name.replace("-", " ").capitalize()))
    except FileExistsError as e:
        raise ConfigError(f"{path} is there already: edit it.") from e
    except OSError as e:
        raise ConfigError(f"{path} cannot be written ({e.strerror}).") from e
    return path
