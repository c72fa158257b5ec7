"""Read the files of LongMemEval and LoCoMo into conversations with questions. Pure but for `load`."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from sakti.actions.values import USAGE, Refused
from sakti.core.types import Json
from sakti.importers.inputs import compute_short_hash

Format: TypeAlias = Literal["longmemeval", "locomo"]
FIELDS: dict[Format, tuple[str, ...]] = {
    "longmemeval": (
        "question_id", "question_type", "question", "answer", "question_date", "haystack_dates",
        "haystack_session_ids", "haystack_sessions", "answer_session_ids",
    ),
    "locomo": ("conversation", "qa"),
}  # fmt: skip
MINUTE = 60_000  # ms between two turns of a session, whose own times are not known
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ABSTENTION = 5  # LoCoMo's category of questions that have no answer
FIRST_TYPES = ("multi-session", "multi-hop")  # that tables show first
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


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
    """Read a file, with its first `limit` questions. Raises Refused (usage) for another shape."""
    try:
        rows: Any = json.loads(path.read_text("utf-8"))
    except OSError as e:
        raise Refused(f"{path} cannot be read: {e.strerror}.", code=USAGE) from e
    except ValueError as e:
        raise Refused(f"{path} is not JSON: {e}.", code=USAGE) from e
    kind = format or detect(rows)
    if kind is None or not _has_shape(rows, kind):
        expected = " or ".join(f"{name} ({', '.join(FIELDS[name])})" for name in ([format] if format else FIELDS))
        raise Refused(f"{path} has another shape: expected is an array of objects as in {expected}.", code=USAGE)
    data = DataSet(kind)
    read = _read_longmemeval if kind == "longmemeval" else _read_locomo
    try:
        data.conversations = _merged([read(row, data) for row in rows])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise Refused(f"{path} does not fit {kind}: {type(e).__name__}: {e}.", code=USAGE) from e
    return data if limit is None else _cut(data, limit)


def _merged(conversations: Sequence[BenchConversation]) -> list[BenchConversation]:
    """Return conversations of equal turns as one: each is ingested once."""
    merged: dict[tuple[BenchTurn, ...], BenchConversation] = {}
    for conversation in conversations:
        same = merged.get(conversation.turns)
        questions = (*same.questions, *conversation.questions) if same else conversation.questions
        merged[conversation.turns] = BenchConversation((same or conversation).id, conversation.turns, questions)
    return list(merged.values())


def detect(rows: Any) -> Format | None:
    """Return the format of decoded data by its shape, None if it is neither."""
    return next((name for name in FIELDS if _has_shape(rows, name)), None)


def _has_shape(rows: Any, format: Format) -> bool:
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(r, dict) and r.keys() >= set(FIELDS[format]) for r in rows)
    )


def _cut(data: DataSet, limit: int) -> DataSet:
    kept: list[BenchConversation] = []
    for conversation in data.conversations:
        questions = conversation.questions[: max(0, limit)]
        limit -= len(questions)
        if questions:
            kept.append(BenchConversation(conversation.id, conversation.turns, questions))
    data.conversations = kept
    return data


# --- LongMemEval --------------------------------------------------------------------------------------------


def _read_longmemeval(row: Json, data: DataSet) -> BenchConversation:
    turns: list[BenchTurn] = []
    marked: list[tuple[str, ...]] = []
    sessions: dict[str, tuple[str, ...]] = {}
    listed = zip(row["haystack_session_ids"], row["haystack_dates"], row["haystack_sessions"], strict=True)
    by_date = sorted(((parse_time(date), id, turns) for id, date, turns in listed), key=lambda s: s[0])
    for number, (start, session_id, spoken) in enumerate(by_date):
        ids: list[str] = []
        for n, turn in enumerate(spoken):
            if turn["role"] not in ("user", "assistant"):
                raise ValueError(f"the role {turn['role']!r}")
            ids.append(f"{number}:{n}")
            text = str(turn["content"])
            turns.append(BenchTurn(ids[-1], turn["role"], text, start + n * MINUTE, text))
            if turn.get("has_answer"):
                marked.append((ids[-1],))
        sessions[session_id] = tuple(ids)
    answering = [sessions[id] for id in row["answer_session_ids"] if sessions.get(id)]
    data.dropped += len(row["answer_session_ids"]) - len(answering)
    question_id = str(row["question_id"])
    asked_at = parse_time(row["question_date"])
    is_abstention = question_id.endswith("_abs")
    question = BenchQuestion(
        question_id, row["question_type"], row["question"], str(row["answer"]), tuple(marked or answering),
        is_abstention, asked_at, _hash(row),
    )  # fmt: skip
    return BenchConversation(question_id, tuple(turns), (question,))


# --- LoCoMo -------------------------------------------------------------------------------------------------


def _read_locomo(row: Json, data: DataSet) -> BenchConversation:
    spoken: Json = row["conversation"]
    id = str(row.get("sample_id") or _hash(spoken)[:8])
    turns = tuple(_locomo_turns(spoken))
    known = {t.id for t in turns}
    asked_at = turns[-1].time + 60 * MINUTE
    context = _hash(spoken)
    questions: list[BenchQuestion] = []
    for number, qa in enumerate(row["qa"]):
        evidence = tuple((e,) for e in read_evidence(qa.get("evidence") or (), known, data))
        is_abstention = qa["category"] == ABSTENTION
        answer = "" if is_abstention else str(qa.get("answer", ""))
        questions.append(
            BenchQuestion(
                f"{id}/{number}", CATEGORIES[qa["category"]], qa["question"], answer, evidence, is_abstention,
                asked_at, compute_short_hash(context, _hash(qa)),
            )
        )  # fmt: skip
    return BenchConversation(id, turns, tuple(questions))


def _locomo_turns(spoken: Mapping[str, Any]) -> Iterable[BenchTurn]:
    """Yield the turns by session; the first speaker is the user, and texts name who speaks, as questions do."""
    numbers = sorted(int(m[1]) for key in spoken if (m := _SESSION.fullmatch(key)) and spoken[key])
    for number in numbers:
        start = parse_time(spoken[f"session_{number}_date_time"])
        for n, turn in enumerate(spoken[f"session_{number}"]):
            role = "user" if turn["speaker"] == spoken["speaker_a"] else "assistant"
            text = f"{turn['speaker']}: {turn['text']}"
            caption = turn.get("blip_caption")
            picture = f"[shared image: {caption}]" if caption else ""
            yield BenchTurn(turn["dia_id"], role, text, start + n * MINUTE, turn["text"], picture)


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


def parse_time(text: str) -> int:
    """Return Unix ms of `2023/05/20 (Sat) 02:21` or `1:56 pm on 8 May, 2023`, as UTC. Raises ValueError."""
    plain = re.sub(r"\([^)]*\)", "", text)
    for form in ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y"):
        try:
            day = datetime.datetime.strptime(" ".join(plain.split()), form)
        except ValueError:
            continue
        return int(day.replace(tzinfo=datetime.UTC).timestamp() * 1000)
    raise ValueError(f"the time {text!r}")


def _hash(value: Any) -> str:
    return compute_short_hash(json.dumps(value, sort_keys=True, ensure_ascii=False))
