"""What the three memory tools take and give: one form for what succeeds, one for what is refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.tools.catalog import make_tools
from sakti.agent.tools.context import ToolContext
from sakti.core.config import MemorySettings
from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart, Thread
from sakti.memory.pages import Pages
from sakti.store.database import Store
from sakti.store.threads import messages, threads

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
        pages=Pages(store, Estimator(), MemorySettings(), "/w"),
        emit=changed.append,
        in_window=set,
    )
    tools = {t.name: t for t in made}
    assert list(tools) == ["task-query", "task-mutate", "memory-search"]

    async def run(name: str, /, *, refused: str = "", **arguments: Any) -> Any:
        before = len(changed)
        state: Any = None
        outcome = await tools[name](ToolContext(state, Path(), "c", "th", "m", print), arguments)
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


# --- what models really send ------------------------------------------------------------------------------


def test_the_schemas_are_flat(store: Store) -> None:
    pages = Pages(store, Estimator(), MemorySettings(), "/w")
    for made in make_tools(store, resource_id="/w", owner=None, pages=pages, emit=print, in_window=set):
        schema = made.spec().parameters
        assert schema["type"] == "object"
        assert schema["required"] == ["action"]
        assert schema["properties"]["action"]["enum"]
        text = json.dumps(schema)
        assert not [w for w in ("$ref", "$defs", "oneOf", "anyOf", "allOf", '"null"') if w in text]
        for name, field in schema["properties"].items():
            assert field["type"] in ("string", "integer", "boolean", "array", "object"), name


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "create", "name": "x", "depends_on": ["HANDLE"], "tags": "a, b", "priority": "P1"},
        {"action": "create", "content": "x", "blockedBy": "HANDLE", "labels": ["b", "a"], "priority": "high"},
        {"action": "Create", "subject": "x", "dependencies": ["HANDLE"], "labels": '["a", "b"]', "priority": "1"},
        {
            "action": "create", "title": "x", "dependsOn": ["HANDLE"], "labels": ["a", "b"], "priority": 1,
            "id": None, "summary": "", "force": False, "metadata": {}, "messageId": None,
        },
    ],
)  # fmt: skip
async def test_names_and_values_of_other_trackers_are_taken(call: Call, arguments: dict[str, Any]) -> None:
    other = (await call("task-mutate", action="create", title="other"))["task"]["handle"]
    given = json.loads(json.dumps(arguments).replace("HANDLE", other))
    task = (await call("task-mutate", **given))["task"]
    assert (task["title"], task["labels"], task["priority"]) == ("x", ["a", "b"], 1)
    assert (await call("task-query", action="show", task_id=task["id"]))["blockingTasks"][0]["handle"] == other


async def test_a_word_with_two_meanings_takes_the_one_that_is_free(call: Call) -> None:
    task = (await call("task-mutate", action="create", title="x", content="all about it"))["task"]
    assert (task["title"], task["description"]) == ("x", "all about it")
    task = (await call("task-mutate", action="create", content="x", description="all about it"))["task"]
    assert (task["title"], task["description"]) == ("x", "all about it")


async def test_words_of_other_trackers_are_taken(call: Call) -> None:
    task = (await call("task-mutate", action="create", title="the walrus sings", owner="ann"))["task"]
    assert task["assignee"] == "ann"
    await call("task-mutate", action="claim", taskId=task["handle"])
    working = await call("task-query", action="list", state="in progress", max_results="5")
    assert [t["id"] for t in working["tasks"]] == [task["id"]]
    await call("task-mutate", action="close", issue_id=task["id"], resolution="done", result="sung")
    for status in ("done", "completed", "closed", "Completed"):
        assert (await call("task-query", action="list", status=status))["total"] == 1
    assert (await call("task-query", action="list", status="pending"))["total"] == 0
    assert (await call("task-query", action="search", q="walrus", count=1))["tasks"][0]["id"] == task["id"]
    found = await call("memory-search", pattern="marimba", top_k=3, messageRange={"before": 1, "after": 0})
    assert [r["id"] for r in found["results"]] == ["m"]
    await call("memory-search", query="marimba", messageRange=11, refused="invalid")
    page = await call("task-mutate", action="update_context", content={"Stack": "FastAPI"}, replace="true")
    assert "FastAPI" in page["workingMemory"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("task-mutate", {"action": "claim", "title": "x", "id": "t"}, ["claim does not take title", "takes id."]),
        ("task-mutate", {"action": "claim"}, ["claim needs id", "claim takes id."]),
        ("task-mutate", {"action": "close", "id": "t"}, ["summary", "close takes id, summary, reason?, force?."]),
        (
            "task-mutate",
            {"action": "update", "id": "t", "status": "done"},
            ["update does not take status", "close (with a summary)"],
        ),
        ("task-mutate", {"action": "dep", "id": "t", "dependsOn": []}, ["dep needs dependsOn"]),
        ("task-mutate", {"action": "create", "title": "x", "labels": [1]}, ["labels is a list of texts"]),
        ("task-mutate", {"action": "create", "title": "x", "priority": 9}, ["whole number from 0 to 4, not 9"]),
        ("task-mutate", {"action": "close", "id": "t", "summary": "x", "force": "maybe"}, ["true or false"]),
        ("task-mutate", {"action": "create", "title": "x", "metadata": "[1]"}, ["metadata is an object"]),
        ("task-query", {"action": "search"}, ["search needs a query"]),
        ("task-query", {"action": "search", "query": "  "}, ["search needs a query"]),
        ("task-query", {"action": "list", "status": "stuck"}, ["status is one of open, ready, blocked"]),
        ("task-query", {"action": "finish"}, ["no action 'finish'", "ready, show, list, search"]),
        ("memory-search", {"action": "search"}, ["search needs a query"]),
        ("memory-search", {"action": "search", "query": " "}, ["search needs a query"]),
        ("memory-search", {"action": "recall", "query": "x"}, ["recall does not take query", "id, page?"]),
    ],
)
async def test_errors_name_what_the_action_takes(
    call: Call, name: str, arguments: dict[str, Any], words: list[str]
) -> None:
    told = await call(name, **arguments, refused=await code_of(call, name, arguments))
    for word in words:
        assert word in told["error"], told["error"]


async def code_of(call: Call, name: str, arguments: dict[str, Any]) -> str:
    """A missing task is not found; everything else is invalid."""
    return "not_found" if arguments == {"action": "claim"} else "invalid"


@pytest.mark.parametrize("bad", ["a\x00b", "half \ud800 of it", "\udc00"])
async def test_bad_text_is_an_error_of_the_call_and_nothing_is_stored(call: Call, bad: str) -> None:
    task = (await call("task-mutate", action="create", title="good"))["task"]["id"]
    for arguments in (
        {"action": "create", "title": bad},
        {"action": "create", "title": "x", "description": bad},
        {"action": "create", "title": "x", "labels": ["a", bad]},
        {"action": "create", "title": "x", "metadata": {"k": {bad: 1}}},
        {"action": "create", "title": "x", "assignee": bad},
        {"action": "update", "id": task, "title": bad},
        {"action": "close", "id": task, "summary": bad},
        {"action": "update_context", "content": bad},
        {"action": "claim", "id": bad},
        {"action": "link", "id": task, "messageId": bad},
    ):
        await call("task-mutate", **arguments, refused="bad_text")
    await call("task-query", action="search", query=bad, refused="bad_text")
    await call("memory-search", action="search", query=bad, refused="bad_text")
    await call("memory-search", action="recall", id=bad, refused="bad_text")
    listed = await call("task-query", action="list", status="all")
    assert [(t["title"], t["status"]) for t in listed["tasks"]] == [("good", "open")]


async def test_metadata_is_set_merged_shown_and_taken_away(call: Call) -> None:
    task = (await call("task-mutate", action="create", title="x", metadata={"pr": 7, "branch": "a"}))["task"]
    assert task["metadata"] == {"pr": 7, "branch": "a"}
    updated = await call("task-mutate", action="update", id=task["id"], metadata={"pr": None, "ci": ["ok"]})
    assert updated["task"]["metadata"] == {"branch": "a", "ci": ["ok"]}
    shown = (await call("task-query", action="show", id=task["id"]))["task"]
    assert shown["metadata"] == {"branch": "a", "ci": ["ok"]}
    await call("task-mutate", action="update", id=task["id"], metadata={"source": "x"}, refused="invalid")
    await call("task-mutate", action="update", id=task["id"], metadata={"k": "x" * 20_000}, refused="invalid")


async def test_what_waits_says_for_what(call: Call) -> None:
    epic = (await call("task-mutate", action="create", title="epic", type="epic"))["task"]
    child = (await call("task-mutate", action="create", title="child", parent=epic["id"]))["task"]
    waits = (await call("task-mutate", action="create", title="waits", dependsOn=[child["id"]]))["task"]
    blocked = await call("task-query", action="list", status="blocked")
    assert [(t["id"], t["blockedBy"]) for t in blocked["tasks"]] == [(waits["id"], [child["handle"]])]
    assert blocked["total"] == (await call("task-query", action="ready"))["blockedCount"] == 1
    listed = (await call("task-query", action="list"))["tasks"]
    assert {t["title"]: t.get("waitsForChildren") for t in listed} == {"epic": 1, "child": None, "waits": None}
    await call("task-mutate", action="claim", id=child["id"])
    more = (await call("task-mutate", action="create", title="more"))["task"]
    await call("task-mutate", action="dep", id=child["id"], dependsOn=more["id"])
    working = (await call("task-query", action="list", status="in_progress"))["tasks"]
    assert [(t["id"], t["blockedBy"]) for t in working] == [(child["id"], [more["handle"]])]


async def test_a_reopened_task_has_no_summary_of_its_closing(call: Call) -> None:
    task = (await call("task-mutate", action="create", title="x"))["task"]["id"]
    await call("task-mutate", action="close", id=task, summary="done in src/a.py")
    again = (await call("task-mutate", action="reopen", id=task))["task"]
    assert "summary" not in again
    assert "close_reason" not in again
