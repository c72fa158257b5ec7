"""What the slash commands do in lines. One method a command, found by its name.

What a screen would list is said with numbers; a number alone then opens the one that is meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sakti.agent.commands import COMMANDS, Typed, parse
from sakti.agent.figures import spent_rows, status_rows
from sakti.agent.one_message import OneMessage
from sakti.core.config import APPROVAL_MODES
from sakti.core.errors import SaktiError
from sakti.core.text import count_k, one_line, sanitise
from sakti.plain import words
from sakti.plain.log import Log
from sakti.plain.offer import one
from sakti.plain.search import Search
from sakti.plain.speech import Speech
from sakti.plain.tasks import Tasks
from sakti.plain.threads import Threads

if TYPE_CHECKING:
    from sakti.agent.session import Session

# Commands that only this chat has: on the screen they are keys, or plain to see.
OWN = {
    "find": "search this thread only",
    "last": "say the last messages again: /last, /last 10",
    "output": "what the last tool call gave, whole; /output 2 the one before it",
    "retry": "ask again after a failed answer",
    "queue": "what is queued; /queue remove takes the newest back",
    "send": "send what was not sent",
    "drop": "forget what was not sent",
}
INPUTS = (
    "a line is sent with Enter; a line that ends with a backslash goes on in the next one",
    "! and a command runs it, # and a text notes it, @ and a path attaches a file or an image",
    "while the agent works what you send is queued and read at its next step",
    "ctrl+c stops the agent, twice quits; ctrl+d quits",
)
EVENTS = 20  # newest of what happened to the memory that are said
STOPPABLE = "stoppable"  # the name of a task that ctrl+c ends
WAYS = (
    "a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's, and start sakti again",
    "a server: /model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine",
    "offline: run `sakti local install` in a shell, a small model that needs no key and no network",
    "approval: /approve plan, ask, edits or auto",
)
NO_SCREEN = {"theme": "plain mode has no colours", "clear": "plain mode has no screen to clear"}


class Host(Protocol):
    """The chat that commands run in."""

    session: Session
    speech: Speech
    unsent: str  # what was not sent

    def say(self, lines: Iterable[str]) -> None: ...

    async def send(self, text: str) -> None: ...

    def end_of_input(self) -> None: ...

    def leave(self, code: int) -> None: ...


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the chat says it."""

    def __init__(self, chat: Host) -> None:
        self._chat = chat
        self._session = chat.session
        self._tasks = Tasks(chat.session, self.offer)
        self._threads = Threads(chat.session, self.offer)
        self._search = Search(chat.session, self.offer)
        self._log = Log(chat.session, self.offer)
        self._one_message = OneMessage(chat.session)
        self.thread = ""  # the one whose messages were said
        self.choose: Callable[[int], Awaitable[None]] | None = None  # what a number alone does now

    async def run(self, text: str) -> bool:
        """Whether `text` was a command, a shell line or a note; a message is left to the caller."""
        typed = parse(text)
        self.choose = None
        match typed.kind:
            case "command":
                await self._method(typed.name)(typed.argument)
            case "unknown":
                if typed.name not in OWN:
                    near = (
                        f"; did you mean {', '.join(f'/{s}' for s in typed.suggestions)}" if typed.suggestions else ""
                    )
                    raise SaktiError(f"there is no command /{one_line(typed.name, 40)}{near}", title="Unknown command")
                await self._method(typed.name)(typed.argument)
            case "shell":
                self._chat.speech.own_command(typed.argument)
                await self._shell(typed)
            case "note":
                await self._session.note(typed.argument)
            case _:
                return False
        return True

    def _method(self, name: str) -> Callable[[str], Awaitable[None]]:
        if name in NO_SCREEN:
            raise SaktiError(NO_SCREEN[name], title=f"/{name}")
        method: Callable[[str], Awaitable[None]] | None = getattr(self, f"do_{name.replace('-', '_')}", None)
        if method is None:
            raise SaktiError("this works on the screen only, without --plain", title=f"/{name}")
        return method

    async def _shell(self, typed: Typed) -> None:
        await self._stoppable(self._session.shell(typed.argument))

    async def _stoppable(self, work: Awaitable[object]) -> None:
        """Wait for what ctrl+c ends."""
        task = asyncio.current_task()
        if task is not None:
            task.set_name(STOPPABLE)
        try:
            await work
        except asyncio.CancelledError:
            self._say("the command was stopped")
            raise

    def _say(self, *lines: str) -> None:
        self._chat.say(lines)

    def offer(
        self, lines: Sequence[str], what: str = "", choose: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        """Say a numbered list, or that it is empty; a number alone opens one of it."""
        self._say(*lines)
        if lines and choose is not None:
            self._say(f"a number alone {what}")
            self.choose = choose

    # --- the chat ---------------------------------------------------------------------------------------------

    async def do_help(self, _: str) -> None:
        listed = [f"/{c.name} {c.arguments}".strip() + f": {c.summary}" for c in COMMANDS if c.name not in NO_SCREEN]
        self._say(*INPUTS, *listed, *(f"/{name}: {text}" for name, text in OWN.items()))

    async def do_quit(self, _: str) -> None:
        if self._session.busy:
            self._chat.end_of_input()
        else:
            self._chat.leave(0)

    async def do_last(self, count: str) -> None:
        thread = self._session.thread
        limit = int(count) if count.isdecimal() and count != "0" else 2
        page = await self._session.views.transcript(thread.id, limit=min(limit, 200)) if thread else []
        self._say(*([line for m in page for line in words.message(m)] or ["nothing was said in this thread yet"]))

    async def do_output(self, number: str) -> None:
        asked = self._chat.speech.question
        if asked is not None and not number:
            self._say(*sanitise(asked.target).split("\n"), *(words.diff(asked.diff) if asked.diff else ()))
            return
        at = int(number) if number.isdecimal() and number != "0" else 1
        calls = self._chat.speech.calls
        if at > len(calls):
            raise SaktiError(f"{words.many(len(calls), 'call')} can be asked for", title="Output")
        self._say(*calls[-at].lines())

    async def do_retry(self, _: str) -> None:
        await self._session.retry()

    async def do_queue(self, what: str) -> None:
        queued = self._session.queued
        if not queued:
            self._say("nothing is queued")
        elif what == "remove":
            text = self._session.unqueue(len(queued) - 1)
            self._say(f"taken back: {text}")
        else:
            self._say(*(f"{n}. {one_line(q, 300)}" for n, q in enumerate(queued, 1)))

    async def do_send(self, _: str) -> None:
        text, self._chat.unsent = self._chat.unsent, ""
        if not text:
            self._say("there is nothing that was not sent")
            return
        await self._chat.send(text)

    async def do_drop(self, _: str) -> None:
        self._say("dropped" if self._chat.unsent else "there is nothing that was not sent")
        self._chat.unsent = ""

    # --- memory -----------------------------------------------------------------------------------------------

    async def do_compact(self, focus: str) -> None:
        session = self._session
        match focus.strip():
            case "undo":
                if not await session.undo_compaction():
                    self._say("there is no compaction to undo")
            case "diff":
                from sakti.agent import last_compaction

                shown = await last_compaction.last(session)
                if shown is None:
                    raise SaktiError("nothing was compacted in this thread, or it was undone", title="Compaction")
                names = {"●": "high", "○": "work", "·": "minor", "✓": "done", "⚑": "pinned"}
                self._say(*words.diff("".join(names.get(c, c) for c in shown.diff())))
            case _:
                await session.require_thread()
                await session.follow()
                messages, before, after = session.compact_preview()
                if not messages:
                    self._say("there is nothing to compact: all but the last exchange is observed already")
                    return
                about = f"{count_k(before)} tokens become about {count_k(after)}"
                self._say(f"compacting {words.many(messages, 'message')}: {about}")
                await self._stoppable(session.compact(focus))

    async def do_memory(self, argument: str) -> None:
        session = self._session
        match argument.strip():
            case ("pause" | "resume") as what:
                await session.pause_memory(pause=what == "pause")
            case "undo":
                await session.undo_reflection()
            case "events":
                found = await session.views.memory_events()
                self._say(*([words.event(e) for e in reversed(found[:EVENTS])] or ["nothing happened to it yet"]))
            case _:
                if session.status is None:
                    self._say("no window yet: it fills as you talk")
                    return
                figures = await session.views.memory_figures()
                self._say(*words.rows(status_rows(session.status, figures)))

    async def do_context(self, _: str) -> None:
        blocks = await self._session.views.context()

        async def show(number: int) -> None:
            self._say(*sanitise(one(blocks, number).text).split("\n"))

        total = sum(b.tokens for b in blocks)
        self._say(f"what would be sent now: {words.many(len(blocks), 'block')}, {total:,} tokens")
        self.offer([words.context(b, n) for n, b in enumerate(blocks, 1)], "says a block's text", show)

    # --- the rest ---------------------------------------------------------------------------------------------

    async def do_new(self, _: str) -> None:
        await self._session.new_thread()

    async def do_rename(self, title: str) -> None:
        await self._session.rename(title)
        self._say("renamed")

    async def do_delete_message(self, argument: str) -> None:
        self._say(await self._one_message.run(argument))

    async def do_tasks(self, argument: str) -> None:
        await self._tasks.run(argument)

    async def do_threads(self, argument: str) -> None:
        await self._threads.run(argument)

    async def do_resume(self, wanted: str) -> None:
        await self._threads.resume(wanted)

    async def do_search(self, query: str) -> None:
        await self._search.run(query, "workspace")

    async def do_find(self, query: str) -> None:
        await self._search.run(query, "thread")

    async def do_observations(self, argument: str) -> None:
        await self._log.run(argument)

    async def do_setup(self, _: str) -> None:
        """What was found on this machine, and the ways to go on."""
        from sakti.agent import setup

        session = self._session
        found = await setup.look(session.env, session.config.providers)
        listed = [f"{'found' if good else 'missing'}: {text}" for good, text in setup.rows(found)]
        self._say(*listed, setup.talks_to(session.model), *WAYS)

    async def do_model(self, name: str) -> None:
        session = self._session
        if name:
            await session.set_model(name)
            return
        known = await session.views.models()
        now = session.model.model if session.model else None
        self._say(f"model: {now or 'none'}; /model PROVIDER/NAME changes it")

        async def use(number: int) -> None:
            await session.set_model(one(known, number).full_name)

        lines = [f"{n}. {one_line(m.full_name, 120)}" for n, m in enumerate(known, 1)]
        self.offer(lines, "chooses a model", use)

    async def do_mode(self, mode: str) -> None:
        if mode:
            await self._session.set_mode(mode)
        self._say(f"the Observer looks for what matters in {self._session.mode}; /mode NAME changes it")

    async def do_approve(self, mode: str) -> None:
        if mode:
            self._session.set_approval_mode(mode)
        self._say(f"approval is {self._session.approval_mode}; /approve takes {', '.join(APPROVAL_MODES)}")

    async def do_settings(self, wanted: str) -> None:
        """Settings that are not at their default, or all that hold the words; NAME = VALUE changes one."""
        from sakti.agent import settings_file
        from sakti.agent.settings_view import settings, value_of
        from sakti.core.resources import config_home

        session, user_file = self._session, config_home() / "config.toml"
        project_file: Path = session.workspace / ".sakti" / "config.toml"
        name, changes, text = (part.strip() for part in wanted.partition("="))
        if changes:
            value = value_of(session.config, name, text)
            told = await settings_file.change(
                session, user_file, name, value, user_file=user_file, project_file=project_file
            )
            self._say(told)
            return
        found = settings(session.config, user_file=user_file, project_file=project_file, env=session.env)
        asked = wanted.lower().split()
        rows = [s for s in found if (all(w in s.name for w in asked) if asked else s.origin != "default")]
        which = "with these words" if asked else "not at the default"
        self._say(
            f"{words.many(len(rows), 'setting')} of {len(found)} {which}",
            *map(words.setting, rows),
            "words behind /settings choose others; /settings NAME = VALUE changes one in your own file",
        )

    async def do_cost(self, _: str) -> None:
        self._say(*words.rows(spent_rows(await self._session.views.spent())))

    async def do_doctor(self, _: str) -> None:
        signs = {"✓ ": "good: ", "✗ ": "problem: "}
        self._say(*(signs.get(line[:2], line[:2]) + line[2:] for line in await self._session.views.doctor()))
