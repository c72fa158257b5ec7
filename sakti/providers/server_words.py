"""Words of servers: how they refuse a request, end an answer and list their models, as data.

`server_words.toml` is read at the first use. A server with another wording needs an entry there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from sakti.core.lazy import lazy_pattern


class ListingNames(Struct, frozen=True, forbid_unknown_fields=True):
    """Names in lists of models: fields, the best first, and parts of the names of models that do not chat."""

    windows: tuple[str, ...]
    outputs: tuple[str, ...]
    not_for_chat: tuple[str, ...]


class RequestFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields that may be left out of a request, and those of its messages."""

    optional: tuple[str, ...]
    of_messages: tuple[str, ...]


class ServerWords(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of the file.

    `texts` of errors, and `ends` of answers, by what they mean; `statuses` by a word in the type of an error, which
    the first one decides.
    """

    texts: Mapping[str, tuple[str, ...]]
    statuses: Mapping[str, int]
    ends: Mapping[str, tuple[str, ...]]
    listings: ListingNames
    fields: RequestFields


@cache
def read() -> ServerWords:
    """Return the words of all servers."""
    return msgspec.toml.decode(Path(__file__).with_name("server_words.toml").read_bytes(), type=ServerWords)


def get_text_pattern(meaning: str) -> re.Pattern[str]:
    """Return the pattern of the texts of errors that mean this."""
    return lazy_pattern(lambda: "|".join(read().texts[meaning]), re.IGNORECASE)


def end_pattern(meaning: str) -> re.Pattern[str]:
    """Return the pattern of reasons for the end of an answer that mean this."""
    return lazy_pattern(lambda: "|".join(read().ends[meaning]), re.IGNORECASE)
