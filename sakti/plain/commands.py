"""Run the commands of the plain chat, and declare its own commands.

Lists are numbered, to be read aloud; a number alone then selects an item.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sakti.actions import line, registry
from sakti.actions.scope import Scope
from sakti.actions.search import find_hits
from sakti.actions.spec import Action, action, arg
from sakti.actions.values import Card, Done, Open, Refused, Rows, Text, Value
from sakti.core.text import format_count, sanitize_text, to_one_line
from sakti.plain import words
from sakti.plain.prose import format_all

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.plain.speech import Speech
    from sakti.store.log.lines import LogLine


class PlainHost(Protocol):
    """Interface of the chat for its commands."""

    session: Session
    speech: Speech
    unsent: str  # unsent text

    def say(self, lines: Iterable[str]) -> None: ...

    async def send(self, text: str) -> None: ...

    def end_of_input(self) -> None: ...

    def leave(self, code: int) -> None: ...


class PlainScope(Scope):
    """`chat` is the plain chat itself."""

    def __init__(
        self, chat: PlainHost, tell: Callable[[Value], None], working: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        super().__init__(chat.session, tell, working)
        self.chat = chat


@action(arg("query", default=""), chat="find", needs="session")
async def find(scope: PlainScope, query: str) -> Value:
    """Search this thread only."""
    return await find_hits(scope.session, query, "thread")


@action(arg("count", default=2, kind="whole", low=1, high=200), chat="last", needs="session",
        summary="repeat the last messages: /last, /last 10")  # fmt: skip
async def last(scope: PlainScope, count: int) -> Value:
    """Repeat the last messages."""
    thread = scope.session.thread
    page = await scope.session.views.transcript(thread.id, limit=count) if thread else []
    return Rows(tuple(m.text for m in page), "messages", tuple(page), "This thread has no messages yet.")


@action(arg("number", default=0, kind="whole", low=1), chat="output", needs="session",
        summary="show the whole output of the last tool call; /output 2 the one before it")  # fmt: skip
async def output(scope: PlainScope, number: int) -> Value:
    """Show the output of a tool call; while a question waits, all its details."""
    speech = scope.chat.speech
    question = speech.question
    if question is not None and not number:
        return Text(
            (*sanitize_text(question.target).split("\n"), *(words.spell_diff(question.diff) if question.diff else ()))
        )
    at = number or 1
    if at > len(speech.calls):
        raise Refused(f"{format_count(len(speech.calls), 'call')} can be shown.", title="Output")
    return Text(tuple(speech.calls[-at].lines()))


@action(chat="retry", needs="session")
async def retry(scope: PlainScope) -> None:
    """Retry after a failed answer."""
    await scope.session.retry()


@action(chat="queue", needs="session", summary="list queued messages; /queue remove removes the newest")
async def queue(scope: PlainScope) -> Value:
    """List queued messages."""
    queued = scope.session.queued
    return Rows(tuple(f"{n}. {to_one_line(q, 300)}" for n, q in enumerate(queued, 1)), empty="Nothing is queued.")


@action(chat="queue remove", needs="session")
async def queue_remove(scope: PlainScope) -> Value:
    """Remove the newest queued message."""
    queued = scope.session.queued
    if not queued:
        return Done("Nothing is queued.")
    return Text((f"removed: {scope.session.unqueue(len(queued) - 1)}",))


@action(chat="send", needs="session")
async def send(scope: PlainScope) -> Value | None:
    """Send the unsent draft."""
    text, scope.chat.unsent = scope.chat.unsent, ""
    if not text:
        return Done("There is no unsent draft.")
    await scope.chat.send(text)
    return None


@action(chat="drop", needs="session")
async def drop(scope: PlainScope) -> Value:
    """Discard the unsent draft."""
    text = "Dropped." if scope.chat.unsent else "There is no unsent draft."
    scope.chat.unsent = ""
    return Done(text)


OWN = {a.chat: a for a in registry.read_subject(sys.modules[__name__]).actions}


INPUTS = (
    "a line is sent with Enter; a backslash at the end of a line continues it in the next",
    "!COMMAND runs a command, #TEXT saves a note, @PATH attaches a file or an image",
    "while the agent works, what you send is queued until its next step",
    "ctrl+c stops the agent, twice quits; ctrl+d quits",
)
NO_SCREEN = ("theme", "clear", "copy")  # unavailable: there are no colours, nothing to clear and no clipboard
STOPPABLE = "stoppable"  # name of a task that ctrl+c cancels


def list_commands() -> list[Action]:
    """Return the commands available in this chat."""
    return [*(a for name, a in registry.chat_commands().items() if name not in NO_SCREEN), *OWN.values()]


class PlainCommands:
    """Runs typed commands. All methods may raise SaktiError, which the chat prints."""

    def __init__(self, chat: PlainHost) -> None:
        self._chat = chat
        self._session = chat.session
        self._scope = PlainScope(chat, self._say, self._stoppable)
        self.thread = ""  # thread whose messages were printed
        self.choose: Callable[[int], Awaitable[None]] | None = None  # action for a line that is only a number

    async def run(self, text: str) -> bool:
        """Run a command, shell line or note; return False for a message, which the caller sends."""
        typed = line.parse(text, OWN, self._session.typed_names())
        self.choose = None
        match typed.kind:
            case "command":
                await self._run_line(typed)
            case "unknown":
                raise line.make_unknown_command_error(typed)
            case "shell":
                self._chat.speech.expect_command(typed.argument)
                with self._stoppable():
                    await self._session.shell(typed.argument)
            case "note":
                await self._session.note(typed.argument)
            case _:
                return False
        return True

    async def act(self, name: str, argument: str = "") -> None:
        """Run a command by name and print its result."""
        await self._run_line(line.Typed("command", name, argument))

    async def _run_line(self, typed: line.Typed) -> None:
        await self.show(await line.run(self._scope, typed, OWN))

    async def show(self, value: Value | None) -> None:
        """Print a value; a view of the TUI is printed in its plain form."""
        match value:
            case None:
                return
            case Open("help"):
                self._show_help()
            case Open("quit"):
                if self._session.busy:
                    self._chat.end_of_input()
                else:
                    self._chat.leave(0)
            case Open(missing=reason) if reason:
                raise Refused(reason)
            case Open(fallback=fallback) if fallback is not None:
                await self.show(await fallback())
            case _:
                self._say(value)

    def _say(self, value: Value) -> None:
        thread = self._session.thread
        self._chat.say(format_value(value, thread.id if thread else ""))
        if isinstance(value, Rows) and value.pick is not None and format_items(value):
            self._chat.say([f"a number alone {value.what}"])
            pick = value.pick

            async def choose(number: int) -> None:
                await self.show(await pick(number))

            self.choose = choose

    def _show_help(self) -> None:
        self._chat.say([*INPUTS, *(f"/{a.chat} {a.hint}".strip() + f": {a.in_short}" for a in list_commands())])
        skills = self._session.typed_skills().values()
        self._chat.say(f"/{s.name} {s.hint}".strip() + f": {s.description} ({s.source})" for s in skills)

    @contextmanager
    def _stoppable(self, _: str = "") -> Generator[None]:
        """Let ctrl+c cancel the block while it waits."""
        task = asyncio.current_task()
        if task is not None:
            task.set_name(STOPPABLE)
        try:
            yield
        except asyncio.CancelledError:
            self._chat.say(["the command was stopped"])
            raise


MESSAGE_LINES = 40  # lines of each message behind a log line
BESIDE_LINES = 6  # lines of a neighbour of a search hit
SHOWN = 60  # number of newest log lines
_FINDINGS = {"✓ ": "good: ", "✗ ": "problem: "}
_SYMBOL_WORDS = {"●": "high", "○": "work", "·": "minor", "✓": "done", "⚑": "pinned"}


def format_value(value: Value, thread_id: str = "") -> list[str]:
    """Return the lines of a value, with symbols in words; `thread_id` is the open thread."""
    match value:
        case Done(sentence, title):
            return words.format_rows([(title, sentence)]) if title else [words.spell_signs(sentence)]
        case Card(_, rows):
            return words.format_rows(rows)
        case Text(text, _, "diff"):
            return words.spell_diff("".join(_SYMBOL_WORDS.get(c, c) for c in "\n".join(text)))
        case Text((page,), _, "markdown"):
            return format_all(page)
        case Text(text):
            return [_FINDINGS.get(x[:2], x[:2]) + x[2:] for part in text for x in sanitize_text(part).split("\n")]
        case Rows():
            entries = format_items(value, thread_id)
            return [x for x in (value.head, *(entries or [value.empty]), value.tail) if x]
        case _:
            return list(value.lines)


def _filter_log(log: Sequence[LogLine], wanted: Sequence[str]) -> list[str]:
    """Return the log lines with all `wanted` words; without any words, the newest lines."""
    entries = list(words.format_log(log))
    return [x for x in entries if all(w in x.lower() for w in wanted)] if wanted else entries[-SHOWN:]


def format_items(rows: Rows, thread_id: str = "") -> list[str]:
    """Return the lines of a list's items, numbered if one can be selected."""
    match rows.kind:
        case "threads":
            numbered = enumerate(rows.items, 1)
            return [words.format_thread(s, n, current=s.thread.id == thread_id) for n, s in numbered]
        case "log":
            return _filter_log(*rows.items)
        case "around":
            messages, target = rows.items
            return [x for m in messages for x in _format_around(m, m.id == target)]
        case "board":
            return words.format_board(rows.items[0])
        case kind if kind in _ONE:
            return [x for n, item in enumerate(rows.items, 1) for x in _ONE[kind](item, n)]
        case _:
            return list(rows.text)


def _format_around(message: Any, is_target: bool) -> Iterable[str]:
    message_lines = words.format_message(message, limit=None if is_target else BESIDE_LINES)
    return ["selected:", *message_lines] if is_target else message_lines


_ONE: dict[str, Callable[[Any, int], Iterable[str]]] = {
    "hits": lambda hit, n: [words.format_hit(hit, n)],
    "models": lambda m, n: [f"{n}. {m.full_name}"],
    "context": lambda block, n: [words.format_block(block, n)],
    "settings": lambda s, _: [words.format_setting(s)],
    "events": lambda e, _: [words.format_event(e)],
    "branches": lambda b, _: [words.format_branch(b)],
    "messages": lambda m, _: words.format_message(m, limit=MESSAGE_LINES),
}
