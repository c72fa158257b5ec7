"""Questions on a project: what is looked up before a small model answers, and what of its answer stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.core.types import Block, TextPart, ToolCallPart, ToolResultPart
from sakti.providers.local import actions, policy, project
from sakti.providers.local.process import ModelProcess
from sakti.providers.local.provider import LocalProvider, list_prefixes, render
from sakti.providers.protocol import TextChunk
from tests.fakes.requests import READ, message, play, request
from tests.unit.providers.test_local import FAKE

KNOWN = "The project:\n\nREADME.md\ncart/pricing.py\ncart/shipping/costs.py\ntests/test_pricing.py\n\nIt starts in: x"
TOOLS = tuple(replace(READ, name=n) for n in ("read", "edit", "bash", "grep"))


def after(text, *more):
    return policy.choose_actions((message("user", text), *more), actions.offer_tools(TOOLS), KNOWN)


def looked(name, arguments, content, *, error=False):
    call = ToolCallPart(f"c-{name}", name, arguments)
    return message("assistant", call), message("tool", ToolResultPart(call.id, name, content, is_error=error))


@pytest.mark.parametrize(
    "asked",
    [
        "What does this project do, and where does it start?",
        "what is this?",
        "Which dependencies does it have?",
        "How are the tests run?",
        "How do I run the tests?",
        "What is the entry point?",
        "Where does it start?",
        "How is it built?",
    ],
)
def test_the_project_as_such_is_answered_from_what_is_known_of_it(asked):
    allowed = after(asked)
    assert (allowed.actions, allowed.answer, allowed.grounded, allowed.call, allowed.text) == ((), True, True, None, "")
    assert not policy.choose_actions((message("user", asked),), actions.offer_tools(TOOLS)).grounded, "nothing is known"


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ("Where is TAX_RATE set?", r"\bTAX_RATE\b"),
        ("Where is the Cart class defined?", r"\bCart\b"),
        ("where's `load_order()`?", r"\bload_order\b"),
        ("Where are the discounts defined?", r"(?i)(?:\b|_)(?:discount)"),
        ("Where does this project keep its notes?", r"(?i)(?:\b|_)(?:keep|note)"),
        ("What does the function discount do?", r"\bdiscount\b"),
        ("Explain purge_expired", r"\bpurge_expired\b"),
        ("Is there a function refund?", r"\brefund\b"),
        ("Is there a Dockerfile?", r"(?i)(?:\b|_)(?:dockerfile)"),
        ("Where is shop.py?", r"\bshop\.py\b"),
        ("How large are the shipping costs?", r"(?i)(?:\b|_)(?:cost)"),
    ],
)
def test_what_has_a_name_is_searched_for_first(asked, pattern):
    allowed = after(asked)
    assert allowed.call == ("grep", {"pattern": pattern}) and not allowed.answer


@pytest.mark.parametrize(
    "asked",
    [
        "What is a decorator?",
        "How do I undo a commit?",
        "What is the price of the costliest stamp?",
        "Where do I add a route?",
        "hello",
        "fix add() in a.py",
        "Why?",
    ],
)
def test_other_things_are_not(asked):
    allowed = after(asked)
    assert allowed.call is None and not allowed.text


HITS = (
    "tests/test_pricing.py:3:    assert discount(cart) == 1\n"
    "cart/pricing.py:9:def discount(cart: Cart) -> int:\n"
    "cart/pricing.py:20:    return total - discount(cart)"
)


def test_where_something_is_comes_from_the_search():
    asked = "Where is the function discount defined?"
    found = looked("grep", after(asked).call[1], HITS)
    assert after(asked, *found).text == (
        "`discount` is defined in `cart/pricing.py`, line 9: `def discount(cart: Cart) -> int:`"
    )
    vague = "Where are the discounts defined?"
    text = after(vague, *looked("grep", after(vague).call[1], HITS)).text
    assert "`cart/pricing.py`, line 9" in text and "test_pricing" not in text


def test_what_is_nowhere_is_said_to_be_missing():
    for asked, said in [
        ("Where is the class Invoice defined?", "There is no `Invoice` in this project"),
        ("What does apply_coupon() do?", "There is no `apply_coupon` in this project"),
        ("Where are the invoices made?", 'for "invoice" found nothing'),
    ]:
        text = after(asked, *looked("grep", after(asked).call[1], "No match.")).text
        assert said in text, asked
    common = "How does JavaScript work?"
    allowed = after(common, *looked("grep", after(common).call[1], "No match."))
    assert allowed.answer and not allowed.text and not allowed.grounded, "everybody knows it"


def test_a_file_is_found_by_its_name():
    asked = "Where are the shipping costs?"
    assert "- `cart/shipping/costs.py`" in after(asked, *looked("grep", after(asked).call[1], "No match.")).text
    assert after("What does costs.py do?").call == ("read", {"path": "cart/shipping/costs.py"})
    (read,) = after("What do costs.py and pricing.py do?").actions
    assert read.required["path"]["enum"] == ["cart/shipping/costs.py", "cart/pricing.py"]
    absent = looked("read", {"path": "mail.py"}, "There is no mail.py.", error=True)
    assert after("What does mail.py do?", *absent).text == "`mail.py` could not be read: There is no mail.py."


def test_what_a_function_does_is_read_where_it_is_defined():
    asked = "What does the function discount do?"
    found = looked("grep", after(asked).call[1], HITS)
    assert after(asked, *found).call == ("read", {"path": "cart/pricing.py", "offset": 6, "limit": 40})
    read = looked("read", {"path": "cart/pricing.py"}, "9\tdef discount(cart):")
    allowed = after(asked, *found, *read)
    assert (allowed.actions, allowed.answer, allowed.grounded) == ((), True, True)


def test_a_search_that_fails_proves_nothing():
    asked = "Where is the class Invoice defined?"
    allowed = after(asked, *looked("grep", after(asked).call[1], "rg: broken", error=True))
    assert not allowed.text and allowed.call is None


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("It is in cart/pricing.py. It adds tax.", "It is in cart/pricing.py. It adds tax."),
        ("It is in `shop.py`. It adds tax.", "It adds tax."),
        ("It starts in src/main.py", project.NOT_IN_FILES),
        ("It runs on Node.js, see pricing.py.", "It runs on Node.js, see pricing.py."),
        ("Files:\n- cart/pricing.py\n- cart/invented.py\n", "Files:\n- cart/pricing.py\n"),
        ("It uses the `argparse` module. It prices `carts`. Run `pytest tests`.", "Run `pytest tests`."),
        ("Run `cd src && make`. Run `make`.", "Run `make`."),
        ("It takes 1024 bytes. It takes 5.", "It takes 5."),
        ("11. It is in cart/pricing.py.", "11. It is in cart/pricing.py."),
        ("It calculates the prices. It sells. It calculates the prices.", "It calculates the prices. It sells. "),
        ("", project.NOT_IN_FILES),
    ],
)
def test_a_sentence_with_what_nobody_has_seen_does_not_stand(text, stands):
    for size in (1, 3, 1000):
        guard = project.GroundingFilter(KNOWN)
        pieces = [guard.feed(text[i : i + size]) for i in range(0, len(text), size)]
        assert "".join([*pieces, guard.end()]) == stands


def test_what_is_cut_is_left_out_and_an_answer_that_goes_astray_ends():
    guard = project.GroundingFilter(KNOWN)
    assert guard.feed("It sells. It starts in car") == "It sells. " and guard.end(cut=True) == ""
    guard = project.GroundingFilter(KNOWN)
    invented = "It uses `os`. It uses `sys`. It uses `re`. "
    assert not guard.feed(invented) and not guard.is_repeating, "nothing was said yet"
    assert guard.feed("It sells. " + invented) == "It sells. " and guard.is_repeating


@given(st.text("ab. \n!", max_size=30), st.integers(1, 5))
def test_nothing_else_is_lost(text, size):
    guard = project.GroundingFilter("")
    said = "".join([*(guard.feed(text[i : i + size]) for i in range(0, len(text), size)), guard.end()])
    assert said == (text if text.strip() else text.rstrip(" \n") + project.NOT_IN_FILES) or not text.strip()


def asked(text, *more):
    system = (
        Block("system", "Long."),
        Block("project", KNOWN),
        Block("observations", "Notes."),
        Block("carry_over", "Old."),
    )
    return request(message("user", text), *more, tools=TOOLS, system=system)


def test_the_project_stands_behind_the_rules_and_before_what_changes():
    content = render(asked("What is this?"))["messages"][0]["content"]
    rules, both = list_prefixes(asked("anything"))
    assert both.startswith(rules) and content.startswith(both) and content.endswith("Notes.") and "Long." not in content
    assert content.count("It starts in: x") == 1
    assert "area" not in rules and "shapes" not in rules
    assert list_prefixes(request()) == []
    assert render(asked("Rename it."))["messages"][0]["content"].endswith("Notes.\n\nOld."), (
        "no question on the project"
    )


async def test_the_model_is_not_asked_where_there_is_nothing_to_choose(tmp_path):
    provider = LocalProvider(worker=ModelProcess(tmp_path / "none", 8192, ("/nonexistent",)))
    _, done = await play(provider, asked("Where is the class Invoice defined?"))
    (call,) = done.parts
    assert (call.name, call.arguments, done.stop_reason) == ("grep", {"pattern": r"\bInvoice\b"}, "tool_use")
    nothing = (message("assistant", call), message("tool", ToolResultPart(call.id, "grep", "No match.")))
    events, done = await play(provider, asked("Where is the class Invoice defined?", *nothing))
    assert done.parts == (TextPart("There is no `Invoice` in this project: a search of all its files found nothing."),)
    assert [e.text for e in events] == [done.parts[0].text]


async def test_an_answer_of_the_model_is_held_to_what_it_was_told(tmp_path):
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE.replace("text.upper()}", "'It sells. It is in shop.py. It starts in cart/pricing.py.'}"))
    worker = ModelProcess(tmp_path / "m.gguf", 8192, (__import__("sys").executable, str(script)))
    provider = LocalProvider(worker=worker)
    try:
        events, done = await play(provider, asked("What does this project do?"))
        assert done.parts == (TextPart("It sells. It starts in cart/pricing.py."),)
        assert "".join(e.text for e in events if isinstance(e, TextChunk)) == done.parts[0].text
    finally:
        await provider.close()
        await worker.stop()


async def test_an_answer_that_goes_astray_ends_there(tmp_path):
    said = "'It sells. ' + 'It uses `os`. It uses `sys`. It uses `re`. ' * 9 + 'It starts in cart/pricing.py.'"
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE.replace("text.upper()}", said + "}"))
    worker = ModelProcess(tmp_path / "m.gguf", 8192, (__import__("sys").executable, str(script)))
    provider = LocalProvider(worker=worker)
    try:
        _, done = await play(provider, asked("What does this project do?"))
        assert (done.parts, done.stop_reason) == ((TextPart("It sells. "),), "end")
    finally:
        await provider.close()
        await worker.stop()


def test_the_worked_example_names_nothing_that_could_pass_for_an_answer():
    text = (Path(project.__file__).parents[3] / "prompts" / "local.md").read_text("utf-8")
    assert "foo" in text and "made up" in text
