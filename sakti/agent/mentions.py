"""`@path` in a prompt: the file is read at that moment and goes with the message."""

from __future__ import annotations

import re
from pathlib import Path

from sakti.agent.permissions import Place, secret_reason
from sakti.core.types import FilePart, Part, TextPart

MENTION = re.compile(r"(?<!\S)@((?:\\ |[^\s\\])+)")
LIMIT = 200_000  # bytes of a file that is attached whole


def with_files(text: str, workspace: Path, own: tuple[Path, ...]) -> tuple[Part, ...]:
    """The prompt and the text files that it mentions. What is missing, too large, binary or secret stays a word of
    the prompt; `own` are sakti's own folders."""
    place = Place(workspace, workspace, own)
    parts: list[Part] = [TextPart(text)]
    for name in dict.fromkeys(m.replace("\\ ", " ") for m in MENTION.findall(text)):
        path = place.resolve(name)
        if path.is_file() and path.stat().st_size <= LIMIT and not secret_reason(path, place):
            data = path.read_bytes()
            if b"\0" not in data:
                parts.append(FilePart(place.show(path), data.decode("utf-8", "replace")))
    return tuple(parts)
