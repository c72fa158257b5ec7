"""Start and end of a session in every interface: trust in the workspace, and the last observation."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sakti.agent.project import files, trust
from sakti.core.errors import ConfigError
from sakti.core.events import Notice
from sakti.core.text import count_k, to_one_line

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerNeed
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.project.files import ProjectFile
    from sakti.agent.workspace import Workspace


Allow: TypeAlias = Callable[["ServerNeed"], Awaitable[bool | None]]


async def settle_trust(
    workspace: Workspace, ask: Callable[[trust.TrustReview], Awaitable[bool]], allow: Allow | None = None
) -> None:
    """Review the workspace and apply its settings or not; `ask` lets the user decide if needed.

    `allow` asks about each secret variable, host and path that an MCP server of the project needs; None: no answer.
    Only for options that were loaded without asking. Answers are kept if they can be. Raises `ConfigError`.
    """
    if not workspace.options.trust_pending:
        return
    review = await asyncio.to_thread(trust.review, workspace.root)
    use = not review.asks or await ask(review)
    if review.asks and use:
        try:
            await asyncio.to_thread(trust.save, review)
        except ConfigError as e:  # it applies to this run, and is asked about again in the next
            workspace.emit(Notice("warning", "Trust", e.message))
    workspace.settle_trust(review, use=use)
    if allow is not None and workspace.files.may_have_servers():
        await _settle_needs(workspace, allow)


async def _settle_needs(workspace: Workspace, allow: Allow) -> None:
    """Ask once about each need of the project's MCP servers."""
    listed = await asyncio.to_thread(workspace.files.load_servers)
    answers = {need.key: await allow(need) for need in listed.needs}
    decided = {key: answer for key, answer in answers.items() if answer is not None}
    try:
        if decided:
            await asyncio.to_thread(trust.save_answers, workspace.root, decided)
    except ConfigError as e:
        workspace.emit(Notice("warning", "Trust", e.message))


async def settle_new_files(
    workspace: Workspace, ask: Callable[[trust.TrustReview], Awaitable[bool]] | None
) -> dict[str, str]:
    """Ask once about each new file that has an effect; return a sentence about each omitted one.

    Without `ask` the answer is no. Files that commands left under such a name were set aside: a yes restores their
    names. Files that run code, and settings, take effect at the next start.
    """
    if workspace.options.known_texts is None or workspace.options.trust_pending:
        return {}
    moved = workspace.take_moved()
    review = await asyncio.to_thread(trust.review_new, workspace.root, workspace.options.reviewed, moved)
    left_out = {change.name: _describe_set_aside(change.name, moved) for change in review.changes}
    workspace.note_reviewed_files(left_out)
    if not left_out or ask is None or not await ask(review):
        return left_out
    try:
        trusted = await asyncio.to_thread(_trust, workspace, review, moved)
    except ConfigError as e:
        workspace.emit(Notice("warning", "Trust", e.message))
        return left_out
    workspace.trust_texts(f.name for f in trusted if f.is_text)
    for file in trusted:
        left_out.pop(file.name, None)
    return left_out


def _describe_set_aside(name: str, moved: Sequence[tuple[str, str]]) -> str:
    new = next((new for old, new in moved if name == old or name.startswith(f"{old}/")), "")
    return (
        f"{to_one_line(name, 80)}: a command created it, so it is set aside in {new}."
        if new
        else files.describe_ignored(name)
    )


def _trust(
    workspace: Workspace, review: trust.TrustReview, moved: Sequence[tuple[str, str]]
) -> tuple[ProjectFile, ...]:
    """Trust what the user saw, set aside or not, unless it changed since. Raises `ConfigError`."""
    from sakti.agent.sandbox import quarantine  # most commands leave nothing that is set aside

    for name, new in moved:
        if any(c.name == name or c.name.startswith(f"{name}/") for c in review.changes):
            quarantine.put_back(workspace.root, name, new)
    seen = {f.name: f.sha256 for f in review.project.files}
    now = {f.name: f.sha256 for f in trust.review(workspace.root).project.files}
    return trust.add(workspace.root, {name for name in seen if now.get(name) == seen[name]})


LIMIT_S = 60.0


async def observe_on_exit(
    current: OpenThread,
    interrupt: Callable[[], Awaitable[bool]],
    say: Callable[[str], None],
    *,
    limit: float = LIMIT_S,
    skipped: asyncio.Event | None = None,
) -> None:
    """Observe pending messages at the end, if the setting is on and memory observes anything.

    Ctrl+c, `skipped` or `limit` seconds end it; the rest is observed when the thread continues. Never raises for a
    failure of memory.
    """
    skipped = skipped or asyncio.Event()
    if skipped.is_set() or not _observes_on_exit(current):
        return
    await interrupt()
    tokens = current.engine.count_tokens_to_observe()
    if not tokens:
        return
    say(f"Observing {count_k(tokens)} tokens before leaving; ctrl+c skips it.")
    work, skip = asyncio.create_task(current.engine.observe_rest()), asyncio.create_task(skipped.wait())
    try:
        with _handle_sigint(skipped.set):
            await asyncio.wait([work, skip], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not work.cancelled() and work.exception() is None and work.result():
            return
        why = "Skipped" if skipped.is_set() else f"Not finished in {limit:g} s" if not work.done() else "It failed"
        say(f"{why}: it is observed when the thread continues.")
    finally:
        for task in (work, skip):
            task.cancel()


def _observes_on_exit(current: OpenThread) -> bool:
    settings = current.workspace.config.memory
    return settings.observe_on_exit and settings.enabled and not settings.read_only and current.thread is not None


@contextlib.contextmanager
def _handle_sigint(handle: Callable[[], None]) -> Generator[None]:
    """Let `handle` answer SIGINT if the platform allows it, and restore the handler before."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    with contextlib.suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, handle)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)
