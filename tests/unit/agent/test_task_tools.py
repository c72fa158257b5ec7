"""What the three memory tools take and give: one form for what succeeds, one for what is refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sakti.agent.tools.base import ToolRun
from sakti.agent.tools.memory import make_tools
from sakti.core.config import MemorySettings
from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart, Thread
from sakti.store import messages, threads
from sakti.store.database import Store

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
async def call(store: Store) -> Call:
    """`await call("task-mutate", action=…)` gives the object; `code=…` says that it is refused so."""
    await store.write(threads.create, Thread("th", "/w", "the pump", 1, 1))
    await store.write(messages.append, Message("m", "th", "/w", "user", (TextPart("mend the marimba"),), 1))
    changed: list[Any] = []
    made = make_tools(
        store,
        resource_id="/w",
        owner="s1",
        counter=Estimator(),
        settings=MemorySettings(),
        emit=changed.append,
        in_window=set,
    )
    tools = {t.name: t for t in made}
    assert list(tools) == ["task-query", "task-mutate", "memory-search"]

    async def run(name: str, *, refused: str = "", **arguments: Any) -> Any:
        before = len(changed)
        bench: Any = None
        outcome = await tools[name](ToolRun(bench, "c", "th", "m", print), arguments)
        told = json.loads(outcome.content)
        assert outcome.is_error == (not told["success"]) == bool(refused)
        if refused:
            assert set(told) == {"success", "error", "code"}
            assert told["code"] == refused, told
        assert len(changed) == before + (name == "task-mutate" and not refused)
        return told

    return run


async def test_a_task_from_its_making_to_its_end(call: Call) -> None:
    first = (await call("task-mutate", action="create", title="first", labels=["b", "a"], priority=0))["task"]
    second = (await call("task-mutate", action="create", title="second", dependsOn=first["handle"]))["task"]
    assert first["labels"] == ["a", "b"]
    ready = await call("task-query", action="ready")
    assert ([t["id"] for t in ready["tasks"]], ready["readyCount"], ready["blockedCount"]) == ([first["id"]], 1, 1)
    await call("task-mutate", action="claim", id=second["id"], refused="blocked")
    assert (await call("task-mutate", action="claim", id=first["id"]))["task"]["claimedBy"] == "the pump"
    third = (await call("task-mutate", action="create", title="third", parent=second["id"], type="chore"))["task"]
    shown = await call("task-query", action="show", id=third["handle"])
    assert shown["isBlocked"]
    (blocking,) = shown["blockingTasks"]
    assert (blocking["handle"], blocking["title"], blocking["status"]) == (first["handle"], "first", "in_progress")
    assert blocking["via"] == second["handle"]
    assert [m["id"] for m in shown["messages"]] == ["m"]  # the message that made it
    await call("task-mutate", action="close", id=first["id"], summary=" ", refused="invalid")
    closed = await call("task-mutate", action="close", id=first["id"], summary="the xylophone is mended")
    assert (closed["task"]["status"], closed["task"]["labels"]) == ("closed", ["a", "b"])
    assert {t["title"] for t in closed["unblocked"]} == {"second", "third"}
    await call("task-mutate", action="close", id=second["id"], summary="x", refused="open_children")
    last = await call("task-mutate", action="close", id=third["id"], summary="x", reason="wontfix")
    assert [t["title"] for t in last["readyToClose"]] == ["second"]
    listed = await call("task-query", action="list", status="all", label="a")
    assert ([t["title"] for t in listed["tasks"]], listed["total"]) == (["first"], 1)
    found = await call("task-query", action="search", query="marimba", includeMessages=True)
    assert [m["id"] for m in found["messages"]] == ["m"]
    found = await call("memory-search", action="search", query="xylophone")
    assert [r["id"] for r in found["results"]] == [first["id"]]
    assert found["totalHits"] == 1


async def test_a_second_claim_says_what_goes_on_and_release_gives_back(call: Call) -> None:
    one, two = [(await call("task-mutate", action="create", title=t))["task"]["id"] for t in ("one", "two")]
    await call("task-mutate", action="claim", id=one)
    assert "stays in progress" in (await call("task-mutate", action="claim", id=two))["note"]
    assert (await call("task-mutate", action="release", id=one))["task"]["status"] == "open"
    await call("task-mutate", action="release", id=one, refused="invalid")
    assert (await call("task-mutate", action="update", id=one, priority=4, labels=["x"]))["task"]["labels"] == ["x"]
    await call("task-mutate", action="dep", taskId=one, dependsOn=[two], type="related")
    await call("task-mutate", action="dep", taskId=two, dependsOn=one)
    await call("task-mutate", action="dep", taskId=one, dependsOn=two, refused="cycle")
    await call("task-mutate", action="dep", taskId=one, dependsOn=two, add=False)
    await call("task-mutate", action="link", taskId=one, messageId="m")
    await call("task-mutate", action="link", taskId=one, messageId="nothing", refused="not_found")
    await call("task-mutate", action="reopen", id=one, refused="invalid")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("task-query", {}),
        ("task-query", {"action": "everything"}),
        ("task-query", {"action": "ready", "limit": 0}),
        ("task-mutate", {"action": "create", "title": "x", "priority": 9}),
        ("task-mutate", {"action": "create", "title": "x", "colour": "red"}),
        ("task-mutate", {"action": "close", "id": 7}),
        ("memory-search", {"action": "search", "kinds": ["song"]}),
    ],
)
async def test_wrong_arguments_are_refused_in_the_same_form(call: Call, name: str, arguments: dict[str, Any]) -> None:
    told = await call(name, **arguments, refused="invalid")
    assert "wrong arguments" in told["error"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"action": "create"}, "empty_title"),
        ({"action": "create", "title": "x" * 501}, "title_too_long"),
        ({"action": "create", "title": "x", "type": "wish"}, "bad_type"),
        ({"action": "create", "title": "x", "parent": "nobody"}, "not_found"),
        ({"action": "claim"}, "not_found"),
        ({"action": "dep", "taskId": "x"}, "invalid"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_nothing_is_made(
    call: Call, arguments: dict[str, Any], code: str
) -> None:
    await call("task-mutate", **arguments, refused=code)
    assert (await call("task-query", action="list", status="all"))["total"] == 0
