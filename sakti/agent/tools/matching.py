"""Find the text that a model wants to replace, as exactly as possible, and replace it.

Tried in this order, and taken only if it is unique: the text itself; without blanks at line ends; with another
indentation (the new lines get it, too); with plain characters for typographic ones, composed (NFC). Line numbers that
were copied along with the text are dropped. Parts that are equal in old and new keep their bytes.
"""

from __future__ import annotations

import bisect
import difflib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from sakti.agent.tools import textfile
from sakti.agent.tools.textfile import Line, fold_text, merge_change, unfold
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern

NEAR_LINES = 5_000  # lines among which a similar one is looked for
SHOWN = 2_000  # characters of the nearest match

_NUMBER = lazy_pattern(r" {0,8}(\d{1,7})(?:\t|→| ?\| ?)")


class Change(Struct, frozen=True):
    """One replacement; `all` replaces every occurrence."""

    old: str
    new: str
    all: bool = False


class MatchPlace(Struct, frozen=True):
    """Position of a match, from a column of one line to a column of another.

    A column after a line's body is also after its line end. `indents` maps each indentation in the searched text to
    the one in the file.
    """

    first: int
    start: int
    last: int
    end: int
    indents: Mapping[str, str] | None = None


class FileLines:
    r"""Lines of a file, and the same with \n for every line end."""

    def __init__(self, text: str) -> None:
        self.lines = textfile.split_lines(text)
        self.end = textfile.find_line_end(self.lines)

    def places(self, old: str, fold: Callable[[str], str], back: Callable[[str, int], int]) -> list[MatchPlace]:
        """Return the places of `old`, compared with the file line by line through `fold`.

        `back` maps a column of a folded line to one of the line itself.
        """
        folded = "\n".join(map(fold, old.split("\n")))
        if fold is not str and (not folded.strip() or folded.endswith("\n") != old.endswith("\n")):
            return []  # nothing remains to look for, or its last line became empty
        matches = self._find(folded, [fold(line.body) for line in self.lines], back)
        if old[-1:] not in " \t" or fold is str:
            return matches
        # blanks at its end were dropped: it may not end inside a word
        return [p for p in matches if p.end >= len(fold(self.lines[p.last].body))]

    def _find(self, wanted: str, bodies: list[str], back: Callable[[str, int], int]) -> list[MatchPlace]:
        full_text = "\n".join(bodies) + (
            "\n" if bodies else ""
        )  # as if the last line ended: edits are merged with care
        starts = list(itertools.accumulate((len(b) + 1 for b in bodies), initial=0))[: len(bodies)]
        out: list[MatchPlace] = []
        at = full_text.find(wanted)
        while at >= 0:
            stop = at + len(wanted)
            first, last = bisect.bisect_right(starts, at) - 1, bisect.bisect_right(starts, stop - 1) - 1
            begin, end = at - starts[first], stop - starts[last]
            out.append(
                MatchPlace(
                    first,
                    back(self.lines[first].body, begin),
                    last,
                    self._find_end_column(last, end, bodies[last], back),
                )
            )
            at = full_text.find(wanted, stop)
        if len(out) > 1 and not self.lines[-1].end and out[-1].end > len(self.lines[-1].body):
            out.pop()  # it needs a line end that is not there, and others do not
        return out

    def _find_end_column(self, number: int, end: int, folded_body: str, back: Callable[[str, int], int]) -> int:
        """Return the end column of a match in the line itself, with trailing blanks that were folded away."""
        body = self.lines[number].body
        if end > len(folded_body):
            return len(body) + 1
        return len(body) if end == len(folded_body) else back(body, end)

    def find_indented(self, old: str, fold: Callable[[str], str]) -> list[MatchPlace]:
        """Return the places of the lines of `old` with another indentation, mapped consistently."""
        old_lines = old.removesuffix("\n").split("\n")
        bare = [fold(w).strip() for w in old_lines]
        if not any(bare):
            return []
        bodies = [fold(line.body).strip() for line in self.lines]
        out: list[MatchPlace] = []
        behind = 0
        for i in _find_runs(bodies, bare):
            indents = _map_indents(old_lines, [line.body for line in self.lines[i : i + len(bare)]])
            if i < behind or indents is None:
                continue
            behind = i + len(bare)
            body = self.lines[behind - 1].body
            out.append(MatchPlace(i, 0, behind - 1, len(body) + (1 if old.endswith("\n") else 0), indents))
        return out

    def replace_at(self, places: Sequence[MatchPlace], change: Change) -> str:
        """Return the entire text after the change at all `places`, which are in order."""
        old, new = _split_lines(change.old), _split_lines(change.new)
        out: list[str] = []
        line = column = 0
        for place in places:
            out.append(self._get_between(line, column, place.first, place.start))
            there = self._cut_lines(place)
            adapt = _make_reindent(place.indents) if place.indents else str
            out.append(merge_change(there, old, new, self._end_near(place), adapt))
            line, column = place.last, place.end
            if column > len(self.lines[line].body):
                line, column = line + 1, 0
        out.append(self._get_between(line, column, len(self.lines), 0))
        return "".join(out)

    def _cut_lines(self, place: MatchPlace) -> list[Line]:
        """Return the lines of a place, the first and the last cut to it."""
        out = self.lines[place.first : place.last + 1]
        if place.end <= len(out[-1].body):
            out[-1] = Line(out[-1].body[: place.end], "")
        out[0] = Line(out[0].body[place.start :], out[0].end)
        return out

    def _get_between(self, line: int, column: int, last: int, end: int) -> str:
        if line > last or line >= len(self.lines):
            return ""
        if line == last:
            return self.lines[line].body[column:end]
        pieces = [self.lines[line].body[column:] + self.lines[line].end]
        pieces += [each.body + each.end for each in self.lines[line + 1 : last]]
        return "".join(pieces) + (self.lines[last].body[:end] if last < len(self.lines) else "")

    def _end_near(self, place: MatchPlace) -> str:
        """Return the line end for new lines: that of the first replaced line, else of the line before."""
        near = [*self.lines[place.first : place.last + 1], *self.lines[max(0, place.first - 1) : place.first]]
        return next((line.end for line in near if line.end), self.end)


def _split_lines(text: str) -> list[Line]:
    pieces = text.split("\n")
    last = pieces.pop()
    return [*(Line(p, "\n") for p in pieces), *([Line(last, "")] if last else [])]


def _keep_column(_body: str, column: int) -> int:
    return column


def _trim(body: str) -> str:
    return body.rstrip(" \t")


def _fold(body: str) -> str:
    return fold_text(body).rstrip(" \t")


def list_matches(text: FileLines, old: str) -> Iterator[list[MatchPlace]]:
    """Yield the matches of each level, the most exact first."""
    yield text.places(old, str, _keep_column)
    yield text.places(old, _trim, _keep_column)
    yield text.find_indented(old, _trim)
    yield text.places(old, _fold, unfold)
    yield text.find_indented(old, _fold)


def _check_change(change: Change) -> None:
    """Raise `ToolError` for a change that changes nothing, or names no text."""
    if change.old == change.new:
        raise ToolError("the old and the new text are the same; nothing was changed.", code="same")
    if not change.old:
        raise ToolError("the old text is empty; say which text is to be replaced. To create a new file use write.")


def apply_change(text: str, change: Change, name: str) -> str:
    """Return `text` after one change, with its line ends.

    Raises `ToolError` if the old text does not occur, or more than once; `name` is the file's, for the message.
    """
    _check_change(change)
    if (replaced := _replace_exact(text, change, name)) is not None:
        return replaced
    full_text = FileLines(text)
    plain_change = Change(textfile.normalize_ends(change.old), textfile.normalize_ends(change.new), change.all)
    for each in (plain_change, strip_line_numbers(plain_change)):
        for places in list_matches(full_text, each.old) if each is not None else ():
            if len(places) > 1 and not change.all:
                raise _make_ambiguity_error(len(places), [p.first + 1 for p in places], name)
            if places:
                assert each is not None
                return full_text.replace_at(places, each)
    raise ToolError(f"that text is not in {name}; nothing was changed.{_describe_near(full_text, plain_change)}")


def _replace_exact(text: str, change: Change, name: str) -> str | None:
    """Return `text` after a change that needs no comparison line by line; None for any other."""
    if "\r" in change.old + change.new and (count := text.count(change.old)):
        if count > 1 and not change.all:
            raise _make_ambiguity_error(count, [], name)
        return text.replace(change.old, change.new)  # explicit line ends are intentional
    if "\r" not in text and (text.count(change.old) == 1 or (change.all and change.old in text)):
        return text.replace(change.old, change.new)  # same result as below, which takes seconds for large files
    return None


def _make_ambiguity_error(count: int, at: Sequence[int], name: str) -> ToolError:
    where = f" (lines {', '.join(map(str, at[:8]))}{' …' if len(at) > 8 else ''})" if at else ""
    return ToolError(
        f"that text occurs {count} times in {name}{where}; nothing was changed. Give more lines around it, or set all."
    )


def strip_line_numbers(change: Change) -> Change | None:
    """Return `change` without the line numbers that `read` shows, if each line of the old text has one."""
    numbers: list[int] = []
    for line in change.old.removesuffix("\n").split("\n"):
        match = _NUMBER.match(line)
        if match is None:
            return None
        numbers.append(int(match[1]))
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    bare = [_NUMBER.sub("", line, count=1) for line in change.old.split("\n")]
    new = [_NUMBER.sub("", line, count=1) for line in change.new.split("\n")]
    return Change("\n".join(bare), "\n".join(new), change.all)


# --- indentation ------------------------------------------------------------------------------------------------------


def _get_indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _find_runs(bodies: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    anchor = next(i for i, w in enumerate(wanted) if w)
    for i, body in enumerate(bodies):
        start = i - anchor
        if body == wanted[anchor] and start >= 0 and list(bodies[start : start + len(wanted)]) == list(wanted):
            yield start


def _map_indents(wanted: Sequence[str], there: Sequence[str]) -> dict[str, str] | None:
    """Map each indentation in `wanted` to the file's; None if one maps to two."""
    out: dict[str, str] = {}
    for theirs, ours in zip(wanted, there, strict=True):
        if theirs.strip() and out.setdefault(_get_indent(theirs), _get_indent(ours)) != _get_indent(ours):
            return None
    return out


def _make_reindent(indents: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that gives a new line the file's indentation.

    That of a line that was indented alike, else of the nearest shorter one, with the difference in the file's own
    unit.
    """
    tabs = any("\t" in there for there in indents.values())
    unit = _find_tab_width(indents)

    def more(extra: str) -> str:
        if tabs and "\t" not in extra:
            return "\t" * round(len(extra) / unit)
        return extra if tabs else extra.replace("\t", " " * unit)

    def adapt(line: str) -> str:
        indent = _get_indent(line)
        if not line.strip() or indent in indents:
            return indents.get(indent, indent) + line[len(indent) :]
        shorter = [closest for closest in indents if indent.startswith(closest)]
        if shorter:
            closest = max(shorter, key=len)
            return indents[closest] + more(indent[len(closest) :]) + line[len(indent) :]
        closest = min(indents, key=len)
        less = more(closest[len(indent) :]) if closest.startswith(indent) else ""
        return indents[closest].removesuffix(less) + line[len(indent) :]

    return adapt


def _find_tab_width(indents: Mapping[str, str]) -> int:
    """Return the number of blanks of a tab by the known pairs; 4 if they do not show it."""
    pairs = [(a, b) if "\t" in b else (b, a) for a, b in indents.items()]
    widths = [len(blanks) // tabs.count("\t") for blanks, tabs in pairs if "\t" in tabs and "\t" not in blanks]
    return max([t for t in widths if t], default=4)


# --- what to say where nothing is found -------------------------------------------------------------------------------


def _describe_near(text: FileLines, change: Change) -> str:
    done = text.places(change.new, str, _keep_column) if change.new.strip() else []
    already = f" The new text is already there, at line {done[0].first + 1}." if len(done) == 1 else ""
    return already + _describe_nearest(text, change.old)


def _describe_nearest(text: FileLines, old: str) -> str:
    """Describe the place of text similar to `old`, with the first difference made visible."""
    old_lines = old.removesuffix("\n").split("\n")
    bodies = [line.body.strip() for line in text.lines]
    for i in sorted(range(len(old_lines)), key=lambda i: -len(old_lines[i].strip()))[:3]:
        anchor = old_lines[i].strip()
        if not anchor:
            break
        alike = [anchor] if anchor in bodies else difflib.get_close_matches(anchor[:300], bodies[:NEAR_LINES], 1, 0.6)
        if alike:
            return _render_lines(text, old_lines, max(0, bodies.index(alike[0]) - i))
    return ""


def _render_lines(text: FileLines, wanted: Sequence[str], at: int) -> str:
    there = [line.body for line in text.lines[at : at + len(wanted)]]
    body = "\n".join(there)[:SHOWN]
    differs = next(((n, a, b) for n, (a, b) in enumerate(zip(there, wanted, strict=False)) if a != b), None)
    if differs is None:
        return f" The nearest, at line {at + 1}, is:\n{body}"
    n, ours, theirs = differs
    return (
        f" The nearest, at line {at + 1}, is:\n{body}\n"
        f"[First difference, in line {at + n + 1}; · is a blank, → a tab:\n"
        f"file:  {show_blanks(ours)}\nyours: {show_blanks(theirs)}]"
    )


def show_blanks(line: str) -> str:
    """Make white space and non-ASCII characters of a line visible, at most 300 characters."""
    out = line[:300].replace(" ", "·").replace("\t", "→").replace("\r", "␍")
    return "".join(c if c.isprintable() or c in "·→␍" else f"\\u{ord(c):04x}" for c in out)
