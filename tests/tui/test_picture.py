"""The README's picture: a real session on a real database, closed and opened again. Only model and clock are played.

`pytest tests/tui/test_picture.py --snapshot-update` takes it anew.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.tokens import O200k
from sakti.core.types import ModelInfo, Usage
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from sakti.store.tasks import questions as task_store
from sakti.store.threads import messages as message_store
from sakti.tui.app import SaktiApp
from tests.fakes.clock import FakeClock
from tests.tui.test_snapshots import posed

CLOSED_AT = 1_768_478_700_000  # five minutes after the clock's start
SETTINGS = (
    "memory.model=extractive",
    "memory.observation.message_tokens=500",
    "memory.reflection.observation_tokens=900",
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


def conversation(handle: str = "") -> list[list[Answer | str]]:
    """The answers of each turn; `handle` is the task that the second one claims."""
    return [
        [
            Answer(
                "",
                calls=(
                    task("create", title="fix login redirect", priority=1, type="bug"),
                    task("create", title="refresh tokens", priority=2, type="feature"),
                    task("create", title="rate limit /login", priority=2),
                ),
                usage=used(3100, 0, 0.012),
            ),
            Answer("Three tasks are on the board. The redirect is the most urgent.", usage=used(3400, 3000, 0.004)),
        ],
        [
            Answer(
                "I'll look at the login handler first.",
                calls=(
                    task("claim", id=handle),
                    Call("grep", {"pattern": r"redirect\(", "path": "src"}),
                    Call("read", {"path": "src/auth/session.py"}),
                ),
                usage=used(3600, 3300, 0.004),
            ),
            Answer(
                "`login()` in `src/auth/session.py:12` always goes to `/`; nobody reads `?next=`. I decided to accept "
                "only paths of this site, so that a link cannot send people elsewhere.",
                usage=used(4100, 3500, 0.006),
            ),
        ],
        [
            Answer(
                "",
                calls=(
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
                usage=used(4300, 4000, 0.005),
            ),
            Answer(
                "After the login people land where they wanted to go:\n\n"
                "- `/login?next=/settings` → `/settings`\n- `/login?next=https://evil.example` → `/`\n\n"
                '```python\nreturn target if not urlsplit(target).netloc else "/"\n```',
                usage=used(4800, 4300, 0.006),
            ),
        ],
    ]


PROMPTS = (
    "Remember: this app uses Supabase auth. Put these on the board: fix login redirect (bug), refresh tokens, rate "
    "limit.",
    "the redirect after login loses ?next=, find out why",
    "good, fix it",
)


def session(folder: Path, store: Store | None = None, **options: object) -> tuple[Session, ScriptedProvider]:
    clock, counter = store.clock if store else FakeClock(CLOSED_AT), O200k()
    provider = ScriptedProvider([], name="anthropic", clock=clock, count=counter.count)
    loaded = load(overrides=(*SETTINGS, f"store.path={folder / 'sakti.db'}"))
    chosen = Options(folder / "shop", loaded.config, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, **options)
    model = ModelInfo("claude-sonnet-5-5", "anthropic", context_window=200_000)
    return Session(chosen, clock=clock, counter=counter, provider=provider, model=model, store=store), provider


async def live(folder: Path) -> None:
    """Have the conversation, for real, and close."""
    store = await Store.open(folder / "sakti.db", clock=FakeClock(), ids=CountedIds())
    first, provider = session(folder, store)
    await first.start()
    for turn, prompt in enumerate(PROMPTS):
        tasks = await store.read(task_store.all_live, first.resource_id)
        provider.add(*conversation(tasks[0].handle if tasks else "")[turn])
        await first.submit(prompt)
        await first.wait()
        await first.engine.wait_idle()
        store.clock.advance(90)
    rows = await store.read(message_store.after, first.thread.id, -1)
    assert not [r.content for m in rows for r in m.tool_results if r.is_error]
    await first.rename("fix login redirect")
    await first.close()
    await store.close()


def workspace(folder: Path) -> None:
    source = folder / "shop" / "src" / "auth" / "session.py"
    source.parent.mkdir(parents=True)
    source.write_text(SESSION_PY)
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
    app = SaktiApp(again)
    assert snap_compare(app, terminal_size=(132, 40), run_before=posed("sakti-dark"))
