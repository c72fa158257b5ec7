"""The order of hits: whose words they are, who printed them, and how they stand in the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playhouse.apsw_ext import APSWDatabase

from sakti.core.clock import SystemClock
from sakti.store import migrate
from sakti.store.search import index as search_index
from sakti.store.search.rank import EQUAL, score
from sakti.store.search.search import Scope, SearchPage, search
from tests.unit.store.test_search_queries import say

ASKED = ("gimbal", "solver", "overflow")
OTHERS = ("heron", "lake", "canoe", "boat", "def", "{", "};", "=", "README.md", "done")
ROLES = ("user", "assistant", "tool")

fillers = st.lists(st.sampled_from(OTHERS), min_size=1, max_size=8)
without = st.builds(" ".join, fillers)
having = st.builds(
    lambda words, others, times, end: " ".join([*words, *others * times]) + end,
    st.lists(st.sampled_from(ASKED), min_size=1, max_size=4),
    fillers,
    st.sampled_from((1, 1, 4, 40)),
    st.sampled_from(("", "", "?")),
)
said = st.lists(st.tuples(without | having, st.sampled_from(ROLES)), min_size=2, max_size=10)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> APSWDatabase:
    path: Path = tmp_path_factory.mktemp("ranking") / "s.db"
    opened = APSWDatabase(str(path))
    opened.connect()
    migrate.upgrade(opened, path, SystemClock())
    return opened


def ask(db: APSWDatabase, query: str, threads: Sequence[Sequence[tuple[str, str]]]) -> SearchPage:
    """Search threads of (text, role); the ids of the messages are `thread-position`."""
    db.execute_sql("DELETE FROM search_docs")
    for number, messages in enumerate(threads):
        named = [(f"{number}-{i}", text, role) for i, (text, role) in enumerate(messages)]
        say(db, named, thread=f"t{number}", first=1 + 100 * number)
    return search(db, query, Scope("/w"), limit=100)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(said, min_size=1, max_size=3),
    st.sampled_from(
        ("where does the gimbal solver overflow?", "how does the gimbal overflow", "gimbal solver overflow", "gimbal")
    ),
)
def test_a_text_without_the_words_is_below_the_message_that_lends_them(
    db: APSWDatabase, threads: list[list[tuple[str, str]]], query: str
) -> None:
    page = ask(db, query, threads)
    rank = {h.id: h.rank for h in page.hits}
    wanted = [word for word in ASKED if word in query]
    for number, messages in enumerate(threads):
        has_words = [any(word in text for word in wanted) for text, _ in messages]
        for i, has in enumerate(has_words):
            beside = [j for j in (i - 1, i + 1) if 0 <= j < len(messages) and has_words[j]]
            for j in beside if not has and f"{number}-{i}" in rank else ():
                own, owner = f"{number}-{i}", f"{number}-{j}"
                assert owner not in rank or rank[owner] < rank[own] or is_copied(messages, j, threads)


def is_copied(messages: Sequence[tuple[str, str]], at: int, threads: Sequence[Sequence[tuple[str, str]]]) -> bool:
    """Return whether a text is listed once for several."""
    return sum(message[0].strip() == messages[at][0].strip() for thread in threads for message in thread) > 1


def test_context_counts_only_if_the_query_asks(db: APSWDatabase) -> None:
    thread = [("run the usual things", "user"), ("gimbal solver overflow in step 12", "tool"), ("I see", "assistant")]
    assert [h.id for h in ask(db, "gimbal solver overflow", [thread]).hits] == ["0-1"]
    asked = ask(db, "where does the gimbal solver overflow", [thread]).hits
    assert asked[0].id == "0-1" and {h.id for h in asked} == {"0-0", "0-1", "0-2"}
    assert all(h.parts.neighbours == 0 for h in ask(db, "gimbal solver overflow now", [thread]).hits)


@pytest.mark.parametrize("query", ["gimbal solver overflow", "where did the gimbal solver overflow?"])
def test_what_a_tool_prints_comes_before_those_who_speak_of_it(db: APSWDatabase, query: str) -> None:
    printed = "step 11 ok\n" * 30 + "fatal: gimbal solver overflow: the gimbal of the solver has an overflow\n"
    thread = [("let me run the solver", "assistant"), (printed, "tool"), ("the solver fails, I see", "assistant")]
    others = [("the lake is nice", "user"), ("yes, with a canoe", "assistant")] * 5
    assert ask(db, query, [thread, others]).hits[0].id == "0-1"


REMARKS = (
    "Let me look at `solve` in gimbal.",
    "Reading src/gimbal/solver.py.",
    "`solver` is used in 3 places, mostly in gimbal.py.",
    "First the files of src/gimbal/solver.",
)


@pytest.mark.parametrize("role", ["assistant", "user"])
@pytest.mark.parametrize("query", ["find gimbal solver", "the solver of gimbal", "src/gimbal solver"])
def test_an_output_comes_before_the_remarks_on_it(db: APSWDatabase, query: str, role: str) -> None:
    printed = "\n".join(f"src/gimbal/{name}.py:{n}: solver = gimbal.{name}()" for n, name in enumerate("abcdefghi"))
    threads = [[(text, role), (f"{n} lines of the lake", "tool"), ("done", role)] for n, text in enumerate(REMARKS)]
    assert ask(db, query, [*threads, [("I look around", role), (printed, "tool")]]).hits[0].id == "4-1"


def test_an_output_has_words_of_the_remark_before_it(db: APSWDatabase) -> None:
    outputs = ["overflow in step one\n" * 4, "overflow in step two\n" * 4]
    threads = [
        [("first the heron", "assistant"), (outputs[0], "tool")],
        [("now the gimbal", "assistant"), (outputs[1], "tool")],
    ]
    hits = {h.id: h.score for h in ask(db, "gimbal overflow", threads).hits}
    assert hits["1-1"] > hits["0-1"]


def test_what_stands_beside_a_match_is_listed_only_if_something_is_asked(db: APSWDatabase) -> None:
    answer = "I will write the gimbal solver so that no overflow is left.\n" + "It turns each axis once more. " * 12
    thread = [("the usual things", "user"), ("make it safe", "user"), (answer, "assistant"), ("thanks", "user")]
    others = [(f"the lake of case {n}", "user") for n in range(9)]
    assert "0-1" in [h.id for h in ask(db, "what of the gimbal solver overflow?", [thread, others]).hits]
    for query in (
        "gimbal",
        "gimbal solver",
        "gimbal solver overflow",
        "gimbal solver zzzunknown",
        "gimbal AND solver AND overflow",
        '"gimbal solver" so that',
        "gimbalSolver",
    ):
        assert [h.id for h in ask(db, query, [thread, others]).hits] == ["0-2"], "only what was typed is looked for"


def test_a_short_reply_does_not_outrank_the_output_that_it_repeats(db: APSWDatabase) -> None:
    trace = 'File "/srv/app/gimbal.py", line 12, in solve\n    raise OverflowError("solver overflow")\n' * 6
    thread = [
        ("run it", "user"),
        (f"Traceback (most recent call last):\n{trace}OverflowError: solver overflow in solve", "tool"),
        ("`solve` raises OverflowError, so the solver of gimbal.py has a flaw", "assistant"),
    ]
    others = [(f"note {n} on the lake", "user") for n in range(30)]
    assert ask(db, "OverflowError: solver overflow in solve gimbal.py", [thread, others]).hits[0].id == "0-1"


def test_the_parts_add_up_to_the_score(db: APSWDatabase) -> None:
    thread = [("what of the gimbal?", "user"), ("it turns", "assistant"), ("the gimbal solver overflow", "assistant")]
    others = [(f"the solver of case {n}", "user") for n in range(8)]
    hits = ask(db, "what is the gimbal solver overflow", [thread, others]).hits
    scores = [round(score(h.parts), EQUAL) for h in hits]
    assert scores == sorted(scores, reverse=True) and any(h.parts.behind for h in hits)


values = st.sampled_from(("int", "str", "Decimal", "int | None", "list[int]", "float", "bytes"))
lines = st.sampled_from(
    (
        'error: Incompatible return value type (got "{}", expected "{}")',
        'Argument 1 to "{}" has incompatible type "{}"; expected "number"',
        'expected "{}" but got "{}" in the parser',
        '{{"kind": "{}", "of": "{}", "level": "error"}}',
    )
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines, st.tuples(values, values), st.tuples(values, values))
def test_quotes_in_pasted_text_require_nothing(
    db: APSWDatabase, line: str, stored: tuple[str, str], pasted: tuple[str, str]
) -> None:
    others = [(f'the value of "{value}" is what it is', "user") for value in ("int", "str", "Decimal")]
    hits = ask(db, line.format(*pasted), [[("run mypy", "user"), (line.format(*stored), "tool")], others]).hits
    assert hits[0].id == "0-1"


def test_a_free_quote_in_a_short_query_is_required(db: APSWDatabase) -> None:
    thread = [("the quick brown fox", "user"), ("a brown quick fox", "user"), ("where is the fox", "user")]
    assert [h.id for h in ask(db, 'fox "quick brown"', [thread]).hits] == ["0-0"]
    assert ask(db, 'where is the "quick brown" fox?', [thread]).hits[0].id == "0-0"


@pytest.mark.parametrize("typed", ["getServerSide", "getserverside", "etServerSid", "get_server_s"])
def test_a_verbatim_part_of_an_identifier_beats_its_scattered_pieces(db: APSWDatabase, typed: str) -> None:
    scattered = [
        (f"we get you server-side rendering for page {n}, get it from the server side", "user") for n in range(6)
    ]
    names = [("getServerSideProps is called first; see get_server_side_props", "assistant")]
    assert ask(db, typed, [scattered, names]).hits[0].id == "1-0"


def test_many_texts_with_an_identifier_come_before_all_with_its_pieces(db: APSWDatabase) -> None:
    names = [(f"call getServerSideProps in page {n}", "user") for n in range(40)]
    pieces = [(f"the server renders side {n} of it", "user") for n in range(60)]
    hits = ask(db, "getServerSide", [pieces, names, pieces[:3]]).hits
    assert {h.thread_id for h in hits[:40]} == {"t1"} and len(hits) == 100


def put_line(db: APSWDatabase, id: str, text: str) -> None:
    search_index.put(
        db, kind="observation", doc_id=id, resource_id="/w", thread_id="t0", created_at=9, position=0, text=text
    )


def test_a_log_line_that_quotes_a_message_is_not_listed_beside_it(db: APSWDatabase) -> None:
    text = "We sail to the heron lake in June. The boat is new. Bring a coat."
    ask(db, "", [[(text, "user"), ("Nice, a lake!", "assistant")]])
    put_line(db, "quoted", "User stated: We sail to the heron lake in June. Bring a coat. (meaning Jun 1, 2026)")
    put_line(db, "retold", "User stated: They go sailing on the heron lake.")
    ids = [h.id for h in search(db, "when do we sail to the heron lake?", Scope("/w")).hits]
    assert (ids[0], "retold" in ids, "quoted" in ids) == ("0-0", True, False)
    only = search(db, "heron lake kind:observation", Scope("/w"))
    assert {h.id for h in only.hits} == {"quoted", "retold"}


def test_many_log_lines_do_not_push_messages_out_of_the_list(db: APSWDatabase) -> None:
    ask(db, "", [[(f"The heron {word} was seen at the lake.", "user") for word in ("nest", "egg", "wing")]])
    for number in range(300):
        put_line(db, f"o{number}", f"The heron heron heron {number}")
    hits = search(db, "where was the heron seen?", Scope("/w"), limit=400).hits
    assert {"0-0", "0-1", "0-2"} <= {h.id for h in hits}


def test_what_was_said_at_one_time_of_a_long_thread_belongs_together(db: APSWDatabase) -> None:
    """Two equal messages: the one on the day on which the lake was talked about comes first."""
    db.execute_sql("DELETE FROM search_docs")
    hour = 3_600_000
    day = [
        "The canoe trip on the lake starts at the heron dock.",
        "The lake is cold, said the heron guide.",
        "We paid.",
    ]
    say(db, [("alike-1", "Anna brings a tent.")], thread="t0", first=90 * hour)
    say(db, [(f"lake-{i}", text) for i, text in enumerate(day)], thread="t0", first=30 * hour)
    say(db, [("alike-0", "Anna brings a tent!")], thread="t0", first=30 * hour + 60_000)
    db.execute_sql("UPDATE search_docs SET position = 10 WHERE doc_id LIKE 'alike-%'")
    ids = [h.id for h in search(db, "what does Anna bring to the heron lake?", Scope("/w")).hits]
    assert ids.index("alike-0") < ids.index("alike-1")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where did Ann buy the canoe?", "I bought it at the heron fair."),
        ("Who taught the sailing lesson?", "My aunt will teach us again."),
        ("What do her children collect?", "Her child has a box of shells."),
    ],
)
def test_a_question_finds_irregular_forms_of_its_words(db: APSWDatabase, question: str, answer: str) -> None:
    others = [("The weather was fine.", "user"), ("Yes, it was.", "assistant"), (answer, "user")]
    (hit,) = (h for h in ask(db, question, [others]).hits if h.text == answer)
    assert hit.reason.startswith("form of the word: ") and hit.marks
    assert hit.id not in [h.id for h in search(db, question.split()[-1].strip("?"), Scope("/w")).hits]
