"""Declare `/undo`, `/redo` and `/diff`: files and conversation before and after a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.scope import find_thread
from sakti.actions.spec import CHAT, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, quote, to_one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.checkpoints.undoing import PastTurn, Undoing, UndoPreview, UndoResult, What


with lazy_imports:
    from sakti.agent.checkpoints import plan as plans
    from sakti.agent.checkpoints import undoing
    from sakti.core import clock
    from sakti.store.threads import threads as stored_threads

ACTION_LETTERS = {"create": "A", "change": "M", "delete": "D"}
SCOPES = {"both": "messages and files", "conversation": "messages", "files": "files"}
SHOWN = 40  # maximum number of paths in a preview
WORDS = ("yes", "files", "conversation", "all")
THREAD = option("--thread", help="Id, the end of it, or part of the title (default: the newest thread).", default="",
                offers="threads")  # fmt: skip


@action(arg("words", default="", offers=WORDS), chat="undo", needs="session", after_turn="undo", hint="[N | files]",
        summary="undo the last turn (2: the last two), files and messages; a preview comes first")  # fmt: skip
async def undo_here(scope: Scope, words: str) -> Value | None:
    """Undo the last turns: files and messages. A preview comes first; in plain mode `yes` confirms it."""
    number, what, yes, every = _read_words(words)
    changes = undoing.make_undoing(scope.session)
    preview = await changes.preview(number, what)
    if preview.empty:
        return Done(await _explain_nothing(changes, preview), title="Undo")

    async def show_text() -> Value:
        if not yes:
            again = " ".join(("/undo", *words.split(), "yes"))
            how = explain_conflicts(preview, f"{again} all")
            return Text((*describe_preview(preview), f"{again} does it.", *how), title="Undo")
        return offer_prompt(preview, await changes.undo(preview, take=_select_conflicts(preview, every)))

    return await show_text() if yes else Open("undo", (changes, preview), show_text)


def offer_prompt(preview: UndoPreview, result: UndoResult) -> Value:
    """Describe an undo and put the user's text back into the prompt."""
    done = describe_result(preview, result)
    if not result.prompt:
        return done

    async def show_text() -> Value:
        return Text((done.sentence, f"Your prompt was: {to_one_line(result.prompt, 2_000)}"), title=done.title)

    return Open("undone", (done, result.prompt), show_text)


def _read_words(words: str) -> tuple[int, What, bool, bool]:
    number, what = 1, "both"
    chosen = words.split()
    for word in chosen:
        if word.isdecimal() and 0 < int(word) < 10_000:
            number = int(word)
        elif word in ("files", "conversation"):
            what = word
        elif word not in ("yes", "all"):
            raise Refused("Write /undo, /undo 2, /undo files or /undo conversation.", code=USAGE)
    return number, what, "yes" in chosen, "all" in chosen


def _select_conflicts(preview: UndoPreview, is_forced: bool) -> list[str]:
    """Return the conflicting paths that are restored anyway."""
    return [item.path for item in preview.plan.conflicts] if is_forced else []


async def _explain_nothing(changes: Undoing, preview: UndoPreview) -> str:
    if preview.what == "files" and any(t.changed is not None and not t.undone for t in await changes.turns()):
        return "All files are already as they were before these turns."
    return "No file was changed in this thread." if preview.what == "files" else "This thread has no messages yet."


@action(
    arg("number", "How many turns.", kind="whole", default=1, low=1),
    flag("--files", help="Only the files; the messages stay."),
    flag("--conversation", help="Only the messages; the files stay."),
    flag("--restore-conflicts", help="Also restore files that someone else has changed since."),
    flag("--yes", help="Do it; without it only a preview is shown."),
    THREAD,
    shell="undo",
    panel=CHAT,
    needs="store",
)
async def undo(
    scope: Scope, number: int, files: bool, conversation: bool, restore_conflicts: bool, yes: bool, thread: str
) -> Value:
    """Undo the last turns of a thread: files and messages. Exit 1: a file could not be restored."""
    if files and conversation:
        raise Refused("--files and --conversation exclude each other.", code=USAGE)
    changes = await find_undoing(scope, thread)
    preview = await changes.preview(number, "files" if files else "conversation" if conversation else "both")
    recovered = (changes.recovered,) if changes.recovered else ()
    if preview.empty:
        raise Refused(" ".join((*recovered, await _explain_nothing(changes, preview))))
    json = preview_json(preview)
    if not yes:
        how = explain_conflicts(preview, "--restore-conflicts")
        rest = f"Nothing {'else ' if recovered else ''}was changed; --yes does it."
        text = (*recovered, *describe_preview(preview), rest, *how)
        return Text(text, json=json, exit=int(files and bool(preview.remains) and not preview.plan.items))
    result = await changes.undo(preview, take=_select_conflicts(preview, restore_conflicts))
    done = describe_result(preview, result, command="`sakti redo`")
    json |= {"done": True, "left": list_unrestored(result), **to_builtins(result.remains), "prompt": result.prompt}
    return Text((*recovered, *done.lines), json=json, exit=int(not result.is_complete))


async def find_undoing(scope: Scope, thread: str) -> Undoing:
    """Return the undo service of a thread, in a chat of the open one. Raises `Refused`."""
    if scope.live is not None:
        return undoing.make_undoing(scope.live)
    if thread:
        chosen = await find_thread(scope, thread, scope.resource)
    elif newest := await scope.store.read(stored_threads.list_recent, scope.resource, 1):
        chosen = newest[0]
    else:
        raise Refused("This workspace has no thread; `sakti threads list` shows them.")
    return undoing.Undoing(scope.store, scope.workspace, clock.SystemClock(), chosen, None)


# --- words --------------------------------------------------------------------------------------------------------


def describe_preview(preview: UndoPreview) -> tuple[str, ...]:
    """Describe an undo before it is applied."""
    turns, plan = preview.turns, preview.plan
    if preview.completes is not None:
        out = [f"Complete the last undo: {preview.in_words()}."]
    elif preview.again is not None:
        out = [f"Redo: {preview.in_words()}."]
    elif turns:
        out = [
            f"Undo {format_count(len(turns), 'turn')}, from {quote(format_title(turns[0]))} on: {preview.in_words()}."
        ]
    else:
        out = []
    rows = [f"{ACTION_LETTERS[i.action]} {to_one_line(i.path, 200)}" + (f"  ({i.conflict})" if i.conflict else "")
            for i in plan.rows]  # fmt: skip
    out += rows[:SHOWN]
    if len(rows) > SHOWN:
        out.append(f"… and {len(rows) - SHOWN} more")
    return (*out, *(f"{kind}: {names}" for kind, names in preview.remains.describe(5)))


def format_title(past: PastTurn) -> str:
    return to_one_line(past.text, 60) or "(no text)"


def explain_conflicts(preview: UndoPreview, how: str) -> tuple[str, ...]:
    if not preview.plan.conflicts:
        return ()
    count = sum(bool(r.conflict) for r in preview.plan.rows)
    it_is, it = ("it is", "it") if count == 1 else ("they are", "them")
    return (f"{format_count(count, 'file')} changed since and would be left as {it_is}; {how} also restores {it}.",)


def list_unrestored(result: UndoResult) -> list[str]:
    """Return the paths of files that an undo or a redo did not restore."""
    return [*result.unwritten, *result.conflicts]


def _enumerate(names: Sequence[str]) -> str:
    """Join the first ten names."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def describe_result(preview: UndoPreview, result: UndoResult, *, command: str = "/redo") -> Done:
    """Describe the result of an undo or a redo; `command` reverses an undo."""
    redo = preview.again is not None
    text = f"{'Redone' if redo else 'Undone'}: {_describe_subject(preview)}."
    text += _count_files(result, redo=redo)
    if names := [to_one_line(p, 80) for p in list_unrestored(result)]:
        text += f" Left as they are: {_enumerate(names)}."
    for kind, rest in result.remains.describe(10):
        text += f" {kind}: {rest}."
    if result.tasks:  # tasks of a plan on the board
        problem = "These tasks of the plan could not be restored" if redo else "These tasks were worked on and are kept"
        text += f" {problem}: {_enumerate([to_one_line(title, 80) for title in result.tasks])}."
    if result.unwritten and not redo:
        text += f" {command.replace('redo', 'undo')} again completes it."
    return Done(text + ("" if redo else f" {command} reverses it."))


def _count_files(result: UndoResult, *, redo: bool) -> str:
    """Return how many files were restored, and how many were deleted; "" if none."""
    steps = [s.reverse() if redo else s for s in result.done.steps]
    kinds = {plans.name_in_lists(s.path): "deleted" if s.after is None else "restored" for s in steps}
    counts = Counter(kind for path, kind in kinds.items() if path not in result.unwritten)
    parts = [f"{format_count(counts[kind], 'file')} {kind}" for kind in ("restored", "deleted") if counts[kind]]
    return f" {', '.join(parts)}." if parts else ""


def _describe_subject(preview: UndoPreview) -> str:
    """Return the subject of an undo or a redo: `2 turns, from 'add tests' on`."""
    if preview.completes is not None:
        return "the rest of the last undo"
    if preview.again is not None:
        return SCOPES[preview.what]
    turns = format_count(len(preview.turns), "turn")
    if preview.what == "files":
        return f"the files of {turns}"
    title = quote(format_title(preview.turns[0]))
    return f"{turns}, {title}" if len(preview.turns) == 1 else f"{turns}, from {title} on"


def preview_json(preview: UndoPreview) -> dict[str, Any]:
    """Return a preview as a JSON object."""
    return {
        "turns": [{"message": t.message.id, "text": t.text, "files": t.files} for t in preview.turns],
        "files": [{"path": i.path, "action": i.action, "conflict": i.conflict} for i in preview.plan.rows],
        "not_covered": list(preview.remains.lost),
        **to_builtins(preview.remains),
        "done": False,
    }


@action(
    arg("turn", "2: the turn before the last one that changed files.", kind="whole", default=1, low=1),
    THREAD,
    shell="diff",
    chat="diff",
    panel=CHAT,
    needs="store",
    hint="[TURN]",
    summary="show the file changes of the last turn (2: the turn before it)",
)
async def diff(scope: Scope, turn: int, thread: str) -> Value:
    """Show the file changes of the last turn that changed any."""
    lines = tuple(await (await find_undoing(scope, thread)).diff(turn))
    return Text(lines, kind="diff", title="Diff", json={"diff": "\n".join(lines)})


REDO_WORDS = ("yes", "all")


@action(arg("words", default="", offers=REDO_WORDS), chat="redo", needs="session", after_turn="redo",
        summary="undo the last undo; files changed since then are shown first")  # fmt: skip
async def redo_here(scope: Scope, words: str) -> Value | None:
    """Undo the last undo: its files and its messages. If files changed since, they are shown first."""
    chosen = words.split()
    if not set(chosen) <= set(REDO_WORDS):
        raise Refused("Write /redo.", code=USAGE)
    changes = undoing.make_undoing(scope.session)
    preview = await changes.redo_preview()

    async def show_text() -> Value:
        if not chosen and preview.plan.conflicts:
            how = explain_conflicts(preview, "/redo yes all")
            return Text((*describe_preview(preview), "/redo yes does it.", *how), title="Redo")
        result = await changes.redo(preview, take=_select_conflicts(preview, "all" in chosen))
        return describe_result(preview, result)

    return Open("redo", (changes, preview), show_text) if preview.plan.conflicts and not chosen else await show_text()


@action(
    flag("--restore-conflicts", help="Also restore files that someone else has changed since."),
    THREAD,
    shell="redo",
    panel=CHAT,
    needs="store",
)
async def redo(scope: Scope, restore_conflicts: bool, thread: str) -> Value:
    """Undo the last undo of a thread. Exit 1: a file was left as it is."""
    changes = await find_undoing(scope, thread)
    preview = await changes.redo_preview()
    result = await changes.redo(preview, take=_select_conflicts(preview, restore_conflicts))
    paths = list_unrestored(result)
    lines = describe_result(preview, result).lines
    return Text(
        (changes.recovered, *lines) if changes.recovered else lines, json={"left": paths}, exit=int(bool(paths))
    )
