"""Convert servers' tools for the toolbox, and their answers to results: text, images, files.

The last list of a server's tools and the descriptions that the user approved are stored.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import difflib
import json
import mimetypes
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import msgspec
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import RemoteFacts
from sakti.agent.mcp import servers
from sakti.agent.mcp.connection import Connection
from sakti.agent.mcp.servers import McpServer, McpTool
from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core import content as core_content
from sakti.core import json_schema, resources
from sakti.core.errors import ToolError
from sakti.core.text import clean_surrogates, format_bytes, format_count, sanitize_text, to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import ImagePart, Json, ToolSpec
from sakti.store.secrets import mask_secrets, mask_value

MOST_IMAGES = 10
STRUCTURE_STORED = 200_000  # characters of structured content that are stored


_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9][a-z0-9.+-]{0,60}")

# Program errors caused by the sandbox, and remedies for the user.
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


def _read_blocks(
    blocks: Sequence[types.ContentBlock], run: ToolContext, most: int
) -> tuple[list[str], list[ImagePart]]:
    """Return the texts of blocks, and a limited number of pictures."""
    texts: list[str] = []
    pictures: list[ImagePart] = []
    for block in blocks:
        picture = _read_image(block) if len(pictures) < most else None
        if picture is not None:
            pictures.append(picture)
        else:
            texts.append(read_block(block, run))
    return texts, pictures


def make_outcome(result: types.CallToolResult, run: ToolContext, counter: Counter, *, takes_images: bool) -> Outcome:
    """Return a tool's result for model and screen; a long one is cut and stored in full in a file."""
    texts, pictures = _read_blocks(result.content, run, MOST_IMAGES if takes_images else 0)
    details: Json = {}
    if result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
        if not any(t.strip() for t in texts):
            texts.append(text)
        if len(text) <= STRUCTURE_STORED:
            details["structured"] = mask_value(result.structured_content)
    text = clean_surrogates(sanitize_text("\n".join(t for t in texts if t)))
    if not text:
        text = "[no output]" if not pictures else f"[{format_count(len(pictures), 'image')}]"
    return _limit_outcome(Outcome(text, result.is_error, details, tuple(pictures)), run, counter)


def _limit_outcome(outcome: Outcome, run: ToolContext, counter: Counter) -> Outcome:
    """Cut a result for the model; the full text is stored in a file."""
    text = mask_secrets(outcome.content)
    shown, file = run.state.cut_output(text, run.call_id, counter)
    details = outcome.details
    if file:
        shown += (
            f"\n[The whole result of {len(text):,} characters is in {file}: read it with offset and limit, or grep it.]"
        )
        details = {**details, "output_file": file, "characters": len(text)}
    return Outcome(shown, outcome.is_error, details, outcome.images, is_limited=True)


def add_sandbox_hint(outcome: Outcome, server: str) -> Outcome:
    """Name the setting to change if the sandbox may have caused a call to fail."""
    for pattern, hint in _REFUSALS:
        if pattern.search(outcome.content):
            note = f"[{hint.format(server=server)}]"
            return replace(outcome, content=f"{outcome.content}\n{note}")
    return outcome


def read_block(block: types.ContentBlock, run: ToolContext) -> str:
    """Return a block of content as text; binary content such as audio goes to a file that the text names."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return _save_binary(run, block.data, block.mime_type, "image")
        case types.AudioContent():
            return _save_binary(run, block.data, block.mime_type, "sound")
        case types.ResourceLink():
            return f"[resource {to_one_line(block.uri, 300)}: {to_one_line(block.description or block.name, 300)}]"
        case types.EmbeddedResource():
            return read_contents(block.resource, run)


def read_contents(resource: types.TextResourceContents | types.BlobResourceContents, run: ToolContext) -> str:
    """Return the content of a resource as text; binary content goes to a file."""
    if isinstance(resource, types.TextResourceContents):
        return f"[resource {to_one_line(resource.uri, 300)}]\n{resource.text}"
    return _save_binary(run, resource.blob, resource.mime_type or "", f"resource {to_one_line(resource.uri, 300)}")


def _read_image(block: types.ContentBlock) -> ImagePart | None:
    """Return the image of a block, if models accept its format and size."""
    if not isinstance(block, types.ImageContent) or len(block.data) > core_content.LIMIT * 4 // 3:
        return None
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    looked = core_content.read_image_header(data[: core_content.HEAD])
    if looked is None:
        return None
    media_type, width, height = looked
    return ImagePart(media_type, block.data, "image of a tool", width, height)


def _save_binary(run: ToolContext, data: str, mime_type: str, what: str) -> str:
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
    path = folder / Path(run.state.make_output_name(run.call_id)).with_suffix(end).name
    path.write_bytes(content)
    path.chmod(0o600)
    return f"[{what} ({kind}, {format_bytes(len(content))}) saved as {path}]"


def mark_outside_text(kind: str, source: str, texts: Iterable[str]) -> str:
    """Mark texts as outside text with their source."""
    body = sanitize_text("\n\n".join(t for t in texts if t)).replace(f"</{kind}>", f"<\u200b/{kind}>")
    return f'<{kind} from="{to_one_line(source, 300)}">\n{body}\n</{kind}>'


class KnownTools:
    """Record of one server in a file, by the server's name and the file that configures it."""

    def __init__(self, server: McpServer, folder: Path | None = None) -> None:
        self._server = server
        name = servers.compute_digest(f"{server.source}\n{server.name}")[:16]
        self._path = (folder or resources.state_home() / "mcp") / f"{name}.json"
        self._record: Json = {}
        with contextlib.suppress(OSError, ValueError):
            record: Any = json.loads(self._path.read_text())
            self._record = cast("Json", record) if isinstance(record, dict) else {}

    def list_tools(self) -> tuple[McpTool, ...]:
        """Return the tools of the last connection."""
        try:
            return msgspec.convert(self._record.get("tools", []), tuple[McpTool, ...])
        except msgspec.ValidationError:
            return ()

    def keep(self, tools: tuple[McpTool, ...]) -> None:
        """Store the tools that the server lists now."""
        if tools != self.list_tools():
            self._save({"tools": msgspec.to_builtins(tools)})

    def approve(self, tool: McpTool) -> None:
        """Store the description and schema that the user has approved."""
        text = servers.format_tool(tool)
        if self._approved_texts.get(tool.original_name) != text:
            self._save({"approved": {**self._approved_texts, tool.original_name: text}})

    def is_new(self, tool: McpTool) -> bool:
        """Return whether no description of the tool was approved yet."""
        return tool.original_name not in self._approved_texts

    def diff(self, tool: McpTool) -> str:
        """Return the diff of description and schema to the approved ones; "" without changes or approval."""
        before, now = self._approved_texts.get(tool.original_name), servers.format_tool(tool)
        if before is None or before == now:
            return ""
        names = (f"{tool.name} as approved", f"{tool.name} now")
        return "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), *names))

    @property
    def _approved_texts(self) -> dict[str, str]:
        texts = self._record.get("approved")
        return cast("dict[str, str]", texts) if isinstance(texts, dict) else {}

    def _save(self, changes: Json) -> None:
        self._record = {**self._record, **changes}
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._path.parent, delete=False) as file:
                json.dump(self._record, file)
            Path(file.name).replace(self._path)


MOST_PROBLEMS = 5  # of arguments that an error names


async def _refuse_call(*_: Any) -> Outcome:
    raise NotImplementedError  # a ServerTool calls its server


class ServerTool(Tool, frozen=True, kw_only=True):
    """Tool of a server. `takes_images` says whether the model does."""

    offer: McpTool
    connection: Connection
    counter: Counter
    takes_images: Callable[[], bool]

    def spec(self) -> ToolSpec:
        text = f"{self.description}\n(Text of the MCP server {self.offer.server}.)".strip()
        return ToolSpec(self.name, text, self.offer.schema)

    async def __call__(self, run: ToolContext, arguments: Json) -> Outcome:
        """Check the arguments and call the server. Raises `ToolError`."""
        state = self.connection.state
        if state.state == "ready" and all(tool.name != self.name for tool in state.tools):
            raise ToolError(f"{self.name} is no longer offered by the MCP server {self.offer.server}.")
        self.check(arguments, run.cwd)
        answer = await self.connection.call_tool(self.offer, arguments, run.show_progress)
        outcome = make_outcome(answer, run, self.counter, takes_images=self.takes_images())
        if outcome.is_error and self.connection.is_sandboxed:
            outcome = add_sandbox_hint(outcome, self.offer.server)
        return outcome

    def check(self, arguments: Json, cwd: Path) -> Json:
        """Return the arguments unchanged. Raises `ToolError` if the schema forbids them."""
        try:
            wrong = json_schema.find_violations(arguments, servers.drop_patterns(self.offer.schema))
        except json_schema.UnusableSchema:
            return arguments  # the server says what is wrong
        if wrong:
            problems = "; ".join(f"{path}: {text}" for path, text in wrong[:MOST_PROBLEMS])
            raise ToolError(f"{self.name} was called with wrong arguments: {problems}. load_tool shows its schema.")
        return arguments


def make_tool(
    offer: McpTool,
    connection: Connection,
    known: KnownTools,
    counter: Counter,
    takes_images: Callable[[], bool],
    *,
    is_confined: bool,
) -> ServerTool:
    """Make the tool that calls a server."""
    return ServerTool(
        name=offer.name,
        description=offer.description,
        parameters={},
        function=_refuse_call,
        effect="remote",
        parallel=offer.is_read_only,
        rule_name=offer.name,
        remote=RemoteFacts(
            reads_only=offer.is_read_only,
            is_destructive=offer.is_destructive,
            is_confined=is_confined,
            fingerprint=servers.compute_fingerprint(offer),
            diff=lambda: known.diff(offer),
            note_use=lambda by_user: known.approve(offer) if by_user or known.is_new(offer) else None,
        ),
        offer=offer,
        connection=connection,
        counter=counter,
        takes_images=takes_images,
    )
