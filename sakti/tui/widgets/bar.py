"""Paint Textual's scroll bar directly as strips; through Rich it costs as much as all the text."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import cast

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget


def paint_fast(bar: ScrollBar) -> None:
    """Let `bar`, a vertical one, paint itself so from now on."""
    if "render_lines" not in vars(bar):
        bar.render_lines = partial(_lines, bar)


def _lines(bar: ScrollBar, crop: Region) -> list[Strip]:
    styles = cast("Widget", bar.parent).styles
    if bar.grabbed:
        background, colour = styles.scrollbar_background_active, styles.scrollbar_color_active
    elif bar.mouse_over:
        background, colour = styles.scrollbar_background_hover, styles.scrollbar_color_hover
    else:
        background, colour = styles.scrollbar_background, styles.scrollbar_color
    background = cast("Widget", bar.parent).background_colors[0] + background
    drawn = ScrollBarRender.render_bar(
        size=bar.size.height,
        virtual_size=bar.window_virtual_size,
        window_size=bar.window_size if bar.window_size < bar.window_virtual_size else 0,
        position=bar.position,
        thickness=bar.thickness,
        vertical=True,
        back_color=background.rich_color,  # pyright: ignore[reportArgumentType]
        bar_color=(background + colour).rich_color,  # pyright: ignore[reportArgumentType]
    )
    under, bar_color = bar.background_colors
    around = ground(under + bar_color)
    strips: list[Strip] = []
    last, strip = None, Strip.blank(bar.size.width)
    for segment in list(drawn.segments)[crop.y : crop.bottom]:
        if segment is not last:
            last, strip = segment, _cell(segment, around)
            for one in bar.get_line_filters():
                strip = strip.apply_filter(one, background)
        strips.append(strip)
    if crop.column_span != (0, bar.size.width):
        strips = [strip.crop(*crop.column_span) for strip in strips]
    return strips


@lru_cache(maxsize=128)
def _cell(segment: Segment, around: Style) -> Strip:
    """Return the strip of a cell, one for each look: it knows how it is written when it comes again."""
    return Strip(Segment.apply_style([segment], around))


@lru_cache(maxsize=32)
def ground(background: Color) -> Style:
    """Return a style that is a background alone."""
    return VisualStyle(background=background).rich_style
