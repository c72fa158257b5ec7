"""Declare `sakti run`: one prompt, answered without a screen."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sakti.actions import registry
from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, SET, action, arg, flag, option
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.cli.options import ADD_DIR, APPROVAL, CONTINUE, DEBUG, MODE, MODEL, NO_SAVE
from sakti.core.lazy import lazy_imports
from sakti.core.streams import read_input

if TYPE_CHECKING:
    from sakti.agent.session.session import Options


with lazy_imports:
    from sakti import headless
    from sakti.agent import program_io
    from sakti.agent.judge import policy as judge_rules
    from sakti.agent.tools import catalog


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
    max_cost: float | None,
    max_turns: int | None,
    timeout: float | None,
    max_steps: int | None,
    max_seconds: float | None,
    max_tokens: int | None,
    max_usd: float | None,
    effort: str | None,
    allow: list[str],
    overrides: list[str],
    debug: bool,
    trust: bool,
    **chosen: Any,
) -> None:
    """Answer one prompt, or a stream of messages, without a screen.

    Exit: 0 answered, 1 model failed, 2 usage, 3 a limit or the schema, 4 refused, 5 no model, 6 answer cut,
    130 interrupted (the thread is kept; -c continues it).
    """
    _check(chosen, max_cost=max_cost, timeout=timeout, max_seconds=max_seconds, max_usd=max_usd)
    lines = input_format == "stream-json"
    if not lines and not sys.stdin.isatty():
        purpose = ", which is added to the prompt" if prompt else ""
        piped = read_input(purpose).decode("utf-8", "replace")
        prompt = "\n\n".join(text for text in (prompt, piped) if text.strip())
    if not prompt.strip() and not lines:
        raise Refused('no prompt. Write `sakti run "PROMPT"` or pipe text in.', code=USAGE)
    schema = program_io.load(json_schema) if json_schema is not None else None
    limits = {"max_steps": max_steps, "max_seconds": max_seconds, "max_tokens": max_tokens, "max_usd": max_usd}
    more = [f"agent.{name}={value}" for name, value in limits.items() if value is not None]
    more += [f'agent.effort="{effort}"'] if effort else []
    options = common.options(overrides=[*overrides, *more], interactive=False, trusted=trust, **chosen)
    options = replace(_allowing(options, allow), own_commands=registry.chat)
    common.log_to_file(debug=debug)
    raise SystemExit(
        headless.run(
            options,
            prompt,
            output,
            limits=headless.Limits(max_cost, max_turns, timeout),
            schema=schema,
            lines=sys.stdin.fileno() if lines else None,
        )
    )


def _check(chosen: dict[str, Any], **numbers: float | None) -> None:
    """Raise `Refused` for numbers out of range and for options that exclude each other."""
    for name, value in numbers.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise Refused(f"--{name.replace('_', '-')} takes a number above 0, not {value:g}.", code=USAGE)
    named = {"-c": chosen["continue_last"], "--resume": chosen["resume"], "--fork": chosen["fork"]}
    options = [name for name, value in named.items() if value not in (None, False)]
    if len(options) > 1:
        raise Refused(f"{' and '.join(options)} exclude each other: name one thread.", code=USAGE)
    if "" in named.values():
        raise Refused(f"{options[0]} needs a thread; `sakti threads list` shows them.", code=USAGE)


def _allowing(options: Options, rules: list[str]) -> Options:
    """Add rules to those that allow. Raises `Refused` for one that no tool follows."""
    if not rules:
        return options
    names = {tool.rule_name for tool in catalog.workspace_tools()}
    for rule in rules:
        name = judge_rules.tool_of(rule)
        if name.startswith("mcp__") or judge_rules.names_host(rule):
            continue
        if name not in names or (name == "bash" and judge_rules.command_rule(rule, name) is None):
            tool_names = ", ".join(sorted(names))
            raise Refused(f'--allow: {rule!r} is not a rule. Write TOOL, "TOOL(GLOB)", "bash: WORDS", '
                          f'"mcp__SERVER__TOOL" or "reach: HOST", with one of {tool_names}.', code=USAGE)  # fmt: skip
    approval = dataclasses.replace(options.config.approval, allow=(*options.config.approval.allow, *rules))
    return replace(options, config=dataclasses.replace(options.config, approval=approval))
