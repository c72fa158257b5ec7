"""Read the files of LongMemEval and LoCoMo into conversations with questions. Pure but for `load`."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields

from sakti.actions.values import USAGE, Refused
from sakti.core.types import Json
from sakti.importers.inputs import compute_short_hash

Format: TypeAlias = Literal["longmemeval", "locomo"]
T = TypeVar("T")
MINUTE = 60_000  # ms between two turns of a session, whose own times are not known
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ABSTENTION = 5  # LoCoMo's category of questions that have no answer
FIRST_TYPES = ("multi-session", "multi-hop")  # that tables show first
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")

Text: TypeAlias = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*\Z")]  # a lone surrogate cannot be stored
Reference: TypeAlias = Text | int | float


class UnixTime(int):
    """Unix ms, decoded by `parse_time`."""


class LongMemEvalTurn(Struct):
    role: Literal["user", "assistant"]
    content: Text
    has_answer: bool = False


class LongMemEvalRow(Struct):
    question_id: Text
    question_type: Text
    question: Text
    answer: Reference
    question_date: UnixTime
    haystack_dates: list[UnixTime]
    haystack_session_ids: list[Text]
    haystack_sessions: list[list[LongMemEvalTurn]]
    answer_session_ids: list[Text]


class LocomoTurn(Struct):
    speaker: Text
    dia_id: Text
    text: Text
    blip_caption: Text = ""


class LocomoQuestion(Struct):
    question: Text
    category: Literal[1, 2, 3, 4, 5]
    answer: Reference = ""
    evidence: list[Text] = []


class LocomoRow(Struct):
    """`conversation` has the keys `session_N`, a list of turns, and `session_N_date_time` for each session."""

    conversation: Json
    qa: list[LocomoQuestion]
    sample_id: Text = ""


ROWS: dict[Format, type[Struct]] = {"longmemeval": LongMemEvalRow, "locomo": LocomoRow}


class BenchTurn(Struct, frozen=True):
    """One message of a conversation.

    `time` in Unix ms (UTC), `spoken`: the text without the name of who speaks, `picture`: what is on a shared one.
    """

    id: str
    role: Literal["user", "assistant"]
    text: str
    time: int
    spoken: str
    picture: str = ""


class BenchQuestion(Struct, frozen=True):
    """Question about a conversation.

    `evidence`: for each piece the ids of the turns any of which has it, mostly one. `asked_at` in Unix ms. `hash`: of
    the row of data with everything it was asked about.
    """

    id: str
    type: str
    text: str
    answer: str
    evidence: tuple[tuple[str, ...], ...]
    abstention: bool
    asked_at: int
    hash: str


class BenchConversation(Struct, frozen=True):
    id: str
    turns: tuple[BenchTurn, ...]
    questions: tuple[BenchQuestion, ...]


class DataSet(Struct):
    """Conversations of a file; `repaired` and `dropped`: malformed ids of evidence."""

    format: Format
    conversations: list[BenchConversation] = field(default_factory=list[BenchConversation])
    repaired: int = 0
    dropped: int = 0


def load(path: Path, format: Format | None = None, limit: int | None = None) -> DataSet:
    """Read the first `limit` questions of a file. Raises Refused (usage) for another shape."""
    try:
        rows: Any = json.loads(path.read_text("utf-8"))
    except OSError as e:
        raise Refused(f"{path} cannot be read: {e.strerror}.", code=USAGE) from e
    except (ValueError, RecursionError) as e:
        raise Refused(f"{path} is not JSON: {e}.", code=USAGE) from e
    kind = format or detect(rows)
    if kind is None or not _has_shape(rows, kind):
        expected = " or ".join(f"{name} ({', '.join(_required(name))})" for name in ([format] if format else ROWS))
        raise Refused(f"{path} has another shape: expected is an array of objects as in {expected}.", code=USAGE)
    data = DataSet(kind)
    read = _read_longmemeval if kind == "longmemeval" else _read_locomo
    left = sys.maxsize if limit is None else limit
    conversations: dict[str, BenchConversation] = {}
    for number, row in enumerate(rows, 1):
        if left <= 0:
            break
        try:
            conversation = read(row, data, left)
            if conversation.id in conversations:
                raise ValueError(f"another row has the id {conversation.id!r} as well")
        except (ValueError, RecursionError) as e:
            raise Refused(f"{path}, row {number}: {e}.", code=USAGE) from e
        conversations[conversation.id] = conversation
        left -= len(conversation.questions)
    data.conversations = _merged(conversations.values())
    return data


def _merged(conversations: Iterable[BenchConversation]) -> list[BenchConversation]:
    """Return conversations of equal turns as one: each is ingested once."""
    merged: dict[tuple[BenchTurn, ...], BenchConversation] = {}
    for conversation in conversations:
        same = merged.get(conversation.turns)
        questions = (*same.questions, *conversation.questions) if same else conversation.questions
        merged[conversation.turns] = BenchConversation((same or conversation).id, conversation.turns, questions)
    return list(merged.values())


def detect(rows: Any) -> Format | None:
    """Return the format of decoded data by its shape, None if it is neither."""
    return next((name for name in ROWS if _has_shape(rows, name)), None)


def _has_shape(rows: Any, format: Format) -> bool:
    """Return whether a row has the fields of a format; those that lack one are refused by their number."""
    required = set(_required(format))
    return isinstance(rows, list) and any(isinstance(r, dict) and r.keys() >= required for r in rows)


def _required(format: Format) -> list[str]:
    return [f.name for f in fields(ROWS[format]) if f.required]


# --- LongMemEval --------------------------------------------------------------------------------------------


def _read_longmemeval(data_row: Any, data: DataSet, _limit: int) -> BenchConversation:
    row = _convert(data_row, LongMemEvalRow, "row")
    turns: list[BenchTurn] = []
    marked: list[tuple[str, ...]] = []
    sessions: dict[str, tuple[str, ...]] = {}
    if not len(row.haystack_session_ids) == len(row.haystack_dates) == len(row.haystack_sessions):
        raise ValueError("haystack_session_ids, haystack_dates and haystack_sessions differ in length")
    listed = zip(row.haystack_dates, row.haystack_session_ids, row.haystack_sessions, strict=True)
    for number, (start, session_id, spoken) in enumerate(sorted(listed, key=lambda s: s[0])):
        ids = [f"{number}:{n}" for n in range(len(spoken))]
        for n, (id, turn) in enumerate(zip(ids, spoken, strict=True)):
            turns.append(BenchTurn(id, turn.role, turn.content, start + n * MINUTE, turn.content))
            if turn.has_answer:
                marked.append((id,))
        sessions[session_id] = (*sessions.get(session_id, ()), *ids)
    _check_turns(turns, "row.haystack_sessions")
    answering = [sessions[id] for id in row.answer_session_ids if sessions.get(id)]
    data.dropped += len(row.answer_session_ids) - len(answering)
    question = BenchQuestion(
        row.question_id, row.question_type, row.question, str(row.answer), tuple(marked or answering),
        row.question_id.endswith("_abs"), int(row.question_date), _hash(data_row),
    )  # fmt: skip
    return BenchConversation(row.question_id, tuple(turns), (question,))


# --- LoCoMo -------------------------------------------------------------------------------------------------


def _read_locomo(data_row: Any, data: DataSet, limit: int) -> BenchConversation:
    row = _convert(data_row, LocomoRow, "row")
    context = _hash(row.conversation)
    id = row.sample_id or context[:8]
    turns = tuple(_locomo_turns(row.conversation))
    _check_turns(turns, "row.conversation")
    known = {t.id for t in turns}
    asked_at = turns[-1].time + 60 * MINUTE
    questions: list[BenchQuestion] = []
    for number, qa in enumerate(row.qa[:limit]):
        evidence = tuple((e,) for e in read_evidence(qa.evidence, known, data))
        is_abstention = qa.category == ABSTENTION
        answer = "" if is_abstention else str(qa.answer)
        questions.append(
            BenchQuestion(
                f"{id}/{number}", CATEGORIES[qa.category], qa.question, answer, evidence, is_abstention,
                asked_at, compute_short_hash(context, _hash(data_row["qa"][number])),
            )
        )  # fmt: skip
    return BenchConversation(id, turns, tuple(questions))


def _locomo_turns(spoken: Json) -> Iterable[BenchTurn]:
    """Yield the turns by session; the first speaker is the user, and texts name who speaks, as questions do."""

    def get(key: str, type: type[T]) -> T:
        return _convert(spoken.get(key), type, f"row.conversation.{key}")

    for number in sorted(int(m[1]) for key in spoken if (m := _SESSION.fullmatch(key)) and spoken[key]):
        start = get(f"session_{number}_date_time", UnixTime)
        for n, turn in enumerate(get(f"session_{number}", list[LocomoTurn])):
            role = "user" if turn.speaker == get("speaker_a", str) else "assistant"
            picture = f"[shared image: {turn.blip_caption}]" if turn.blip_caption else ""
            text = f"{turn.speaker}: {turn.text}"
            yield BenchTurn(turn.dia_id, role, text, start + n * MINUTE, turn.text, picture)


def read_evidence(listed: Sequence[str], known: set[str], data: DataSet) -> list[str]:
    """Return the ids of turns; `D8:6; D9:17` and `D:11:26` are repaired, others dropped; both are counted."""
    ids: list[str] = []
    for text in listed:
        named = [f"D{int(m[1])}:{int(m[2])}" for m in _TURN_ID.finditer(text)]
        valid = [id for id in named if id in known]
        data.dropped += len(named) - len(valid) or not named
        data.repaired += bool(valid) and [text] != valid
        ids += valid
    return list(dict.fromkeys(ids))


# --- helpers ------------------------------------------------------------------------------------------------


def _convert(value: Any, type: type[T], name: str) -> T:
    """Return JSON as a value of a type. Raises ValueError, which names the field below `name` that does not fit."""
    try:
        return convert({name: value}, dict[str, type], dec_hook=_decode_time)[name]
    except ValidationError as e:
        raise ValueError(str(e).replace("$[...]", name, 1)) from e


def _decode_time(_type: type, value: Any) -> UnixTime:
    return UnixTime(parse_time(value))


def _check_turns(turns: Sequence[BenchTurn], name: str) -> None:
    if not turns:
        raise ValueError(f"there are no turns in `{name}`")
    id, count = Counter(t.id for t in turns).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} turns in `{name}` have the dia_id {id!r}")


def parse_time(text: Any) -> int:
    """Return Unix ms of `2023/05/20 (Sat) 02:21` or `1:56 pm on 8 May, 2023`, as UTC. Raises ValueError."""
    plain = re.sub(r"\([^)]*\)", "", str(text))
    for form in ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y"):
        try:
            day = datetime.datetime.strptime(" ".join(plain.split()), form)
        except ValueError:
            continue
        return int(day.replace(tzinfo=datetime.UTC).timestamp() * 1000)
    raise ValueError(f"Expected a time, got {json.dumps(text)}")


def _hash(value: Any) -> str:
    return compute_short_hash(json.dumps(value, sort_keys=True, ensure_ascii=False))
