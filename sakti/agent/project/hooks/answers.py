"""Read what a hook decided, and make one decision of several. Pure.

Exit 0: what it printed counts, as JSON where it is that. Exit 2: it blocks, with what it wrote on standard error as the
reason. Any other end is told to the user and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field

from sakti.agent.project.hooks.settings import Hook
from sakti.core.text import clean_surrogates, head_and_tail, one_line
from sakti.core.types import Json
from sakti.store.secrets import masked

LONGEST = 10_000  # characters of one text that a hook gives
BLOCKS = 2  # the exit code
TELLS = ("SessionStart", "UserPromptSubmit")  # events whose plain output the model reads
CANNOT = ("SessionStart", "SessionEnd", "PostCompact", "Notification", "Observed", "Reflected", "TaskClosed")
FEEDBACK = ("PostToolUse", "PostToolUseFailure")  # a block of these only tells the model

Verdict: TypeAlias = Literal["", "allow", "ask", "deny"]
_WORDS: Mapping[str, Verdict] = {"allow": "allow", "approve": "allow", "ask": "ask", "deny": "deny", "block": "deny"}
_STRICTNESS: tuple[Verdict, ...] = ("", "allow", "ask", "deny")


class Ran(Struct, frozen=True):
    """End of a hook: its exit code (or None) and its output.

    `failed` is the reason why it did not end.
    """

    hook: Hook
    code: int | None = None
    out: str = ""
    errors: str = ""
    failed: str = ""


class HookText(Struct, frozen=True):
    """What a hook said, and which hook that was."""

    hook: Hook
    text: str


class HookAnswer(Struct, frozen=True):
    """What one hook decided.

    `stop` ends the turn, with a reason for the user; `context` goes to the model, `messages` and `notices` to the user,
    the latter about hooks that failed.
    """

    hook: Hook
    verdict: Verdict = ""
    reason: str = ""
    input: Json | None = None
    context: str = ""
    stop: str | None = None
    messages: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


class HookDecision(Struct, frozen=True):
    """What all hooks of an event decided: the strictest verdict, with the hook and the reason.

    `input` replaces the call's where the verdict lets it run. `context` and `feedback` go to the model.
    """

    verdict: Verdict = ""
    reasons: tuple[HookText, ...] = ()
    input: Json | None = None
    changed_by: Hook | None = None
    context: tuple[HookText, ...] = ()
    stop: HookText | None = None
    messages: tuple[HookText, ...] = ()
    notices: tuple[HookText, ...] = field(default=())

    @property
    def reason(self) -> str:
        return "\n".join(r.text for r in self.reasons)


def short(text: str) -> str:
    """Return a hook's text as it is used: secrets masked, cut in its middle."""
    return masked(head_and_tail(clean_surrogates(text).strip(), LONGEST)[0])


def read(event: str, ran: Ran) -> HookAnswer:
    """Return what a hook decided by its end and its output."""
    hook = ran.hook
    if ran.failed:
        return HookAnswer(hook, notices=(ran.failed,))
    if ran.code == BLOCKS:
        reason = short(ran.errors) or "no reason was given"
        if event in CANNOT:
            return HookAnswer(hook, notices=(one_line(reason, 400),))
        return HookAnswer(hook, "deny", reason)
    if ran.code != 0:
        first = next((row for row in ran.errors.splitlines() if row.strip()), "")
        end = f"exit code {ran.code}" if (ran.code or 0) > 0 else f"ended by signal {-(ran.code or 0)}"
        return HookAnswer(hook, notices=(f"{end}: {one_line(short(first), 300)}" if first else end,))
    table = _table(ran.out)
    if table is None:
        return HookAnswer(hook, context=short(ran.out) if event in TELLS else "")
    return _of_table(event, hook, table)


def _table(text: str) -> Json | None:
    """Return the JSON object that a hook printed, or None."""
    text = text.strip()
    if not text.startswith("{"):
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _of_table(event: str, hook: Hook, table: Json) -> HookAnswer:
    inner = table.get("hookSpecificOutput")
    special: Json = cast("Json", inner) if isinstance(inner, dict) else {}
    verdict, reason, changed = _read_verdict(event, table, special)
    message = _text(table, "systemMessage")
    stop = (_text(table, "stopReason") or reason) if table.get("continue") is False else None
    return HookAnswer(
        hook,
        verdict,
        reason or ("no reason was given" if verdict == "deny" else ""),
        cast("Json", changed) if isinstance(changed, dict) else None,
        _text(special, "additionalContext") or ("" if event not in TELLS else _text(table, "additionalContext")),
        stop,
        (message,) if message else (),
    )


def _read_verdict(event: str, table: Json, special: Json) -> tuple[Verdict, str, object]:
    """Return verdict, reason and changed input, each under the names that an event has for it."""
    verdict = _WORDS.get(str(table.get("decision")), "") if event not in CANNOT else ""
    reason, changed = _text(table, "reason"), special.get("updatedInput")
    if event == "PreToolUse":
        if permission := _WORDS.get(str(special.get("permissionDecision"))):
            return permission, _text(special, "permissionDecisionReason") or reason, changed
    elif event == "PermissionRequest":
        if isinstance(decided := special.get("decision"), dict):
            request = cast("Json", decided)
            verdict = _WORDS.get(str(request.get("behavior")), "")
            return verdict, _text(request, "message"), request.get("updatedInput")
    elif verdict != "deny":
        verdict = ""  # what others may say is `block`
    return verdict, reason, changed


def _text(table: Json, name: str) -> str:
    value = table.get(name)
    return short(value) if isinstance(value, str) else ""


def merge_decisions(answers: Sequence[HookAnswer]) -> HookDecision:
    """Return one decision: deny before ask before allow, whatever came first."""
    verdicts: list[Verdict] = [a.verdict for a in answers]
    worst = max(verdicts, key=_STRICTNESS.index) if verdicts else ""
    deciding = [a for a in answers if a.verdict == worst and worst]
    changed, changed_by = _find_change(answers) if worst != "deny" else (None, None)
    return HookDecision(
        worst,
        _texts((a.hook, a.reason) for a in deciding),
        changed,
        changed_by,
        _texts((a.hook, a.context) for a in answers),
        next((HookText(a.hook, a.stop) for a in answers if a.stop is not None), None),
        _texts((a.hook, text) for a in answers for text in a.messages),
        _texts((a.hook, text) for a in answers for text in a.notices),
    )


def _find_change(answers: Sequence[HookAnswer]) -> tuple[Json | None, Hook | None]:
    """Return the first changed input, and the hook that changed it."""
    return next(((a.input, a.hook) for a in answers if a.input is not None), (None, None))


def _texts(pairs: Iterable[tuple[Hook, str]]) -> tuple[HookText, ...]:
    """Texts of hooks, without the empty ones."""
    return tuple(HookText(hook, text) for hook, text in pairs if text)


def delimit(event: str, texts: Sequence[HookText]) -> str:
    """Return hook texts for the model, each under its source: neither user nor model wrote them."""
    return "\n".join(
        f'<hook event="{event}" from="{t.hook.source}">\n{t.text.replace("</hook", "< /hook")}\n</hook>' for t in texts
    )
