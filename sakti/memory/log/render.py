"""Render the log for the model, a block per group, so that earlier blocks stay byte-identical."""

from __future__ import annotations

import re

from sakti.core.ids import short
from sakti.core.patterns import lazy_pattern
from sakti.memory import shared
from sakti.memory.log import dates
from sakti.store.memory import Group

_MINOR = lazy_pattern(r"^([ \t]*[*-] )[🟡🟢]\ufe0f? ?", re.MULTILINE)
_ARROW = lazy_pattern(r"^([ \t]+[*-] )-> ?", re.MULTILINE)


def for_actor(text: str) -> str:
    """Remove 🟡 and 🟢 and the arrows that open nested lines; 🔴 and ✅ stay."""
    return _ARROW.sub(r"\1", _MINOR.sub(r"\1", text))


def render_group(group: Group, now: int, previous_date: int | None, *, tagged: bool, threads: bool = False) -> str:
    """Render one group for the request.

    `now` is noon of the day and `previous_date` the last date before it in the log: both change once a day at most.
    The tag gives the range of messages for recall, and in a log of several `threads` the thread; a reflection of
    several has a tag for each.
    """
    if threads:
        blocks: list[str] = []
        for text, spans in shared.pieces(group):
            if text:
                shown = dates.add_relative_time_to_observations(for_actor(text), now, previous_date).strip("\n")
                blocks.append(f"{shared.tag(group, spans, ranges=tagged)}\n{shown}\n</observation-group>")
                previous_date = None  # the next thread starts its own dates
        return "\n".join(blocks)
    text = dates.add_relative_time_to_observations(for_actor(group.text), now, previous_date).strip("\n")
    if not tagged or group.first_index is None:
        return text
    span = f"{group.first_index}-{group.last_index}"
    head = f'<observation-group id="{short(group.id)}" kind="{group.kind}" messages="{span}">'
    return f"{head}\n{text}\n</observation-group>"
