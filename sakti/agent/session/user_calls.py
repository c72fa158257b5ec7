"""Run the calls in a message of the user: skills and commands (`/name`, `$name`), and `!command`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.agent.mentions import MENTION
from sakti.agent.project import markdown, skills
from sakti.agent.project.skills import Skill
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core import resources
from sakti.core.errors import RAN, ConfigError, SaktiError, StoreError
from sakti.core.events import MessageSaved, Notice, ToolFinished, ToolOutput, ToolStarted
from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.tokens import count_parts, sum_message_tokens
from sakti.core.types import ContextPart, FilePart, Message, OutputPart, ToolCallPart, ToolResultPart
from sakti.store.secrets import mask_secrets
from sakti.store.threads import codec, messages

if TYPE_CHECKING:
    from sakti.agent.mcp.clients import McpClients
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.tools.context import ToolContext


INIT = "init"
_COMMAND = lazy_pattern(r"/([\w-]+(?::[\w-]+)*)(?:\s+|$)")
_AGENT = lazy_pattern(r"(?<!\S)@agent-([\w-]+)")
_INLINE = lazy_pattern(r"(?<!\S)\$([a-z][\w-]*(?::[\w-]+)*)(?=[\s,.;:!?)]|$)")


class AttachedText(Struct, frozen=True):
    """A text to send with a message.

    `naming` is the part that may name files as `@path`: all but the outputs of its commands. `typed` are words of the
    user: only these may name files outside of the workspace, None if the text is the user's own.
    """

    file: FilePart
    naming: str = ""
    typed: frozenset[str] | None = None


class ExpandedCommands(Struct, frozen=True):
    """Result of the commands in a user message: texts to send with it, and the model.

    The model is "" for the usual one.
    """

    texts: tuple[AttachedText, ...] = ()
    model: str = ""


def parse_command(text: str) -> tuple[str, str] | None:
    """Return name and argument of a message that looks like a command; None for any other."""
    match = _COMMAND.match(text.strip())
    return (match[1], text.strip()[match.end() :].strip()) if match is not None else None


async def find_skill_calls(thread: OpenThread, text: str) -> ExpandedCommands:
    """Return the calls of a message: `/name arguments`, or `$name` anywhere in it.

    Raises `SaktiError` if a command of it may not run, cannot take an argument, or is no command at all.
    """
    command = parse_command(text)
    if command is not None and (typed := await _run_command(thread, *command)) is not None:
        return typed
    named = (thread.workspace.files.library.get(name) for name in dict.fromkeys(_INLINE.findall(text)))
    skills = [s for s in named if s is not None and s.typed and s.kind == "skill"]
    return ExpandedCommands(tuple([await _prepare(thread, s, "") for s in skills]))


async def _run_command(thread: OpenThread, name: str, argument: str) -> ExpandedCommands | None:
    """Prepare the texts of `/name argument`; None for a command of another kind."""
    if name == INIT:
        return ExpandedCommands((_make_init_text(thread.workspace.root),))
    clients = _get_clients(thread)
    if clients is not None and name in clients.prompt_names():
        text = await clients.get_prompt(name, argument, _make_context(thread))
        return ExpandedCommands((AttachedText(FilePart(f"/{name}", text)),))
    skill = thread.workspace.files.library.get(name)
    if skill is not None and name in thread.workspace.options.own_commands():
        where = f"rename {skill.source} to call that one"
        raise ConfigError(f"/{name} is a built-in command and works in the chat only; {where}.")
    if skill is not None and skill.typed:
        if skill.hint and markdown.lacks_argument(skill.body, argument):
            thread.emit(Notice("warning", f"/{name}", f"Arguments are missing: /{name} {skill.hint}"))
        return ExpandedCommands((await _prepare(thread, skill, argument),), skill.model)
    if not thread.workspace.options.interactive:
        raise ConfigError(f"/{to_one_line(name, 40)} is not a skill or command here; `sakti skills list` names them.")
    return None


def list_named_agents(thread: OpenThread, text: str) -> tuple[ContextPart, ...]:
    """Return the facts about custom agents that a message calls as `@agent-NAME`."""
    names = dict.fromkeys(_AGENT.findall(text)) if "@agent-" in text else ()
    agents = [name for name in names if thread.workspace.files.agents.get(name) is not None]
    return tuple(ContextPart({f"agent {n}": resources.fill_prompt("subagents#called", agent=n)}) for n in agents)


async def read_mentioned_resources(thread: OpenThread, text: str) -> tuple[FilePart, ...]:
    """Return the resources of servers that a message names as `@server:uri`. Raises `SaktiError`."""
    clients = _get_clients(thread)
    if clients is None or "@" not in text:
        return ()
    offered = set(clients.resource_names())
    names = [n if n in offered else n.rstrip(".,;:!?)") for n in MENTION.findall(text)]
    named = [n for n in dict.fromkeys(names) if n in offered or clients.is_template(n)]
    return tuple([FilePart(f"@{n}", await clients.read_resource(n, _make_context(thread))) for n in named])


def _get_clients(thread: OpenThread) -> McpClients | None:
    return thread.workspace.servers.clients if thread.workspace.has_servers else None


def _make_context(thread: OpenThread) -> ToolContext:
    return thread.toolbox.state.make_context("", thread.id, "")


def _make_init_text(root: Path) -> AttachedText:
    if (root / "AGENTS.md").exists():
        text = "AGENTS.md already exists: edit it, or ask for changes to it."
        raise SaktiError(text, title="Not sent", code="refused")
    return AttachedText(FilePart("/init", f'<command name="init">\n{resources.read_prompt("init")}\n</command>'))


async def _prepare(thread: OpenThread, skill: Skill, argument: str) -> AttachedText:
    async def shell(command: str) -> str:
        return await _run_skill_command(thread, skill, command)

    text = await markdown.fill_template(skill.body, argument, shell)
    naming = await markdown.fill_template(skill.body, argument, _run_nothing)
    brought = skill.path.is_relative_to(thread.workspace.root)
    typed = frozenset(markdown.split_arguments(argument)) if brought else None
    return AttachedText(FilePart(skill.source, skills.format_skill(skill, text)), naming, typed)


async def _run_nothing(command: str) -> str:
    return ""


async def _run_skill_command(thread: OpenThread, skill: Skill, command: str) -> str:
    """Run a command that the text of a skill names, judged and asked about as one of the model's."""
    tools = thread.toolbox
    await thread.load_rules()
    call = ToolCallPart(thread.workspace.store.ids.new(), "bash", {"command": command, "timeout": markdown.SECONDS})
    result = await tools.run_single(call, thread.id, thread.emit)
    if "denied" in result.details:
        why = result.details["denied"]
        raise SaktiError(
            f"/{skill.name} runs `{to_one_line(command, 100)}`, which was denied{f' ({why})' if why else ''}: nothing "
            "was sent.",
            title="Not sent",
        )
    return result.content


KEPT = ("exit_code", "stopped", "duration_ms", "characters", "output_file")  # with the message: for the screen


async def _run_stoppable(run: ToolContext, command: str, printed: Sequence[str]) -> Outcome:
    """Run a command to its end, or until `stop_own_command` ends it: then with the output so far."""
    task = asyncio.ensure_future(bash(run, {"command": command}))
    run.state.own_commands[run.call_id] = task
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return Outcome("".join((*printed, "[stopped by the user]")), is_error=True, details={"stopped": True})
    finally:
        run.state.own_commands.pop(run.call_id, None)
        task.cancel()


async def run(thread: OpenThread, command: str, *, during: bool = False) -> None:
    """Run `command` in the thread's current folder, with the events of a tool call.

    Its outcome becomes a user message.

    `during`: an answer streams, which is stored later than this and shown above it.
    """
    ws, tools = thread.workspace, thread.toolbox.state
    store = ws.store
    call = ToolCallPart(store.ids.new(), "bash", {"command": command})
    thread.emit(ToolStarted(call, own=True))
    started = ws.clock.monotonic()
    printed: list[str] = []

    def stream(piece: str) -> None:
        printed.append(piece)
        thread.emit(ToolOutput(call.id, piece))

    context = tools.make_context(call.id, thread.id, "", stream)
    context.is_user_command = True
    outcome = tools.limit_output(await _run_stoppable(context, command, printed), call.id)
    duration = round((ws.clock.monotonic() - started) * 1000)
    details = {**outcome.details, "duration_ms": duration}
    thread.emit(ToolFinished(ToolResultPart(call.id, "bash", outcome.content, outcome.is_error, details), duration))
    stored = {k: v for k, v in details.items() if k in KEPT} | {"failed": outcome.is_error}
    parts = codec.mask_parts((OutputPart(command, outcome.content),))
    counted = count_parts(ws.counter, parts)
    message = Message(
        store.ids.new(),
        thread.id,
        ws.resource_id,
        "user",
        parts,
        ws.clock.now(),
        tokens=sum_message_tokens(counted),
        part_tokens=counted,
        token_counter=ws.counter.name,
        metadata={"shell": mask_secrets(command), "outcome": stored, **({"during": True} if during else {})},
    )
    try:
        saved = await store.write(messages.append, message)
    except StoreError as e:
        raise SaktiError(
            f"{e.message} The command ran, but the agent does not see its output.", title=e.title, code=RAN
        ) from e
    thread.engine.add(saved)
    thread.emit(MessageSaved(saved))
