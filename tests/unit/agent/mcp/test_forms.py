"""Forms of servers: what is asked, which answers fit, and that only wrong ones are asked for again."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest

from sakti.agent.mcp import elicitation
from sakti.core.events import ApprovalAnswer, ApprovalRequested, CardAnswer, CardQuestion, FreeQuestion

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "In full", "minLength": 2, "maxLength": 9},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "when": {"type": "string", "format": "date-time"},
        "page": {"type": "string", "format": "uri"},
        "n": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
        "x": {"type": "number"},
        "ok": {"type": "boolean", "default": True},
        "colour": {"type": "string", "enum": ["red", "green"], "enumNames": ["Rot", "Grün"]},
        "one": {"type": "string", "oneOf": [{"const": "a", "title": "Ay"}, {"const": "b", "title": "Bee"}]},
        "many": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["p", "q", "r"]}},
        "long": {"type": "string", "enum": [f"v{n}" for n in range(9)]},
    },
    "required": ["name", "n", "many", "one"],
}
FIELDS = {field.name: field for field in elicitation.read_fields(FORM)}


def test_a_question_shows_title_description_limits_and_ways_out() -> None:
    name, n, ok, colour = (elicitation.make_question("s asks: x", FIELDS[f]) for f in ("name", "n", "ok", "colour"))
    assert isinstance(name, FreeQuestion) and name.options == ()
    assert name.question.split("\n") == [
        "s asks: x",
        "Your name (required)",
        "In full · at least 2 characters; at most 9 characters",
    ]
    assert isinstance(n, FreeQuestion) and n.default == "3"
    assert n.question.endswith("a whole number; default: 3; at least 1; at most 5")
    assert [o.label for o in ok.options] == ["Yes", "No", elicitation.LEAVE_OUT]
    assert [o.label for o in colour.options] == ["Rot", "Grün", elicitation.LEAVE_OUT]
    assert [o.label for o in elicitation.make_question("s", FIELDS["one"]).options] == ["Ay", "Bee"]
    long = elicitation.make_question("s", FIELDS["long"])
    assert isinstance(long, FreeQuestion) and "one of: v0, v1" in long.question


@pytest.mark.parametrize(
    ("name", "answer", "wanted"),
    [
        ("name", "Ann", "Ann"),
        ("name", "A", "too short"),
        ("name", "", "required"),
        ("mail", "", None),
        ("mail", "notamail", "format email"),
        ("mail", "ann@example.org", "ann@example.org"),
        ("day", "2026-02-30", "format date"),
        ("when", "2026-02-20T10:00:00", "format date-time"),
        ("when", "2026-02-20T10:00:00Z", "2026-02-20T10:00:00Z"),
        ("page", "no page", "format uri"),
        ("n", "99", "maximum of 5"),
        ("n", "4.5", "not a whole number"),
        ("n", "4", 4),
        ("x", "nan", "not a number"),
        ("x", "1.5", 1.5),
        ("ok", ("No",), False),
        ("ok", (elicitation.LEAVE_OUT,), None),
        ("colour", ("Grün",), "green"),
        ("colour", "rot", "red"),
        ("colour", "blue", "not one of: Rot, Grün"),
        ("one", ("Bee",), "b"),
        ("many", ("p", "r"), ["p", "r"]),
        ("many", ("p", "q", "r"), "too long"),
        ("long", "v7", "v7"),
    ],
)
def test_answers_become_values_of_the_schema_or_say_what_is_wrong(name: str, answer: Any, wanted: Any) -> None:
    reply = CardAnswer(name, text=answer) if isinstance(answer, str) else CardAnswer(name, answer)
    try:
        value = elicitation.read_answer(FIELDS[name], reply)
    except elicitation.WrongAnswer as e:
        assert wanted in str(e) and str(e).endswith(".")
    else:
        assert value == wanted and type(value) is type(wanted)


class Answering:
    """A user who gives these answers by the names of fields, each once."""

    interactive = True

    def __init__(self, answers: dict[str, Sequence[str]]) -> None:
        self.answers = {name: list(texts) for name, texts in answers.items()}
        self.cards: list[tuple[CardQuestion, ...]] = []

    async def ask(self, request: ApprovalRequested, decision: Any, decide: Any) -> tuple[ApprovalAnswer, Any]:
        self.cards.append(request.questions)
        answers = tuple(CardAnswer(q.header, text=self.answers[q.header].pop(0)) for q in request.questions)
        return ApprovalAnswer(True, answers=answers), decision


async def elicit(schema: dict[str, Any], user: Answering, url: str = "") -> tuple[types.ElicitResult, list[str]]:
    notices: list[str] = []
    place = SimpleNamespace(new_id=lambda: "q", emit=lambda notice: notices.append(notice.message))
    params: types.ElicitRequestParams = types.ElicitRequestFormParams(message="Fill it", requested_schema=schema)
    if url:
        params = types.ElicitRequestURLParams(message="Open it", url=url, elicitation_id="1")
    server = SimpleNamespace(name="srv")
    return await elicitation.elicit(cast("Any", place), cast("Any", user), cast("Any", server), params), notices


async def test_only_wrong_answers_are_asked_for_again() -> None:
    schema = {"properties": {n: FORM["properties"][n] for n in ("name", "mail", "n")}, "required": ["name", "n"]}
    user = Answering({"name": ["Ann"], "mail": ["notamail", ""], "n": ["99", "5"]})
    result, notices = await elicit(schema, user)
    assert (result.action, result.content, notices) == ("accept", {"name": "Ann", "n": 5}, [])
    assert [[q.header for q in card] for card in user.cards] == [["name", "mail", "n"], ["mail", "n"]]
    assert user.cards[1][1].question.startswith("99 is greater than the maximum of 5.\nsrv asks: Fill it")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {"o": {"type": "object"}}, "required": ["o"]}, "o is of the type object"),
        ({"properties": {f"f{n}": {"type": "string"} for n in range(30)}}, "more than 20 fields"),
    ],
)
async def test_a_form_that_cannot_be_shown_is_declined_with_a_notice(schema: dict[str, Any], why: str) -> None:
    result, notices = await elicit(schema, Answering({}))
    assert result.action == "decline" and why in notices[0]


async def test_a_form_without_fields_is_confirmed_by_the_user() -> None:
    result, _ = await elicit({"properties": {}}, Answering({"mcp": [""]}))
    assert result.action == "decline"


async def test_the_address_that_opens_is_the_one_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(elicitation.webbrowser, "open", opened.append)
    long = f"https://example.org/login?state={'a' * 1_500}"
    user = Answering({"mcp": [""]})
    monkeypatch.setattr(user, "ask", choose_first(user.cards))
    result, notices = await elicit({}, user, long)
    assert result.action == "accept" and opened == [long] and not notices
    assert user.cards[0][0].question.endswith(f"\n{long}")
    for url in (f"{long}{'a' * 4_000}", "https://example.org/\nhttps://other.example"):
        result, notices = await elicit({}, user, url)
        assert result.action == "decline" and "cannot be shown" in notices[0]
    assert opened == [long]


def choose_first(cards: list[tuple[CardQuestion, ...]]) -> Any:
    async def ask(request: ApprovalRequested, decision: Any, decide: Any) -> tuple[ApprovalAnswer, Any]:
        cards.append(request.questions)
        first = request.questions[0]
        return ApprovalAnswer(True, answers=(CardAnswer(first.header, (first.options[0].label,)),)), decision

    return ask
