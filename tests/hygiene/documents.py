"""The documents of the repository, and the parts of them that tests check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted((ROOT / "sakti/help").glob("*.md")))
FOR_USERS = (ROOT / "README.md", *PAGES)
FOR_CONTRIBUTORS = tuple(sorted((ROOT / ".github").rglob("*.md")))


def read_blocks(path: Path, language: str) -> list[str]:
    """Return the fenced code blocks of `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def read_code_spans(path: Path) -> list[str]:
    """Return the code in backticks within sentences and tables."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [span for pair in re.findall(r"``\s(.+?)\s``|`([^`]+)`", prose) for span in pair if span]


def read_links(path: Path) -> Iterator[str]:
    """Yield the targets of links and images within the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if "://" not in target:
            yield target.partition("#")[0]
