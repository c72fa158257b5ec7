"""Requests as bodies: valid histories, cache breakpoints, and prefixes that do not move."""

from __future__ import annotations

import itertools
import json

import pytest
from msgspec.structs import replace

from sakti.core.types import (
    Block,
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.providers import anthropic, openai_chat, openai_responses
from sakti.providers.history import make_turns
from tests.fakes.requests import READ, call, message, request, result

SIGNED = ThinkingPart("hm", "anthropic", {"signature": "s"})


def blocks(body):
    return [b for m in body["messages"] for b in m["content"]]


def marked(body):
    everything = [*body.get("tools", []), *body.get("system", []), *blocks(body)]
    return [b for b in everything if "cache_control" in b]


def long_conversation(steps):
    out = [message("user", "go")]
    for n in range(steps):
        out += [message("assistant", SIGNED, call(f"c{n}")), message("tool", result(f"c{n}"))]
    return out


@pytest.mark.parametrize("edges", range(7))
@pytest.mark.parametrize("steps", [0, 1, 12, 40])
@pytest.mark.parametrize("tools", [(), (READ,)])
def test_never_more_than_four_breakpoints(edges, steps, tools):
    system = tuple(Block("reflection", f"part {n}", edge=n < edges) for n in range(7))
    body = anthropic.render(request(*long_conversation(steps), system=system, tools=tools, tail="now"))
    assert 1 <= len(marked(body)) <= 4
    assert all(b.get("type") != "thinking" for b in marked(body))


def test_the_tail_is_behind_the_last_breakpoint():
    body = anthropic.render(request(*long_conversation(3), tools=(READ,), tail="today"))
    *_, before, last = blocks(body)
    assert last == {"type": "text", "text": "today"}
    assert before["type"] == "tool_result"
    assert "cache_control" in before


def test_breakpoints_are_at_most_twenty_blocks_apart():
    body = anthropic.render(request(*long_conversation(30), tail="today"))
    places = [i for i, b in enumerate(blocks(body)) if "cache_control" in b]
    assert len(places) == 3
    assert all(b - a <= 20 for a, b in itertools.pairwise(places))


def _unmarked(body):
    text = json.dumps(body)
    return text.replace(', "cache_control": {"type": "ephemeral"}', "")


@pytest.mark.parametrize(
    "render", [anthropic.render, openai_responses.render, lambda r: openai_chat.render(r, "openai")]
)
def test_prefix_is_the_same_when_only_the_tail_changes(render):
    first = request(*long_conversation(5), tools=(READ,), tail="<tail one>")
    a, b = _unmarked(render(first)), _unmarked(render(replace(first, tail="<tail two>")))
    assert a.replace("<tail one>", "") == b.replace("<tail two>", "")
    assert "<tail one>" not in a[: a.index("<tail one>")]


@pytest.mark.parametrize("render", [anthropic.render, openai_responses.render])
def test_the_next_step_begins_with_the_whole_step_before(render):
    messages = long_conversation(4)
    key = "messages" if render is anthropic.render else "input"
    before = _unmarked(render(request(*messages[:-2], tail=""))[key])[:-1]
    after = _unmarked(render(request(*messages, tail="t"))[key])
    assert after.startswith(before)


def test_last_step_keeps_its_tools_but_may_not_use_them():
    asked = request(tools=(READ,), tool_choice="none")
    assert anthropic.render(asked)["tool_choice"] == {"type": "none"}
    for body in (openai_responses.render(asked), openai_chat.render(asked, "openai")):
        assert body["tool_choice"] == "none"
        assert body["tools"]


def test_no_temperature_for_anthropic_and_for_models_that_reason():
    asked = request(temperature=0.3, model="gpt-5.4")
    assert "temperature" not in anthropic.render(asked)
    assert "temperature" not in openai_responses.render(asked)
    assert openai_responses.render(replace(asked, model="gpt-4.1"))["temperature"] == 0.3


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-sonnet-4-5-20250929", "enabled"),
        ("claude-3-7-sonnet-latest", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-sonnet-5-5", "adaptive"),
    ],
)
def test_thinking_as_the_model_takes_it(model, kind):
    body = anthropic.render(request(model=model, thinking_tokens=40_000))
    assert body["thinking"]["type"] == kind
    assert body["max_tokens"] <= 32_000
    assert body["thinking"].get("budget_tokens", 0) <= body["max_tokens"] / 2, "the answer has no room"


def test_an_unanswered_call_is_answered():
    shown = make_turns(
        [
            message("user", "a"),
            message("assistant", call("x"), call("y")),
            message("tool", result("y")),
            message("user", "go on"),
        ],
        "anthropic",
    )
    assert [t.role for t in shown] == ["user", "assistant", "user"]
    first, second, text = shown[2].parts
    assert (first.call_id, first.content, first.is_error) == ("x", "interrupted", True)
    assert second.call_id == "y"
    assert text.text == "go on"


def test_a_call_at_the_very_end_and_between_two_answers():
    shown = make_turns([message("user", "a"), message("assistant", call("x"))], "p")
    assert shown[-1].parts[0].content == "interrupted"
    shown = make_turns([message("user", "a"), message("assistant", call("x")), message("assistant", "so")], "p")
    assert [t.role for t in shown] == ["user", "assistant", "user"]


def test_a_result_without_its_call_becomes_text():
    body = anthropic.render(request(message("user", "a"), message("tool", result("gone"))))
    assert [b["type"] for b in blocks(body)] == ["text", "text"]


def test_thinking_only_goes_to_whom_it_belongs():
    asked = request(message("user", "a"), message("assistant", SIGNED, "b"), message("user", "c"))
    assert "thinking" in [b["type"] for b in blocks(anthropic.render(asked))]
    assert "signature" not in json.dumps(openai_responses.render(asked))
    unsigned = request(
        message("user", "a"), message("assistant", ThinkingPart("x", "anthropic"), "b"), message("user", "c")
    )
    assert "thinking" not in [b["type"] for b in blocks(anthropic.render(unsigned))]


def test_thinking_with_nothing_behind_it_is_left_out():
    assert [t.role for t in make_turns([message("user", "a"), message("assistant", SIGNED)], "anthropic")] == ["user"]


def test_files_images_markers_and_empty_texts():
    asked = request(
        message(
            "user",
            FilePart("a b.py", "x = 1"),
            ImagePart("image/png", "QUJD"),
            "  ",
            MarkerPart("interrupted"),
        )
    )
    file, image = blocks(anthropic.render(asked))
    assert file["text"] == '<file path="a b.py">\nx = 1\n</file>'
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert openai_chat.render(asked, "x")["messages"][-1]["content"][1]["image_url"]["url"].endswith("QUJD")


def test_broken_arguments_are_sent_as_an_object():
    broken = ToolCallPart("x", "read", None, '{"pa')
    asked = request(message("user", "a"), message("assistant", broken))
    assert blocks(anthropic.render(asked))[1]["input"] == {"invalid_json": '{"pa'}
    arguments = openai_chat.render(asked, "x")["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_json": '{"pa'}


def test_a_conversation_that_begins_with_an_answer():
    body = anthropic.render(request(message("assistant", "so"), message("user", "go on")))
    assert body["messages"][0]["role"] == "user"


def test_errors_of_tools_are_marked():
    failed = ToolResultPart("c1", "read", "no such file", is_error=True)
    body = anthropic.render(request(message("user", "a"), message("assistant", call()), message("tool", failed)))
    assert blocks(body)[-1]["is_error"] is True


def texts(body):
    return [m["content"] for m in body["messages"] if isinstance(m["content"], str)]


def test_what_moves_stands_behind_the_tools_of_chat_servers():
    system = (Block("system", "You help.", edge=True), Block("observations", "* a note", edge=True))
    body = openai_chat.render(request(message("user", "go"), message("assistant", "so"), system=system), "vllm")
    assert body["messages"][0] == {"role": "system", "content": "You help."}
    assert body["messages"][1] == {"role": "user", "content": "* a note\n\ngo"}
    image = request(message("user", ImagePart("image/png", "QUJD"), "look"), system=system)
    assert openai_chat.render(image, "vllm")["messages"][1]["content"][0] == {"type": "text", "text": "* a note"}
    later = request(message("assistant", "so"), message("user", "go"), system=system)
    assert [m["role"] for m in openai_chat.render(later, "vllm")["messages"]] == ["system", "user", "assistant", "user"]


def told(said, text):
    return replace(said, parts=(*said.parts, ContextPart({"now": text})))


RENDERS = [anthropic.render, openai_responses.render, lambda r: openai_chat.render(r, "vllm")]


@pytest.mark.parametrize("render", RENDERS)
def test_what_is_told_is_part_of_its_message_and_stays(render):
    talk = [
        told(message("user", "go"), "12:00"),
        message("assistant", call()),
        told(message("tool", result()), "12:10"),
    ]
    first, second = render(request(*talk[:1])), render(request(*talk))
    key = "input" if "input" in first else "messages"
    users = [m for m in second[key] if m.get("role") == "user" and "tool_result" not in json.dumps(m)]
    assert len(users) == 1 and "go" in json.dumps(users[0]), "the last user message is the user's"
    assert "<context>" in json.dumps(users[0])
    assert "12:10" in json.dumps(second[key][-1]) and "x = 1" in json.dumps(second[key][-1])
    assert _unmarked(second[key]).startswith(_unmarked(first[key])[:-1])


@pytest.mark.parametrize("render", RENDERS)
@pytest.mark.parametrize("last", ["user", "tool"])
def test_the_tail_makes_no_message_of_its_own(render, last):
    talk = [
        message("user", "go"),
        *([message("assistant", call()), message("tool", result())] if last == "tool" else []),
    ]
    plain, tailed = render(request(*talk)), render(request(*talk, tail="again"))
    key = "input" if "input" in plain else "messages"
    assert len(tailed[key]) == len(plain[key])
    assert "again" in json.dumps(tailed[key][-1])


@pytest.mark.parametrize("render", RENDERS)
def test_an_answer_that_goes_on_has_a_message_behind_it(render):
    body = render(request(message("user", "go"), message("assistant", "One, tw"), tail="go\n\nGo on."))
    last = body["input" if "input" in body else "messages"][-1]
    assert last["role"] == "user" and "Go on." in json.dumps(last)


def test_thinking_goes_only_to_the_model_that_thought_it():
    def sent(model, thought):
        part = ThinkingPart("hm", "anthropic", {"signature": "s"}, thought)
        asked = request(message("user", "a"), message("assistant", part, "b"), message("user", "c"), model=model)
        return "signature" in json.dumps(anthropic.render(asked))

    assert sent("claude-a", "claude-a")
    assert not sent("claude-b", "claude-a")
    assert sent("claude-b", ""), "stored before the model was noted"
