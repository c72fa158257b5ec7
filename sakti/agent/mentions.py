"""Attach the current content of files that a prompt names as `@path`; images as images."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from sakti.agent.judge.workspace_view import WorkspaceView, explain_secret
from sakti.agent.tools import pictures, textfile
from sakti.core import content
from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import clean_surrogates
from sakti.core.types import FilePart, ImagePart, Message, Part, TextPart

MENTION = lazy_pattern(r"(?<!\S)@((?:\\ |[^\s\\])+)")
LIMIT = 200_000  # bytes of a file that is attached whole
LONGEST_PATHS = 4_000  # characters of a paste that may be names of images


def with_files(
    text: str, workspace: Path, own: tuple[Path, ...], *, blind: str = "", typed: frozenset[str] | None = None
) -> tuple[Part, ...]:
    """Return the prompt, and the text files and images that it mentions.

    Names of missing, binary and secret files, and of too large texts, remain plain words. `own` are sakti's own
    folders, `blind` names a model that takes no images. For a damaged image, only a note is sent. A text that the user
    did not write may name files outside of the workspace only with words that the user `typed`.

    Raises `SaktiError` for an image that cannot be sent, before anything is sent.
    """
    place = WorkspaceView(workspace, workspace, own)
    parts: list[Part] = [TextPart(text)]
    for name in dict.fromkeys(m.replace("\\ ", " ") for m in MENTION.findall(text)):
        path = place.resolve(name)
        if not _is_file(path) or explain_secret(path, place):
            continue
        if typed is not None and not path.is_relative_to(workspace.resolve()) and name not in typed:
            continue
        if (image := detect_image(path)) is not None:
            parts.append(_attach_image(path, place.show(path), image, blind))
        elif path.stat().st_size <= LIMIT:
            found_text = textfile.decode(path.read_bytes())
            if found_text is not None:
                parts.append(FilePart(place.show(path), clean_surrogates(found_text.text)))
    return tuple(parts)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for any file
        return False


def detect_image(path: Path) -> tuple[str, int, int] | None:
    """Return media type, width and height of an image in a format for models, whatever its file name."""
    try:
        with path.open("rb") as file:
            return content.read_image_header(file.read(content.HEAD))
    except OSError:
        return None


def replace_images(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Replace images by their names, for a model that takes none."""
    return tuple(
        replace(m, parts=tuple(map(_hide_image, m.parts))) if any(isinstance(p, ImagePart) for p in m.parts) else m
        for m in messages
    )


def _hide_image(part: Part) -> Part:
    return TextPart(f"(an image that is not shown to you: {part.name})") if isinstance(part, ImagePart) else part


def _attach_image(path: Path, name: str, found: tuple[str, int, int], blind: str) -> ImagePart | FilePart:
    size = path.stat().st_size
    if blind:
        hint = "Choose another model with /model, or remove the @ to send only its name."
        raise SaktiError(f"{blind} takes no images: {name} was not sent. {hint}", title="Image")
    if size > content.LIMIT:
        at_most = f"models take {content.format_size(content.LIMIT)} at most"
        raise SaktiError(
            f"{name} has {content.format_size(size)}, {at_most}: nothing was sent. Shrink it, or remove its @.",
            title="Image",
        )
    if damage := pictures.find_damage(path):
        return FilePart(name, f"(This image is unreadable and was not sent: {damage}.)")
    media_type, width, height = found
    return ImagePart(media_type, base64.b64encode(path.read_bytes()).decode("ascii"), name, width, height)


def find_pasted_images(text: str) -> list[Path]:
    """Return the images named by a pasted text that names nothing else.

    Terminals paste such texts when files are dropped, file managers when they are copied. There may be several paths,
    quoted, with escaped blanks, or as file:// URLs.
    """
    text = text.strip()
    if not text or len(text) > LONGEST_PATHS:
        return []
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for names in (lines, _split_words(text)):
        paths = [
            p
            for name in names
            if (p := _find_file(name)) is not None and p.is_absolute() and detect_image(p) is not None
        ]
        if paths and len(paths) == len(names):
            return paths
    return []


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return []


def _find_file(name: str) -> Path | None:
    if name.startswith("file://"):
        url = urlsplit(name)
        return Path(unquote(url.path)) if url.netloc in ("", "localhost") else None
    try:
        path = Path(name.strip("'\"")).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # too long a name, no home, a NUL
        return None


def format_mention(path: Path) -> str:
    """Format a path as `@path`, with escaped blanks."""
    return "@" + str(path).replace(" ", "\\ ")
