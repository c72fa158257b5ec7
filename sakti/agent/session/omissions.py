"""Leave out of a turn's requests what a provider refused: to try, then for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sakti.agent.mentions import unseen
from sakti.agent.session.turn import Turn
from sakti.core.errors import ProviderError
from sakti.core.events import Notice
from sakti.core.types import Message
from sakti.providers import refused_pieces
from sakti.providers.refused_pieces import Omission
from sakti.store.threads import requests
from sakti.store.threads import threads as thread_store

UNDO = "If it is about something in this thread, /undo (or `sakti undo`) removes the last turn."


def sendable(turn: Turn, messages: Sequence[Message], marks: Mapping[str, str]) -> tuple[Message, ...]:
    """Return messages without what the model refused before, and without images if it takes none."""
    model = turn.model.full_name
    rest = refused_pieces.without(messages, marks, model)
    return rest if turn.model.images and model not in marks.values() else unseen(rest)


async def find_omission(
    turn: Turn, messages: Sequence[Message], error: ProviderError, earlier: Omission | None
) -> Omission | None:
    """Decide what the next try of a refused request leaves out, with `earlier`; None: nothing."""
    accepted = await turn.store.read(requests.newest_accepted, turn.thread_id, turn.model.full_name)
    return refused_pieces.find_omission(messages, error, accepted, earlier)


async def keep_omission(turn: Turn, omission: Omission) -> Notice:
    """Store that the thread goes on without these pieces, since the model answered without them."""
    marks = omission.marks(turn.model.full_name)
    turn.left_out |= marks
    await turn.store.write(thread_store.add_left_out, turn.thread_id, marks)
    if omission.no_images:
        turn.know(images=False)
    pieces = refused_pieces.in_words(omission.pieces)
    text = f"{turn.model.full_name} refused {pieces}: left out of this thread from now on. {omission.error.message}"
    return Notice("warning", "Left out", text)


def final_error(error: ProviderError, first: ProviderError) -> ProviderError:
    """Return the error that ends a turn; for a refused request the `first` one, with a way out."""
    if not refused_pieces.is_refusal(error):
        return error
    return ProviderError(f"{first.message} {UNDO}", title=error.title, code=error.code, status=error.status)
