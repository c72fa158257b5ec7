"""The observation log in lines, and what corrects it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sakti.core.errors import SaktiError
from sakti.core.text import one_line
from sakti.plain import words
from sakti.plain.offer import Offer, one

if TYPE_CHECKING:
    from sakti.agent.session import Session
    from sakti.store.memory_log import LogLine

SHOWN = 60  # newest lines of the log that are said


class Log:
    """`/observations` with its actions; `offer` says the lines."""

    def __init__(self, session: Session, offer: Offer) -> None:
        self._session = session
        self._offer = offer

    def _say(self, *lines: str) -> None:
        self._offer(lines)

    async def run(self, argument: str) -> None:
        """The log; `pin 3`, `edit 3 TEXT`, `forget 3`, `undo` change it, `at TIME` says how it was, words filter it."""
        session = self._session
        action, _, rest = argument.partition(" ")
        lines: Sequence[LogLine] = [x for x in await session.views.observations() if not x.forgotten]
        if action == "undo":
            await session.correct("undo")
            return
        if action in ("pin", "unpin", "forget", "edit"):
            number, _, text = rest.strip().partition(" ")
            if not number.isdecimal() or not 0 < int(number) <= len(lines) or (action == "edit" and not text.strip()):
                raise SaktiError(f"write /observations {action} and a line's number", title="Observations")
            await session.correct(action, lines[int(number) - 1].id, text.strip())
            return
        if action == "at":
            lines = await session.views.log_at(self._moment(rest))
        said = list(words.log_lines(lines))
        if action == "at" or not argument:
            said, hint = said[-SHOWN:], len(said) > SHOWN
        else:
            said, hint = [x for x in said if all(w in x.lower() for w in argument.lower().split())], False
        if not said:
            self._say("no line matches" if argument else "nothing is observed yet")
            return
        if hint:
            self._say(f"the newest {SHOWN} of {len(lines)} lines; words behind /observations filter all of them")

        async def sources(number: int) -> None:
            await self._sources(one(lines, number))

        changes = "" if action == "at" else "; /observations pin, edit, forget, undo change it"
        self._offer(said, f"says the messages a line was made from{changes}", sources)

    def _moment(self, text: str) -> int:
        from sakti.agent.workspace import local_timezone
        from sakti.memory.corrections import parse_time

        found = parse_time(text.strip(), self._session.clock.now(), local_timezone())
        if found is None:
            raise SaktiError(
                f"write a time such as 2026-01-15, yesterday or 90m, not {one_line(text, 40)!r}", title="Time"
            )
        return found

    async def _sources(self, line: LogLine) -> None:
        said = await self._session.views.sources(line.group_id)
        self._say(*([x for m in said for x in words.message(m, limit=40)] or ["its messages are not known"]))
