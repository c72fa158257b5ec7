"""What the model is told of what memory-search found."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sakti.agent.tools import memory_search
from sakti.agent.tools.memory_search import ALL_HITS_TOKENS, HitRequest, MessageRange, find_hits
from sakti.core.text import format_minute
from sakti.core.tokens import Estimator
from sakti.core.types import Message, Role, TextPart, Thread, ToolResultPart
from sakti.providers.scripted import Answer, Call
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import purging
from sakti.store.search.search import Scope, search
from sakti.store.threads import messages, threads
from tests.fakes.session import start

COUNTER = Estimator()


def fill(db: Database) -> None:
    threads.create(db, Thread("t", "/w", "Queues", 1, 1))
    for i in range(40):
        role: Role = "assistant" if i % 2 else "user"
        text = f"number {i} " + ("the queue drains at midnight" if i % 4 == 0 else "something else entirely")
        messages.append(db, Message(f"m{i}", "t", "/w", role, (TextPart(text),), i * 60_000 + 1))
    long = "start " + "filler words here " * 2_000 + "the walrus sings " + "and so on " * 2_000
    messages.append(db, Message("long", "t", "/w", "user", (TextPart(long),), 9_000_000))


@pytest.fixture
async def filled(store: Store) -> Store:
    await store.write(fill)
    return store


async def ask(store: Store, query: str, **values: Any) -> Any:
    in_window = values.pop("in_window", set[str]())
    request = HitRequest(query, Scope("/w"), **{"limit": 5, "around": MessageRange(), **values})
    return await store.read(find_hits, request, COUNTER, in_window)


async def test_what_is_in_the_window_is_named_and_takes_no_place(filled: Store) -> None:
    free = await ask(filled, "queue midnight", limit=3)
    seen = {r["id"] for r in free["results"][:2]}
    found = await ask(filled, "queue midnight", limit=3, in_window=seen)
    told = [r for r in found["results"] if r["id"] not in seen]
    assert len(told) == 3
    assert all("queue drains" in r["text"] for r in told)
    named = [r for r in found["results"] if r["id"] in seen]
    assert {r["text"] for r in named} == {"[already in the conversation above]"}
    everything = await ask(filled, "queue midnight", in_window={f"m{i}" for i in range(40)})
    assert len(everything["results"]) == 3  # named, and no more than that


async def test_pages_follow_on_each_other(filled: Store) -> None:
    ids: list[str] = []
    offset = 0
    while True:
        page = await ask(filled, "queue midnight", limit=4, offset=offset)
        ids += [r["id"] for r in page["results"]]
        if "next" not in page:
            break
        assert page["next"] > offset
        offset = page["next"]
    assert len(ids) == len(set(ids)) == page["totalHits"]


async def test_neighbours_come_whole_and_in_order(filled: Store) -> None:
    found = await ask(filled, '"number 20"', limit=1, around=MessageRange(before=2, after=1))
    (hit,) = found["results"]
    assert [(n["id"], n["position"]) for n in hit["neighbours"]] == [("m18", -2), ("m19", -1), ("m21", 1)]
    assert hit["neighbours"][0]["text"].startswith("number 18")
    first = await ask(filled, '"number 0"', limit=1, around=MessageRange(before=10))
    assert "neighbours" not in first["results"][0]


async def test_a_short_message_comes_with_those_around_it(filled: Store) -> None:
    found = await ask(filled, '"number 20"', limit=1, around=None)
    (hit,) = found["results"]
    assert hit["time"] == format_minute(20 * 60_000 + 1)
    assert [n["position"] for n in hit["neighbours"]] == [*range(-6, 0), *range(1, 7)]
    at_the_window = await ask(filled, '"number 20"', limit=1, around=None, in_window={f"m{i}" for i in range(21, 40)})
    assert [n["position"] for n in at_the_window["results"][0]["neighbours"]] == [*range(-6, 0)]


async def test_a_message_that_an_earlier_result_shows_takes_no_place(filled: Store) -> None:
    found = await ask(filled, "queue midnight", limit=3, around=None)
    shown: list[str] = []
    for hit in found["results"]:
        texts = [hit["text"], *(n["text"] for n in hit.get("neighbours", ()))]
        shown += texts
    assert len(found["results"]) == 3 and len(shown) == len(set(shown))
    everything = await ask(filled, "number", limit=20, around=MessageRange(2, 2))
    ids = [n["text"] for hit in everything["results"] for n in (hit, *hit.get("neighbours", ()))]
    assert len(ids) == len(set(ids)) == 41
    assert found["next"] > 3  # hits that were shown as neighbours are passed over


async def test_a_long_text_is_a_passage_with_the_place_it_begins_at(filled: Store) -> None:
    found = await ask(filled, "walrus sings")
    hit = next(r for r in found["results"] if r["id"] == "long")
    assert "walrus sings" in hit["text"]
    assert hit["charOffset"] > 10_000
    assert COUNTER.count(hit["text"]) < 1_000


async def test_all_hits_together_are_bounded(filled: Store) -> None:
    found = await ask(filled, "number", limit=20, around=MessageRange(before=10, after=10))
    tokens = sum(
        COUNTER.count(r["text"]) + sum(COUNTER.count(n["text"]) for n in r.get("neighbours", ()))
        for r in found["results"]
    )
    assert 0 < tokens <= ALL_HITS_TOKENS


@pytest.mark.parametrize("wrong", [{"before": 11}, {"after": -1}, {"around": 3}])
def test_a_range_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="before|after|around"):
        msgspec.convert(wrong, MessageRange)


async def test_a_hit_comes_however_large_its_neighbours_are(store: Store) -> None:
    def fill_large(db: Database) -> None:
        threads.create(db, Thread("t", "/w", "", 1, 1))
        for i in range(21):
            text = ("the walrus sings " if i == 10 else "") + "連想配列の鍵は文字列である。" * 200
            messages.append(db, Message(f"m{i:02}", "t", "/w", "user", (TextPart(text),), i + 1))

    await store.write(fill_large)
    found = await ask(store, "walrus sings", around=MessageRange(10, 10))
    (hit,) = (r for r in found["results"] if r["id"] == "m10")
    positions = [n["position"] for n in hit["neighbours"]]
    assert positions == sorted(positions) and {-1, 1} <= set(positions) and all(n["cut"] for n in hit["neighbours"])
    told = [hit["text"], *(n["text"] for n in hit["neighbours"])]
    assert sum(map(COUNTER.count, told)) <= ALL_HITS_TOKENS and found.get("next") != 0


async def test_the_model_is_told_what_a_person_sees_beside_the_hits(filled: Store) -> None:
    found = await ask(filled, "queue midnihgt")
    assert found["notes"] == ["did you mean “queue midnight”?"]
    assert "notes" not in await ask(filled, "queue midnight")


async def call(store: Store, **arguments: Any) -> str:
    tool = memory_search.make_memory_search(store, resource_id="/w", counter=COUNTER, in_window=set)
    run: Any = SimpleNamespace(thread_id="t")
    return (await tool(run, arguments)).content


async def test_recall_takes_a_short_form_of_six_characters_that_fits_one_id(store: Store) -> None:
    def write(db: Database) -> None:
        threads.create(db, Thread("t", "/w", "Queues", 1, 1))
        for i, name in enumerate(("0", "aa-123450", "bb-654321", "cc-654321")):
            messages.append(db, Message(name, "t", "/w", "user", (TextPart(f"number {i}"),), i + 1))

    await store.write(write)
    assert "number 0" in (await call(store, action="recall", id="0")), "its whole id"
    assert "number 1" in (await call(store, action="recall", id="123450"))
    assert "has the id 50." in (await call(store, action="recall", id="50"))
    assert "More than one id ends with 654321: write more characters." in await call(
        store, action="recall", id="654321"
    )


async def test_wrong_arguments_are_named_in_words_of_the_tool(filled: Store) -> None:
    assert "recall needs id, the id of a message or an observation group." in await call(filled, action="recall")
    assert "words that would occur in the text" in await call(filled, action="search")
    assert "messageRange: 0 to 10" in await call(filled, query="queue", messageRange={"foo": 1})


async def test_kinds_and_the_kind_in_a_query_both_apply(filled: Store) -> None:
    assert '"totalHits": 0' in await call(filled, query="queue kind:message", kinds=["task"])
    assert '"totalHits": 0' not in await call(filled, query="queue kind:message", kinds=["task", "message"])


async def test_results_of_earlier_searches_are_not_found(store: Store, tmp_path: Path) -> None:
    searches = Answer("Let me look.", calls=(Call("memory-search", {"query": "pelican"}), Call("task-query", {})))
    for answers in ([Answer("The pelican is teal.")], [searches, Answer("Teal, says an earlier thread.")]):
        run = await start(store, tmp_path / "w", answers)
        await run.ask("Which colour?")
        await run.session.close()
    results = run.provider.requests[-1].messages[-1].tool_results[0]
    assert "The pelican is teal." in results.content
    found = await store.read(search, "pelican", Scope(str(tmp_path / "w")))
    assert [hit.text for hit in found.hits] == ["The pelican is teal."]
    (look,) = (await store.read(search, "look", Scope(str(tmp_path / "w")))).hits
    assert look.text == "Let me look."


async def test_a_deleted_neighbour_is_erased_from_results(store: Store) -> None:
    def fill_short(db: Database) -> None:
        threads.create(db, Thread("t", "/w", "", 1, 1))
        for i, text in enumerate(("my code is 7", "the walrus sings", "fine")):
            messages.append(db, Message(f"message-{i}-{i:08}", "t", "/w", "user", (TextPart(text),), i + 1))

    await store.write(fill_short)
    found = await ask(store, "walrus", limit=1, around=None)
    assert [n["id"] for n in found["results"][0]["neighbours"]] == ["00000000", "00000002"]
    result = ToolResultPart("c", "memory-search", json.dumps(found))
    await store.write(messages.append, Message("later", "t", "/w", "tool", (result,), 9))
    await purging.delete_message(store, "message-0-00000000")
    later = await store.read(messages.get, "later")
    assert later is not None
    (erased,) = later.tool_results
    assert "my code" not in erased.content and "walrus" in erased.content and "fine" in erased.content
