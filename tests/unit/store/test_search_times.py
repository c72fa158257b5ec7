"""Words of time, filters by other names, what is counted, and how snippets are cut."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.store.database import Store
from sakti.store.search.dates import parse_relative_time
from sakti.store.search.excerpts import SNIPPET, cut_snippet
from sakti.store.search.query import parse_query
from sakti.store.search.search import Scope, SearchPage, search
from tests.unit.store.test_search_queries import say

NOW = datetime.datetime(2026, 11, 25, 15, 30)  # a Wednesday
DAY = datetime.timedelta(days=1)


def day(month: int, number: int) -> datetime.datetime:
    return datetime.datetime(2026, month, number)


@pytest.mark.parametrize(
    ("text", "start", "end", "rest"),
    [
        ("today", day(11, 25), day(11, 26), ""),
        ("what did we do yesterday", day(11, 24), day(11, 25), "what did we do"),
        ("the day before yesterday", day(11, 23), day(11, 24), ""),
        ("last week", day(11, 16), day(11, 23), ""),
        ("this week", day(11, 23), day(11, 30), ""),
        ("last month", day(10, 1), day(11, 1), ""),
        ("on tuesday", day(11, 24), day(11, 25), ""),
        ("wednesday", day(11, 25), day(11, 26), ""),
        ("last wednesday", day(11, 18), day(11, 19), ""),
        ("3 days ago", day(11, 22), day(11, 23), ""),
        ("failing test two days ago", day(11, 23), day(11, 24), "failing test"),
        ("2 weeks ago", day(11, 9), day(11, 16), ""),
        ("a month ago", day(10, 1), day(11, 1), ""),
        ("since monday the deploy", day(11, 23), NOW + datetime.timedelta(seconds=1), "the deploy"),
        ("last 3 days", day(11, 22), NOW + datetime.timedelta(seconds=1), ""),
    ],
)
def test_words_of_time(text: str, start: datetime.datetime, end: datetime.datetime, rest: str) -> None:
    read = parse_relative_time(text, NOW)
    assert read is not None
    assert (read.start, read.end, read.rest) == (int(start.timestamp() * 1000), int(end.timestamp() * 1000), rest)


@pytest.mark.parametrize(
    "text",
    ["", "the friday release", "last_week_total", "day-before", "yesterdays", "weekly", "in a week", "ago", "last"],
)
def test_no_words_of_time(text: str) -> None:
    assert parse_relative_time(text, NOW) is None


@given(
    st.text(max_size=60) | st.integers(0, 999).map(lambda n: f"{n} years ago"),
    st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2100, 1, 1)),
)
def test_a_time_ends_after_its_beginning(text: str, now: datetime.datetime) -> None:
    read = parse_relative_time(text, now)
    assert read is None or read.start < read.end


async def fill(store: Store) -> None:
    for back in range(10):
        at = int((NOW - back * DAY).timestamp() * 1000)
        told = [
            (f"said{back}", f"the deploy of build {back}", "user"),
            (f"done{back}", f"it works {back}", "assistant"),
        ]
        await store.write(say, told, thread=f"t{back}", first=at)


async def page(store: Store, text: str) -> SearchPage:
    return await store.read(search, text, Scope("/w"), now=int(NOW.timestamp() * 1000))


@pytest.mark.parametrize(
    "text", ["yesterday", "what did we do yesterday?", "what happened yesterday", "show yesterday"]
)
async def test_a_time_alone_lists_it(store: Store, text: str) -> None:
    await fill(store)
    listed = await page(store, text)
    assert [h.id for h in listed.hits] == ["done1", "said1"]
    assert listed.notes == ["only yesterday (2026-11-24)"]


async def test_a_time_selects(store: Store) -> None:
    await fill(store)
    assert [h.id for h in (await page(store, "deploy 3 days ago")).hits] == ["said3"]
    assert {h.id for h in (await page(store, "deploy last week")).hits} == {f"said{n}" for n in range(3, 10)}


@pytest.mark.parametrize("text", ["gimbal last month", "what of the gimbal last month?", '"the gimbal" last month'])
async def test_hits_of_other_times_are_no_hits_of_the_words_of_time(store: Store, text: str) -> None:
    await fill(store)
    await store.write(say, [("it", "turn the gimbal")], thread="t-old")
    await store.write(say, [("last", "last of all, a month")], thread="t-other")
    found = await page(store, text)
    assert found.hits[0].id == "it" and "last" not in [h.id for h in found.hits]
    assert found.notes == ["nothing last month (2026-10-01 to 2026-10-31): these are from other times"]


@pytest.mark.parametrize("text", ["yesterday", "zebra yesterday", "what did we do yesterday?"])
async def test_a_time_without_hits_is_reported(store: Store, text: str) -> None:
    await store.write(say, [("it", "the gimbal of yesterday")], thread="t-old")
    found = await page(store, text)
    assert (found.total, found.notes) == (0, ["nothing yesterday (2026-11-24)"])


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        ("in:Setup x", "thread", "Setup"),
        ("from:me x", "role", "user"),
        ("from:tool x", "role", "tool"),
        ("file:src/a.py:10 x", "path", "src/a.py"),
    ],
)
def test_filters_by_the_names_of_other_programs(typed: str, name: str, value: str) -> None:
    read = parse_query(typed)
    assert getattr(read, name) == value and read.text == "x"


@pytest.mark.parametrize(
    ("typed", "note"),
    [
        ("heron kind:foo", "no kind “foo”: searched for as words"),
        ("heron role:robot", "no role “robot”: searched for as words"),
        ("heron from:ann", "no role “ann”: searched for as words"),
        ("heron before:banana", "no date “banana”: searched for as words"),
        ("heron in:nowhere", "no thread “nowhere”: searched for as words"),
    ],
)
async def test_unknown_values_are_reported(store: Store, typed: str, note: str) -> None:
    await store.write(say, [("a", "the heron at the root of the lake"), ("b", "no lake")])
    found = await page(store, typed)
    assert found.notes == [note] and found.hits[0].id == "a"


def test_an_address_is_no_path() -> None:
    assert parse_query("file:///home/ann/a.py").path == ""


async def test_texts_with_all_words_come_first_and_are_counted(store: Store) -> None:
    some = [(f"s{n}", f"git push, git push, and once more git push number {n}") for n in range(9)]
    every = [("all1", "then " * 80 + "run git with push and no-verify"), ("all2", "git push --no-verify")]
    await store.write(say, [*some, *every])
    found = await page(store, "git push --no-verify")
    assert [h.complete for h in found.hits] == [True] * 2 + [False] * 9
    assert found.found == "2 with all words, 9 with some"
    assert (await page(store, "git push")).found == "11 found"
    assert (await page(store, "push xylophone")).found == "11 with some words"
    assert (await page(store, "where is git push no-verify?")).with_all is None, "an answer leaves words out"


async def test_words_beside_a_phrase_are_counted_as_some(store: Store) -> None:
    await store.write(say, [("only", "the job loops forever"), ("all", "a gimbal loops forever"), ("no", "a gimbal")])
    assert (await page(store, '"loops forever" zebra')).found == "2 with some words"
    found = await page(store, '"loops forever" gimbal')
    assert ([h.id for h in found.hits], found.found) == (["all", "only"], "1 with all words, 1 with some")
    assert (await page(store, '"loops forever"')).found == "2 found"


async def test_one_changed_letter_comes_before_what_is_like_it(store: Store) -> None:
    likes = [(f"n{n}", f"the notebook of case {n}") for n in range(8)]
    await store.write(say, [*likes, ("meant", "the webhook is called"), ("short", "a mutex is held")])
    found = await page(store, "webook")
    assert [h.id for h in found.hits] == ["meant"] and found.suggestion == "webhook"
    assert (await page(store, "mutx")).suggestion == "mutex"


words = st.lists(st.text("abcxyz_", min_size=1, max_size=25), min_size=30, max_size=60)


@given(words, st.integers(0, 59), st.sampled_from((" ", "\n", "  ", "/")))
def test_a_snippet_begins_with_a_word_and_shows_the_match(parts: list[str], at: int, between: str) -> None:
    parts[at % len(parts)] = "needle"
    text = between.join(parts)
    snippet, marks, start = cut_snippet(text, ["needle"])
    assert any(snippet[a:b] == "needle" for a, b in marks)
    assert start == 0 or not text[start - 1].isalnum() or len(text) <= SNIPPET


async def test_the_snippet_of_a_joined_word_shows_its_pieces(store: Store) -> None:
    await store.write(say, [("it", "word " * 100 + "calls get_user_id(name) there " + "more " * 100)])
    (hit,) = (await page(store, "getuserid")).hits
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["get_user_id"]
