"""What the slash commands do in lines. One method a command, found by its name.

What a screen would list is said with numbers; a number alone then opens the one that is meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sakti.agent.commands import COMMANDS, Typed, parse
from sakti.agent.figures import status_rows
from sakti.core.config import APPROVAL_MODES
from sakti.core.errors import ConfigError, SaktiError
from sakti.core.text import count_k, one_line, sanitise
from sakti.plain import words
from sakti.plain.tasks import Tasks

if TYPE_CHECKING:
    from sakti.core.types import Message
    from sakti.plain.chat import Chat
    from sakti.store.memory_log import LogLine
    from sakti.store.search import Hit

T = TypeVar("T")

# Commands that only this chat has: on the screen they are keys, or plain to see.
OWN = {
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
STOPPABLE = "stoppable"  # the name of a task that ctrl+c ends
WAYS = (
    "a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's, and start sakti again",
    "a server: /model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine",
    "offline: run `sakti local install` in a shell, a small model that needs no key and no network",
    "approval: /approve plan, ask, edits or auto",
)
PER_PAGE = 20
LOG_SHOWN = 60  # newest lines of the log that are said
NO_SCREEN = {"theme": "plain mode has no colours", "clear": "plain mode has no screen to clear"}


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the chat says it."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._session = chat.session
        self._tasks = Tasks(chat.session, self.offer)
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
                self._chat.speech.own_command()
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

    def offer(self, lines: Sequence[str], what: str, choose: Callable[[int], Awaitable[None]] | None) -> None:
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
                messages, before, after = session.compact_preview()
                if not messages:
                    self._say("nothing is pending: every message is observed already")
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
            case _:
                if session.status is None:
                    self._say("no window yet: it fills as you talk")
                    return
                figures = await session.views.memory_figures()
                self._say(
                    *(f"{name}: {text.replace(' → ', ' to ')}" for name, text in status_rows(session.status, figures))
                )

    async def do_observations(self, argument: str) -> None:
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
            said, hint = said[-LOG_SHOWN:], len(said) > LOG_SHOWN
        else:
            said, hint = [x for x in said if all(w in x.lower() for w in argument.lower().split())], False
        if not said:
            raise SaktiError("nothing is observed" if not argument else "no line matches", title="Observations")
        if hint:
            self._say(f"the newest {LOG_SHOWN} of {len(lines)} lines; words behind /observations filter all of them")

        async def sources(number: int) -> None:
            await self._sources(_one(lines, number))

        self.offer(
            said, "says the messages a line was made from; /observations pin, edit, forget, undo change it", sources
        )

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

    async def do_context(self, _: str) -> None:
        blocks = await self._session.views.context()

        async def show(number: int) -> None:
            self._say(*sanitise(_one(blocks, number).text).split("\n"))

        total = sum(b.tokens for b in blocks)
        self._say(f"what would be sent now: {words.many(len(blocks), 'block')}, {total:,} tokens")
        self.offer([words.context(b, n) for n, b in enumerate(blocks, 1)], "says a block's text", show)

    # --- search -----------------------------------------------------------------------------------------------

    async def do_search(self, query: str) -> None:
        if not query.strip():
            raise ConfigError("Write what to look for behind /search.")
        page = await self._session.views.search(query, limit=PER_PAGE)
        shown = "" if page.total <= len(page.hits) else f", the best {len(page.hits)} are said"
        newest = " among the newest" if page.newest_only else ""
        self._say(f"{page.found}{newest}{shown}")

        async def show(number: int) -> None:
            await self._hit(_one(page.hits, number))

        self.offer([words.hit(h, n) for n, h in enumerate(page.hits, 1)], "says the message with its neighbours", show)

    async def _hit(self, hit: Hit) -> None:
        views = self._session.views
        thread_id, index, target = hit.thread_id, hit.position, hit.id
        if hit.kind != "message":
            origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
            self._say(f"{hit.kind}: {hit.text}")
            if origin is None:
                return
            self._say("it was made from:")
            thread_id, index, target = origin.thread_id, origin.index, origin.message_id
        around: list[Message] = await views.around(thread_id, index, 1, 1) if thread_id else []
        for message in around:
            lines = words.message(message, limit=None if message.id == target else 6)
            self._say(*(["this is it:"] if message.id == target else []), *lines)

    # --- threads ----------------------------------------------------------------------------------------------

    async def do_threads(self, argument: str) -> None:
        """All threads; `fork N`, `delete N`, `rename N TITLE`, `export N [md|json|html]`, `restore` act on one."""
        session = self._session
        found = await session.views.threads()
        action, _, rest = argument.partition(" ")
        if action:
            await self._thread_action(action, rest.strip())
            return
        current = session.thread.id if session.thread else ""
        lines = [words.thread(s, n, current=s.thread.id == current) for n, s in enumerate(found, 1)]

        async def go_on(number: int) -> None:
            await session.open_thread(_one(found, number).thread.id)

        if not lines:
            self._say("no thread in this workspace yet")
        self.offer(lines, "goes on with a thread; /threads rename, fork, delete, restore, export act on one", go_on)

    async def _thread_action(self, action: str, rest: str) -> None:
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
        thread = _one(found, int(number)).thread
        match action:
            case "rename":
                self._say(await actions.rename(thread.id, text))
            case "fork":
                await self._session.open_thread((await actions.fork(thread.id)).id)
            case "delete":
                self._say(f"deleted {(await actions.delete(thread.id)).in_words()}; /threads restore brings it back")
            case _:
                self._say(f"written to {await actions.export(thread.id, text.strip() or 'md')}")

    async def do_resume(self, wanted: str) -> None:
        if not wanted:
            await self.do_threads("")
            return
        found = [
            s.thread
            for s in await self._session.views.threads()
            if wanted.lower() in s.thread.title.lower() or s.thread.id.endswith(wanted)
        ]
        if not found:
            raise SaktiError(f"no thread of this workspace matches {one_line(wanted, 80)!r}", title="Resume")
        await self._session.open_thread(found[0].id)

    async def do_new(self, _: str) -> None:
        await self._session.new_thread()

    async def do_rename(self, title: str) -> None:
        await self._session.rename(title)
        self._say("renamed")

    # --- the rest ---------------------------------------------------------------------------------------------

    async def do_tasks(self, argument: str) -> None:
        await self._tasks.run(argument)

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
            await session.set_model(_one(known, number).full_name)

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
        """Settings that are not at their default, or all that hold the words."""
        from sakti.agent.settings_view import settings
        from sakti.core.resources import config_home

        session, user_file = self._session, config_home() / "config.toml"
        project: Path = session.workspace / ".sakti" / "config.toml"
        found = settings(session.config, user_file=user_file, project_file=project, env=session.env)
        asked = wanted.lower().split()
        rows = [s for s in found if (all(w in s.name for w in asked) if asked else s.origin != "default")]
        about = f"{words.many(len(rows), 'setting')} of {len(found)}"
        self._say(
            f"{about} {'with these words' if asked else 'not at the default'}; they are kept in {user_file}",
            *map(words.setting, rows),
        )

    async def do_cost(self, _: str) -> None:
        self._say(*words.cost(self._session.usage))

    async def do_doctor(self, _: str) -> None:
        signs = {"✓ ": "good: ", "✗ ": "problem: "}
        self._say(*(signs.get(line[:2], line[:2]) + line[2:] for line in await self._session.views.doctor()))


def _one(found: Sequence[T], number: int) -> T:
    if not 0 < number <= len(found):
        raise SaktiError(f"there are {len(found)} to choose from", title=f"Number {number}")
    return found[number - 1]
