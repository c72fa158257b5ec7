"""Show images and pages of PDFs to a model, scaled if they do not fit.

They are drawn in a separate process, which a damaged file can crash without harm.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from sakti.agent.tools import child
from sakti.agent.tools.context import Outcome
from sakti.core import content
from sakti.core.errors import ToolError
from sakti.core.text import format_count
from sakti.core.types import ImagePart

LONG_EDGE = 1_568  # pixels; models see no more of an image (Anthropic's documentation, "Vision")
PAGES = 4  # of a PDF in one call, if none are asked for
MOST_PAGES = 10
SECONDS = 30.0
LARGEST = 100_000_000  # bytes of a file
TEXT = 20_000  # characters of the text of PDF pages


def detect_kind(head: bytes) -> str | None:
    """Return `image` or `pdf` by a file's first bytes; None for anything else."""
    if content.read_image_header(head) is not None:
        return "image"
    return "pdf" if b"%PDF-" in head[:1024] else None


async def show(path: Path, name: str, what: str, offset: int, limit: int | None) -> Outcome:
    """Return an image, or the pages `offset`… of a PDF, with a description."""
    size = path.stat().st_size
    if size > LARGEST:
        raise ToolError(f"{name} has {content.format_size(size)}: too large to be shown.")
    return await (_show_image(path, name) if what == "image" else _show_pdf(path, name, offset, limit))


def find_damage(path: Path) -> str:
    """Decode an image completely; return why it cannot be read, empty if it can. Blocks."""
    request = json.dumps({"check": str(path)}).encode()
    try:
        run = subprocess.run(
            child.make_command("draw.py"), input=request, capture_output=True,
            timeout=SECONDS, env=child.choose_environment(), check=False,
        )  # fmt: skip
        return str(json.loads(run.stdout).get("error", ""))
    except subprocess.TimeoutExpired:
        return f"it could not be decoded within {SECONDS:.0f} s"
    except ValueError:
        return "its decoding failed"


async def _show_image(path: Path, name: str) -> Outcome:
    data = await asyncio.to_thread(path.read_bytes)
    kind = content.read_image_header(data[: content.HEAD])
    assert kind is not None
    media_type, width, height = kind
    description = f"{name}: {media_type}, {width} × {height} pixels, {content.format_size(len(data))}"
    fits = 0 < max(width, height) <= LONG_EDGE and len(data) <= content.LIMIT
    if fits:
        if damage := await asyncio.to_thread(find_damage, path):
            raise ToolError(f"{name} cannot be shown: {damage}.")
        part = ImagePart(media_type, base64.b64encode(data).decode("ascii"), name, width, height)
        return Outcome(f"{description}; it is shown below.", details={"path": name}, images=(part,))
    drawn = await _draw({"image": str(path), "edge": LONG_EDGE, "bytes": content.LIMIT}, name)
    part = _make_part(drawn["images"][0], name)
    note = f"; it is shown below at {part.width} × {part.height}."
    return Outcome(description + note, details={"path": name}, images=(part,))


async def _show_pdf(path: Path, name: str, offset: int, limit: int | None) -> Outcome:
    number = min(limit or PAGES, MOST_PAGES)
    request = {"pdf": str(path), "first": offset, "number": number, "edge": LONG_EDGE, "bytes": content.LIMIT}
    drawn = await _draw(request, name)
    total = int(drawn["pages"])
    if offset > total:
        raise ToolError(f"{name} has {format_count(total, 'page')}; there is no page {offset}.")
    pages = range(offset, offset + len(drawn["images"]))
    parts = tuple(_make_part(i, f"{name}, page {n}") for n, i in zip(pages, drawn["images"], strict=True))
    last = pages[-1]
    rows = [f"{name}: pages {offset} to {last} of {total}, shown below. Their text:"]
    room = TEXT
    for n, text in zip(pages, drawn["texts"], strict=True):
        body = text.strip()[:room]
        room -= len(body)
        rows.append(f"--- page {n} ---\n{body or '(no text)'}")
    if last < total:
        rows.append(f"[{format_count(total - last, 'more page')}: read on with offset={last + 1}.]")
    return Outcome("\n".join(rows), details={"path": name, "lines": f"{offset}-{last}"}, images=parts)


async def read_pdf_text(path: Path, name: str, most: int) -> str:
    """Return the text of a PDF's first `most` pages. Raises `ToolError`."""
    drawn = await _draw({"pdf": str(path), "first": 1, "number": most, "edge": 0}, name)
    total, texts = int(drawn["pages"]), [str(text).strip() for text in drawn["texts"]]
    rows = [f"--- page {n} of {total} ---\n{text or '(no text)'}" for n, text in enumerate(texts, 1)]
    if total > len(texts):
        rows.append(f"[{format_count(total - len(texts), 'more page')}]")
    return "\n".join(rows)


def _make_part(drawn: dict[str, Any], name: str) -> ImagePart:
    return ImagePart(drawn["type"], drawn["data"], name, drawn["width"], drawn["height"])


async def _draw(request: dict[str, Any], name: str) -> dict[str, Any]:
    ended = child.ChildEnd()
    deadline = asyncio.get_running_loop().time() + SECONDS
    stream = child.read_chunks(
        child.make_command("draw.py"), Path("/"), ended, data=json.dumps(request).encode(), deadline=deadline
    )
    out: list[bytes] = []
    async with contextlib.aclosing(stream) as pieces:
        async for piece in pieces:
            out.append(piece)
    if ended.code is None:
        raise ToolError(f"{name} could not be rendered within {SECONDS:.0f} s.")
    try:
        drawn: dict[str, Any] = json.loads(b"".join(out))
    except ValueError as e:
        raise ToolError(f"{name} cannot be shown: its renderer ended with exit code {ended.code}.") from e
    if "error" in drawn:
        raise ToolError(f"{name} cannot be shown: {str(drawn['error']).rstrip('.')}.")
    return drawn
