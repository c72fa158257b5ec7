"""Declare what a chat's own surface does: `/theme`, `/clear`, `/setup`, `/quit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Open, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent import setup as machine

WAYS = (
    "a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's, and start sakti again",
    "a server: /model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine",
    "offline: run `sakti local install` in a shell, a small model that needs no key and no network",
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
    """Show what sakti found: keys, servers, the small model, theme and approval."""

    async def list_rows() -> Value:
        session = scope.session
        found = machine.rows(await machine.look(session.workspace.env, session.workspace.config.providers))
        lines = [f"{'found' if good else 'missing'}: {text}" for good, text in found]
        return Text((*lines, machine.talks_to(session.workspace.models.selection), *WAYS))

    return Open("setup", instead=list_rows)


@action(chat="quit", needs="session")
async def quit(scope: Scope) -> Value:
    """Leave."""
    return Open("quit")
