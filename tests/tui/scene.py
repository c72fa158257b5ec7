"""The scene of the snapshots: a login redirect is fixed while memory fills beside the chat."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from sakti.core.events import BufferedObservations, BufferedReflection, Gauge, MemoryStatus
from sakti.core.types import Message, TextPart, ToolCallPart, ToolResultPart, Usage
from sakti.store.log.lines import Figures, LogLine, Pass
from sakti.tasks.service import BoardTask
from tests.tui.fakes import NOW, FakeSession, board

MINUTE = 60_000
DIFF = """--- a/src/auth/session.py
+++ b/src/auth/session.py
@@ -41,7 +41,10 @@ async def login(request: Request) -> Response:
     user = await authenticate(form.email, form.password)
     request.session["user_id"] = user.id
-    return redirect("/")
+    return redirect(safe_next(request))
+
+
+def safe_next(request: Request) -> str:
"""
ANSWER = """The login handler always went to `/`; `?next=` never reached it. It now uses **`safe_next`**, which
accepts only paths of this site:

```python
def safe_next(request: Request) -> str:
    target = request.query_params.get("next", "/")
    return target if target.startswith("/") and not target.startswith("//") else "/"
```

- `?next=/settings` lands on *settings* after login
- `?next=https://evil.example` lands on `/`
"""


def _message(number: int, role: str, *parts) -> Message:
    return Message(f"m{number}", "t1", "r", role, tuple(parts), NOW + number * MINUTE, index=number)


def messages() -> list[Message]:
    def call(id, name, **arguments):
        return ToolCallPart(id, name, arguments)

    def result(id, name, content, **details):
        return ToolResultPart(id, name, content, False, details)

    return [
        _message(0, "user", TextPart("the redirect after login loses ?next=")),
        _message(
            1,
            "assistant",
            TextPart("I'll look at the session middleware."),
            call("c1", "read", path="src/auth/session.py"),
            call("c2", "bash", command="pytest tests/auth -q"),
        ),
        _message(
            2,
            "tool",
            result("c1", "read", "…", lines="1-120", duration_ms=12),
            result("c2", "bash", "41 passed in 1.71s", exit_code=0, duration_ms=1_900),
        ),
        _message(
            3,
            "assistant",
            call("c3", "edit", path="src/auth/session.py", old="…", new="…"),
            call("c4", "bash", command="pytest tests/auth -q"),
        ),
        _message(
            4,
            "tool",
            result("c3", "edit", "changed", diff=DIFF, added=4, removed=1, duration_ms=20),
            result("c4", "bash", "44 passed in 1.80s", exit_code=0, duration_ms=2_100),
        ),
        _message(5, "assistant", TextPart(ANSWER)),
    ]


def _line(number, date, time, priority, content, *, depth=0, flags=(), pinned=False, kind="observation"):
    return LogLine(
        f"o{number}", "g1", kind, "active", date, time, priority, depth, content, flags, pinned, False, False, {}, 0, 5
    )


def log() -> list[LogLine]:
    return [
        _line(
            1,
            "2026-01-14",
            "",
            "high",
            "User builds a FastAPI app with Supabase auth; tests run with pytest -q",
            kind="reflection",
            pinned=True,
        ),
        _line(
            2, "2026-01-14", "", "medium", "Sessions live in src/auth/session.py, cookies are signed", kind="reflection"
        ),
        _line(3, "2026-01-15", "12:00", "high", "User: the redirect after login loses ?next="),
        _line(4, "2026-01-15", "12:01", "medium", "Agent read src/auth/session.py (1-120)"),
        _line(5, "2026-01-15", "12:01", "low", "login() redirects to / in line 44", depth=1),
        _line(6, "2026-01-15", "12:03", "medium", "Added safe_next() to session.py, refuses other hosts"),
        _line(7, "2026-01-15", "12:04", "done", "tests/auth: 44 passed"),
    ]


def scene(workspace: Path) -> FakeSession:
    """A session in the middle of its work."""
    session = FakeSession(workspace)
    session.views.messages["t1"] = messages()
    session.views.lines = log()
    session.views.tasks = board(
        in_progress=(BoardTask("1", "sk-a1", "fix login redirect", 1, "bug", "you"),),
        ready=(
            BoardTask("2", "sk-b2", "add refresh tokens", 2, "feature", None),
            BoardTask("3", "sk-c3", "rate limit /login", 2, "task", None),
        ),
        blocked=(
            replace(
                BoardTask("4", "sk-d4", "logout everywhere", 2, "feature", None, ("sk-b2",)),
                blocker_titles=("add refresh tokens",),
            ),
        ),
        closed_today=(BoardTask("5", "sk-e5", "sign the session cookie", 1, "task", None),),
    )
    session.current.status = MemoryStatus(
        "rec",
        "t1",
        12,
        2,
        Gauge(21_400, 30_000),
        Gauge(16_000, 40_000),
        BufferedObservations(3, 18_100, 15_400, 1_900, "complete"),
        BufferedReflection(),
        observer="anthropic/claude-haiku-4-5",
        reflector="anthropic/claude-haiku-4-5",
        next_buffer_at=24_000,
    )
    session.views.figures = Figures(
        Pass(6_100, 640, "anthropic/claude-haiku-4-5", 0),
        Pass(8_200, 3_000, "anthropic/claude-haiku-4-5", 0),
        marked_lines=1,
        claims=1,
        dropped_paths=2,
    )
    session.current.usage = Usage(412_000, 375_000, 20_000, 9_100, 0, 0.42)
    return session
