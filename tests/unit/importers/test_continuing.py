"""Imported threads go on here: no provider has a reason to refuse their history."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sakti import importers
from sakti.core.tokens import Estimator
from sakti.core.types import Json, ModelInfo
from sakti.importers.service import ImportOptions, Service
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from tests.fakes.model_server import Reply, model_server, provider
from tests.fakes.session import start

HISTORIES = Path(__file__).parents[4] / "shared" / "histories"
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def find_faults(api: str, body: Json) -> list[str]:
    """Why a provider would refuse the request's history."""
    if api == "responses":
        return list(_find_in_items(body["input"]))
    return list((_find_in_messages if api == "messages" else _find_in_chat)(body["messages"]))


def _find_in_messages(turns: list[Json]) -> Iterator[str]:
    open_calls: set[str] = set()
    for number, turn in enumerate(turns):
        if turn["role"] != ("user", "assistant")[number % 2]:
            yield f"turn {number} is the {turn['role']}'s"
        blocks = turn["content"] if isinstance(turn["content"], list) else [{"type": "text", "text": turn["content"]}]
        results = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if not blocks or results != open_calls:
            yield f"turn {number} answers {results} in place of {open_calls}"
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        open_calls = set(calls)
        if len(calls) != len(open_calls) or not all(map(ID.fullmatch, calls)):
            yield f"turn {number} has odd ids: {calls}"
        if any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            yield f"turn {number} has an empty text"
        if any(b["type"] == "thinking" and not b.get("signature") for b in blocks):
            yield f"turn {number} has thinking without a signature"


def _find_in_chat(turns: list[Json]) -> Iterator[str]:
    open_calls: list[str] = []
    for number, turn in enumerate(turns):
        if turn["role"] == "tool":
            if turn["tool_call_id"] not in open_calls:
                yield f"turn {number} answers no call"
            else:
                open_calls.remove(turn["tool_call_id"])
            continue
        if open_calls:
            yield f"turn {number} comes before the results of {open_calls}"
        open_calls = [c["id"] for c in turn.get("tool_calls") or []]
        if not open_calls and not turn.get("content"):
            yield f"turn {number} is empty"
        if not all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in turn.get("tool_calls") or []):
            yield f"turn {number} has arguments that are no object"


def _find_in_items(items: list[Json]) -> Iterator[str]:
    open_calls: list[str] = []
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if item["call_id"] not in open_calls:
                yield f"item {number} answers no call"
            else:
                open_calls.remove(item["call_id"])
        elif kind == "function_call":
            open_calls.append(item["call_id"])
            if not ID.fullmatch(item["call_id"]) or not isinstance(json.loads(item["arguments"]), dict):
                yield f"item {number} has an odd call"
        elif kind == "reasoning":
            yield f"item {number} is thinking of another model"
        elif item["role"] == "user" and open_calls:
            yield f"item {number} comes before the results of {open_calls}"
        elif not item["content"]:
            yield f"item {number} is empty"
    if open_calls:
        yield f"{open_calls} have no results"


@pytest.mark.skipif(not HISTORIES.is_dir(), reason="the histories of the real programs are not here")
@pytest.mark.parametrize("api", ["messages", "chat", "responses"])
@pytest.mark.parametrize("program", importers.READERS)
async def test_an_imported_thread_goes_on_with_every_protocol(
    store: Store, tmp_path: Path, program: str, api: str
) -> None:
    workspace, root = tmp_path / "w", HISTORIES / "ledger" / program
    workspace.mkdir()
    if program == "mastra":
        root = tmp_path / "mastra.db"
        root.write_bytes(lzma.decompress((HISTORIES / "mastra" / "S7-burst-over-threshold.db.xz").read_bytes()))
    if program == "aider":  # its workspace is the folder of the file
        root = Path(shutil.copytree(root, workspace, dirs_exist_ok=True))
    options = ImportOptions(workspace, tmp_path, renamed=(("/home/dev/ledger", str(workspace)),))
    await Service(store, options, Estimator()).import_program(importers.make_importer(program), root)
    listed = await store.read(threads.list_recent, str(workspace), origin=program)
    thread = max(listed, key=lambda t: (t.created_at, t.id))
    history = await store.read(messages.list_after, thread.id, -1)
    last_text = next(m.text for m in reversed(history) if m.role in ("user", "assistant") and m.text.strip())

    def play(body: Json) -> Reply:
        faults = find_faults(api, body)
        return Reply(status=400, error="; ".join(faults)) if faults else Reply("It goes on.")

    async with model_server(play) as server:
        model = ModelInfo("m", "p", context_window=200_000, images=True)
        at = provider(api, server.url)
        talk = await start(store, workspace, [], provider=at, model=model, resume=thread.id)
        end = await talk.ask("what is next?")
        await talk.session.close()
    assert (end.status, end.text, server.refused) == ("answered", "It goes on.", [])
    assert json.dumps(last_text[:60], ensure_ascii=False)[1:-1] in json.dumps(server.bodies[-1], ensure_ascii=False)
    (continued,) = await store.read(threads.list_recent, str(workspace), continued=True)
    assert continued.id == thread.id and continued.metadata["origin"]["program"] == program
