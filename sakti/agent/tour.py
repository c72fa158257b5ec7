"""Play a tour of two minutes: a real session with real tools and memory, in a folder of its own.

Only the answers are played from a script, and say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from sakti.agent.session.session import Options, Session
from sakti.core.clock import Clock
from sakti.core.config import load
from sakti.core.types import ModelInfo, Request
from sakti.providers.scripted import Answer, Call, ScriptedProvider

FIRST = "What is in this folder?"
NAME = "tour-without-a-model"
FILES = {
    "session.py": '"""Who is signed in."""\n\n\ndef login(request):\n    user = authenticate(request.form)\n'
    '    request.session["user"] = user.id\n    return redirect("/")\n',
    "notes.md": "# Shop\n\n- sessions live in session.py\n- the redirect after login loses ?next=\n",
}
SETTINGS = (
    "memory.model=extractive",
    "memory.observation.message_tokens=900",  # so low that an observation is seen within the tour
    "approval.mode=plan",  # nothing is changed, nothing is run
)
ANSWERS = (
    Answer(
        "**This is a tour: these answers are played from a script, no model is asked.** What the tools do is real, in "
        "a temporary folder. I look at it:",
        calls=(Call("ls", {"path": "."}), Call("read", {"path": "session.py"})),
    ),
    Answer(
        "Two files. `login()` in `session.py` always redirects to `/`.\n\n"
        "Each tool call above is a line: a click or **ctrl+o** unfolds it.\n\n"
        "Now tell me something worth keeping, for example: *remember that we deploy on Fridays*"
    ),
    Answer(
        "On the right, the *Messages* bar has grown. At the mark in the bar, messages are observed in the background: "
        "they become dated observations below while you continue. Every message is "
        "kept.\n\nNext, write: *where is the redirect?*"
    ),
    Answer("I search for it:", calls=(Call("grep", {"pattern": "redirect"}),)),
    Answer(
        "In `session.py`, and `notes.md` knows of it.\n\nThree things to try, in any order:\n\n"
        "- **/compact** observes everything now and shows what was removed; **/compact undo** restores it\n"
        "- **/search fridays** finds what you told me, word for word\n"
        "- **F3** and the arrow keys go through the log; **Enter** on a line shows the messages it was made from\n\n"
        "When you have seen enough, write: *done*"
    ),
    Answer(
        "That is the tour. **F1** has every key, **ctrl+q** leaves; its folder and its database go then.\n\n"
        "To work with it, set `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, name a server on this machine with `/model`, or "
        "run `sakti local install`; then start `sakti` in a folder of yours."
    ),
)


def tour_session(folder: Path, *, env: Mapping[str, str], clock: Clock | None = None, pace: float = 0.02) -> Session:
    """Make a session that plays the tour in `folder`, which is empty and the caller's to remove.

    `pace` is the time between pieces of an answer, in seconds.
    """
    workspace = folder / "shop"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text, "utf-8")
    database = json.dumps(str(folder / "tour.db"))
    options = Options(workspace, load(overrides=(*SETTINGS, f"store.path={database}")).config, env=env)
    provider = ScriptedProvider(_player(pace), clock=clock, count=lambda text: len(text) // 4)
    return Session(
        options, clock=clock, provider=provider, model=ModelInfo(NAME, "scripted", context_window=200_000)
    )  # fmt: skip


def _player(pace: float) -> Callable[[Request], Answer]:
    """Play the answers in their order, whatever is asked; then the last one again."""
    left = list(ANSWERS)

    def play(_: Request) -> Answer:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return Answer(answer.text, calls=answer.calls, chunk_delay=pace)

    return play
