"""Turn what a server answers into results: text for the model, images, files for the rest."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Iterable
from pathlib import Path

import mcp_types as types
from msgspec.structs import replace

from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core import content as core_content
from sakti.core.text import byte_size, clean_surrogates, counted, one_line, sanitise
from sakti.core.tokens import Counter
from sakti.core.types import ImagePart, Json
from sakti.store.secrets import masked, masked_value

MOST_IMAGES = 10
STRUCTURE_STORED = 200_000  # characters of structured content that are stored


_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9][a-z0-9.+-]{0,60}")

# Errors of programs that the sandbox causes, and what the user can do.
_REFUSALS = (
    (
        re.compile(r"read-only file system|permission denied|operation not permitted|\b(?:EROFS|EACCES|EPERM)\b", re.I),
        'The sandbox lets this server change no files: `write = ["PATH"]` in its entry [mcp.{server}] allows a folder.',
    ),
    (
        re.compile(
            r"network is unreachable|name or service not known|temporary failure in name resolution|"
            r"\b(?:ENOTFOUND|EAI_AGAIN|ENETUNREACH)\b",
            re.I,
        ),
        'The sandbox gives this server no network: `network = ["HOST"]` in its entry [mcp.{server}] allows a host.',
    ),
)


def make_outcome(result: types.CallToolResult, run: ToolContext, counter: Counter, *, takes_images: bool) -> Outcome:
    """Return a tool's result for the model and the screen; a long one is cut, and a file keeps all of it."""
    texts: list[str] = []
    pictures: list[ImagePart] = []
    for block in result.content:
        picture = _read_image(block) if takes_images and len(pictures) < MOST_IMAGES else None
        if picture is not None:
            pictures.append(picture)
        else:
            texts.append(block_text(block, run))
    details: Json = {}
    if result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
        if not any(t.strip() for t in texts):
            texts.append(text)
        if len(text) <= STRUCTURE_STORED:
            details["structured"] = masked_value(result.structured_content)
    text = clean_surrogates(sanitise("\n".join(t for t in texts if t)))
    if not text:
        text = "[no output]" if not pictures else f"[{counted(len(pictures), 'image')}]"
    return _limit(Outcome(text, result.is_error, details, tuple(pictures)), run, counter)


def _limit(outcome: Outcome, run: ToolContext, counter: Counter) -> Outcome:
    """Cut a result for the model; a file keeps all of it."""
    text = masked(outcome.content)
    shown, file = run.state.cut_output(text, run.call_id, counter)
    details = outcome.details
    if file:
        shown += (
            f"\n[The whole result of {len(text):,} characters is in {file}: read it with offset and limit, or grep it.]"
        )
        details = {**details, "output_file": file, "characters": len(text)}
    return Outcome(shown, outcome.is_error, details, outcome.images, is_limited=True)


def add_sandbox_hint(outcome: Outcome, server: str) -> Outcome:
    """Add the setting to change if the sandbox may be why a call failed, which programs do not know."""
    for pattern, hint in _REFUSALS:
        if pattern.search(outcome.content):
            note = f"[{hint.format(server=server)}]"
            return replace(outcome, content=f"{outcome.content}\n{note}")
    return outcome


def block_text(block: types.ContentBlock, run: ToolContext) -> str:
    """Return a block of content as text; sounds and other binary content go to a file that the text names."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return _save(run, block.data, block.mime_type, "image")
        case types.AudioContent():
            return _save(run, block.data, block.mime_type, "sound")
        case types.ResourceLink():
            return f"[resource {one_line(block.uri, 300)}: {one_line(block.description or block.name, 300)}]"
        case types.EmbeddedResource():
            return resource_text(block.resource, run)


def resource_text(resource: types.TextResourceContents | types.BlobResourceContents, run: ToolContext) -> str:
    """Return the content of a resource as text; binary content goes to a file."""
    if isinstance(resource, types.TextResourceContents):
        return f"[resource {one_line(resource.uri, 300)}]\n{resource.text}"
    return _save(run, resource.blob, resource.mime_type or "", f"resource {one_line(resource.uri, 300)}")


def _read_image(block: types.ContentBlock) -> ImagePart | None:
    """Return the image of a block, if models take its format and size."""
    if not isinstance(block, types.ImageContent) or len(block.data) > core_content.LIMIT * 4 // 3:
        return None
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    looked = core_content.look(data[: core_content.HEAD])
    if looked is None:
        return None
    media_type, width, height = looked
    return ImagePart(media_type, block.data, "image of a tool", width, height)


def _save(run: ToolContext, data: str, mime_type: str, what: str) -> str:
    try:
        content = base64.b64decode(data)
    except (binascii.Error, ValueError):
        return f"[{what} that is damaged]"
    media_type = mime_type.partition(";")[0].strip().lower()
    is_valid = _MEDIA_TYPE.fullmatch(media_type) is not None
    kind = media_type if is_valid else "unknown type"
    end = mimetypes.guess_extension(media_type) or ".bin" if is_valid else ".bin"
    folder = run.state.output_folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / Path(run.state.output_name(run.call_id)).with_suffix(end).name
    path.write_bytes(content)
    path.chmod(0o600)
    return f"[{what} ({kind}, {byte_size(len(content))}) saved as {path}]"


def outside_text(kind: str, source: str, texts: Iterable[str]) -> str:
    """Mark texts as outside text with their source."""
    body = sanitise("\n\n".join(t for t in texts if t)).replace(f"</{kind}>", f"<\u200b/{kind}>")
    return f'<{kind} from="{one_line(source, 300)}">\n{body}\n</{kind}>'
