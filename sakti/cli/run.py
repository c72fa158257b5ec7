"""Open the chat (`sakti`, `sakti tour`), or answer one prompt without a screen (`sakti run`)."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sakti.actions import registry
from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, SET, action, arg, flag, option
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.cli.options import ADD_DIR, APPROVAL, CONTINUE, DEBUG, MODE, MODEL, NO_SAVE
from sakti.core import terminal
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports
from sakti.core.streams import read_input
from sakti.core.text import quote

if TYPE_CHECKING:
    from sakti.agent.session.session import Options, Session
    from sakti.store.database import Store


with lazy_imports:
    from sakti import headless
    from sakti.agent import program_io, titles
    from sakti.agent import tour as scripted_tour
    from sakti.agent.judge import policy as judge_rules
    from sakti.agent.session import session as sessions
    from sakti.agent.tools import catalog
    from sakti.plain import chat as plain_chat
    from sakti.store.threads import threads as stored_threads
    from sakti.tui import run as terminal_chat


@action(
    arg("prompt", "The prompt; standard input is added to it.", default=""),
    MODEL,
    APPROVAL,
    MODE,
    option("--output", default="text", choices=("text", "json", "stream-json"), help="Format of the answer."),
    option("--input-format", default="text", choices=("text", "stream-json"),
           help="stream-json: JSON Lines of user messages on standard input, answered in order."),
    option("--json-schema", kind="path", metavar="FILE", offers="files",
           help="The answer is JSON that matches this schema; after 2 repairs exit 3."),
    option("--max-cost", kind="number", metavar="USD", help="Maximum cost of the run in US dollars; then exit 3."),
    option("--max-turns", kind="whole", low=1, metavar="N", help="Maximum model calls of the run; then exit 3."),
    option("--timeout", kind="number", metavar="SECONDS", help="Maximum time of the run in seconds; then exit 3."),
    option("--max-steps", kind="whole", low=1, metavar="N", help="Maximum number of model calls per message."),
    option("--max-seconds", kind="number", metavar="N", help="Maximum time per message in seconds."),
    option("--max-tokens", kind="whole", metavar="N", help="Maximum number of tokens per message, in and out."),
    option("--max-usd", kind="number", metavar="N", help="Maximum cost per message in US dollars."),
    option("--effort", choices=("off", "low", "medium", "high"), help="Reasoning effort."),
    CONTINUE,
    option("-r", "--resume", metavar="THREAD", help="Continue this thread.", offers="threads"),
    option("--fork", metavar="THREAD", help="Continue a copy of this thread.", offers="threads"),
    option("--allow", many=True, metavar="RULE",
           help='Allow calls as approval.allow does, as "bash: git fetch"; may be repeated.'),
    ADD_DIR,
    flag("--trust", help="Use the workspace's own settings in this run; `sakti trust` keeps the decision."),
    SET,
    NO_SAVE,
    DEBUG,
    shell="run",
    panel=CHAT,
    json=False,
)  # fmt: skip
async def run(
    scope: Scope,
    prompt: str,
    output: str,
    input_format: str,
    json_schema: Path | None,
    allow: list[str],
    **chosen: Any,
) -> None:
    """Answer one prompt, or a stream of messages, without a screen.

    Exit: 0 answered, 1 model failed, 2 usage, 3 a limit or the schema, 4 refused, 5 no model, 6 answer cut,
    130 interrupted (the thread is kept; -c continues it).
    """
    _check(chosen)
    lines = input_format == "stream-json"
    if not lines:
        prompt = _add_input(prompt)
    schema = program_io.load(json_schema) if json_schema is not None else None
    limits = headless.Limits(chosen.pop("max_cost"), chosen.pop("max_turns"), chosen.pop("timeout"))
    debug = chosen.pop("debug")
    options = replace(_add_rules(_make_options(chosen), allow), own_commands=registry.chat_commands)
    common.log_to_file(debug=debug)
    numbers = sys.stdin.fileno() if lines else None
    raise SystemExit(headless.run(options, prompt, output, limits=limits, schema=schema, lines=numbers))


def _add_input(prompt: str) -> str:
    """Add standard input, unless it is a terminal, to the prompt. Raises `Refused` without either."""
    if not sys.stdin.isatty():
        purpose = ", which is added to the prompt" if prompt else ""
        piped = read_input(purpose).decode("utf-8", "replace")
        prompt = "\n\n".join(text for text in (prompt, piped) if text.strip())
    if not prompt.strip():
        raise Refused('no prompt. Write `sakti run "PROMPT"` or pipe text in.', code=USAGE)
    return prompt


def _make_options(chosen: dict[str, Any]) -> Options:
    """Make the options of the session; message limits and effort become settings of this run."""
    limits = {name: chosen.pop(name) for name in _MESSAGE_LIMITS}
    more = [f"agent.{name}={value}" for name, value in limits.items() if value is not None]
    effort, overrides, trust = chosen.pop("effort"), chosen.pop("overrides"), chosen.pop("trust")
    more += [f'agent.effort="{effort}"'] if effort else []
    return common.make_options(overrides=[*overrides, *more], trusted=trust, **chosen)


_MESSAGE_LIMITS = ("max_steps", "max_seconds", "max_tokens", "max_usd")
_ABOVE_ZERO = ("max_cost", "timeout", "max_seconds", "max_usd")


def _check(chosen: Mapping[str, Any]) -> None:
    """Raise `Refused` for numbers out of range and for options that exclude each other."""
    for name in _ABOVE_ZERO:
        value = chosen[name]
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise Refused(f"--{name.replace('_', '-')} takes a number above 0, not {value:g}.", code=USAGE)
    named = {"-c": chosen["continue_last"], "--resume": chosen["resume"], "--fork": chosen["fork"]}
    options = [name for name, value in named.items() if value not in (None, False)]
    if len(options) > 1:
        raise Refused(f"{' and '.join(options)} exclude each other: name one thread.", code=USAGE)
    if "" in named.values():
        raise Refused(f"{options[0]} needs a thread; `sakti threads list` shows them.", code=USAGE)


def _add_rules(options: Options, rules: list[str]) -> Options:
    """Add rules to the allow rules. Raises `Refused` for a rule that fits no tool."""
    if not rules:
        return options
    names = {tool.rule_name for tool in catalog.list_workspace_tools()}
    for rule in rules:
        name = judge_rules.find_tool(rule)
        if name.startswith("mcp__") or judge_rules.names_host(rule):
            continue
        if name not in names or (name == "bash" and judge_rules.parse_command_rule(rule, name) is None):
            tool_names = ", ".join(sorted(names))
            raise Refused(f'--allow: {quote(rule)} is not a rule. Write TOOL, "TOOL(GLOB)", "bash: WORDS", '
                          f'"mcp__SERVER__TOOL" or "reach: HOST", with one of {tool_names}.', code=USAGE)  # fmt: skip
    approval = replace(options.config.approval, allow=(*options.config.approval.allow, *rules))
    return replace(options, config=replace(options.config, approval=approval))


DUMB = "TERM is dumb: using plain mode (--plain)"


def open_chat(prompt: str | None, *, resume: str | None, plain: bool, debug: bool, **chosen: Any) -> None:
    """Run the TUI or the plain chat until the user leaves; raises SystemExit with the exit code.

    `chosen` are arguments of `common.make_options`; an empty `resume` shows the threads first.
    """
    gc.disable()  # until the first paint: imports create objects, but no garbage
    if resume:
        _require_thread(resume)
    session = sessions.Session(common.make_options(resume=resume or None, **chosen))
    common.log_to_file(debug=debug)
    had_terminal = sys.stdin.isatty()
    code = show_chat(session, plain=plain, prompt=prompt, pick_thread=resume == "")
    if had_terminal:
        terminal.end_process(code)  # the store is closed, so the shell need not wait
    raise SystemExit(code)


def _require_thread(name: str) -> None:
    """Raise `ConfigError`, before the screen opens, if a name matches no thread or several."""
    here = str(common.find_workspace().resolve())

    async def look(store: Store) -> None:
        if titles.choose_thread(name, await store.read(stored_threads.find, here, name)) is None:
            raise ConfigError(titles.explain_missing(name, await store.read(stored_threads.find, None, name)))

    common.run_in_store(look)


def show_chat(session: Session, *, plain: bool = False, prompt: str | None = None, pick_thread: bool = False) -> int:
    """Show `session` in the requested or the possible mode; returns the exit code."""
    plain = plain or session.workspace.config.ui.plain
    dumb = os.environ.get("TERM") == "dumb" and sys.stdin.isatty()
    if plain or dumb:
        gc.enable()
        return plain_chat.run(session, prompt=prompt, pick_thread=pick_thread, why="" if plain else DUMB)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        common.fail("the chat needs a terminal. Without one, use `sakti run PROMPT`.", common.USAGE)
    return terminal_chat.run(session, prompt=prompt, pick_thread=pick_thread)


@action(shell="tour", panel=CHAT, json=False)
async def tour(scope: Scope) -> None:
    """Take a two-minute tour without a model: the answers are scripted, tools and memory are real."""
    import tempfile

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused("the tour needs a terminal.", code=USAGE)
    common.log_to_file()
    with tempfile.TemporaryDirectory(prefix="sakti-tour-") as folder:
        session = scripted_tour.make_tour_session(Path(folder), env=dict(os.environ))
        code = show_chat(session, prompt=scripted_tour.FIRST)
    terminal.end_process(code)
