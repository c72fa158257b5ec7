"""Declare `sakti run`: one prompt, answered without a screen."""

from __future__ import annotations

import sys
from typing import Any

from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, SET, action, arg, flag, option
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.cli.options import APPROVAL, CONTINUE, DEBUG, MODE, MODEL, NO_SAVE
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti import headless


@action(
    arg("prompt", "The prompt; standard input is added to it.", default=""),
    MODEL,
    APPROVAL,
    MODE,
    option(
        "--output",
        default="text",
        metavar="FORMAT",
        help="text, json or stream-json.",
        offers=("text", "json", "stream-json"),
    ),
    option("--max-steps", kind="whole", low=1, metavar="N", help="Maximum number of model calls."),
    option("--max-seconds", kind="number", metavar="N", help="Maximum time in seconds."),
    option("--max-tokens", kind="whole", metavar="N", help="Maximum number of tokens, in and out."),
    option("--max-usd", kind="number", metavar="N", help="Maximum cost in US dollars."),
    option(
        "--effort",
        metavar="LEVEL",
        help="How much the model thinks: off, low, medium or high.",
        offers=("off", "low", "medium", "high"),
    ),
    CONTINUE,
    option("-r", "--resume", metavar="THREAD", help="Continue this thread.", offers="threads"),
    flag("--trust", help="Use the workspace's own settings in this run; `sakti trust` keeps the decision."),
    SET,
    NO_SAVE,
    DEBUG,
    shell="run",
    panel=CHAT,
    json=False,
)
async def run(
    scope: Scope,
    prompt: str,
    output: str,
    max_steps: int | None,
    max_seconds: float | None,
    max_tokens: int | None,
    max_usd: float | None,
    effort: str | None,
    overrides: list[str],
    debug: bool,
    trust: bool,
    **chosen: Any,
) -> None:
    """Answer one prompt without a screen.

    Exit: 0 answered, 1 model failed, 2 usage, 3 limit, 4 refused, 5 no model, 6 answer cut.
    """
    if output not in headless.OUTPUTS:
        raise Refused(f"--output takes {', '.join(headless.OUTPUTS)}, not {output!r}.", code=USAGE)
    if not sys.stdin.isatty() and (piped := sys.stdin.buffer.read().decode("utf-8", "replace")).strip():
        prompt = f"{prompt}\n\n{piped}" if prompt else piped
    if not prompt.strip():
        raise Refused('no prompt. Write `sakti run "PROMPT"` or pipe text in.', code=USAGE)
    given = {"max_steps": max_steps, "max_seconds": max_seconds, "max_tokens": max_tokens, "max_usd": max_usd}
    more = [f"agent.{name}={value}" for name, value in given.items() if value is not None]
    more += [f'agent.effort="{effort}"'] if effort else []
    options = common.options(overrides=[*overrides, *more], interactive=False, trusted=trust, **chosen)
    common.log_to_file(debug=debug)
    raise SystemExit(headless.run(options, prompt, output))
