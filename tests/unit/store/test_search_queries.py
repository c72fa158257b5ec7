"""Queries as people write them: each form finds what is meant, ranks it first, and says why it is there."""

from __future__ import annotations

import datetime
import itertools
import unicodedata
from collections.abc import Callable, Sequence

import pytest
from playhouse.apsw_ext import APSWDatabase

from sakti.store.database import Store
from sakti.store.search import index as search_index
from sakti.store.search import retrieve
from sakti.store.search.dates import asks_when, find_named_times, names_time, says_when
from sakti.store.search.query import list_words_and_joined, parse_query
from sakti.store.search.search import Scope, SearchPage, search

Told = Sequence[tuple[str, str] | tuple[str, str, str]]


def say(db: APSWDatabase, told: Told, *, resource: str = "/w", thread: str = "t1", first: int = 1) -> None:
    """Index texts as messages of a thread: (id, text) or (id, text, role)."""
    for position, (name, text, *role) in enumerate(told):
        search_index.put(
            db,
            kind="message",
            doc_id=name,
            resource_id=resource,
            thread_id=thread,
            role=role[0] if role else "user",
            position=position,
            created_at=first + position,
            text=text,
            prev=told[position - 1][1] if position else "",
        )


async def page(store: Store, text: str, scope: Scope | None = None, **more: object) -> SearchPage:
    return await store.read(search, text, scope or Scope("/w"), **more)


async def ids(store: Store, text: str, **more: object) -> list[str]:
    return [h.id for h in (await page(store, text, **more)).hits]


async def test_what_stands_deep_in_a_long_text_counts_as_much(store: Store) -> None:
    log = "\n".join(f"line {i}: all is well with the pump" for i in range(900))
    deep = f"{log}\nfatal: the gimbal solver overflowed at step 12\n{log}"
    await store.write(say, [("log", deep), *((f"s{i}", f"an overflow of the solver, case {i}") for i in range(10))])
    assert (await ids(store, "gimbal solver overflow"))[0] == "log"


async def test_an_old_definition_is_above_new_mentions(store: Store) -> None:
    notes = [
        (f"n{i}", f"note {i}: somebody said that parseConfig may be slow, we look at it next week") for i in range(12)
    ]
    await store.write(say, [("def", "def parseConfig(path): parseConfig reads the file at path"), *notes])
    assert (await ids(store, "parseConfig"))[0] == "def"


async def test_equal_texts_are_newest_first(store: Store) -> None:
    await store.write(say, [("old", "the cache is cold")])
    await store.write(say, [("new", "the queue is cold")], thread="t2", first=2)
    assert await ids(store, "cold") == ["new", "old"]


async def test_the_beginning_of_a_word_ranks_by_what_it_finds(store: Store) -> None:
    await store.write(say, [("hit", "the mutex is held here"), ("next", "then it hangs")])
    found = await page(store, "mut*")
    assert [h.id for h in found.hits] == ["hit"] and found.hits[0].score > 0


async def test_an_answer_without_the_words_is_for_questions_only_and_says_so(store: Store) -> None:
    await store.write(say, [("q", "which flibbertigibbet do you like best?"), ("a", "No idea.", "assistant")])
    assert await ids(store, "role:assistant flibbertigibbet") == []
    found = {h.id: h for h in (await page(store, "which flibbertigibbet do you like")).hits}
    assert found["a"].reason == "answer to “which flibbertigibbet do you like best?”" and found["q"].reason == ""


async def test_a_slip_is_corrected_and_never_floods(store: Store) -> None:
    many = [(f"m{i}", f"the posture of gress number {i} is then cationic") for i in range(30)]
    await store.write(say, [("right", "authentication needs postgres"), *many])
    for typed, meant in (("athuentication", "authentication"), ("postgress", "postgres")):
        found = await page(store, typed)
        assert found.hits[0].id == "right" and len(found.hits) <= 3
        assert found.suggestion == meant and found.notes == [f"did you mean “{meant}”?"]
        assert found.hits[0].reason == f"similar: {meant}"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("configuraiton", "configuration"),
        ("databsaes", "databases"),
        ("exceptoins", "exceptions"),
        ("permisison", "permission"),
        ("properteis", "properties"),
    ],
)
async def test_a_slip_in_the_ending_of_a_word_is_corrected(store: Store, typed: str, meant: str) -> None:
    await store.write(say, [("a", f"the {meant} of the gateway"), *((f"n{n}", f"gateway {n}") for n in range(30))])
    found = await page(store, f"gateway {typed}")
    assert found.hits[0].id == "a" and found.suggestion == f"gateway {meant}"


async def test_the_name_in_camel_case_that_begins_a_function_says_what_it_is(store: Store) -> None:
    body = "\n".join(f"\tstep{n}(list, count)" for n in range(8))
    functions = [
        ("meant", f"func (t *View) updateMerger(size int) {{\n{body}\n\tdrawScreen(list)\n}}", "tool"),
        ("other", f"func (t *View) drawScreen(size int) {{\n{body}\n\tupdateMerger(list)\n}}", "tool"),
    ]
    for number, function in enumerate(functions):
        await store.write(say, [function], thread=f"t{number}", first=number)
    for question in ("which function updates the merger", "updates merger of the list"):
        assert await ids(store, question) == ["meant", "other"], "equals are listed newest first"


async def test_a_function_lends_no_words_to_the_one_beside_it(store: Store) -> None:
    body = "\n".join(f"    value{n} = read(item)" for n in range(6))
    functions = [
        ("beside", f"def parse(item):\n{body}\n    return header", "assistant"),
        ("meant", f"def walk(item):\n{body}\n    return checksum, checksum, header", "tool"),
        ("far", f"def walk(item):\n{body}\n    return checksum, header", "tool"),
    ]
    await store.write(say, functions[:2])
    await store.write(say, functions[2:], thread="t2")
    by_id = {h.id: h for h in (await page(store, "where is the checksum of the header")).hits}
    assert by_id["beside"].parts.neighbours == 0 and by_id["meant"].parts.neighbours == 0


async def test_a_suggestion_is_a_word_and_not_its_stem(store: Store) -> None:
    await store.write(say, [("a", "the tokens expire tomorrow"), ("b", "tokens, beta")])
    assert (await page(store, "tokens expiry -beta")).suggestion == "tokens expire"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("функцыя", "здесь функция считает сумму"),
        ("Übersetzungsschlüsel", "der Übersetzungsschlüssel fehlt"),
        ("συνάρτησι", "η συνάρτηση επιστρέφει"),
        ("数据库连接失败", "今天连接失败，数据库没有启动"),
        ("データベース設定", "設定を見ました。データベースは動いています"),
        ("ＬＯＧＩＮ", "the login fails"),
        ("Straße", "in der strasse"),
    ],
)
async def test_letters_beyond_ascii(store: Store, typed: str, text: str) -> None:
    await store.write(say, [("meant", text), ("other", "nothing of the kind")])
    assert await ids(store, typed) == ["meant"]


async def test_what_is_written_with_other_letters_is_marked(store: Store) -> None:
    await store.write(say, [("a", "in der Straße am Fluss"), ("b", "İ" * 300 + " the needle " + "İ" * 300)])
    (hit,) = (await page(store, "strasse")).hits
    assert hit.snippet[slice(*hit.marks[0])] == "Straße"
    (hit,) = (await page(store, "needle")).hits
    assert hit.snippet[slice(*hit.marks[0])] == "needle"


def test_compound_names_are_found_by_their_pieces_and_joined() -> None:
    assert (
        search_index.list_identifier_parts("call getUserId on user_name, please")
        == "get user id getuserid name username"
    )
    assert search_index.list_identifier_parts("plain words only") == ""


async def test_small_words_in_identifiers_count(store: Store) -> None:
    await store.write(say, [("id", "call hasNextPage before"), ("book", "the next page of the book"), ("x", "has it?")])
    assert (await ids(store, "has_next_page"))[0] == "id"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("tokens NOT JWT", {"plain"}),
        ("PostgreSQL AND kubectl", {"both"}),
        ("PostgreSQL AND kubectl OR JWT", {"both", "jwt"}),
        ("tokens OR kubectl", {"plain", "jwt", "both"}),
    ],
)
async def test_operators_and_or_not(store: Store, typed: str, found: set[str]) -> None:
    told = [
        ("plain", "tokens expire"),
        ("jwt", "JWT tokens"),
        ("both", "kubectl and PostgreSQL"),
        ("pg", "PostgreSQL 16"),
    ]
    await store.write(say, told)
    assert set(await ids(store, typed)) == found


async def test_operators_ask_for_what_no_text_has(store: Store) -> None:
    await store.write(say, [(f"n{i}", f"a timeout of the pump {i}") for i in range(3)])
    found = await page(store, "timeuot AND pump")
    assert found.total == 0 and found.unread == () and found.suggestion == "timeout AND pump"


@pytest.mark.parametrize("at_once", [4_000, 1_000], ids=["ranked by the index", "by their words"])
@pytest.mark.parametrize("typed", ['"connection reset" gimbal solver', "connection AND reset AND gimbal"])
async def test_words_beside_what_is_required_say_which_is_meant(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int, typed: str
) -> None:
    """However many newer texts have what is required."""
    required = [f"connection reset by peer {n}" for n in range(400)]
    told = [f"gimbal solver {n}" for n in range(40)]
    meant = "when the gimbal solver is slow, the log of that night says connection reset, and nothing else"
    await store.write(say, [(f"n{n}", text) for n, text in enumerate([*told, meant, *required])])
    monkeypatch.setattr(retrieve, "AT_ONCE", at_once)
    found = await page(store, typed, clock=ticking(0.0))
    assert found.hits[0].id == "n40" and found.unread == ()


async def test_all_that_pass_a_filter_are_found_behind_better_ones_that_do_not(store: Store) -> None:
    told = [(f"n{n}", f"a slow gimbal, case {n}", "assistant" if n % 16 == 0 else "user") for n in range(1_600)]
    await store.write(say, told)
    found = await page(store, "the slow gimbal role:assistant", limit=200)
    assert found.total == len(found.hits) == 100


async def test_a_phrase_is_named_once_where_its_older_texts_were_not_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.write(say, [(f"n{n}", f"connection reset by peer {n}") for n in range(400)])
    monkeypatch.setattr(retrieve, "AT_ONCE", 100)
    found = await page(store, '"connection reset" peer', clock=ticking(1.0))
    assert found.notes == ["connection reset: only texts since 1970-01-01"]
    first = await page(store, '"connection reset" peer', first=True, clock=ticking(1.0))
    assert first.partial, "with more time there may be more"


@pytest.mark.parametrize("typed", ["AND", "NOT", "a AND", "OR b", "a AND OR b", 'say "x AND y"'])
def test_operators_without_two_sides_are_words(typed: str) -> None:
    query = parse_query(typed)
    assert query.alternatives == () and query.excluded == ()


def test_operators_may_be_as_deep_as_they_are_typed() -> None:
    for deep in (
        "a AND " + "(" * 1_900 + "b" + ")" * 1_900,
        "a " + "NOT " * 990 + "b",
        "(a AND " * 500 + "b" + ")" * 500,
    ):
        assert parse_query(deep).text


@pytest.mark.parametrize(
    ("typed", "excluded"),
    [
        ("tokens -jwt expiry", ("jwt",)),
        ("-jwt tokens", ("jwt",)),
        ("how do the tokens expire -jwt -oauth", ("jwt", "oauth")),
        ("build the library with -fPIC to allow linking", ()),
        ("why does it fail with -Werror", ()),
    ],
)
async def test_flags_in_a_sentence_exclude_nothing(store: Store, typed: str, excluded: tuple[str, ...]) -> None:
    told = [("a", "the tokens of the library"), ("b", "expire, expiry"), ("c", "tokens of jwt"), ("d", "oauth tokens")]
    await store.write(say, told)
    query = parse_query(typed)
    assert query.excluded == excluded and not any(f"-{w}" in query.text for w in excluded)
    found = await page(store, typed)
    told = ", ".join(f"“{w}”" for w in excluded)
    assert found.notes == ([f"without texts that have {told}"] if excluded else [])


@pytest.mark.parametrize("typed", ["-redirect", "NOT redirect", "-redirect -lake", "NOT redirect NOT lake"])
async def test_a_query_that_only_leaves_out_lists_only_what_says_it_so(store: Store, typed: str) -> None:
    told = [("a", "the redirect"), ("b", "redirects, not lost"), ("c", "a lake"), ("d", "redirecting a lake")]
    await store.write(say, told)
    nothing = await page(store, typed)
    assert (nothing.total, nothing.notes) == (0, [f"“{typed}” only leaves out: add a word or filter"])
    assert "a" not in await ids(store, f"role:user {typed}")
    await store.write(say, [("flag", f"run it with {typed} on the server")], thread="t2")
    said = await page(store, typed)
    assert ([h.id for h in said.hits], said.notes) == (["flag"], [f"“{typed}” read as text"])


@pytest.mark.parametrize(
    "command",
    [
        "java -jar app.jar",
        "gcc -Wall main.c",
        "mvn clean install -DskipTests",
        "why does gcc reject -fPIC",
        "WHERE email IS NOT NULL",
        "CREATE TABLE IF NOT EXISTS",
        "SELECT id FROM users WHERE status = 1 AND type = 2",
        "SELECT * FROM orders WHERE paid AND shipped",
        "paid AND NOT `deleted`",
        "foo AND --- bar",
        "404 NOT FOUND",
        "DO NOT EDIT",
        "CREATE TABLE t (id INTEGER NOT NULL)",
        "WHERE id NOT IN (1, 2)",
        "deleted = 0 AND NOT archived",
        "WHERE paid AND NOT (cancelled)",
        'level:error AND NOT "health check"',
        "error NOT (status=200 OR status=304)",
        "NOT NULL constraint failed: users.email",
        "NOT working after the update",
        "role:admin can edit",
        "level:error status:500 role:admin",
    ],
)
async def test_a_pasted_command_finds_itself(store: Store, command: str) -> None:
    others = [(f"o{n}", f"something else of app and main and users, number {n}") for n in range(20)]
    await store.write(say, [*others, ("it", f"run it with {command} on the server")])
    found = await page(store, command)
    assert found.hits[0].id == "it" and [n for n in found.notes if "read as text" not in n] == []


async def test_not_between_capitals_is_an_operator_unless_a_text_says_it_so(store: Store) -> None:
    await store.write(say, [("plain", "over HTTP"), ("tls", "HTTP and HTTPS")])
    assert await ids(store, "HTTP NOT HTTPS") == ["plain"]
    await store.write(say, [("said", "we speak HTTP not HTTPS")])
    found = await page(store, "HTTP NOT HTTPS")
    assert found.hits[0].id == "said" and found.notes == ["“HTTP NOT HTTPS” read as text"]
    assert "tls" not in await ids(store, "HTTP -HTTPS")


async def test_what_is_excluded_is_looked_for_behind_hundreds_that_have_it(store: Store) -> None:
    both = [(f"n{n}", f"日志 配置 myOverflowing{n} gimbal {n}") for n in range(1_500)]
    await store.write(say, [("meant", "日志 级别 myOverflowing"), *both])
    for query in ("日志 NOT 配置", "日志 -配置", "verflowin -gimbal"):
        assert await ids(store, query, clock=lambda: 0.0) == ["meant"], query


async def test_a_phrase_beside_a_word_is_required(store: Store) -> None:
    told = [("has", "the red apple fell"), ("wrong", "apple red beside a widget"), ("word", "widget")]
    await store.write(say, [*told, ("both", "red apple and widget")])
    assert await ids(store, '"red apple" widget') == ["both", "has"]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("alpha AND beta AND gamma", {"all"}),
        ("foo OR bar -baz", {"foo", "bar"}),
        ("foo AND -baz", {"foo"}),
        ("conf* OR foo", {"foo", "foo baz", "config"}),
        ('"bar" NOT baz', {"bar"}),
        ('"alpha beta" OR foo', {"all", "foo", "foo baz"}),
        ("alpha AND (plain OR beta)", {"all"}),
        ("(foo OR bar) AND plain", {"foo", "bar"}),
        ("foo AND (bar", set()),
        ("（foo OR bar） AND plain", {"foo", "bar"}),
        ("foo -ba*", {"foo"}),
        ("foo NOT ba*", {"foo"}),
        ("NOT baz AND foo", {"foo"}),
        (
            "(foo OR bar OR config OR delta OR epsilon) AND (plain OR with OR loader OR zeta) NOT baz",
            {"foo", "bar", "config"},
        ),
        ("foo NOT (baz)", {"foo"}),
        ("foo AND (NOT baz)", {"foo"}),
        ("foo (NOT baz)", {"foo"}),
        ("foo NOT baz,", {"foo"}),
        ("(foo OR bar) NOT (baz OR alone)", {"foo", "bar"}),
        ("FOO NOT BAZ", {"foo"}),
        ("role:user NOT baz", {"all", "part", "foo", "bar", "config"}),
        ("role:user -baz", {"all", "part", "foo", "bar", "config"}),
    ],
)
async def test_operators_beside_each_other(store: Store, typed: str, found: set[str]) -> None:
    told = [
        ("all", "alpha beta gamma"),
        ("part", "gamma alone"),
        ("foo", "foo plain"),
        ("foo baz", "foo with baz"),
        ("bar", "bar plain"),
        ("bar baz", "bar with baz"),
        ("config", "the config loader"),
    ]
    await store.write(say, told)
    assert set(await ids(store, typed)) == found


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("日志 模式", {"log", "end"}),
        ("模式", {"log", "end"}),
        ("数据库 AND 服务器", {"down"}),
        ("数据库 OR 画面", {"down", "up", "screen"}),
        ("数据库 AND (日志 OR started*)", {"up"}),
        ('"没有启动" 数据库', {"down"}),
        ("服务*", {"down", "glued"}),
        ("ไทย AND ภาษา", {"thai"}),
        ("ภาษา -ไทย", {"lao"}),
        ("नई -त्रुटि", {"hindi"}),
        ("deploy NOT 🚀", {"sharp"}),
        ("nginx AND 重启", {"glued"}),
        ("重启 -nginx", {"restart"}),
        ("重启 NOT nginx", {"restart"}),
        ("重启 AND（nginx OR mysql）", {"glued"}),
        ("🚀 OR C#", {"rocket", "sharp"}),
        ("deploy AND C#", {"sharp"}),
        ("数据库 -服务器", {"up"}),
        ("数据库 NOT 连接", {"up"}),
        ("画面 AND テスト", {"screen"}),
    ],
)
async def test_words_of_scripts_without_spaces(store: Store, typed: str, found: set[str]) -> None:
    told = [
        ("log", "请把日志级别改成调试模式，谢谢"),
        ("down", "今天数据库连接失败，服务器没有启动"),
        ("up", "数据库已经启动 (started)"),
        ("screen", "画面のテストを実行"),
        ("end", "调试模式"),
        ("glued", "请重启nginx服务"),
        ("restart", "请重启电脑"),
        ("thai", "ฉันพูดภาษาไทยได้"),
        ("lao", "นี่คือภาษาอื่น"),
        ("hindi", "नई सुविधा"),
        ("hindi error", "नई त्रुटि"),
        ("rocket", "deploy c 🚀"),
        ("sharp", "deploy C#"),
    ]
    await store.write(say, told)
    assert set(await ids(store, typed)) == found
    assert not any("no text has" in note for note in (await page(store, typed)).notes)


async def test_a_text_with_both_words_is_first(store: Store) -> None:
    await store.write(say, [("log", "请把日志级别改成调试模式，谢谢"), ("end", "调试模式")])
    assert await ids(store, "日志 模式") == ["log", "end"]


async def test_two_signs_are_found_however_many_texts_are_newer(store: Store) -> None:
    """By the trigrams that begin with them, or as the end of what is one word for the index."""
    told = [
        ("log", "请把日志级别改成调试"),
        ("end", "调试日志"),
        ("arrow", "const f = () => 1"),
        ("sharp", "we use C#"),
    ]
    await store.write(say, [*told, *((f"n{n}", f"a text like others, {n}") for n in range(1_000))])
    no_time = {"clock": ticking(1.0)}
    found = await page(store, "日志", **no_time)
    assert {h.id for h in found.hits} == {"log", "end"} and found.notes == []
    assert [h.id for h in (await page(store, "=>", **no_time)).hits] == ["arrow"]
    assert (await page(store, "C#", **no_time)).notes == ["c# at the end of a text: only texts since 1970-01-01"]
    assert await ids(store, "C#") == ["sharp"]
    assert (await page(store, "C#", first=True, **no_time)).partial


async def test_parts_of_words_are_found_behind_newer_ones_that_a_filter_leaves_out(store: Store) -> None:
    newer = [(f"n{n}", f"服务器日志 {'abcdef'[n % 6]} myOverflowing{n}") for n in range(1_500)]
    await store.write(say, [("old", "服务器日志 myOverflowing", "assistant"), *newer])
    for query in ("日志 role:assistant", "verflowin role:assistant", "日志 before:1970-01-02 role:assistant"):
        found = await page(store, query)
        assert [h.id for h in found.hits] == ["old"] and not found.more, query


@pytest.mark.parametrize(
    ("unwanted", "text"),
    [
        ('"foo bar"', "foo\n  bar"),
        ("strasse", "in der Straße"),
        ("Straße", "in der STRASSE"),
        ("größe", "GRÖSSE"),
        ("apple", "ＡＰＰＬＥ"),
        ("café", "cafe\u0301"),
        ("счет", "счёт"),
    ],
)
async def test_what_is_excluded_is_excluded_in_any_spelling(store: Store, unwanted: str, text: str) -> None:
    await store.write(say, [("without", "gimbal"), ("with", f"gimbal {text}")])
    assert await ids(store, f"gimbal -{unwanted}") == ["without"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [("счет", "оплатить счёт"), ("счёт", "оплатить счет"), ("ее елка", "её ёлка"), ("ΩΡΑ", "τι ώρα"), ("ώρα", "ΩΡΑ")],
)
async def test_letters_that_are_written_without_their_accents(store: Store, typed: str, text: str) -> None:
    await store.write(say, [("meant", text), ("other", "ничего")])
    found = await page(store, typed)
    assert [h.id for h in found.hits] == ["meant"] and found.suggestion == ""
    assert found.hits[0].reason == "" and found.hits[0].marks


async def test_what_stands_behind_hundreds_of_copies_is_listed(store: Store) -> None:
    meant = "note for later: pump pressure low only when the valve of the second stage is shut"
    copies = [(f"n{n}", "pump pressure low", "tool") for n in range(700)]
    await store.write(say, [("meant", meant, "assistant"), *copies])
    found = await page(store, "pump pressure low", clock=lambda: 0.0)
    assert sorted((h.id, h.copies) for h in found.hits) == [("meant", 0), ("n699", 699)]
    assert found.total == 2 and not found.more
    first = await page(store, "pump pressure low", first=True)
    assert first.partial and first.total == 1


async def test_what_stands_behind_hundreds_of_copies_is_found_by_a_part_of_a_word(store: Store) -> None:
    copies = [(f"n{n}", "请把数据库重新启动", "tool") for n in range(350)]
    await store.write(say, [("meant", "今天数据库连接失败"), *copies, ("other", "数据库已经启动")])
    found = await page(store, "数据库", clock=lambda: 0.0)
    assert {h.id: h.copies for h in found.hits} == {"meant": 0, "other": 0, "n349": 349}
    assert not found.more and await ids(store, "数据库 -启动", clock=lambda: 0.0) == ["meant"]


async def test_more_than_what_is_measured_is_said(store: Store) -> None:
    await store.write(say, [(f"n{n}", f"case{n} of myOverflowing{'abcdefghij'[n % 10]}{n}") for n in range(150)])
    assert (await page(store, "verflowin")).found == "the 100 best matches; add words to narrow the search"
    assert (await page(store, "verflowinga1")).found == "6 found"


@pytest.mark.parametrize("typed", ["库ΐ", "ΐΰ", "path:\u1112\u1161\u11ab\u1100\u1173\u11af", "path:e\u0301."])
async def test_what_is_shorter_once_it_is_folded(store: Store, typed: str) -> None:
    await store.write(say, [("it", f"a text with {typed.removeprefix('path:')} in it")])
    assert {h.id for h in (await page(store, typed)).hits} <= {"it"}


@pytest.mark.parametrize(
    "path",
    [
        "app/orders/[orderId]/page.tsx",
        "./app/orders",
        "[orderId]",
        "orders",
        "Orders",
        "app/*/[orderId]/*.tsx",
        "lib/*.ts",
        "größe.md",
    ],
)
async def test_a_path_that_a_tool_touched(store: Store, path: str) -> None:
    touched = ["app/orders/[orderId]/page.tsx", "lib/Cart.ts", "GRÖSSE.md", 'a "b"\t\\c']
    other = {
        "kind": "message",
        "doc_id": "b",
        "resource_id": "/w",
        "created_at": 2,
        "text": "edited",
        "paths": ["x.ts"],
    }
    await store.write(search_index.put, **{**other, "doc_id": "a", "paths": touched})
    await store.write(search_index.put, **other)
    assert await ids(store, f"path:{path}") == ["a"]
    assert await ids(store, "path:app/*.ts") == [], "no one path"


async def test_a_suggestion_is_a_word_that_a_listed_text_has(store: Store) -> None:
    await store.write(say, [("fast", "the fast index of the query"), ("slow", "a slower query")])
    assert (await page(store, "which index made the query faster")).suggestion == "which index made the query fast"
    assert (await page(store, "slowwer query")).suggestion == "slower query"


async def test_a_path_filter_matches_the_result_of_a_call_that_named_the_file(store: Store) -> None:
    told = [
        ("ask", "look at the schema of the login"),
        ("call", "read src/auth.py", "assistant"),
        ("result", "class LoginSchema(Struct):\n    name: str", "tool"),
        ("said", "LoginSchema has one field", "assistant"),
        ("other-call", "read src/page.py", "assistant"),
        ("other", "LoginSchema().name", "tool"),
    ]
    await store.write(say, told)
    await store.write(search_index.put, kind="message", doc_id="call", resource_id="/w", created_at=1, thread_id="t1",
                      position=1, role="assistant", text="read", paths=["src/auth.py"])  # fmt: skip
    for name in ("file:src/auth.py", "path:src/a*.py", "path:AUTH.py"):
        assert await ids(store, f"{name} LoginSchema") == ["result"]
    assert set(await ids(store, "-file:src/auth.py LoginSchema")) == {"ask", "said", "other"}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("apple NOT role:tool", {"mine", "yours"}),
        ("apple -role:tool -role:user", {"yours"}),
        ("NOT kind:message", set()),
        ("apple AND role:you", {"mine"}),
        ("an AND role:user AND apple", {"mine"}),
        ("role:tools OR apple", {"printed"}),
        ("(role:tool OR role:you) apple", {"printed", "mine"}),
        ("apple AND (role:tool OR role:assistant)", {"printed", "yours"}),
        ("role:user,assistant apple", {"mine", "yours"}),
        ("(role:user) apple", {"mine"}),
        ("(apple -role:tool) AND src", {"mine"}),
        ("apple AND(src)", {"mine"}),
        ("apple -thread:t1 thread:nowhere", set()),
        ("kind:task OR kind:observation", set()),
        ("kind:message -path:src/a.py apple", {"yours", "printed"}),
        ("apple path:'src/a.py',", {"mine"}),
        ("apple path:src/a.py:10:2", {"mine"}),
        ("-before:1970-01-02", set()),
        ("apple -after:1970-01-02", {"mine", "yours", "printed"}),
        ("apple -thread:t1", set()),
        ("apple thread:nowhere", {"mine", "yours", "printed"}),
    ],
)
async def test_filters_that_leave_out(store: Store, typed: str, found: set[str]) -> None:
    told = [("mine", "an apple in src/a.py"), ("yours", "apple", "assistant"), ("printed", "an apple", "tool")]
    await store.write(say, told)
    assert set(await ids(store, typed)) == found
    told_of = ["no thread “nowhere”: searched for as words"] if "nowhere" in typed else []
    assert (await page(store, typed)).notes == told_of


async def test_a_query_that_macos_decomposed(store: Store) -> None:
    await store.write(say, [("a", "서버 시작"), ("b", "naïve solution"), ("c", "a solution")])
    for typed, wanted in (("서버", {"a"}), ("solution -naïve", {"c"}), ("서버 OR naïve", {"a", "b"})):
        assert set(await ids(store, unicodedata.normalize("NFD", typed))) == wanted


def test_values_of_filters_may_be_in_any_case() -> None:
    assert parse_query("kind:Tasks flaky").kind == "task" and parse_query("KIND:MESSAGE").kind == "message"
    assert parse_query("after:Today x") == parse_query("after:today x") and parse_query("before:7D").until is not None


async def test_what_is_excluded_hides_nothing_behind_it(store: Store) -> None:
    long = "a panic of the pump, " + "with many other words " * 40
    await store.write(say, [("meant", long), *((f"n{n}", "panic panic stacktrace xx", "tool") for n in range(400))])
    found = await page(store, "panic -stacktrace")
    assert [h.id for h in found.hits] == ["meant"] and found.notes == ["without texts that have “stacktrace”"]


async def test_a_quote_in_a_sentence_that_no_text_has_is_looked_for_by_its_words(store: Store) -> None:
    others = [(f"o{n}", f"to revert case {n} is easy") for n in range(3)]
    await store.write(say, [("meant", "the missing parts of the window state"), *others])
    found = await page(store, 'revert "window: implement missing parts"')
    assert found.hits[0].id == "meant"
    assert found.notes == ["no text has “window: implement missing parts”: searched for its words"]
    assert (await page(store, 'revert "missing parts"')).notes == [], "a text has it"
    assert (await page(store, '"parts missing"')).unquoted == (), "nothing else was asked for"


def test_single_letters_of_a_name_are_not_looked_up() -> None:
    assert list_words_and_joined("a11y isAWindow") == (["a11y", "11", "isawindow", "is", "window"], ["a11yisawindow"])


async def test_who_says_it_comes_before_who_is_spoken_of(store: Store) -> None:
    told = [
        ("of", "Ben: Ann went to the lake with a canoe"),
        ("by", "Ann: I went to the lake with a canoe"),
        ("beside", "Ben: nice! Ann, which lake?"),
    ]
    await store.write(say, told)
    hits = (await page(store, "which lake did Ann go to with a canoe")).hits
    assert hits[0].id == "by" and hits[0].parts.labelled > 0
    assert {h.id for h in hits if h.parts.labelled} == {"by"}


async def test_a_message_that_tells_before_it_asks_loses_less_than_a_question(store: Store) -> None:
    told = {
        "tells": "We took the canoe to the lake. It was cold.",
        "both": "We took the canoe to the lake. Was it cold?",
        "asks": "We took the canoe to the lake, was it cold?",
    }
    await store.write(say, list(told.items()))
    for query in ("who took the canoe to the lake", "where did the canoe go on the lake?"):
        lost = {h.id: h.parts.question for h in (await page(store, query)).hits}
        assert lost["tells"] == 0 < lost["both"] < lost["asks"]
    assert not any(h.parts.question for h in (await page(store, "canoe lake")).hits), "nothing is asked"


async def test_a_question_for_a_time_prefers_texts_that_say_one(store: Store) -> None:
    told = [("what", "the lake with a canoe is nice"), ("when", "the lake with a canoe, last week, was nice")]
    await store.write(say, told)
    assert (await ids(store, "when was the lake with a canoe"))[0] == "when"
    assert (await ids(store, "what of the lake with a canoe"))[0] == "what", "the shorter one"


@pytest.mark.parametrize(
    "asked", ["When did we", "since when is it", "how long does it", "on what date did", "which year"]
)
def test_questions_for_a_time(asked: str) -> None:
    assert asks_when(asked)
    assert not asks_when(f"tell me {asked}")


@pytest.mark.parametrize("said", ["whenever it is", "when pytest runs it fails", "the time is over", "yesterday"])
def test_what_asks_for_no_time(said: str) -> None:
    assert not asks_when(said)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("we went last week", True),
        ("at 14:30", True),
        ("in 2023", True),
        ("It takes two hours", True),
        ("it may be so", False),
        ("the second thing of 12", False),
    ],
)
def test_texts_that_say_when(text: str, says: bool) -> None:
    assert says_when(text) is says


async def test_a_slip_in_a_part_of_a_path_is_corrected(store: Store) -> None:
    paths = [f"/opt/tools/night-chat-{n}/main" for n in range(3)]
    await store.write(say, [("meant", "installed in /opt/tools/aider-chat/lib"), *((p, f"see {p}") for p in paths)])
    found = await page(store, "aier-chat")
    assert found.hits[0].id == "meant" and found.suggestion == "aider-chat"


async def test_a_path_is_found_in_texts_too(store: Store) -> None:
    await store.write(say, [("said", "look at src/auth/session.ts first"), ("other", "look at the session")])
    assert await ids(store, "path:src/auth") == ["said"]
    assert await ids(store, "path:src/*.ts") == ["said"]


async def test_nothing_here_says_how_much_is_elsewhere(store: Store) -> None:
    await store.write(say, [("a", "the gyroscope"), ("b", "a gyroscope again")], resource="/other")
    found = await page(store, "gyroscope")
    assert (found.total, found.elsewhere, found.notes) == (0, 2, ["2 in other workspaces"])
    many = [(f"m{n}", f"the impeller of pump {n}") for n in range(retrieve.CANDIDATES + 1)]
    await store.write(say, many, resource="/other", thread="t2")
    found = await page(store, "impeller")
    assert found.notes == [f"{found.elsewhere}+ in other workspaces"] and found.elsewhere >= retrieve.CANDIDATES


async def test_a_message_before_a_match_is_no_answer(store: Store) -> None:
    told = [("other", "a cake with nuts"), ("before", "a holiday plan"), ("match", "the zirconium flange torque is 9")]
    await store.write(say, told)
    reasons = {h.id: h.reason for h in (await page(store, "what zirconium flange torque")).hits}
    assert reasons["before"] == "next to a match" and reasons["match"] == ""


async def test_a_day_in_a_question_comes_before_the_days_after(store: Store) -> None:
    day = 24 * 3_600_000
    start = 1_746_000_000_000  # 2025-04-30
    await store.write(say, [("x", "elsewhere")], thread="t2")
    for n in range(12):
        await store.write(say, [(f"d{n}", "a note on the deploys")], thread=f"n{n}", first=start + n * day)
    assert await ids(store, "what was the note on the deploys on 3rd of May 2025") != []
    assert (await ids(store, "what was the note on the deploys on 3rd of May 2025"))[0] == "d3"


async def test_a_time_that_no_clock_knows_ends_no_search(store: Store) -> None:
    await store.write(say, [("a", "the needle of march")], first=10**17)
    assert await ids(store, "what happened in march to the needle") == ["a"]


async def test_equal_hits_have_one_order(store: Store) -> None:
    for n in range(8):
        await store.write(say, [(f"q{n}", f"which gimbal is {n}?"), (f"a{n}", "this one")], thread=f"t{n}")
    whole = await ids(store, "which gimbal is it now")
    parts = [
        h.id for at in range(0, 16, 4) for h in (await page(store, "which gimbal is it now", limit=4, offset=at)).hits
    ]
    assert parts == whole and len(set(whole)) == len(whole) == 9, "copies of the answer are one"


async def test_a_scope_has_a_beginning(store: Store) -> None:
    await store.write(say, [("old", "a heron")], first=1_000)
    await store.write(say, [("new", "the heron")], thread="t2", first=2_000)
    assert [h.id for h in (await page(store, "heron", Scope("/w", since=1_500))).hits] == ["new"]


async def test_a_month_in_a_question_prefers_that_time(store: Store) -> None:
    may, june = 1_683_600_000_000, 1_686_600_000_000  # 2023
    await store.write(say, [("june", "we went camping by the lake")], thread="t2", first=june)
    await store.write(say, [("may", "we went camping near the lake")], first=may)
    assert (await ids(store, "where did we go camping in May 2023"))[0] == "may"
    assert (await ids(store, "where did we go camping in June"))[0] == "june", "without a year: the last one"


@pytest.mark.parametrize(
    ("question", "first", "end"),
    [
        ("what broke on 3 Sept 2025", "2025-09-03", "2025-09-04"),
        ("what broke on September 3rd", "2025-09-03", "2025-09-04"),
        ("what broke in Sept", "2025-09-01", "2025-10-01"),
        ("what broke in 2024", "2024-01-01", "2025-01-01"),
        ("what broke in December", "2024-12-01", "2025-01-01"),
    ],
)
def test_a_question_names_a_time(question: str, first: str, end: str) -> None:
    newest = int(datetime.datetime(2025, 11, 24).timestamp() * 1000)
    ((start, stop),) = find_named_times(question, newest)
    days = [datetime.date.fromtimestamp(at / 1000).isoformat() for at in (start, stop)]
    assert days == [first, end] and names_time(question)


async def test_what_tools_print_again_folds_into_one_row(store: Store) -> None:
    printed = [(f"p{i}", f"12:0{i}:00 pytest: {i + 3} passed in {i}.2s", "tool") for i in range(4)]
    await store.write(say, [*printed, ("mine", "pytest 3 passed"), ("mine too", "pytest 4 passed")])
    found = {h.id: h.copies for h in (await page(store, "pytest passed")).hits}
    assert sorted(found.values()) == [0, 0, 3] and {"mine", "mine too"} < found.keys()


async def test_copies_beyond_those_that_are_measured_fold_too(store: Store) -> None:
    equal = [(f"e{n}", "the pump is stuck") for n in range(250)]
    printed = [(f"p{n}", f"12:00:{n} pump {n} is stuck", "tool") for n in range(40)]
    await store.write(say, [*equal, ("other", "a pump that was stuck"), *printed])
    found = await page(store, "pump stuck")
    assert sorted(h.copies for h in found.hits) == [0, 39, 249] and found.total == 3


@pytest.mark.parametrize(("typed", "text", "meant"), [
    ("faster", "a fast index for orders", "fast"),
    ("configuraiton", "the configuration of the queue", "configuration"),
    ("retreis", "it retries three times", "retries"),
])  # fmt: skip
async def test_a_suggestion_is_a_word_of_some_text(store: Store, typed: str, text: str, meant: str) -> None:
    await store.write(say, [("a", text), ("b", "the lake is nice")])
    assert (await page(store, f"{typed} index order")).suggestion in ("", f"{meant} index order")


async def test_a_word_in_another_form_says_which(store: Store) -> None:
    await store.write(say, [("a", "we were testing the queue")])
    (hit,) = (await page(store, "tested")).hits
    assert hit.reason == "same stem: testing" and hit.snippet[slice(*hit.marks[0])] == "testing"


async def test_code_that_says_the_same_in_its_own_words_comes_first(store: Store) -> None:
    told = [
        ("other", "def report(file):\n    return [line.strip() for line in file if line]"),
        ("meant", "def tidy(file):\n    os.unlink(file.name); return [line for line in file]"),
        ("said", "do not delete anything"),
    ]
    await store.write(say, told, first=1)
    await store.write(say, [("talk", "we should unlink the old docs")], thread="t2")
    hits = (await page(store, "delete the file by line")).hits
    found = [h.id for h in hits]
    assert found.index("meant") < found.index("other")
    assert "talk" not in found, "nothing is found by such a word"


async def test_the_score_is_the_sum_of_its_parts(store: Store) -> None:
    await store.write(say, [("a", "the retry policy of the upload"), ("b", "upload"), ("c", "a policy")])
    hits = (await page(store, "retry policy upload")).hits
    best = hits[0].parts
    total = best.words + best.adjacent + best.near + best.neighbours + best.thread + best.dated - best.question
    assert hits[0].id == "a" and best.adjacent > 0 and best.near > 0
    assert hits[0].score == 1.0 and total > hits[1].parts.words


# --- the budget ---------------------------------------------------------------------------------------------


def ticking(step: float) -> Callable[[], float]:
    """Return a clock on which each look takes `step` seconds."""
    seconds = itertools.count(0.0, step)
    return lambda: next(seconds)


async def test_within_its_time_a_query_reads_the_newest_and_says_what_it_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [("rare", "lorem ipsum with a sesquipedalian"), *((f"n{i}", f"lorem ipsum dolor {i}") for i in range(60))]
    await store.write(say, told)
    for bound in ("AT_ONCE", "RANKED", "SLICE"):
        monkeypatch.setattr(retrieve, bound, 20)
    whole = await page(store, "lorem sesquipedalian", clock=ticking(0.0))
    assert whole.unread == () and whole.total == 61 and whole.hits[0].id == "rare"
    short = await page(store, "lorem sesquipedalian", clock=ticking(1.0))
    assert short.unread and short.total == 21, "the newest of the common word, and all of the rare one"
    assert short.hits[0].id == "rare", "a common word still counts where a rare one stands"
    assert short.unread[0][0] == "lorem" and short.notes[0].startswith("lorem: only texts since 1970")


async def test_common_words_count_where_rare_ones_stand(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [f"a rarity {'lorem' if n == 3 else 'dolor'} sit amet" for n in range(9)]
    await store.write(say, [(f"n{i}", text) for i, text in enumerate([*told, *["lorem ipsum"] * 25, *["dolor"] * 60])])
    for bound, value in (("AT_ONCE", 20), ("RANKED", 20), ("ENOUGH", 1), ("MEASURED", 2)):
        monkeypatch.setattr(retrieve, bound, value)
    found = await page(store, "what is a lorem rarity", clock=ticking(0.0))
    assert found.hits[0].id == "n3", "only the two likeliest are measured, and both words make it one"


async def test_a_first_page_leaves_parts_of_words_for_later_when_time_is_short(store: Store) -> None:
    await store.write(say, [("p0", "parse_rows is slow"), ("p1", "reparse_rowset too")])
    first = await page(store, "parse_rows", first=True, clock=ticking(1.0))
    assert first.partial and [h.id for h in first.hits] == ["p0"]
    found = await page(store, "parse_rows", clock=ticking(1.0))
    assert not found.partial and {h.id for h in found.hits} == {"p0", "p1"}
    nothing = await page(store, "arse_ro", first=True, clock=ticking(1.0))
    assert {h.id for h in nothing.hits} == {"p0", "p1"}, "no words: parts of words are looked for at once"


@pytest.mark.parametrize(
    "typed", ["what happened ſep 2023", "what of ſept 5", "kınd:message", "kİnd:message", "taſk:x", "kınd:a OR kınd:b"]
)
async def test_letters_that_look_alike_are_text(store: Store, typed: str) -> None:
    await store.write(say, [("a", "what happened then")])
    assert (await page(store, typed)).total <= 1


async def test_of_many_equals_the_newest_are_listed(store: Store) -> None:
    many = retrieve.CANDIDATES + 50
    await store.write(say, [(f"m{n}", f"deploy case x{n}y") for n in range(many)])
    for typed in ("deploy case", '"deploy case"', "deploy AND case", "dep*"):
        assert {f"m{n}" for n in range(100, many)} <= set(await ids(store, typed, limit=400)), typed


async def test_signs_without_letters_join_words_by_operators(store: Store) -> None:
    many = [(f"m{n}", f"build number n{n}" + (" ✅" if n % 10 == 0 else "")) for n in range(300)]
    await store.write(say, [*many, ("rocket", "🚀 is up")])
    with_sign = {f"m{n}" for n in range(0, 300, 10)}
    for typed in ("build AND ✅", "✅ AND build AND number"):
        found = await page(store, typed, limit=100)
        assert {h.id for h in found.hits} == with_sign and not found.more, typed
    assert with_sign <= set(await ids(store, "build ✅", limit=300))
    for typed in ("build OR 🚀", "🚀 OR build", "build 🚀"):
        assert "rocket" in await ids(store, typed, limit=400), typed


@pytest.mark.parametrize(
    "typed",
    ["самолет AND летит", "самолет OR zzz", '"самолет летит"', "самоле*", "συναρτηση AND λαθος", '"συνάρτηση" λαθος'],
)
async def test_accents_do_not_matter_to_operators(store: Store, typed: str) -> None:
    await store.write(say, [("plane", "самолёт летит высоко"), ("greek", "η συνάρτηση έχει λάθος")])
    assert (await page(store, typed)).total == 1


async def test_long_copies_fold_whatever_stands_before_them(store: Store) -> None:
    long = " ".join(f"zorba w{n}" for n in range(200))
    told = [(f"{n}", "hello " * n + "there" if n % 2 else long, "user" if n % 2 else "tool") for n in range(8)]
    await store.write(say, told)
    found = [h for h in (await page(store, "zorba")).hits if h.role == "tool"]
    assert [h.copies for h in found] == [3]


async def test_a_filter_alone_lists_more_than_a_search(store: Store) -> None:
    await store.write(say, [(f"m{n}", f"text x{n}y") for n in range(retrieve.CANDIDATES + 50)])
    found = await page(store, "role:user", limit=300)
    assert found.total == retrieve.CANDIDATES + 50 and not found.more
