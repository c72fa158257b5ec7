"""A unified diff as coloured lines."""

from __future__ import annotations

from rich.segment import Segment

from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import TAB, Line, fold_line, made_from, pad


def diff_counts(diff: str) -> tuple[int, int]:
    """Lines added and removed."""
    rows = [r for r in diff.split("\n") if not r.startswith(("+++", "---"))]
    return sum(r.startswith("+") for r in rows), sum(r.startswith("-") for r in rows)


def diff_lines(diff: str, width: int, palette: Palette, limit: int | None = None) -> list[Line]:
    """`diff`, sanitised before, as lines of `width` cells; with `limit`, at most so many and a note of the rest.

    File headers are left out: the line above already names the file.
    """
    out: list[Line] = []
    rows = [r for r in diff.rstrip("\n").split("\n") if not r.startswith(("+++", "---", "diff ", "index "))]
    seen_hunk = False
    for number, row in enumerate(rows):
        if limit is not None and len(out) >= limit and number + 1 < len(rows):  # one more line takes no more room
            out.append([Segment(f"… {len(rows) - number} more lines", palette.faint)])
            break
        if row.startswith("@@"):
            if seen_hunk:
                out.append([Segment("⋯", palette.faint)])
            seen_hunk = True
            continue
        text = row.expandtabs(TAB)
        if row.startswith("+"):
            style = palette.added
        elif row.startswith("-"):
            style = palette.removed
        else:
            out += made_from(fold_line([(f" {text}", palette.muted)], width), row)
            continue
        lines = [pad(line, width, style) for line in fold_line([(f"{text[0]} {text[1:]}", style)], width)]
        out += made_from(lines, row)
    return out
