"""The README's picture: a real session on a real database, closed and opened again. Only models and clock are scripted.

`pytest tests/tui/test_picture.py --snapshot-update` takes it again.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from msgspec.structs import replace

from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.tokens import O200k
from sakti.core.types import ModelInfo, Request, Usage
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from sakti.store.tasks import questions as task_store
from sakti.store.threads import messages as message_store
from sakti.tui.app import SaktiApp
from tests.fakes.clock import FakeClock
from tests.tui.conftest import settle
from tests.tui.test_snapshots import posed

HOUR = 3_600_000
CLOSED_AT = 1_768_478_700_000  # 15 January 2026, 12:05
BEGUN_AT = CLOSED_AT - 51 * HOUR - 5 * 60_000  # 13 January, 9:00
SETTINGS = (
    "memory.observation.message_tokens=12000",
    "memory.reflection.observation_tokens=600",
    "approval.mode=edits",
    "approval.allow=['bash']",
)
SESSION_PY = '''"""Who is signed in."""

from urllib.parse import urlsplit

from app.web import Request, Response, redirect


async def login(request: Request) -> Response:
    form = await request.form()
    user = await authenticate(form["email"], form["password"])
    request.session["user_id"] = user.id
    return redirect("/")
'''
SAFE = '''def safe_next(request: Request) -> str:
    """The page that was asked for before the login, where it is one of ours."""
    target = request.query.get("next", "/")
    return target if not urlsplit(target).netloc else "/"


async def login'''


NOUNS = ("account", "address", "basket", "invoice", "order", "payment", "profile", "refund", "review", "voucher")
VERBS = ("create", "list", "show", "update", "delete", "export")
HANDLER = '''
async def {name}(request: Request) -> Response:
    """Answer requests for {name}."""
    values = await request.query()
    return redirect(values.get("target", "/{name}"))
'''
PARAGRAPH = "A user signs in with a mail address and a password; Supabase keeps the session and refreshes its token. "


class CountedIds:
    """Ids that are the same in every run."""

    def __init__(self) -> None:
        self.made = 0

    def new(self) -> str:
        self.made += 1
        return f"0197{self.made:04x}-0000-7000-8000-{self.made:012x}"


def used(tokens: int, cached: int, cost: float) -> Usage:
    return Usage(tokens, cached, 0, 160, 0, cost)


def task(action: str, **values: object) -> Call:
    return Call("task-mutate", {"action": action, **values})


def reading(path: str) -> Call:
    return Call("read", {"path": path})


# The prompt of each turn, the seconds that pass before it, and the answers of the actor; HANDLE is the first task.
TURNS = (
    (
        "Remember: this app uses Supabase auth, and tests run with `pytest -q`. Put these on the board: fix login "
        "redirect (bug), refresh tokens, rate limit /login.",
        600,
        (
            Answer(
                "",
                calls=(
                    task("create", title="fix login redirect", priority=1, type="bug"),
                    task("create", title="refresh tokens", priority=2, type="feature"),
                    task("create", title="rate limit /login", priority=2),
                    reading("docs/auth.md"),
                ),
                usage=used(3_100, 0, 0.012),
            ),
            Answer("Three tasks are on the board. The redirect is the most urgent.", usage=used(8_400, 3_000, 0.021)),
        ),
    ),
    (
        "People report that the redirect after login loses ?next=. Find out why.",
        105_000,
        (
            Answer(
                "I'll look at the login handler first.",
                calls=(
                    task("claim", id="HANDLE"),
                    Call("grep", {"pattern": r"redirect\(", "path": "src/auth"}),
                    reading("src/auth/session.py"),
                    reading("src/web/router.py"),
                ),
                usage=used(8_900, 8_400, 0.011),
            ),
            Answer(
                "`login()` in `src/auth/session.py` always redirects to `/`; nothing reads `?next=`.",
                usage=used(14_100, 8_900, 0.024),
            ),
        ),
    ),
    (
        "Only paths of this site, please: a link must not send people elsewhere. How do other handlers do it?",
        360,
        (
            Answer("", calls=(reading("src/web/handlers.py"),), usage=used(14_300, 14_100, 0.012)),
            Answer(
                "None of them checks the target. I'll add `safe_next()`, which accepts only paths of this site.",
                usage=used(9_800, 6_000, 0.018),
            ),
        ),
    ),
    (
        "good, fix it",
        77_520,
        (
            Answer(
                "",
                calls=(
                    reading("docs/errors.md"),
                    Call(
                        "edit",
                        {
                            "path": "src/auth/session.py",
                            "edits": [
                                {"old": 'return redirect("/")', "new": "return redirect(safe_next(request))"},
                                {"old": "async def login", "new": SAFE},
                            ],
                        },
                    ),
                    Call("bash", {"command": "python3 -m py_compile src/auth/session.py && echo compiled"}),
                ),
                usage=used(10_300, 9_800, 0.009),
            ),
            Answer(
                "After the login, people land on the page they asked for:\n\n"
                "- `/login?next=/settings` → `/settings`\n- `/login?next=https://evil.example` → `/`\n\n"
                '```python\nreturn target if not urlsplit(target).netloc else "/"\n```',
                usage=used(10_900, 10_300, 0.008),
            ),
        ),
    ),
)
# The lines that the Observer writes for messages with these words.
OBSERVED = {
    "Supabase": (
        "Jan 13, 2026",
        "* 🔴 (9:10) User stated the app uses Supabase auth\n"
        "* 🔴 (9:10) User stated tests run with `pytest -q`\n"
        "* 🟡 (9:10) Agent created three tasks: fix login redirect, refresh tokens, rate limit /login\n"
        "* 🟡 (9:10) `docs/auth.md` says that Supabase keeps the session and refreshes its token",
    ),
    "loses ?next=": (
        "Jan 14, 2026",
        "* 🔴 (14:20) User reported that the redirect after login loses ?next=\n"
        "* 🟡 (14:20) Agent read `src/auth/session.py` and `src/web/router.py`\n"
        "* ✅ (14:20) Cause found: `login()` in `src/auth/session.py` always redirects to `/`",
    ),
    "Only paths of this site": (
        "Jan 14, 2026",
        "* 🔴 (14:26) User wants only paths of this site: a link must not send people elsewhere\n"
        "* 🟡 (14:26) Agent read `src/web/handlers.py`; no handler checks the target",
    ),
    "good, fix it": (
        "Jan 15, 2026",
        "* 🟡 (11:58) Agent edited `src/auth/session.py`: `safe_next()`\n* ✅ (11:58) `src/auth/session.py` compiles",
    ),
}


class Script:
    """Plays the actor's answers in order, and as the Observer the lines for the messages it gets, each once."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._observed: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        if request.model != "claude-haiku-5-5":
            return self.answers.pop(0)
        text = "\n".join(message.text for message in request.messages)
        words = [w for w in OBSERVED if w in text and w not in self._observed]
        self._observed |= set(words)
        lines = "\n".join(f"Date: {date}\n{observed}" for date, observed in map(OBSERVED.__getitem__, words))
        return Answer(
            f"<observations>\n{lines or 'None'}\n</observations>\n<current-task>fix login redirect</current-task>\n"
            "<suggested-response>Report that the redirect works.</suggested-response>",
            usage=used(4_000, 0, 0.001),
        )


def session(folder: Path, store: Store | None = None, **options: object) -> tuple[Session, Script]:
    clock, counter, script = store.clock if store else FakeClock(CLOSED_AT), O200k(), Script()
    provider = ScriptedProvider(script, name="anthropic", clock=clock, count=counter.count)
    loaded = load(overrides=(*SETTINGS, f"store.path={folder / 'sakti.db'}"))
    chosen = Options(folder / "shop", loaded.config, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, **options)
    model = ModelInfo("claude-sonnet-5-5", "anthropic", context_window=200_000)
    return Session(chosen, clock=clock, counter=counter, provider=provider, model=model, store=store), script


def with_handle(answer: Answer, handle: str) -> Answer:
    calls = tuple(
        replace(c, arguments={k: handle if v == "HANDLE" else v for k, v in (c.arguments or {}).items()})
        for c in answer.calls
    )
    return replace(answer, calls=calls)


async def live(folder: Path) -> None:
    """Have the conversation, for real, and close."""
    store = await Store.open(folder / "sakti.db", clock=FakeClock(BEGUN_AT), ids=CountedIds())
    first, script = session(folder, store)
    await first.start()
    for prompt, pause, answers in TURNS:
        store.clock.advance(pause)
        tasks = await store.read(task_store.list_live, first.workspace.resource_id)
        handle = tasks[0].handle if tasks else ""
        script.answers += [with_handle(answer, handle) for answer in answers]
        await first.submit(prompt)
        await first.wait()
        await first.current.engine.wait_idle()
    rows = await store.read(message_store.list_after, first.thread.id, -1)
    assert not [r.content for m in rows for r in m.tool_results if r.is_error]
    await first.rename("fix login redirect")
    await first.close()
    await store.close()


def workspace(folder: Path) -> None:
    handlers = "\n".join(HANDLER.format(name=f"{noun}_{verb}") for noun in NOUNS for verb in VERBS)
    files = {
        "src/auth/session.py": SESSION_PY,
        "src/web/router.py": handlers,
        "src/web/handlers.py": handlers.replace("query", "form"),
        "docs/auth.md": "\n".join(f"## {noun}\n\n{PARAGRAPH * 20}\n" for noun in NOUNS),
        "docs/errors.md": "\n".join(f"## {noun}\n\n{PARAGRAPH * 16}\n" for noun in NOUNS),
    }
    for name, text in files.items():
        path = folder / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *command], cwd=folder / "shop", check=True)


def test_the_picture_of_the_readme(snap_compare, tmp_path):
    workspace(tmp_path)
    asyncio.run(live(tmp_path))
    again, _ = session(tmp_path, continue_last=True)

    async def run_before(pilot):
        await posed("sakti-dark")(pilot)
        again.workspace.models._say("ANTHROPIC_API_KEY is set")
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(again), terminal_size=(132, 40), run_before=run_before)
