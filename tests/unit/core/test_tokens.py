from __future__ import annotations

import binascii
import hashlib

from sakti.core import tokens
from sakti.core.tokens import Estimator, O200k, count_image_tokens, count_parts, load_o200k_tokens, sum_message_tokens
from sakti.core.types import ImagePart, MarkerPart, TextPart, ToolCallPart


def test_o200k_counts_without_a_network() -> None:
    counter = O200k()
    # ids by tiktoken 0.14's own o200k_base: "hello world" is [24912, 2375]
    assert counter.count("hello world") == 2
    assert counter.count("<|endoftext|>") > 1  # outside text never becomes a special token
    assert counter.count("") == 0
    assert not counter.approximate


def test_the_ranks_are_those_of_the_public_file() -> None:
    lines = (binascii.b2a_base64(t, newline=False) + b" %d\n" % rank for rank, t in enumerate(load_o200k_tokens()))
    # of o200k_base.tiktoken, as tiktoken itself checks it
    published = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    assert hashlib.sha256(b"".join(lines)).hexdigest() == published


def test_every_part_has_its_number_and_markers_cost_nothing() -> None:
    counter = Estimator()
    parts = (TextPart("hello there"), MarkerPart("interrupted"), ToolCallPart("1", "read", {"path": "a.py"}))
    counted = count_parts(counter, parts)
    assert len(counted) == 3
    assert counted[1] == 0
    assert sum_message_tokens(counted) == sum(counted) + 4
    assert sum_message_tokens((0,)) == 0


def test_images_cost_what_the_dearer_provider_asks() -> None:
    assert count_image_tokens(1024, 1024) == max(85 + 4 * 170, 1399)
    assert count_image_tokens(0, 0) == count_image_tokens(-1, 5)
    assert count_parts(Estimator(), (ImagePart("image/png", "", width=100, height=100),))[0] == 255


def test_where_the_encoding_cannot_be_had_the_estimator_counts_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(tokens, "O200K_SHA256", "another")
    counter = O200k()
    assert counter.count("hello there") == Estimator().count("hello there")
    assert (counter.name, counter.approximate) == ("estimate", True)


def test_images_cost_what_their_provider_charges():
    from sakti.core.tokens import count_image_tokens

    # the providers' own examples
    assert count_image_tokens(1000, 1000, "anthropic") == 1_334
    assert count_image_tokens(1024, 1024, "openai") == 765
    assert count_image_tokens(2048, 4096, "openai") == 1_105
    assert count_image_tokens(384, 384, "gemini") == 258
    assert count_image_tokens(1024, 1024, "gemini") == 4 * 258
    assert count_image_tokens(1024, 1024) == max(count_image_tokens(1024, 1024, r) for r in ("openai", "anthropic"))
    assert count_image_tokens(0, 0, "gemini") > 0
