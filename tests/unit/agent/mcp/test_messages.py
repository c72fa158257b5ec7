"""Messages of servers that are no messages, and errors of libraries, as users and models get them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import MCPError
from pydantic import ValidationError

from sakti.agent.mcp import messages, tools
from sakti.agent.mcp.servers import McpServer, ServerState, StateName
from sakti.agent.tools.context import Outcome, ToolState
from sakti.core.clock import SystemClock, TimeIds
from sakti.core.errors import SaktiError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SERVER = McpServer("fake", Path("c.toml"), "user", url="http://tools.example.org/mcp")


@settings(max_examples=100, deadline=None)
@given(JSON, st.integers(0, 10**6), st.binary(max_size=40), st.booleans())
def test_a_line_with_an_id_ends_its_call_and_none_raises(result: Any, number: int, junk: bytes, cut: bool) -> None:
    answer = {"jsonrpc": "2.0", "id": number, "result": result}
    line = json.dumps(answer).encode()
    message = messages.read_message(line[:-1] + junk if cut else line)
    if message is not None:
        assert message.id == number  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
    assert message is not None or cut
    messages.read_message(b"{" + junk)
    request = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": result}
    answered = messages.read_message(json.dumps(request).encode())
    assert not isinstance(answered, types.JSONRPCError), "a request of the server has ids of its own"


def invalid(data: object) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        types.CallToolResult.model_validate(data)
    return caught.value


def sdk(message: str, code: int = -32603) -> MCPError:
    return MCPError(code=code, message=message)


def test_no_text_of_a_library_reaches_the_user() -> None:
    expected = [
        (ExceptionGroup("x", [ExceptionGroup("y", [TimeoutError()])]), "it was not ready within 20 s"),
        (sdk("Connection closed", -32000), "it ended before it was ready"),
        (sdk("license expired.", -32000), "license expired"),
        (sdk("", -32000), "it answered with an error without a text"),
        (sdk("Failed to parse JSON response: 1 validation error for …"), messages.UNREADABLE),
        (sdk("Server returned an error response"), messages.HTTP_ERROR),
        (sdk("Not Found"), "nothing answers at its address (HTTP 404): check its url"),
        (invalid({"content": 3}), "its answer has a wrong content"),
        (invalid({"content": [{"type": "text"}]}), "its answer has no content.text"),
        (RuntimeError("Invalid structured content returned by tool x: 3 is not …"),
         "its structured content does not match the output schema of the tool"),
        (RuntimeError("anything"), "its answer cannot be used"),
        (FileNotFoundError(2, "No such file"), "No such file"),
        (SaktiError("It is away."), "It is away"),
    ]  # fmt: skip
    for error, sentence in expected:
        assert messages.explain(error, SERVER) == sentence
    states: dict[tuple[StateName, str], str] = {
        ("starting", ""): "is still starting. Call again",
        ("starting", "it ended."): "starts again (it ended). Call again",
        ("needs login", ""): "sakti mcp login fake",
        ("failed", "it ended."): "does not run (it ended). The user can start it with `/mcp restart fake`",
        ("disabled", ""): "is off; the user can turn it on",
    }
    for (state, error), part in states.items():
        assert part in messages.explain_state(ServerState(SERVER, state, error=error))


def test_binary_content_is_saved_under_a_plain_ending(tmp_path: Path) -> None:
    state = ToolState(tmp_path, tmp_path, tmp_path / "out", SystemClock(), TimeIds(SystemClock()), {})
    run = state.make_context("call-123456789012", "t", "m")
    kinds = {"audio/wav\x1b[31m": ".bin", "application/pdf": ".pdf", "../../x": ".bin", "": ".bin", "a/b": ".bin"}
    for mime_type, ending in kinds.items():
        block = types.AudioContent(type="audio", data=base64.b64encode(b"x").decode(), mime_type=mime_type)
        text = tools.read_block(block, run)
        assert text.endswith(f"{ending}]") and "\x1b" not in text, mime_type


@pytest.mark.parametrize(("text", "hint"), [
    ("OSError: [Errno 30] Read-only file system: '/x'", '`write = ["PATH"]` in its entry [mcp.git]'),
    ("Error: EACCES, open '/x'", '`write = ["PATH"]`'),
    ("getaddrinfo ENOTFOUND api.example.org", '`network = ["HOST"]` in its entry [mcp.git]'),
    ("no such branch", ""),
])  # fmt: skip
def test_a_refusal_of_the_sandbox_names_the_setting(text: str, hint: str) -> None:
    hinted = tools.add_sandbox_hint(Outcome(text, is_error=True), "git").content
    assert (hint in hinted and hinted.startswith(text)) if hint else hinted == text


def test_a_file_that_exists_and_was_not_found_is_hidden_by_the_sandbox(tmp_path: Path) -> None:
    there, away = tmp_path / "there", tmp_path / "away"
    there.touch()
    assert messages.find_hidden(f"bwrap: execvp {there}: No such file or directory") == str(there)
    assert messages.find_hidden(f"python3: can't open file '{there}': [Errno 2] No such file or directory") == str(
        there
    )
    assert messages.find_hidden(f"{there}: {away}: No such file or directory") == ""
    assert messages.find_hidden(f"{there}: Permission denied") == ""
