"""Generate small data sets in both formats from a seed, and labelled pairs that measure a judge. Pure.

People talk of their lives over many sessions; some of what they say is asked for later. The questions of each type ask
as those of the real sets do: in other words than the evidence, with pieces of evidence in several sessions, about
values that changed, about times, and about things that nobody said.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from msgspec import Struct

from sakti.core.types import Json
from tests.bench.longmemeval.formats import Format

SAMPLE_SEEDS = (11, 12, 13, 14)  # conversations of the tables that the README shows
SESSIONS, TURNS = 12, 14  # of a small conversation; below: of one that does not fit into the windows
TALK_SESSIONS, LONG_QUESTIONS = 60, 28
PAIRS = 100
_START = datetime.datetime(2025, 3, 1, 9, 0)
_PLACES = ("Lisbon", "Oslo", "Kyoto", "Tartu", "Quito", "Dublin", "Izmir", "Turin", "Bergen", "Ghent")
_PETS = ("a tortoise", "two budgies", "a greyhound", "a ginger cat", "a lop-eared rabbit")
_NAMES = ("Pepper", "Olive", "Biscuit", "Hugo", "Mochi", "Juno", "Basil")
_HOBBIES = ("pottery", "fencing", "birdwatching", "woodcarving", "sailing", "calligraphy", "beekeeping")
_FOODS = ("lentil soup", "dumplings", "walnut bread", "saffron rice", "plum cake", "grilled aubergine")
_JOBS = ("a bakery", "a museum shop", "a print studio", "a plant nursery", "a bicycle workshop")
_BOOKS = ("The Salt Road", "Nine Lanterns", "A Map of Rain", "The Quiet Orchard")
_PEOPLE = (("Nora", "Felix"), ("Imani", "Tom"), ("Leila", "Anton"), ("Greta", "Sunil"), ("Maeve", "Ruben"))
_SMALL = (
    "That sounds lovely!", "Wow, how did it go?", "I know what you mean.", "Thanks, that is kind of you.",
    "Busy week over here, but nothing special.", "Ha, typical!", "Tell me more about it.", "We should meet soon.",
    "The weather was dreadful all weekend.", "I slept badly, so excuse my typos.", "Good luck with that!",
    "Did you watch the match yesterday?", "My train was late again this morning.", "I had to laugh when I read that.",
    "Work is work, the usual meetings and mails.", "Let me think about it until Sunday.",
)  # fmt: skip
_COURSES = (
    "I went to {place} for a course in {hobby}.",
    "Back from {place}! Five days of {hobby} and my hands hurt.",
    "The {hobby} teacher in {place} was strict, but I learned a lot.",
    "I signed up for another week of {hobby}, this time it is in {place}.",
    "{place} was worth the trip, they explained everything about {hobby} from the start.",
)
# Talk of the same things that answers nothing.
_NEAR = (
    "I read a long piece on {place} in the paper, the photos made me want to travel again.",
    "There was {food} at the office party and nobody touched it.",
    "My cousin started {hobby} last year and gave it up after a month.",
    "Somebody at work comes from {place} and keeps telling us about the harbour there.",
    "The shop next door to us used to be {job}, it has been empty for ages.",
    "Do you still do {hobby}, or was that somebody else?",
    "They showed {pet} on television, the children could not stop laughing.",
    "My aunt has a friend called {name}, which always makes me smile.",
    "The course at the library was full before I could sign up for it.",
    "Seventeen people came to the barbecue and it rained from start to end.",
)
_MORE = (
    "It took longer than we had planned, but in the end everybody was happy with it.",
    "My sister helped me with the heavy part and stayed for dinner afterwards.",
    "I took far too many pictures and now my phone is full again.",
    "The neighbours came over to have a look and stayed for an hour.",
)


class SampleFact(Struct, frozen=True):
    """Statement of a speaker (0 or 1), and where it is said."""

    speaker: int
    text: str
    session: int


class SampleQuestion(Struct, frozen=True):
    """Question with its answer and the facts that answer it; `type` is LongMemEval's, `category` LoCoMo's.

    `outdated`: facts that no longer hold.
    """

    type: str
    category: int
    text: str
    answer: str
    facts: tuple[SampleFact, ...]
    outdated: tuple[SampleFact, ...] = ()

    @property
    def is_abstention(self) -> bool:
        return self.category == 5


class SampleTalk(Struct, frozen=True):
    """Conversation of two people: for each session its start and its lines (speaker, text, the fact in it)."""

    people: tuple[str, str]
    sessions: tuple[tuple[datetime.datetime, tuple[tuple[int, str, SampleFact | None], ...]], ...]
    questions: tuple[SampleQuestion, ...]


def generate(seed: int, questions: int = 20, sessions: int = SESSIONS) -> SampleTalk:
    """Generate the conversation of a seed, with questions of every type in turn."""
    source = random.Random(seed)
    people = source.choice(_PEOPLE)
    makers: Sequence[Callable[[random.Random, tuple[str, str]], SampleQuestion]] = (
        _single, _assistant, _several, _changed, _when, _preference, _never_said,
    )  # fmt: skip
    asked: list[SampleQuestion] = []
    number = 0
    while len(asked) < questions:
        question = makers[number % len(makers)](source, people)
        number += 1
        if all(question.text != other.text for other in asked):
            asked.append(question)
    return SampleTalk(people, tuple(_sessions(source, people, asked, sessions)), tuple(asked))


def _sessions(
    source: random.Random, people: tuple[str, str], asked: Sequence[SampleQuestion], count: int
) -> Iterator[tuple[datetime.datetime, tuple[tuple[int, str, SampleFact | None], ...]]]:
    start = _START
    for number in range(count):
        due = [f for q in asked for f in (*q.facts, *q.outdated) if f.session * count // SESSIONS == number]
        source.shuffle(due)
        lines: list[tuple[int, str, SampleFact | None]] = [(0, f"Hi {people[1]}, how are you?", None)]
        while due or len(lines) < TURNS:
            speaker = len(lines) % 2
            is_due = len(lines) >= TURNS or source.random() < 0.6
            fact = next((f for f in due if f.speaker == speaker), None) if is_due else None
            if fact is None:
                lines.append((speaker, _small_talk(source), None))
                continue
            due.remove(fact)
            text = f"{fact.text} {source.choice(_MORE)}" if source.random() < 0.5 else fact.text
            lines.append((speaker, text, fact))
        yield start, tuple(lines)
        start += datetime.timedelta(days=source.randint(2, 20), minutes=source.randint(0, 300))


def _small_talk(source: random.Random) -> str:
    near = source.choice(_NEAR).format(
        place=source.choice(_PLACES), food=source.choice(_FOODS), hobby=source.choice(_HOBBIES),
        job=source.choice(_JOBS), pet=source.choice(_PETS), name=source.choice(_NAMES),
    )  # fmt: skip
    return source.choice((near, f"{source.choice(_SMALL)} {near}", " ".join(source.sample(_SMALL, 2))))


# --- facts and questions ------------------------------------------------------------------------------------


def _fact(source: random.Random, speaker: int, text: str, first: int = 0, last: int = SESSIONS) -> SampleFact:
    return SampleFact(speaker, text, source.randrange(first, last))


def _single(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    pet, name = source.choice(_PETS), source.choice(_NAMES)
    fact = _fact(source, 0, f"We have {pet} at home now, and the children called it {name}.")
    text = source.choice(
        (
            f"What is the name of {people[0]}'s pet, {pet}?",
            f"Which name did the kids pick for the animal that lives with {people[0]}, {pet}?",
        )
    )
    return SampleQuestion("single-session-user", 4, text, name, (fact,))


def _assistant(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    job, place = source.choice(_JOBS), source.choice(_PLACES)
    fact = _fact(source, 1, f"For years I ran {job} in {place} before I moved here, it was hard but good work.")
    text = source.choice(
        (
            f"Where did {people[1]} once own {job}?",
            f"In which town did {people[1]} earn a living before the move, with {job}?",
        )
    )
    return SampleQuestion("single-session-assistant", 4, text, place, (fact,))


def _several(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    hobby, places = source.choice(_HOBBIES), source.sample(_PLACES, 3)
    facts = tuple(
        _fact(source, 0, way.format(place=place, hobby=hobby), 4 * i, 4 * i + 4)
        for i, (place, way) in enumerate(zip(places, source.sample(_COURSES, 3), strict=True))
    )
    text = source.choice(
        (
            f"In which towns did {people[0]} take courses in {hobby}?",
            f"Where has {people[0]} been to learn {hobby} so far?",
        )
    )
    return SampleQuestion("multi-session", 1, text, ", ".join(places), facts)


def _changed(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    hobby, (old, new) = source.choice(_HOBBIES), source.sample(range(2, 30), 2)
    facts = (
        _fact(source, 0, f"My {hobby} group has {old} members now, which is just right for the room.", 0, 5),
        _fact(source, 0, f"We counted again, the {hobby} group has grown to {new} members since then.", 6, 11),
    )
    text = source.choice(
        (
            f"How many people are in {people[0]}'s {hobby} group by now?",
            f"What is the current size of the circle in which {people[0]} does {hobby}?",
        )
    )
    return SampleQuestion("knowledge-update", 1, text, str(new), facts[1:], facts[:1])


def _when(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    place, day = source.choice(_PLACES), source.randint(1, 28)
    month = source.choice(("April", "May", "June", "July"))
    fact = _fact(source, 1, f"The ferry to {place} leaves on {day} {month} and I already have my ticket for it.")
    text = source.choice(
        (
            f"On which day does {people[1]} travel to {place} by ship?",
            f"When is {people[1]} going to {place}?",
            f"What date is printed on the ticket that {people[1]} bought for {place}?",
        )
    )
    return SampleQuestion("temporal-reasoning", 2, text, f"{day} {month}", (fact,))


def _preference(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    food = source.choice(_FOODS)
    fact = _fact(source, 0, f"Nothing beats {food} on a cold evening, I could eat it every day of the week.")
    text = source.choice(
        (
            f"What could one cook for {people[0]} in winter, {food} or something else?",
            f"Which dish would make {people[0]} happy when it is freezing outside?",
        )
    )
    return SampleQuestion("single-session-preference", 3, text, f"Likes {food}.", (fact,))


def _never_said(source: random.Random, people: tuple[str, str]) -> SampleQuestion:
    book = source.choice(_BOOKS)
    who = source.choice(people)
    return SampleQuestion("single-session-user", 5, f"Who gave {who} the book {book}?", "Nobody said so.", ())


# --- the formats --------------------------------------------------------------------------------------------


def as_longmemeval(seed: int, questions: int = 20, sessions: int = SESSIONS) -> list[Json]:
    """Return the conversation of a seed as rows of LongMemEval, each with all sessions as its haystack."""
    talk = generate(seed, questions, sessions)
    dates = [start.strftime("%Y/%m/%d (%a) %H:%M") for start, _ in talk.sessions]
    ids = [f"s{seed}_{n}" for n in range(len(dates))]
    end = (talk.sessions[-1][0] + datetime.timedelta(days=1)).strftime("%Y/%m/%d (%a) %H:%M")
    rows: list[Json] = []
    for number, question in enumerate(talk.questions):
        haystack = [
            [
                {"role": ("user", "assistant")[speaker], "content": text, **_answers(fact, question)}
                for speaker, text, fact in lines
            ]
            for _, lines in talk.sessions
        ]
        rows.append(
            {
                "question_id": f"q{seed}_{number}" + "_abs" * question.is_abstention,
                "question_type": question.type,
                "question": question.text,
                "answer": question.answer,
                "question_date": end,
                "haystack_dates": dates,
                "haystack_session_ids": ids,
                "haystack_sessions": haystack,
                "answer_session_ids": sorted({ids[f.session * sessions // SESSIONS] for f in question.facts}),
            }
        )
    return rows


def _answers(fact: SampleFact | None, question: SampleQuestion) -> dict[str, bool]:
    return {"has_answer": fact in question.facts} if fact is not None else {}


def as_locomo(seed: int, questions: int = 20, sessions: int = SESSIONS) -> Json:
    """Return the conversation of a seed as a row of LoCoMo."""
    talk = generate(seed, questions, sessions)
    spoken: dict[str, Any] = {"speaker_a": talk.people[0], "speaker_b": talk.people[1]}
    places: dict[SampleFact, str] = {}
    for number, (start, lines) in enumerate(talk.sessions, 1):
        spoken[f"session_{number}_date_time"] = start.strftime("%I:%M %p on %d %B, %Y").lower().lstrip("0")
        turns: list[Json] = []
        for n, (speaker, text, fact) in enumerate(lines, 1):
            turns.append({"speaker": talk.people[speaker], "dia_id": f"D{number}:{n}", "text": text})
            if fact is not None:
                places[fact] = f"D{number}:{n}"
        spoken[f"session_{number}"] = turns
    qa: list[Json] = []
    for question in talk.questions:
        key = "adversarial_answer" if question.is_abstention else "answer"
        evidence = [places[f] for f in question.facts]
        qa.append(
            {"question": question.text, key: question.answer, "evidence": evidence, "category": question.category}
        )
    return {"sample_id": f"sample-{seed}", "conversation": spoken, "qa": qa}


# --- pairs for the judge ------------------------------------------------------------------------------------


class LabelledPair(Struct, frozen=True):
    """Question, reference and an answer that is right or not."""

    id: str
    type: str
    question: str
    reference: str
    answer: str
    abstention: bool
    is_right: bool


def labelled_pairs(seed: int, count: int = PAIRS) -> list[LabelledPair]:
    """Generate answers of which every second one is wrong: of another question of its type, or of none."""
    source = random.Random(seed)
    pairs: list[LabelledPair] = []
    while len(pairs) < count:
        talk = generate(source.randrange(1 << 30), 14)
        for question in talk.questions:
            pairs.append(_pair(source, len(pairs), question))
    return pairs[:count]


def _pair(source: random.Random, number: int, question: SampleQuestion) -> LabelledPair:
    is_right = number % 2 == 0
    if question.is_abstention:
        invented = f"It was {source.choice(_NAMES)}, for a birthday."
        answer = "They never mentioned that, so I do not know." if is_right else invented
    elif is_right:
        answer = source.choice(("{}", "As far as I remember it is {}.", "They said: {}")).format(question.answer)
    else:
        answer = source.choice(("I think it is {}.", "{}", "They said: {}")).format(_other(source, question))
    return LabelledPair(
        f"pair-{number}", question.type, question.text, question.answer, answer, question.is_abstention, is_right
    )


def _other(source: random.Random, question: SampleQuestion) -> str:
    """Return an answer of the same kind with another value."""
    makers = {
        "single-session-user": _single, "single-session-assistant": _assistant, "multi-session": _several,
        "knowledge-update": _changed, "temporal-reasoning": _when, "single-session-preference": _preference,
    }  # fmt: skip
    while True:
        other = makers[question.type](source, ("A", "B")).answer
        if question.answer not in other:
            return other


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    format: Format, seeds: Annotated[list[int] | None, typer.Argument(help="By default those of the README.")] = None
) -> None:
    """Print a data set of long conversations: `python -m tests.bench.longmemeval.samples locomo 11 12`."""
    numbers = seeds or SAMPLE_SEEDS
    if format == "locomo":
        rows = [as_locomo(n, LONG_QUESTIONS, TALK_SESSIONS) for n in numbers]
    else:
        rows = [row for n in numbers for row in as_longmemeval(n, LONG_QUESTIONS, TALK_SESSIONS)]
    print(json.dumps(rows, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    app(prog_name="python -m tests.bench.longmemeval.samples")
