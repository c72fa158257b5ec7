"""Observe with a model, and check its answer before it becomes part of the log.

Models repeat the prompt's examples, record their own task, give wrong dates, and repeat lines of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.types import ImagePart, Message, ModelCall, TextPart
from sakti.memory import modes
from sakti.memory.log import dates, lines, parse
from sakti.memory.model_call import MemoryModel, prompt_hash
from sakti.memory.observe.speaking import normalize_text
from sakti.memory.observe.transcript import RESULT_TOKENS, divide, format_messages, log_tail
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.memory.window import split_into_slices
from sakti.store.log.lines import UNVERIFIED
from sakti.store.log.replacements import Earlier, remove_marks

LINES = 500  # most lines of an answer; real ones have a few dozen
TAIL = 400  # last lines of the log that an answer must not repeat
LARGE_INPUT = 500  # tokens of messages that must yield a line
_HEADER = lazy_pattern(r"(?P<indent>\s*)Date:\s*(?P<date>.*\S)?\s*")
_OWN_TASK = lazy_pattern(
    r"\b(?:(?:extract|writ|not|record|produc|creat|mak)\w* (?:the |new |all |any )*observations?|"
    r"observations? of the new messages|new observations|the observer|memory observer|observation (?:task|format|log)|"
    r"the memory of an?(?: \w+)? agent|no other task (?:should|may|must) be (?:started|done)|"
    r"answer with these tags|the log so far)\b",
    re.IGNORECASE,
)
# How a model describes its answer. Users may use the same words for their own observations, so lines are checked
# against the messages.
_OWN_ANSWER = lazy_pattern(
    r"\b(?:(?:output|provid|list|return|giv|generat|condens|compress|summari[sz]|compil|format|respond with|reply with|"
    r"answer with|here are|below are|following|only)\w* "
    r"(?:(?:only|the|all|new|these|those|my|just|dated) )*observations?|"
    r"(?:hier sind|folgende[nr]?|nur|ausgeben|auflisten) (?:(?:die|der|alle|neuen|meine|nur) )*beobachtungen|"
    r"beobachtungen (?:\S+ ){0,5}(?:auszugeben|ausgeben|aus|(?:zusammen|zu)\w*fassen|(?:zu )?verdichten|"
    r"(?:zu )?(?:notieren|extrahieren|schreiben)|aufzulisten|auflisten)|"
    r"(?:concise|brief|terse|knapp|kurz) (?:and|und) (?:dated|datiert|mit datum))\b",
    re.IGNORECASE,
)
_OBSERVING = lazy_pattern(r"obser[vw]|beobacht", re.IGNORECASE)


def cut_lines(text: str, limit: int = LINES) -> str:
    """Cut an answer of too many lines; its last lines, with the task, stay."""
    rows = text.split("\n", limit)
    if len(rows) <= limit:
        return text
    return "\n".join([*rows[:-1], *rows[-1].rsplit("\n", limit // 10)[-limit // 10 :]])


def check_lines(text: str, request: ObserveInput) -> str:
    """Return the lines of an answer that may be stored, under dates of the observed messages.

    Lines of the prompt, lines about the Observer's own task, and lines already at the end of the log are left out.
    """
    seen = {(x.time, remove_marks(x.content).removesuffix(UNVERIFIED)) for x in _iter_last_rows(request.log)}
    out: list[str] = []
    source = ""
    for raw in text.split("\n")[:LINES]:
        if header := _HEADER.fullmatch(raw):
            out.append(f"Date: {_clamp_date(header['date'] or '', request)}")
            continue
        row = next(lines.iter_rows(raw), None)
        if row is None:
            continue
        content = remove_marks(row.content)
        if _OWN_TASK.search(content) or _OWN_ANSWER.search(content):
            source = source or normalize_text("\n".join(m.text for m in request.messages))
        if (row.time, content) in seen or is_of_prompt(content) or _is_own_task(content, source):
            continue
        seen.add((row.time, content))
        out.append(raw)
    return lines.apply_corrections("\n".join(out), {})


def is_of_prompt(content: str) -> bool:
    """Return whether a line, task or response only repeats the Observer's instructions."""
    return normalize_text(content.removeprefix("->")) in _prompt_lines()


def is_instruction(text: str) -> bool:
    """Return whether a task or response only repeats the instructions or speaks of them."""
    return any(is_of_prompt(line) or _OWN_TASK.search(line) is not None for line in text.split("\n"))


def with_doubts(text: str, doubted: Iterable[int]) -> str:
    """Mark important lines of these numbers as unverified for the model."""
    numbers = set(doubted)
    changes = {
        row.line: row.content + UNVERIFIED
        for row in lines.iter_rows(text)
        if row.line in numbers and row.priority in ("high", "done") and UNVERIFIED.strip() not in row.content
    }
    return lines.apply_corrections(text, changes) if changes else text


def _iter_last_rows(log: str) -> Iterable[lines.LogRow]:
    return lines.iter_rows("\n".join(log.rsplit("\n", TAIL)[-TAIL:]))


def _clamp_date(date: str, request: ObserveInput) -> str:
    """Return the date of the observed messages that is nearest to a date."""
    days = {dates.format_day(m.created_at, request.timezone): m.created_at for m in request.messages}
    if not days or date in days:
        return date
    target = dates.parse_header_date(date)
    if target is None:
        return next(iter(days))
    return min(days, key=lambda day: abs((dates.parse_header_date(day) or 0) - target))


def _is_own_task(content: str, said: str) -> bool:
    """Return whether a line is about the Observer's task, unless the messages use these words."""
    task, answer = _OWN_TASK.search(content), _OWN_ANSWER.search(content)
    if task is not None and normalize_text(task[0]) not in said:
        return True
    return answer is not None and normalize_text(answer[0]) not in said and _OBSERVING.search(said) is None


@lru_cache(1)
def _prompt_lines() -> frozenset[str]:
    out: set[str] = set()
    for part in ("observer", "observer#rules", "observer#condensed", "observer#title"):
        for raw in read_prompt(part).split("\n"):
            row = next(lines.iter_rows(raw), None)
            if row is not None and len(row.content) > len("yes"):
                out.add(normalize_text(row.content.removeprefix("->")))
    return frozenset(out)


# A model whose window is smaller than this gets the condensed instructions.
SMALL_WINDOW = 16_000
# Largest size of the log's end relative to the messages: in small windows it would fill most of the input.
PREVIOUS_SHARE = 0.4
_REPLACES = lazy_pattern(r" ?\[replaces:? ?O\d{1,5}(?:(?:,| and)? ?O\d{1,5}){0,9}\]")
_ANCHORED = lazy_pattern(r"^\s*\[(O\d{1,5}(?:-N\d{1,5})?)\]", re.MULTILINE)
_NESTED = lazy_pattern(r"^(\s+)\[O\d+-N\d+\]\s", re.MULTILINE)  # only complete lines are replaced
_ANCHOR = lazy_pattern(r"O\d{1,5}")
# Tokens of a prompt besides the messages, and those added by times, roles and tool names.
FRAME_TOKENS, TRANSCRIPT_SHARE, LEAST_ROOM = 300, 0.85, 500


def build_system_prompt(mode: str, *, condensed: bool, want_title: bool) -> str:
    """Assemble the Observer's instructions for a mode."""
    output = "\n\n".join(
        t for t in (modes.prompt(mode, "output"), read_prompt("observer#title") if want_title else "") if t
    )
    if condensed:
        return fill_prompt("observer#condensed", task=modes.prompt(mode, "task"), output=output)
    return fill_prompt(
        "observer",
        task=modes.prompt(mode, "task"),
        extract=modes.prompt(mode, "extract"),
        output=output,
        rules=read_prompt("observer#rules"),
    )


def take_replaced(text: str, shown: str) -> tuple[str, dict[str, list[Earlier]]]:
    """Remove `[replaces O3]` from lines; return for each line's content the shown lines that it names.

    Anchors are those that `inject_anchor_ids` gives to the lines of `shown`.
    """
    anchors = _ANCHORED.findall(parse.inject_anchor_ids(shown))
    by_anchor = {
        anchor: Earlier(remove_marks(row.content), row.date, row.time)
        for anchor, row in zip(anchors, lines.iter_rows(shown), strict=False)
    }
    replaces: dict[str, list[Earlier]] = {}
    changes: dict[int, str] = {}
    for row in lines.iter_rows(text):
        content = _REPLACES.sub("", row.content).rstrip()
        named = [a for match in _REPLACES.finditer(row.content) for a in _ANCHOR.findall(match[0])]
        if content != row.content:
            changes[row.line] = content
        if earlier := [by_anchor[a] for a in named if a in by_anchor]:
            replaces[content] = earlier
    return lines.apply_corrections(text, changes) if changes else text, replaces


def _continue(request: ObserveInput, results: Sequence[ObserveResult]) -> ObserveInput:
    """Return the request for the next slice, with log and state after the slices before it."""
    if not results:
        return request
    return structs.replace(
        request,
        log="\n".join(t for t in (request.log, *(r.text for r in results)) if t),
        current_task=results[-1].current_task,
        suggested_response=results[-1].suggested_response,
    )


class ModelObserver:
    """Observer that asks a model.

    `previous_tokens`: tokens of the log's end in the prompt. `window`: its context window, None if unknown.
    """

    def __init__(self, model: MemoryModel, *, previous_tokens: int, window: int | None = None) -> None:
        self._model = model
        self._previous_tokens = previous_tokens
        self._window = window
        self._condensed = window is not None and window < SMALL_WINDOW

    @property
    def name(self) -> str:
        return self._model.full_name

    def prompt(self, request: ObserveInput) -> str:
        """Write the prompt: the end of the log, the current state, the new messages."""
        count = self._model.counter.count
        log = _NESTED.sub(r"\1", parse.inject_anchor_ids(self._cut_log(request)))
        state = [
            f"- {name}: {value}"
            for name, value in (
                ("Current task", request.current_task),
                ("Suggested response", request.suggested_response),
            )
            if value
        ]
        return fill_prompt(
            "observer#input",
            log=f"# The log so far (its end, each line with its anchor; do not repeat it)\n\n{log}\n\n" if log else "",
            state="# How things stood\n\n" + "\n".join(state) + "\n\n" if state else "",
            goal=f"# The goal of this agent\n\n{request.goal}\n\n" if request.goal else "",
            focus=f"# The user asked to pay special attention to\n\n{request.focus}\n\n" if request.focus else "",
            timezone=request.timezone,
            messages=format_messages(request.messages, request.timezone, count, self._compute_result_limit(request)),
        )

    def _compute_result_limit(self, request: ObserveInput) -> int:
        """Return the token limit of each result, so that a large exchange fits the model's window."""
        room = self._compute_room(request)
        if room is None or sum(m.tokens for m in request.messages) <= room:
            return RESULT_TOKENS
        cuttable = sum(not isinstance(part, TextPart) for m in request.messages for part in m.parts)
        return min(RESULT_TOKENS, room // max(1, cuttable))

    def _cut_log(self, request: ObserveInput) -> str:
        """Return the end of the log that the prompt shows."""
        size = sum(m.tokens for m in request.messages)
        return log_tail(request.log, min(self._previous_tokens, int(size * PREVIOUS_SHARE)), self._model.counter.count)

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the observations of the messages, in slices if they exceed the model's window.

        Raises the errors of a single slice.
        """
        results: list[ObserveResult] = []
        for piece in self._divide(request):
            results.append(await self._observe(structs.replace(_continue(request, results), messages=tuple(piece))))
        return structs.replace(
            results[-1],
            text="\n".join(r.text for r in results),
            calls=tuple(c for r in results for c in r.calls),
            categories={content: name for r in results for content, name in r.categories.items()},
            replaces={content: older for r in results for content, older in (r.replaces or {}).items()},
            title=next((r.title for r in reversed(results) if r.title), None),
        )

    def _divide(self, request: ObserveInput) -> list[list[Message]]:
        room = self._compute_room(request)
        if room is None:
            return [list(request.messages)]
        divided = (piece for m in request.messages for piece in divide(m, room, self._model.counter.count))
        return split_into_slices(list(divided), room)

    def _compute_room(self, request: ObserveInput) -> int | None:
        """Return the tokens of messages that fit the model's window; None: unknown."""
        if self._window is None:
            return None
        system = build_system_prompt(request.mode, condensed=self._condensed, want_title=request.want_title)
        fixed = self._model.counter.count(system) + self._previous_tokens + FRAME_TOKENS
        return max(int((self._window - self._model.max_output_tokens - fixed) * TRANSCRIPT_SHARE), LEAST_ROOM)

    async def _observe(self, request: ObserveInput) -> ObserveResult:
        """Observe one slice.

        Raises `MemoryFailure` (malformed) if two answers are unusable, `ProviderError` if the model is unavailable.
        """
        system = build_system_prompt(request.mode, condensed=self._condensed, want_title=request.want_title)
        prompt = self.prompt(request)
        images = [p for m in request.messages if m.role != "system" for p in m.parts if isinstance(p, ImagePart)]
        calls: list[ModelCall] = []
        for _ in range(2):
            text, call = await self._model.ask(system, prompt, images)
            calls.append(call)
            text = cut_lines(text)
            if parse.detect_degenerate_repetition(text):
                continue
            body, sections = parse.take_sections(text, modes.list_sections(request.mode))
            parsed = parse.parse_observer_output(body)
            observations, categories = lines.with_sections(parse.clean(parsed.observations), sections)
            if observations:
                text, replaces = take_replaced(observations, self._cut_log(request))
                return ObserveResult(
                    text,
                    parsed.current_task,
                    parsed.suggested_response,
                    parsed.title if request.want_title else None,
                    self.name,
                    prompt_hash(system),
                    tuple(calls),
                    categories=categories,
                    replaces=replaces,
                )
        raise MemoryFailure(f"{self.name} returned no usable observations in two attempts.", code="malformed")
