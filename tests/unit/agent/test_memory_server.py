"""Other agents read memory over the protocol, and are registered without touching the rest of their configuration."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.agent import connections, memory_answers
from sakti.agent.connections import ConnectError
from sakti.agent.memory_server import MemoryServer
from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.threads import messages, threads


def talk(lines: list[Any], folder: Path, database: Path, *, all_workspaces: bool = False) -> list[dict[str, Any]]:
    """What a server answers to these lines, in its order."""
    reading, writing = os.pipe()
    data = "".join((line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0", **line})) + "\n" for line in lines)

    def answer(tool: str, arguments: dict[str, Any], where: Path) -> str:
        return memory_answers.answer(database, tool, arguments, where, all_workspaces=all_workspaces)

    def feed() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(data.encode())

    feeding = threading.Thread(target=feed)
    feeding.start()
    out = io.BytesIO()
    with os.fdopen(reading, "rb", buffering=0) as source:
        MemoryServer(source, out, folder, answer).run()
    feeding.join()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def text_of(message: dict[str, Any]) -> str:
    return message["result"]["content"][0]["text"]


async def fill(store: Store, folder: Path) -> None:
    def write(db: Database) -> None:
        for name, where in (("here", str(folder)), ("elsewhere", "/srv/other")):
            origin = {"origin": {"program": "codex"}} if name == "here" else {}
            threads.create(db, Thread(name, where, f"Till {name}", 1_790_000_000_000, 1, metadata=origin))
            for n in range(30):
                text = f"receipt numbers start at 100{n} {name} " + "long words " * 200
                message = Message(f"{name}-{n}", name, where, "user", (TextPart(text),), 1_790_000_000_000)
                messages.append(db, message)

    await store.write(write)


async def test_a_client_finds_dated_quotes_of_its_workspace(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    await fill(store, folder)
    capabilities = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}}
    roots = {"id": "sakti-roots", "result": {"roots": [{"uri": folder.as_uri()}]}}
    answers = talk(
        [
            {"id": 1, "method": "initialize", "params": capabilities},
            {"method": "notifications/initialized"},
            call(2, "memory_search", query="receipt numbers", limit=3),
            {"id": 3, "method": "ping"},
            roots,
            call(4, "memory_read", id="here-5"),
            call(5, "memory_read", id="elsewhere-5"),
            call(6, "memory_search", query="zeppelin"),
            call(7, "task_query", action="ready"),
            call(8, "memory_search", query="receipt numbers", limit=20, offset=10),
        ],
        tmp_path,
        store.path,
    )
    assert [a.get("id") for a in answers] == [1, "sakti-roots", 3, 2, 4, 5, 6, 7, 8]
    by_id = {a["id"]: a for a in answers}
    assert by_id[1]["result"]["protocolVersion"] == "2025-06-18"
    found = text_of(by_id[2])
    assert found.count("[codex · Till here · 2026-09-2") == 3 and "may be outdated" in found
    assert "elsewhere" not in found and "more: offset 3" in found
    assert "here-4" in text_of(by_id[4]) and "here-6" in text_of(by_id[4])
    assert [text_of(by_id[n]) for n in (5, 6, 7)] == ["Nothing found."] * 3
    assert all(len(text_of(by_id[n]).encode()) <= 8_000 for n in (2, 4, 8))
    everything = talk([call(1, "memory_read", id="elsewhere-5")], tmp_path, store.path, all_workspaces=True)
    assert "elsewhere-5" in text_of(everything[0]) and store.written == 1


def test_odd_arguments_get_an_answer_each(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database" * 200)
    limits: list[Any] = ["²", "--5", "١٢", 10**40, 1e400, -1, True, [], {}, "", "5", 5.0, " 7 "]
    lines = [call(n, "memory_search", query="x", limit=limit) for n, limit in enumerate(limits)]
    texts = [text_of(a) for a in talk(lines, tmp_path, tmp_path / "missing.db")]
    assert texts == ["'limit' is a whole number."] * 5 + ["Nothing found."] + ["'limit' is a whole number."] * 4 + (
        ["Nothing found."] * 3
    )
    (answer,) = talk([call(1, "memory_search", query="x")], tmp_path, tmp_path / "broken.db")
    assert answer["result"]["isError"] and "sakti doctor" in text_of(answer)


async def test_a_lone_surrogate_is_found_nowhere(store: Store, tmp_path: Path) -> None:
    await fill(store, tmp_path)
    lines = [
        call(1, "memory_read", id="\ud800"),
        call(2, "memory_search", query="\ud800"),
        call(3, "task_query", action="show", id="\ud800"),
    ]
    answers = talk(lines, tmp_path, store.path)
    assert "Nothing found." in {text_of(a) for a in answers}
    assert not any("sakti doctor" in text_of(a) for a in answers)


def test_the_protocol_answers_every_line_and_never_ends_early(tmp_path: Path) -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    lines = [
        "no json",
        "[1]",
        "[]",
        {"id": 1, "method": "server/discover", "params": meta},
        {"id": 2, "method": "tools/list", "params": meta},
        {"id": 3, "method": "tools/list"},
        {"id": 4, "method": "resources/list"},
        call(5, "rm"),
        call(6, "memory_search"),
        call(7, "memory_search", query="x", limit="many"),
        call(8, "memory_search", query="x", since="someday"),
        call(9, "task_query", action="show"),
        {"id": 10, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}},
        {"id": 11},
    ]
    answers = talk(lines, tmp_path, tmp_path / "missing.db")
    by_id = {a["id"]: a for a in answers if a["id"] is not None}
    assert [a["error"]["code"] for a in answers if a["id"] is None] == [-32700, -32600, -32600]
    assert by_id[1]["result"]["resultType"] == by_id[2]["result"]["resultType"] == "complete"
    assert "2026-07-28" in by_id[1]["result"]["supportedVersions"] and "resultType" not in by_id[3]["result"]
    tools = by_id[3]["result"]["tools"]
    assert [t["name"] for t in tools] == ["memory_search", "memory_read", "task_query"]
    assert all(t["annotations"]["readOnlyHint"] for t in tools) and len(json.dumps(tools)) < 3_000
    assert (by_id[4]["error"]["code"], by_id[5]["error"]["code"], by_id[11]["error"]["code"]) == (
        -32601,
        -32602,
        -32600,
    )
    assert [by_id[n]["result"]["isError"] for n in (6, 7)] == [True, True]
    assert [text_of(by_id[n]) for n in (8, 9)] == ["Nothing found."] * 2, "there is no database"
    assert by_id[10]["result"]["protocolVersion"] == "2025-11-25"


CONFIGS = {
    "claude-code": [
        "", "{}", '{"a": 1}', '{\n  "numStartups": 3,\n  "mcpServers": {},\n  "z": {"mcpServers": {"sakti": 1}}\n}\n',
        '{\n\t"mcpServers": {\n\t\t"git": {"command": "x", "args": ["{", "//"]}\n\t}\n}',
        '{"mcpServers":{"a":{}},"b":[]}',
    ],
    "opencode": ["", '// mine, "mcp": {\n{\n  "theme": "x", /* { */\n}\n', '{"mcp": {"sakti-old": {}}}\n'],
    "codex": ["", 'model = "x"', 'model = "x"\n\n[mcp_servers.git]\ncommand = "git"\n'],
    "vibe": ["", "a = 1\nmcp_servers = []\nb = 2\n",
             '[[mcp_servers]]\nname = "git"\n\n[[mcp_servers]]\nname = "web"\n'],
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@given(st.data())
def test_connecting_and_removing_leaves_every_byte(name: str, data: st.DataObject) -> None:
    program, command = connections.PROGRAMS[name], "/home/dev/bin/sakti"
    before: str | None = data.draw(st.sampled_from([None, *CONFIGS[name][1:]]))
    after = connections.connect(program, before, command)
    assert after is not None and program.has_entry(after) and command in after
    assert connections.connect(program, after, command) == after
    assert connections.disconnect(program, after, command) == before
    assert connections.disconnect(program, before, command) == before
    assert connections.disconnect(program, after, "/moved/sakti") == before
    with pytest.raises(ConnectError):
        connections.disconnect(program, after.replace('mcp"]', 'mcp", "x"]'), command)


@pytest.mark.parametrize("name", ["claude-code", "opencode"])
@given(st.data())
def test_an_entry_is_removed_after_the_program_wrote_its_file_again(name: str, data: st.DataObject) -> None:
    program, command = connections.PROGRAMS[name], "/home/dev/bin/sakti"
    names = st.sampled_from(["git", "mcp", "mcpServers", "sakti-old", '"{', "z"])
    leaf = st.dictionaries(names, st.one_of(st.none(), st.lists(names), st.dictionaries(names, names)))
    before: dict[str, Any] = data.draw(leaf)
    key = "mcpServers" if name == "claude-code" else "mcp"
    before[key] = data.draw(leaf)
    members = list(json.loads(connections.connect(program, json.dumps(before), command) or "").items())
    ours = dict(data.draw(st.permutations(members)))
    ours[key] = dict(data.draw(st.permutations(list(ours[key].items()))))
    again = json.dumps({"startups": 3, **ours, "last": {"sakti": 1}}, indent=data.draw(st.sampled_from([None, 2, 4])))
    after = connections.disconnect(program, again, command)
    assert after is not None and json.loads(after) == {"startups": 3, **before, "last": {"sakti": 1}}


def test_a_broken_configuration_is_not_changed(tmp_path: Path) -> None:
    for text in ('{"a": ', "[1", '{"mcpServers": {'):
        with pytest.raises(ConnectError):
            connections.connect(connections.PROGRAMS["claude-code"], text, "sakti")
    link, file = tmp_path / "link.json", tmp_path / "file.json"
    file.write_text("{}")
    file.chmod(0o640)
    link.symlink_to(file)
    connections.write(link, '{"a": 1}')
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, '{"a": 1}', 0o640)
