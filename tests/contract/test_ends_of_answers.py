"""Ends of answers in three protocols: known, unknown, missing, and shapes that servers send in their own way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import Json, TextPart, ThinkingPart, ToolCallPart
from sakti.providers.protocol import Completed, TextChunk
from tests.fakes.endpoints import PROVIDERS
from tests.fakes.http import FakeServer, serving
from tests.fakes.requests import READ, message, play, request, result

KEYS = ("x", "sk-test-0123456789abcdef")
every = pytest.mark.parametrize("api", PROVIDERS)
any_key = pytest.mark.parametrize("key", KEYS)


@asynccontextmanager
async def provider_of(
    api: str, events: Sequence[Json | str], key: str = KEYS[1]
) -> AsyncIterator[tuple[Any, FakeServer]]:
    async with serving(events) as server:
        provider = PROVIDERS[api](key, base_url=server.url, timeout=5)
        yield provider, server
        await provider.close()


async def answer_to(api: str, events: Sequence[Json | str], key: str = KEYS[1]) -> Completed:
    async with provider_of(api, events, key) as (provider, _):
        return (await play(provider, request(tools=(READ,))))[1]


def stream(api: str, reason: str | None, *, text: str = "Half an answer", call: bool = False) -> list[Json | str]:
    """An answer that ends for `reason`; None: no end at all."""
    if api == "chat":
        calls = [{"index": 0, "id": "c", "function": {"name": "read", "arguments": '{"path": "a"}'}}] if call else []
        said = [{"choices": [{"index": 0, "delta": {"content": text, "tool_calls": calls}}]}]
        return [*said, {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, "[DONE]"] if reason else said
    if api == "anthropic":
        use = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a"}}
        events: list[Json | str] = [
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}},
        ]
        events += [{"type": "content_block_start", "index": 1, "content_block": use}] if call else []
        end = [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]
        return [*events, *end] if reason else events
    item = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    use = {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path": "a"}'}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": text},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    events += [{"type": "response.output_item.done", "output_index": 1, "item": use}] if call else []
    end = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return [*events, {"type": "response.incomplete", "response": end}] if reason else events


@every
@any_key
@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "network_error", "abort", "server_error"])
async def test_reasons_of_failed_servers_are_cut_streams(api: str, reason: str, key: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_to(api, stream(api, reason), key)
    assert (caught.value.code, caught.value.retryable) == ("stream_cut", True)


@every
@any_key
@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("length", "length"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("model_length", "length"),
        ("sensitive", "refusal"),
        ("content_filter", "refusal"),
        ("safety", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("stop", "end"),
        ("eos", "end"),
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("STOP", "end"),
    ],
)
async def test_known_reasons(api: str, reason: str, stop: str, key: str) -> None:
    done = await answer_to(api, stream(api, reason), key)
    assert (done.stop_reason, done.unknown_reason) == (stop, "")
    assert "".join(p.text for p in done.parts if isinstance(p, TextPart)) == "Half an answer"


@pytest.mark.parametrize(("kind", "stop"), [("completed", "end"), ("done", "end"), ("incomplete", "length")])
async def test_the_name_of_the_last_event_says_how_it_ended(kind: str, stop: str) -> None:
    events = [*stream("responses", None), {"type": f"response.{kind}", "response": {}}]
    assert (await answer_to("responses", events)).stop_reason == stop


async def test_a_cancelled_response_is_a_cut_stream() -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_to("responses", [*stream("responses", None), {"type": "response.cancelled", "response": {}}])
    assert caught.value.code == "stream_cut"


@every
async def test_unknown_reasons_keep_the_answer_and_are_named(api: str) -> None:
    done = await answer_to(api, stream(api, "quantum_flux"))
    assert (done.stop_reason, done.unknown_reason) == ("unknown", "quantum_flux")
    assert "Half" in "".join(p.text for p in done.parts if isinstance(p, TextPart))
    done = await answer_to(api, stream(api, "quantum_flux", call=True))
    assert (done.stop_reason, done.unknown_reason) == ("tool_use", "quantum_flux"), "whole calls are run"


MISSING_ENDS = {
    "anthropic": stream("anthropic", "end_turn")[:-1],
    "chat": [*stream("chat", None), "[DONE]"],
    "chat without [DONE]": stream("chat", "stop")[:-1],
    "responses": [*stream("responses", None), "[DONE]"],
    "responses.done": [*stream("responses", None), {"type": "response.done", "response": {"status": "completed"}}],
}


@any_key
@pytest.mark.parametrize("case", MISSING_ENDS)
async def test_complete_answers_without_their_last_marker_are_kept(case: str, key: str) -> None:
    done = await answer_to(case.split()[0].split(".")[0], MISSING_ENDS[case], key)
    assert done.stop_reason == "end"
    assert "".join(p.text for p in done.parts if isinstance(p, TextPart)) == "Half an answer"


@every
async def test_answers_without_any_end_are_cut(api: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_to(api, stream(api, None))
    assert caught.value.code == "stream_cut"


def item_events(index: int, item: Json, *, status: str | None = "completed", done: bool = True) -> list[Json | str]:
    """The events of an item of a response, as far as it came."""
    place = {"output_index": index}
    events: list[Json | str] = [{"type": "response.output_item.added", **place, "item": {**item, "content": []}}]
    if item["type"] == "message":
        text = item["content"][0]["text"]
        events += [
            {"type": "response.output_text.delta", **place, "delta": text},
            {"type": "response.output_text.done", **place, "text": text},
        ]
    return [*events, *([{"type": "response.output_item.done", **place, "item": {**item, "status": status}}] * done)]


THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
ANSWER: Json = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "A whole answer"}]}
CALL: Json = {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path": "a"}'}
WHOLE_ITEMS: dict[str, list[Json | str]] = {
    "text": item_events(0, ANSWER),
    "thinking and text": [*item_events(0, THOUGHT, status=None), *item_events(1, ANSWER)],
    "call": item_events(0, CALL),
    "text and call": [*item_events(0, {**ANSWER, "phase": "commentary"}), *item_events(1, CALL)],
}
HALF_ITEMS: dict[str, list[Json | str]] = {
    "nothing": [{"type": "response.created", "response": {}}],
    "text": item_events(0, ANSWER, done=False),
    "text cut by the server": item_events(0, ANSWER, status="incomplete"),
    "text without a status": item_events(0, ANSWER, status=None),
    "thinking": item_events(0, THOUGHT),
    "commentary": item_events(0, {**ANSWER, "phase": "commentary"}),
    "call": item_events(0, CALL, done=False),
    "text and half a call": [*item_events(0, ANSWER), *item_events(1, CALL, done=False)],
    "call and half a text": [*item_events(0, CALL), *item_events(1, ANSWER, done=False)],
    "a delta of a call": [*item_events(0, ANSWER),
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"}],
    "text and an event of another protocol": [*item_events(0, ANSWER),
        {"type": "response.output_item.added", "output_index": "x"}],
}  # fmt: skip


@any_key
@pytest.mark.parametrize("case", WHOLE_ITEMS)
async def test_a_response_without_its_last_event_is_kept_if_its_items_are_whole(case: str, key: str) -> None:
    done = await answer_to("responses", WHOLE_ITEMS[case], key)
    assert done.stop_reason == ("tool_use" if "call" in case else "end")
    last = ToolCallPart("c", "read", {"path": "a"}) if "call" in case else "A whole answer"
    assert (done.parts[-1].text if isinstance(done.parts[-1], TextPart) else done.parts[-1]) == last


@pytest.mark.parametrize("case", HALF_ITEMS)
async def test_a_response_without_its_last_event_is_cut_if_an_item_is_missing(case: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_to("responses", HALF_ITEMS[case])
    assert caught.value.retryable


async def test_a_failure_behind_whole_items_is_a_failure() -> None:
    error = FAILURES["responses"]({"message": "slow down", "code": "rate_limit_exceeded"})
    with pytest.raises(ProviderError) as caught:
        await answer_to("responses", [*WHOLE_ITEMS["text"], error])
    assert caught.value.code == "rate_limit"


async def test_half_a_call_before_done_is_cut() -> None:
    half = {"index": 0, "id": "c", "function": {"name": "read", "arguments": '{"pa'}}
    with pytest.raises(ProviderError) as caught:
        await answer_to("chat", [{"choices": [{"delta": {"tool_calls": [half]}}]}, "[DONE]"])
    assert caught.value.code == "stream_cut"


@every
async def test_a_line_that_is_broken_behind_the_end_costs_nothing(api: str) -> None:
    events = stream(api, "end_turn" if api == "anthropic" else "stop")
    if api != "responses":
        events = [*events[:-1], "{broken"]
        assert (await answer_to(api, events)).stop_reason == "end"


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "upstream broke", "code": 502}, "stream_cut", True),
        ({"message": "upstream broke"}, "stream_cut", True),
        ({"message": "slow down", "code": 429}, "rate_limit", True),
        ({"message": "no", "code": "insufficient_quota"}, "authentication", False),
    ],
)
async def test_errors_of_a_choice_are_errors(error: Json, code: str, retryable: bool) -> None:
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": error}
    with pytest.raises(ProviderError) as caught:
        await answer_to("chat", [*stream("chat", None), {"choices": [choice]}, "[DONE]"])
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


FAILURES = {
    "anthropic": lambda error: {"type": "error", "error": error},
    "chat": lambda error: {"error": error},
    "responses": lambda error: {"type": "response.failed", "response": {"status": "failed", "error": error}},
}


@every
@any_key
@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "You exceeded your current quota.", "code": "insufficient_quota"}, "authentication", False),
        ({"message": "Not allowed.", "code": "cyber_policy"}, "refused", False),
        ({"message": "Flagged.", "code": "invalid_prompt"}, "invalid_request", False),
        ({"message": "Prompt exceeds max length"}, "context_too_long", False),
        ({"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}, "context_too_long",
         False),
        ({"message": "slow down, try again in 8.2s", "code": "rate_limit_exceeded"}, "rate_limit", True),
        ({"message": "oops", "code": "server_error"}, "server", True),
    ],
)  # fmt: skip
async def test_errors_inside_streams(api: str, error: Json, code: str, retryable: bool, key: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_to(api, [*stream(api, None), FAILURES[api](error)], key)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    if code == "rate_limit":
        assert caught.value.retry_after == 8.2


# --- shapes ---------------------------------------------------------------------------------------------------------


@every
async def test_a_byte_order_mark_costs_nothing(api: str) -> None:
    events = stream(api, "end_turn" if api == "anthropic" else "stop")
    async with serving(events) as server:
        marked = "\ufeffdata: " + (events[0] if isinstance(events[0], str) else json.dumps(events[0])) + "\n\n"
        server.events = events[1:]
        server.prefix = marked.encode()
        provider = PROVIDERS[api](KEYS[1], base_url=server.url, timeout=5)
        _, done = await play(provider, request())
        await provider.close()
    assert "".join(p.text for p in done.parts if isinstance(p, TextPart)) == "Half an answer"


async def test_other_choices_are_not_mixed_into_the_text() -> None:
    events: list[Json | str] = [
        {"choices": [{"index": n, "delta": {"content": text}}]} for text in ("a", "b") for n in (1, 0, 2)
    ]
    events.append({"choices": [{"index": 2, "delta": {"content": "c"}}, {"index": 0, "delta": {"content": "c"}}]})
    ends = [{"choices": [{"index": n, "delta": {}, "finish_reason": "stop"}]} for n in (1, 0)]
    done = await answer_to("chat", [*events, *ends, "[DONE]"])
    assert done.parts == (TextPart("abc"),)


def delta(arguments: str, call_id: str | None, name: str = "", index: int | None = 0) -> Json:
    call = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


END: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize("repeated", ["", "read"])
async def test_a_new_id_in_each_delta_is_one_call(repeated: str) -> None:
    deltas = [delta("", "a", "read"), delta('{"pa', "b", repeated), delta('th": "x"}', "c", repeated)]
    done = await answer_to("chat", [*deltas, END])
    assert done.parts == (ToolCallPart("a", "read", {"path": "x"}),)


@pytest.mark.parametrize("index", [0, None])
async def test_calls_with_one_number_are_told_apart(index: int | None) -> None:
    deltas = [delta('{"path": "x"}', "a", "read", index), delta('{"path": "y"}', "b", "read", index)]
    done = await answer_to("chat", [*deltas, END])
    assert [(p.id, p.arguments) for p in done.parts] == [("a", {"path": "x"}), ("b", {"path": "y"})]


def use(call_id: str, path: str) -> Json:
    arguments = json.dumps({"path": path})
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "read", "arguments": arguments}


@pytest.mark.parametrize("with_ids", [True, False])
async def test_calls_without_an_output_index_are_told_apart(with_ids: bool) -> None:
    events: list[Json | str] = []
    for call in (use("a", "x"), use("b", "y")):
        item_id = {"item_id": call["id"]} if with_ids else {}
        events += [
            {"type": "response.output_item.added", "item": {**call, "arguments": ""}},
            {"type": "response.function_call_arguments.delta", **item_id, "delta": call["arguments"]},
            {"type": "response.output_item.done", "item": call},
        ]
    done = await answer_to("responses", [*events, {"type": "response.completed", "response": {"status": "completed"}}])
    assert done.parts == (ToolCallPart("a", "read", {"path": "x"}), ToolCallPart("b", "read", {"path": "y"}))


async def test_an_answer_that_comes_with_its_end_only_is_read_and_shown() -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}, use("a", "x")]
    end = {"type": "response.completed", "response": {"status": "completed", "output": output}}
    async with provider_of("responses", [end]) as (provider, _):
        events, done = await play(provider, request())
    assert done.parts == (TextPart("Hi."), ToolCallPart("a", "read", {"path": "x"}))
    assert [e.text for e in events if isinstance(e, TextChunk)] == ["Hi."]


# --- what goes back as it came --------------------------------------------------------------------------------------


def phased(text: str, phase: str | None, item_id: str = "msg_1") -> list[Json | str]:
    item = {"type": "message", "id": item_id, "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    final = {**item, "phase": phase} if phase else item
    end = {"type": "response.completed", "response": {"status": "completed"}}
    return [{"type": "response.output_item.done", "output_index": 0, "item": final}, end]


@pytest.mark.parametrize("phase", ["commentary", "final_answer", None])
async def test_phase_goes_back_to_its_model_only(phase: str | None) -> None:
    async with provider_of("responses", phased("Looking.", phase)) as (provider, server):
        _, done = await play(provider, request())
        asked = (message("user", "hi"), message("assistant", *done.parts), message("user", "go on"))
        await play(provider, request(*asked))
        await play(provider, request(*asked, model="another"))
    item, other = (server.bodies[n]["input"][1] for n in (1, 2))
    assert item == {"role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]} | (
        {"phase": phase} if phase else {}
    )
    assert "phase" not in other and "id" not in item and "id" not in other


async def test_ids_go_to_servers_that_store_items() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    events = [{"type": "response.output_item.done", "output_index": 0, "item": reasoning}]
    events += [{**e, "output_index": 1} if "item" in e else e for e in phased("Hi.", "final_answer")]  # type: ignore[arg-type]
    async with provider_of("responses", events) as (provider, server):
        _, done = await play(provider, request())
        asked = (message("user", "hi"), message("assistant", *done.parts), message("user", "go on"))
        await play(provider, request(*asked, extra={"store": True}))
        await play(provider, request(*asked))
    stored, not_stored = (server.bodies[n]["input"] for n in (1, 2))
    assert [i.get("id") for i in stored] == [None, "rs_1", "msg_1", None]
    assert stored[2]["type"] == "message" and stored[2]["status"] == "completed"
    assert [i.get("id") for i in not_stored] == [None, None, None], "reasoning without content is only an id"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "reasoning_details"])
async def test_reasoning_goes_back_under_its_field(name: str) -> None:
    value: Any = [{"type": "reasoning.text", "text": "Hm."}] if name == "reasoning_details" else "Hm."
    first: Json = {"choices": [{"index": 0, "delta": {name: value}}]}
    async with provider_of("chat", [first, *stream("chat", "tool_calls", text="", call=True)]) as (provider, server):
        _, done = await play(provider, request(tools=(READ,)))
        again = (message("user", "hi"), message("assistant", *done.parts), message("tool", result("c")))
        await play(provider, request(*again, tools=(READ,)))
    sent = server.bodies[1]["messages"][2]
    assert {k: v for k, v in sent.items() if k.startswith("reasoning")} == {name: value}


async def test_blocks_of_the_servers_own_tools_go_back_as_they_came() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "abc"}]}
    events: list[Json | str] = [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Searching."}},
        {"type": "content_block_start", "index": 1, "content_block": search},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"q": 1}'}},
        {"type": "content_block_start", "index": 2, "content_block": found},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
        {"type": "message_stop"},
    ]
    async with provider_of("anthropic", events) as (provider, server):
        _, done = await play(provider, request())
        assert done.stop_reason == "pause"
        assert [type(p) for p in done.parts] == [TextPart, ThinkingPart, ThinkingPart]
        await play(provider, request(message("user", "hi"), message("assistant", *done.parts)))
    last = server.bodies[1]["messages"][-1]
    assert last["role"] == "assistant"
    blocks = [{k: v for k, v in b.items() if k != "cache_control"} for b in last["content"]]
    assert blocks == [{"type": "text", "text": "Searching."}, {**search, "input": {"q": 1}}, found]
