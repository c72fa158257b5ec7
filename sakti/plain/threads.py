"""The threads of a workspace in lines, and what is done to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.core.errors import SaktiError
from sakti.core.text import one_line
from sakti.plain import words
from sakti.plain.offer import Offer, one

if TYPE_CHECKING:
    from sakti.agent.session import Session


class Threads:
    """`/threads` with its actions, `/resume`; `offer` says the lines."""

    def __init__(self, session: Session, offer: Offer) -> None:
        self._session = session
        self._offer = offer

    def _say(self, *lines: str) -> None:
        self._offer(lines)

    async def run(self, argument: str) -> None:
        """All threads; `fork N`, `delete N`, `rename N TITLE`, `export N [md|json|html]`, `restore` act on one."""
        session = self._session
        found = await session.views.threads()
        action, _, rest = argument.partition(" ")
        if action:
            await self._act(action, rest.strip())
            return
        current = session.thread.id if session.thread else ""
        lines = [words.thread(s, n, current=s.thread.id == current) for n, s in enumerate(found, 1)]

        async def go_on(number: int) -> None:
            await session.open_thread(one(found, number).thread.id)

        if not lines:
            self._say("no thread in this workspace yet")
        self._offer(lines, "goes on with a thread; /threads rename, fork, delete, restore, export act on one", go_on)

    async def _act(self, action: str, rest: str) -> None:
        from sakti.agent.thread_actions import ThreadActions

        actions = ThreadActions(self._session)
        if action == "restore":
            gone = await actions.last_deleted()
            if gone is None:
                raise SaktiError("no thread of this workspace was deleted", title="Threads")
            self._say(f"{(await actions.restore(gone.id)).title or 'the thread'} is back")
            return
        number, _, text = rest.partition(" ")
        found = await self._session.views.threads()
        if action not in ("rename", "fork", "delete", "export") or not number.isdecimal():
            raise SaktiError("write rename, fork, delete or export and a number, or restore", title="Threads")
        thread = one(found, int(number)).thread
        match action:
            case "rename":
                self._say(await actions.rename(thread.id, text))
            case "fork":
                await self._session.open_thread((await actions.fork(thread.id)).id)
            case "delete":
                self._say(f"deleted {(await actions.delete(thread.id)).in_words()}; /threads restore brings it back")
            case _:
                self._say(f"written to {await actions.export(thread.id, text.strip() or 'md')}")

    async def resume(self, wanted: str) -> None:
        if not wanted:
            await self.run("")
            return
        found = [
            s.thread
            for s in await self._session.views.threads()
            if wanted.lower() in s.thread.title.lower() or s.thread.id.endswith(wanted)
        ]
        if not found:
            raise SaktiError(f"no thread of this workspace matches {one_line(wanted, 80)!r}", title="Resume")
        await self._session.open_thread(found[0].id)
