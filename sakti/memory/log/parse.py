"""Parse the answer of an Observer or Reflector leniently, then clean it for storing. Pure.

`parse_*`, `sanitize_observation_lines`, `detect_degenerate_repetition` and the anchors conform to the golden vectors.
`clean` is a separate step after them, so that no tag ever reaches the store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.log import dates
from sakti.memory.log.dates import BOL, S

MAX_LINE = 10_000
TRUNCATED = " … [truncated]"

# Degenerate output: a line longer than this, …
_LONGEST_LINE = 50_000
# … more than half of at least 20 longer lines repeated, …
_MIN_LINES, _MIN_LINE_LENGTH, _LINE_SHARE = 20, 24, 0.5
# … or more than 40 % of some 50 samples of 200 characters.
_SHORTEST, _WINDOW, _SAMPLES, _WINDOW_SHARE = 2_000, 200, 50, 0.4


class Parsed(Struct, frozen=True):
    """Parsed answer; `degenerate`: it repeats itself endlessly and has no content."""

    observations: str
    current_task: str | None = None
    suggested_response: str | None = None
    title: str | None = None
    degenerate: bool = False


def detect_degenerate_repetition(text: str) -> bool:
    """Return whether a model got stuck: repeated windows or lines, or one endless line."""
    data = dates.encode_utf16(text)
    size = len(data) // 2
    if size < _SHORTEST:
        return False
    step = max(1, size // _SAMPLES)
    windows = [data[2 * i : 2 * (i + _WINDOW)] for i in range(0, size - _WINDOW + 1, step)]
    if windows and (len(windows) - len(set(windows))) / len(windows) > _WINDOW_SHARE:
        return True
    lines = text.split("\n")
    if any(dates.count_utf16(line) > _LONGEST_LINE for line in lines):
        return True
    long = [line for raw in lines if dates.count_utf16(line := dates.trim(raw)) >= _MIN_LINE_LENGTH]
    return len(long) >= _MIN_LINES and (len(long) - len(set(long))) / len(long) > _LINE_SHARE


def sanitize_observation_lines(text: str) -> str:
    """Cut lines of more than 10,000 UTF-16 units, with a note."""
    return "\n".join(
        dates.cut(line, MAX_LINE) + TRUNCATED if dates.count_utf16(line) > MAX_LINE else line
        for line in text.split("\n")
    )


# --- answers ------------------------------------------------------------------------------------------------


def _block(tag: str) -> re.Pattern[str]:
    return re.compile(rf"{BOL}[ \t]*<{tag}>(.*?){BOL}[ \t]*</{tag}>", re.IGNORECASE | re.DOTALL)


_OBSERVATIONS = _block("observations")
_TASK = _block("current-task")
_RESPONSE = _block("suggested-response")
_RESPONSE_INLINE = lazy_pattern(r"<suggested-response>(.*?)</suggested-response>", re.IGNORECASE | re.DOTALL)
_TITLE = lazy_pattern(rf"{BOL}[ \t]*<thread-title>(.*?)</thread-title>", re.IGNORECASE | re.DOTALL)
_ITEM = lazy_pattern(rf"{S}*(?:[-*]{S}|[0-9]+\.{S})")


def parse_observer_output(text: str) -> Parsed:
    """Parse an Observer's answer: tags if there are any, else lists; never raises."""
    if detect_degenerate_repetition(text):
        return Parsed("", degenerate=True)
    return Parsed(
        sanitize_observation_lines(_join_observations(text, "")),
        _match_first(_TASK, text),
        _match_first(_RESPONSE, text),
        _match_first(_TITLE, text),
    )


def parse_reflector_output(text: str) -> Parsed:
    """Parse like `parse_observer_output`, but accept a complete answer without any tag or list."""
    if detect_degenerate_repetition(text):
        return Parsed("", degenerate=True)
    observations = sanitize_observation_lines(_join_observations(text, dates.trim(text)))
    return Parsed(observations, _match_first(_TASK, text), _match_first(_RESPONSE_INLINE, text), None)


def _match_first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return (dates.trim(match[1]) or None) if match else None


def _join_observations(text: str, otherwise: str) -> str:
    blocks = _OBSERVATIONS.findall(text)
    if blocks:
        return dates.trim("\n".join(t for b in blocks if (t := dates.trim(b))))
    items = [line for line in text.split("\n") if _ITEM.match(line)]
    return dates.trim("\n".join(items)) if items else otherwise


_OTHER_TAGS = "observations|current-task|suggested-response|thread-title"


def take_sections(text: str, names: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Split the named sections off an answer; return the rest, and their lines as (name, line).

    An unclosed section ends where the next one begins; a tag without its counterpart is removed.
    """
    if not names:
        return text, []
    any_name = "|".join(map(re.escape, names))
    section = re.compile(
        rf"<({any_name})\b[^<>\n]*>(.*?)(?:</\1[ \t]*>|(?=</?(?:{any_name}|{_OTHER_TAGS})\b)|\Z)",
        re.IGNORECASE | re.DOTALL,
    )
    lines: list[tuple[str, str]] = []

    def take(match: re.Match[str]) -> str:
        for line in clean(match[2]).split("\n"):
            if (body := line.strip().removeprefix("*").strip()) and not body.startswith("Date:"):
                lines.append((match[1].lower(), f"* {body.removeprefix('->').strip()}"))
        return "\n"

    rest = section.sub(take, text)
    return re.sub(rf"</?(?:{any_name})\b[^<>\n]*>", "", rest, flags=re.IGNORECASE), lines


# --- anchors --------------------------------------------------------------------------------------------

_ANCHORED = lazy_pattern(rf"({S}*)\[O[0-9]+(?:-N[0-9]+)?\]{S}*")
_DATE_LINE = lazy_pattern(rf"Date:{S}+")
_TAG_LINE = lazy_pattern(r"</?[a-z][^>]*>", re.IGNORECASE)
_INDENT = lazy_pattern(rf"{S}*")


def inject_anchor_ids(text: str) -> str:
    """Prefix each line of a log with an id for the Reflector: [O1], [O2], nested ones [O2-N1].

    Headers, tags on a line of their own and lines with an id are left alone.
    """
    out: list[str] = []
    top = nested = 0
    for line in text.split("\n"):
        body = dates.trim(line)
        if not body or _DATE_LINE.match(body) or _ANCHORED.match(line) or _TAG_LINE.fullmatch(body):
            out.append(line)
            continue
        match = _INDENT.match(line)
        indent = match[0] if match else ""
        if len(indent) >= 2 or "\t" in indent:
            top, nested = max(top, 1), nested + 1
            name = f"O{top}-N{nested}"
        else:
            top, nested = top + 1, 0
            name = f"O{top}"
        out.append(f"{indent}[{name}] {line[len(indent) :]}")
    return "\n".join(out)


def strip_ephemeral_anchor_ids(text: str) -> str:
    """Remove the anchor ids at the start of lines."""
    return "\n".join(
        line if (match := _ANCHORED.match(line)) is None else match[1] + line[match.end() :]
        for line in text.split("\n")
    )


# --- our own clean step ---------------------------------------------------------------------------------

_OUR_TAGS = lazy_pattern(
    r"</?(?:observations?|observation-group|current-task|suggested-response|thread-title|thread|reflection|"
    r"observation-log|system-reminder|working-memory|carry-over|answer|output|extracted)\b[^<>\n]*>",
    re.IGNORECASE,
)
_OUR_BLOCKS = lazy_pattern(
    r"^[ \t]*<(current-task|suggested-response|thread-title)>.*?</\1>[ \t]*$",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
_FENCE = lazy_pattern(r"^[ \t]*```[\w-]*[ \t]*$", re.MULTILINE)
_BULLET = lazy_pattern(r"^([ \t]*)[-•+][ \t]+")
_TIME = lazy_pattern(
    r"^(?P<head>[ \t]*(?:\*[ \t]+)?(?:->[ \t]*)?(?:[🔴🟡🟢✅]\ufe0f?[ \t]*)?)"
    r"\((?P<time>-?[\d?HhMmXx]{1,3}:[\d?HhMmXx:.]{1,8}(?:[ ]?[AaPp]\.?[Mm]\.?)?)\)[ \t]*"
)
_CLOCK = lazy_pattern(r"(?P<hour>\d\d?):[0-5]\d(?::[0-5]\d)?(?P<half>[ ]?[AaPp]\.?[Mm]\.?)?")


# Terminal sequences, control characters, lone surrogates, and characters that change the direction of a text.
_HIDDEN = lazy_pattern(
    "(?:\x1b\\[|\x9b)[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\\\)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def _drop_impossible_time(match: re.Match[str]) -> str:
    """Remove an impossible time from the beginning of a line."""
    clock = _CLOCK.fullmatch(match["time"])
    hours = range(1, 13) if clock and clock["half"] else range(24)
    return match[0] if clock and int(clock["hour"]) in hours else match["head"]


def clean(text: str) -> str:
    """Clean a log for storing.

    Removes our tags, anchors, control characters, lone surrogates, impossible times and a surrounding code fence;
    bullets become `*`; consecutive empty lines become one.
    """
    text = _OUR_BLOCKS.sub("", text)
    text = strip_ephemeral_anchor_ids(text)
    while (bare := _OUR_TAGS.sub("", text)) != text:
        text = bare
    lines = text.strip().split("\n")
    while len(lines) >= 2 and _FENCE.fullmatch(lines[0]) and _FENCE.fullmatch(lines[-1]):
        lines = "\n".join(lines[1:-1]).strip().split("\n")
        text = "\n".join(lines)
    text = _HIDDEN.sub("", text.replace("\r\n", "\n"))
    lines = [_TIME.sub(_drop_impossible_time, _BULLET.sub(r"\1* ", line)).rstrip() for line in text.split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return text.strip("\n").rstrip()


def clean_line(text: str | None, limit: int = 2_000) -> str | None:
    """Clean a current task or suggested response for storing; None if the result is empty."""
    if text is None:
        return None
    text = clean(text).strip()
    return text[:limit] or None
