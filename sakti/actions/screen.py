"""Declare the actions of a chat's surface, and help: keys, commands and the pages in `sakti/help`."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import sakti
from sakti.actions.spec import CHAT, action, arg
from sakti.actions.values import USAGE, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


with lazy_imports:
    from sakti.agent import setup as machine

WAYS = (
    "a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's, and start sakti again",
    "a server: /model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine",
    "offline: run `sakti local install` in a shell for a small model that needs no key and no network",
    "history of claude-code, codex and others: /import",
    "approval: /approve plan, ask, edits or auto",
)


@action(arg("name", default=""), chat="theme", hint="[NAME]", needs="session")
async def theme(scope: Scope, name: str) -> Value:
    """Choose the theme."""
    return Open("theme", name, missing="Plain mode has no colours.")


@action(chat="clear", needs="session")
async def clear(scope: Scope) -> Value:
    """Clear the screen; nothing is deleted."""
    return Open("clear", missing="Plain mode has no screen to clear.")


@action(chat="setup", needs="session")
async def setup(scope: Scope) -> Value:
    """Show what sakti found: keys, servers, the small model and its download, theme and approval."""

    async def list_rows() -> Value:
        session = scope.session
        rows = machine.list_options(
            await machine.scan_machine(session.workspace.env, session.workspace.config.providers)
        )
        lines = [f"{'found' if good else 'missing'}: {text}" for good, text in rows]
        return Text((*lines, machine.describe_selection(session.workspace.models.selection), *WAYS))

    return Open("setup", fallback=list_rows)


@action(chat="tour", needs="session")
async def tour(scope: Scope) -> Value:
    """Take a tour of two minutes: scripted, without a model and without effect on this thread."""
    return Open("tour", missing="Run `sakti tour` in a shell; it needs a whole terminal.")


@action(chat="quit", needs="session")
async def quit(scope: Scope) -> Value:
    """Leave."""
    return Open("quit")


PAGES = Path(sakti.__file__).with_name("help")
TOPICS = tuple(sorted(path.stem for path in PAGES.glob("*.md")))
_LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\([\w-]+\.md\)")


@action(
    arg("topic", "The topic to read; without one, all topics are listed.", default="", offers=TOPICS),
    shell="help",
    chat="help",
    hint="[TOPIC]",
    summary="show keys and commands, or the page of a topic",
    panel=CHAT,
)
async def help(scope: Scope, topic: str) -> Value:
    """Read the documentation: one topic, or the list of topics."""
    if topic:
        name = find_topic(topic, "/help" if scope.live else "sakti help")
        page = read_page(name)
        return Text((page,), title=f"Help: {name}", kind="markdown", json={"topic": name, "text": page})
    if scope.live:
        return Open("help")
    summaries = {name: read_summary(read_page(name)) for name in TOPICS}
    width = max(map(len, TOPICS))
    lines = [f"{name:<{width}}  {summary}" for name, summary in summaries.items()]
    return Text((*lines, "", "`sakti help TOPIC` shows one; so does `/help TOPIC` in the chat."), json=summaries)


def find_topic(word: str, command: str) -> str:
    """Return the topic named by `word`, or with `word` in its heading.

    Raises `Refused` with the nearest topic as an argument of `command`.
    """
    topic = word.lower()
    if topic in TOPICS:
        return topic
    headings = {name: re.findall(r"\w+", read_page(name).partition("\n")[0].lower()) for name in TOPICS}
    if match := next((name for name, words in headings.items() if topic in words), None):
        return match
    near = difflib.get_close_matches(topic, TOPICS, 1)
    hint = f"Did you mean `{command} {near[0]}`?" if near else f"The topics are {', '.join(TOPICS)}."
    raise Refused(f"There is no help topic {quote(word, 40)}. {hint}", code=USAGE)


def read_page(topic: str) -> str:
    """Return a page for a terminal, which cannot follow its links to other pages."""
    return _LINK_TO_PAGE.sub(r"\1", (PAGES / f"{topic}.md").read_text("utf-8"))


def read_summary(page: str) -> str:
    """Return the sentence under the heading."""
    return page.split("\n", 3)[2]
