"""Which piece of a conversation an error means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sakti.core.errors import ProviderError
from sakti.core.types import FilePart, ImagePart, Json, Message, OutputPart, TextPart
from sakti.providers import omissions
from sakti.providers.omissions import find_node, find_omission
from tests.fakes.requests import call, message, result


def conversation() -> list[Message]:
    """A file, a result, two images of a step, and the output of a command."""
    messages = [
        message("user", "see", FilePart("a.txt", "file words")),
        message("assistant", call("c1")),
        message("tool", result("c1", "result words")),
        message("assistant", call("c2"), call("c3")),
        message("tool", result("c2"), result("c3"), ImagePart("image/png", "AAAA", "a.png"),
                ImagePart("image/png", "BBBB", "b.png")),
        message("user", OutputPart("make", "output words")),
    ]  # fmt: skip
    return [structs.replace(m, index=n) for n, m in enumerate(messages)]


def refusal(text: str, status: int = 400, node: Json | None = None) -> ProviderError:
    error = ProviderError(text, code="context_too_long" if status == 413 else "invalid_request", status=status)
    error.server_text, error.refused_node = text, node
    return error


def names(error: ProviderError, accepted: int = -1, messages: list[Message] | None = None) -> list[str]:
    found = find_omission(messages or conversation(), error, accepted)
    return [p.name for p in found.pieces] if found else []


@pytest.mark.parametrize(
    ("text", "accepted", "expected"),
    [
        ("Could not process image", 3, ["a.png", "b.png"]),
        ("Could not process image", 4, ["a.png", "b.png"]),  # nothing else can be meant
        ("Provisioned throughput: revision 3", 2, ["make"]),
        ("Bad request", -1, ["make"]),
        ("Bad request", 5, []),
        ("flagged by the content filter", 4, ["make"]),
        ("flagged by the content filter", 5, []),
    ],
)
def test_words_and_acceptance_decide(text: str, accepted: int, expected: list[str]) -> None:
    assert names(refusal(text), accepted) == expected


def test_images_of_the_newest_message_are_meant_before_its_results() -> None:
    assert names(refusal("Bad request"), 3, conversation()[:5]) == ["a.png", "b.png"]
    assert names(refusal("content filter"), 3, conversation()[:5]) == ["read", "read", "a.png", "b.png"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "image", "source": {"data": "BBBB"}}, ["b.png"]),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, ["a.png"]),
        ({"type": "tool_result", "tool_use_id": "c1", "content": "x"}, ["read"]),
        ({"role": "tool", "tool_call_id": "c2", "content": "x"}, ["read"]),
        ({"type": "text", "text": '<file path="a.txt">\nfile words\n</file>'}, ["a.txt"]),
        ({"type": "text", "text": "words of the user"}, []),
        ({"type": "function_call", "call_id": "c1", "arguments": "{}"}, []),
    ],
)
def test_the_named_part_of_the_body_decides(node: Json, expected: list[str]) -> None:
    assert names(refusal("It is wrong", node=node)) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refusal("It is wrong", node={"type": "text", "text": "file words"}), ["b.png", "a.txt"]),
        (refusal("It is wrong", node={"type": "tool_result", "tool_use_id": "c1"}), ["b.png", "read"]),
        (refusal("Could not process image"), ["b.png", "a.png"]),
        (refusal("It is wrong", node={"type": "text", "text": "words of the user"}), []),
        (refusal("Bad request"), []),
        (refusal("flagged by the content filter"), []),
    ],
)
def test_a_later_refusal_adds_only_what_it_names(error: ProviderError, expected: list[str]) -> None:
    messages = conversation()
    first = refusal("It is wrong", node={"type": "image", "source": {"data": "BBBB"}})
    earlier = find_omission(messages, first, -1)
    assert earlier is not None
    rest = omissions.omit_pieces(messages, earlier.marks("p/m"), "p/m")
    found = find_omission(rest, error, -1, earlier)
    assert [p.name for p in found.pieces] == expected if found else not expected
    assert found is None or (found.error is first and found.refusals == 2)


def test_too_many_bytes_are_those_of_new_images() -> None:
    assert names(refusal("too large", 413), 3) == ["a.png", "b.png"]
    assert names(refusal("too large", 413), 4) == []


def test_a_model_without_images_is_told_from_a_bad_image() -> None:
    text = "This model does not support image input"
    assert find_omission(conversation(), refusal(text), -1).no_images  # type: ignore[union-attr]
    assert not find_omission(conversation(), refusal(text), 4).no_images  # type: ignore[union-attr]
    assert not find_omission(conversation(), refusal("bad image"), -1).no_images  # type: ignore[union-attr]


BODY: Json = {
    "messages": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}, {"role": "tool", "content": "c"}]
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("messages.0.content.1.image.source.base64.data: bad", {"text": "b"}),
        ("Invalid 'messages[0].content[0].image_url'.", {"text": "a"}),
        ("messages[1].content: bad", BODY["messages"][1]),
        ("messages.7.content.0: bad", None),
        ("bad request", None),
        ("", None),
    ],
)
def test_paths_in_error_texts_are_followed(text: str, expected: Any) -> None:
    assert find_node(BODY, text) == expected


@given(st.text(max_size=200), st.integers(-1, 6), st.sampled_from([400, 413, 422]))
def test_only_pieces_are_ever_left_out(text: str, accepted: int, status: int) -> None:
    messages = conversation()
    omission = find_omission(messages, refusal(text, status), accepted)
    marks = omission.marks("p/m") if omission else {}
    rest = omissions.omit_pieces(messages, marks, "p/m")
    assert [(m.id, m.role, len(m.parts)) for m in rest] == [(m.id, m.role, len(m.parts)) for m in messages]
    changed = sum(a != b for m, n in zip(messages, rest, strict=True) for a, b in zip(m.parts, n.parts, strict=True))
    assert changed == len(marks)
    assert rest[0].parts[0] == TextPart("see")
    assert omissions.omit_pieces(rest, marks, "p/m") == rest, "what is sent stays the same"
