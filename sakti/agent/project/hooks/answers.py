"""Run a hook's command inside the sandbox, read its decision, and merge those of several hooks.

Exit 0: its output counts, as JSON if it is JSON. Exit 2: it blocks, with its standard error as the reason. Any other
end is shown to the user and changes nothing. All that a command started ends with it, or at its timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

from msgspec import Struct, field

from sakti.agent.project.hooks.settings import PROJECT_DIRS, Hook
from sakti.agent.sandbox import environment
from sakti.agent.sandbox import sandbox as enclosing
from sakti.agent.tools.processes import Process, ProcessTree, spawn
from sakti.core.resources import find_program
from sakti.core.text import clean_surrogates, cut_middle, to_one_line
from sakti.core.types import Json
from sakti.store.secrets import mask_secrets

LONGEST = 10_000  # characters of one text that a hook gives
BLOCKS = 2  # the exit code
TELLS = ("SessionStart", "UserPromptSubmit")  # events whose plain output the model reads
CANNOT = ("SessionStart", "SessionEnd", "PostCompact", "Notification", "Observed", "Reflected", "TaskClosed")
FEEDBACK = ("PostToolUse", "PostToolUseFailure")  # a block of these only tells the model

Verdict: TypeAlias = Literal["", "allow", "ask", "deny"]
_WORDS: Mapping[str, Verdict] = {"allow": "allow", "approve": "allow", "ask": "ask", "deny": "deny", "block": "deny"}
_STRICTNESS: tuple[Verdict, ...] = ("", "allow", "ask", "deny")


class HookRun(Struct, frozen=True):
    """End of a hook: its exit code (or None) and its output.

    `failed` is the reason why it did not end.
    """

    hook: Hook
    code: int | None = None
    out: str = ""
    errors: str = ""
    failed: str = ""


class HookText(Struct, frozen=True):
    """Text of a hook, with the hook."""

    hook: Hook
    text: str


class HookAnswer(Struct, frozen=True):
    """Decision of one hook.

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
    """Decision of all hooks of an event: the strictest verdict, with the hook and the reason.

    `input` replaces the call's if the verdict lets it run. `context` and `feedback` go to the model.
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


def shorten(text: str) -> str:
    """Return a hook's text as it is used: secrets masked, cut in its middle."""
    return mask_secrets(cut_middle(clean_surrogates(text).strip(), LONGEST)[0])


def _describe_failure(code: int, errors: str) -> str:
    """Describe how a command failed: its exit code, and the first line of its errors."""
    first = next((row for row in errors.splitlines() if row.strip()), "")
    end = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
    return f"{end}: {to_one_line(shorten(first), 300)}" if first else end


def read(event: str, ran: HookRun) -> HookAnswer:
    """Return the decision of a hook by its end and its output."""
    hook = ran.hook
    if ran.failed:
        return HookAnswer(hook, notices=(ran.failed,))
    if ran.code == BLOCKS:
        reason = shorten(ran.errors) or "no reason was given"
        if event in CANNOT:
            return HookAnswer(hook, notices=(to_one_line(reason, 400),))
        return HookAnswer(hook, "deny", reason)
    if ran.code != 0:
        return HookAnswer(hook, notices=(_describe_failure(ran.code or 0, ran.errors),))
    table = _parse_table(ran.out)
    if table is None:
        return HookAnswer(hook, context=shorten(ran.out) if event in TELLS else "")
    return _read_answer(event, hook, table)


def _parse_table(text: str) -> Json | None:
    """Return the JSON object that a hook printed, or None."""
    text = text.strip()
    if not text.startswith("{"):
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _read_answer(event: str, hook: Hook, table: Json) -> HookAnswer:
    inner = table.get("hookSpecificOutput")
    special: Json = cast("Json", inner) if isinstance(inner, dict) else {}
    verdict, reason, changed = _read_verdict(event, table, special)
    message = _read_text(table, "systemMessage")
    stop = (_read_text(table, "stopReason") or reason) if table.get("continue") is False else None
    return HookAnswer(
        hook,
        verdict,
        reason or ("no reason was given" if verdict == "deny" else ""),
        cast("Json", changed) if isinstance(changed, dict) else None,
        _read_text(special, "additionalContext")
        or ("" if event not in TELLS else _read_text(table, "additionalContext")),
        stop,
        (message,) if message else (),
    )


def _read_verdict(event: str, table: Json, special: Json) -> tuple[Verdict, str, object]:
    """Return verdict, reason and changed input, each under the names that an event has for it."""
    verdict = _WORDS.get(str(table.get("decision")), "") if event not in CANNOT else ""
    reason, changed = _read_text(table, "reason"), special.get("updatedInput")
    if event == "PreToolUse":
        if permission := _WORDS.get(str(special.get("permissionDecision"))):
            return permission, _read_text(special, "permissionDecisionReason") or reason, changed
    elif event == "PermissionRequest":
        if isinstance(decided := special.get("decision"), dict):
            request = cast("Json", decided)
            verdict = _WORDS.get(str(request.get("behavior")), "")
            return verdict, _read_text(request, "message"), request.get("updatedInput")
    elif verdict != "deny":
        verdict = ""  # other events may only say `block`
    return verdict, reason, changed


def _read_text(table: Json, name: str) -> str:
    value = table.get(name)
    return shorten(value) if isinstance(value, str) else ""


def merge_decisions(answers: Sequence[HookAnswer]) -> HookDecision:
    """Return one decision: deny before ask before allow, in any order."""
    verdicts: list[Verdict] = [a.verdict for a in answers]
    worst = max(verdicts, key=_STRICTNESS.index) if verdicts else ""
    deciding = [a for a in answers if a.verdict == worst and worst]
    changed, changed_by = _find_change(answers) if worst != "deny" else (None, None)
    return HookDecision(
        worst,
        _collect_texts((a.hook, a.reason) for a in deciding),
        changed,
        changed_by,
        _collect_texts((a.hook, a.context) for a in answers),
        next((HookText(a.hook, a.stop) for a in answers if a.stop is not None), None),
        _collect_texts((a.hook, text) for a in answers for text in a.messages),
        _collect_texts((a.hook, text) for a in answers for text in a.notices),
    )


def _find_change(answers: Sequence[HookAnswer]) -> tuple[Json | None, Hook | None]:
    """Return the first changed input, and the hook that changed it."""
    return next(((a.input, a.hook) for a in answers if a.input is not None), (None, None))


def _collect_texts(pairs: Iterable[tuple[Hook, str]]) -> tuple[HookText, ...]:
    """Texts of hooks, without the empty ones."""
    return tuple(HookText(hook, text) for hook, text in pairs if text)


def delimit(event: str, texts: Sequence[HookText]) -> str:
    """Return hook texts for the model, each under its source: neither user nor model wrote them."""
    return "\n".join(
        f'<hook event="{event}" from="{t.hook.source}">\n{t.text.replace("</hook", "< /hook")}\n</hook>' for t in texts
    )


MOST = 1_000_000  # bytes of each output that are read
CHUNK = 1 << 16
PAUSE = 0.002  # seconds between two reads of an output that is too long to be kept
LEFT = 0.2  # seconds that an output may still come in after the end


class HookSurroundings(Struct, frozen=True):
    """Surroundings of hooks: workspace, current folder, variables, sandbox (None: no sandbox).

    `own_env` is the user's environment, of which commands without a sandbox get what reaches a network; `read` are
    files and folders that are shown although their folder is hidden; `home` is the user's.
    """

    workspace: Path
    cwd: Path
    env: Mapping[str, str]
    sandbox: enclosing.Sandbox | None = None
    own_env: Mapping[str, str] = field(default_factory=dict[str, str])
    read: tuple[Path, ...] = ()
    home: Path = field(default_factory=Path.home)


async def run(hook: Hook, data: bytes, place: HookSurroundings) -> HookRun:
    """Run one hook to its end or its time; raises nothing but a cancellation, which ends it too."""
    try:
        argv = build_command(hook, place)
        with tempfile.TemporaryFile(prefix="sakti-hook-") as stdin:
            stdin.write(data)
            stdin.seek(0)
            process = _start(argv, hook, place, stdin)
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        return HookRun(hook, failed=f"cannot be started: {why}.")
    assert process.stderr is not None
    out, errors, tree = _HookOutput(process.stdout), _HookOutput(process.stderr), ProcessTree(process)
    try:
        async with asyncio.timeout(hook.timeout):
            await tree.wait_for_exit()
        await tree.end(grace=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFT):
                await out.closed.wait()
                await errors.closed.wait()
    except TimeoutError:
        return HookRun(hook, failed=f"stopped after {hook.timeout:g} s, with every process that it started.")
    finally:
        await tree.end(grace=0)
        out.close()
        errors.close()
    return HookRun(hook, process.code, out.text(), errors.text())


def build_command(hook: Hook, place: HookSurroundings) -> list[str]:
    """Return the command that starts a hook. Raises `ValueError` if its program is missing."""
    if hook.args is None:
        shell = find_program("bash", place.workspace, place.env.get("PATH"))
        if shell is None:
            raise ValueError("bash was not found on PATH outside the workspace")
        return [shell, "-c", hook.command]
    words = [_with_folder(word, place.workspace) for word in (hook.command, *hook.args)]
    if "/" not in words[0]:
        program = find_program(words[0], place.workspace, place.env.get("PATH"))
        if program is None:
            raise ValueError(f"{words[0]} was not found on PATH")
        words[0] = program
    return words


def _with_folder(word: str, workspace: Path) -> str:
    for name in PROJECT_DIRS:
        word = word.replace(f"${{{name}}}", str(workspace)).replace(f"${name}", str(workspace))
    return word


def build_environment(place: HookSurroundings) -> dict[str, str]:
    """Return a hook's environment: the variables of commands, never a key, and the folder of the project."""
    more = environment.choose_network_variables(place.own_env) if place.sandbox is None else {}
    return {**place.env, **more, **dict.fromkeys(PROJECT_DIRS, str(place.workspace))}


def _start(argv: Sequence[str], hook: Hook, place: HookSurroundings, stdin: IO[bytes]) -> Process:
    cwd = place.cwd if place.cwd.is_dir() else place.workspace
    with _enclose(argv, cwd, hook, place) as enclosed:
        return spawn(
            enclosed.argv,
            enclosed.cwd,
            build_environment(place),
            enclosed.descriptors,
            stdin=stdin,
            stderr=subprocess.PIPE,
        )


@contextmanager
def _enclose(
    argv: Sequence[str], cwd: Path, hook: Hook, place: HookSurroundings
) -> Generator[enclosing.SandboxedCommand]:
    if place.sandbox is None:
        yield enclosing.SandboxedCommand(tuple(argv), cwd)
        return
    write = () if hook.project else enclosing.resolve_folders(hook.write, place.home)
    with place.sandbox.enclose(argv, cwd, write, place.read) as enclosed:
        yield enclosed


class _HookOutput:
    """One output of a process: read as it comes, its beginning kept, the rest dropped."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._number, self._data = pipe, pipe.fileno(), bytearray()
        self.closed = asyncio.Event()
        os.set_blocking(self._number, False)
        self._start_reading()

    def _start_reading(self) -> None:
        if not self.closed.is_set():
            asyncio.get_running_loop().add_reader(self._number, self._on_data)

    def _on_data(self) -> None:
        loop = asyncio.get_running_loop()
        if self._read() and len(self._data) >= MOST:
            loop.remove_reader(self._number)
            loop.call_later(PAUSE, self._start_reading)

    def _read(self) -> bool:
        """Read the available output; return False if there is no more."""
        try:
            data = os.read(self._number, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._release()
            return False
        self._data += data[: MOST - len(self._data)]
        return True

    def close(self) -> None:
        """Read the remaining output, and stop."""
        for _ in range(MOST // CHUNK + 1):
            if self.closed.is_set() or not self._read():
                break
        self._release()

    def _release(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            asyncio.get_running_loop().remove_reader(self._number)
            self._pipe.close()

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")
