"""Draw the health report in the conversation: problems first, with coloured signs."""

from __future__ import annotations

from rich.segment import Segment

from sakti.core.text import one_line
from sakti.tui.palette import Palette
from sakti.tui.transcript.blocks import SIGN, Block
from sakti.tui.transcript.wrap import Line, indent, row_of, wrap


class FindingsBlock(Block, eq=False):
    """Lines that begin with ✓, ! or ✗; the details of a ✓ line are muted."""

    title: str = ""
    findings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.title = one_line(self.title, 100)
        self.findings = tuple(one_line(f, 500) for f in self.findings)

    def plain(self) -> str:
        return "\n".join([self.title, *self.findings])

    def render(self, width: int, palette: Palette) -> list[Line]:
        bar = Segment("  ┃ ", palette.agent)
        out = indent(wrap([(self.title, palette.bold)], width - 4), bar)
        for finding in self.findings:
            sign, _, text = finding.partition(" ")
            style = {"✓": palette.ok, "!": palette.warn}.get(sign, palette.bad)
            name, colon, detail = text.partition(": ")
            spans = [(name + colon, palette.text), (detail, palette.muted if sign == "✓" else palette.text)]
            first, *rest = wrap([s for s in spans if s[0]], max(8, width - 6))
            out.append(row_of(first).behind([bar, Segment(f"{sign} ", style)], SIGN))
            out += indent(indent(rest, Segment("  ")), bar)
        return out

    def estimate(self, width: int) -> int:
        return 1 + len(self.findings) + self.gap
