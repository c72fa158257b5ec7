"""Play a tour of two minutes: a real session with real tools and memory, in a separate folder.

Only the answers and observations come from a script; the answers say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sakti.agent.session.session import Options, Session
from sakti.core.clock import Clock
from sakti.core.config import load
from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.types import ModelInfo, Request
from sakti.providers.scripted import Answer, Call, ScriptedProvider

FIRST = "What is in this folder?"
NAME = "tour"
FILES = {
    "session.py": '"""Who is signed in."""\n\n\ndef login(request):\n    user = authenticate(request.form)\n'
    '    request.session["user"] = user.id\n    return redirect("/")\n',
    "notes.md": "# Shop\n\n- sessions live in session.py\n- the redirect after login loses ?next=\n",
}
SETTINGS = (
    "memory.reflection.model=extractive",  # the tour is too short for a reflection
    "memory.observation.message_tokens=900",  # so low that an observation is seen within the tour
    "approval.mode=plan",  # nothing is changed, nothing is run
)
ANSWERS = (
    Answer(
        "**This is a tour: these answers are played from a script, no model is asked.** The tools really run, in "
        "a temporary folder. Let me look at it:",
        calls=(Call("ls", {"path": "."}), Call("read", {"path": "session.py"})),
    ),
    Answer(
        "Two files. `login()` in `session.py` always redirects to `/`.\n\n"
        "Each tool call above is a line: a click or **ctrl+o** unfolds it.\n\n"
        "Now tell me something worth keeping, for example: *remember that we deploy on Fridays*"
    ),
    Answer(
        "In the memory pane (**F2**) the *Messages* bar has grown. At the mark in it, messages are observed in the "
        "background: they become dated observations (**F3**) while you continue. Every message is kept. **Esc** "
        "returns here.\n\nNext, write: *where is the redirect?*"
    ),
    Answer("Let me search for it:", calls=(Call("grep", {"pattern": "redirect"}),)),
    Answer(
        "In `session.py`, and `notes.md` mentions it.\n\nThree things to try, in any order:\n\n"
        "- **/compact** observes everything now and shows what was removed; **/compact undo** restores it\n"
        "- **/search fridays** finds what you told me, word for word\n"
        "- **F3** and the arrow keys go through the log; **Enter** on a line shows the messages it was made from\n\n"
        "When you have seen enough, write: *done*"
    ),
)
WAITING = Answer(
    "This answer is played from a script and cannot fit every prompt. **/compact**, **/search** and **F3** are real: "
    "try them as long as you like.\n\nWhen you have seen enough, write: *done*"
)
END = Answer(
    "That is the tour. **F1** has every key, **ctrl+q** leaves; its folder and its database are then deleted.\n\n"
    "To start working, set `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, name a server on this machine with `/model`, or "
    "run `sakti local install`; then start `sakti` in one of your folders."
)
DONE = ("done", "i am done", "i'm done", "finish", "finished", "the end", "stop", "end")


def make_tour_session(
    folder: Path, *, env: Mapping[str, str], clock: Clock | None = None, pace: float = 0.02
) -> Session:
    """Make a session that plays the tour in `folder`, which is empty and the caller's to remove.

    `pace` is the time between pieces of an answer, in seconds.
    """
    workspace = folder / "shop"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text, "utf-8")
    database = json.dumps(str(folder / "tour.db"))
    options = Options(workspace, load(overrides=(*SETTINGS, f"store.path={database}")).config, env=env)
    provider = ScriptedProvider(_make_player(pace), clock=clock, count=lambda text: len(text) // 4)
    return Session(
        options, clock=clock, provider=provider, model=ModelInfo(NAME, "scripted", context_window=200_000)
    )  # fmt: skip


OBSERVES = "You keep the memory of a coding agent"  # what the Observer's prompt begins with
_SAID = lazy_pattern(r"\*\*(User|Tool result) \(([^)]*)\):\*\*\n(.*?)(?=\n\n\*\*|\n\nDate: |\n\n#|\Z)", re.DOTALL)
_REMEMBER = lazy_pattern(r"^(?:please\s+)?(?:remember|note|keep in mind)\s*(?:that|:)?\s*", re.IGNORECASE)


def observe(transcript: str) -> str:
    """Return the observations of a part of the tour: what the user wrote, and what the tools found."""
    days = re.findall(r"^Date: .+$", transcript, re.MULTILINE)
    lines = [line for who, clock, text in _SAID.findall(transcript) for line in _write_notes(who, clock, text.strip())]
    return (
        f"<observations>\n{chr(10).join([*days[-1:], *lines])}\n</observations>\n\n"
        "<current-task>\nPrimary: show the user around. Waits for the user.\n</current-task>\n\n"
        "<suggested-response>\nContinue the tour.\n</suggested-response>"
    )


def _write_notes(who: str, clock: str, text: str) -> list[str]:
    if who == "User":
        return _write_user_notes(clock, text)
    notes: list[str] = []
    if "def login" in text:
        notes += [
            f"* 🟡 ({clock}) Agent read session.py; the folder also has notes.md",
            "  * -> session.py:4-7 `login(request)` stores the user's id in the session, then redirects to `/`",
        ]
    if "redirect after login" in text:
        notes += [
            f'* 🟡 ({clock}) Agent found the redirect: session.py:7 `return redirect("/")`',
            "  * -> notes.md: the redirect after login loses ?next=",
        ]
    return notes


def _write_user_notes(clock: str, text: str) -> list[str]:
    words = to_one_line(text, 200)
    if words.endswith("?"):
        return [f"* 🟡 ({clock}) User asked: {words}"]
    if words.lower().rstrip(".!") in ("done", "ok", "go on"):
        return []
    return [f"* 🔴 ({clock}) User stated: {_REMEMBER.sub('', words)}"]


def _is_done(request: Request) -> bool:
    """Return whether the user's newest message ends the tour."""
    newest = request.messages[-1]
    lines = newest.text.lower().split("\n") if newest.role == "user" else []
    return any(line.strip(" .!*") in DONE for line in lines)


def _make_player(pace: float) -> Callable[[Request], Answer]:
    """Play the answers in their order, and the end when the user is done; answer the Observer's requests."""
    answers = list(ANSWERS)

    def play(request: Request) -> Answer:
        if any(OBSERVES in block.text for block in request.system):
            return Answer(observe(request.messages[-1].text))
        answer = END if _is_done(request) else answers.pop(0) if answers else WAITING
        return Answer(answer.text, calls=answer.calls, chunk_delay=pace)

    return play
