"""Working memory: one page of stable facts for each workspace or thread, every version of it kept."""

from __future__ import annotations

import re
from typing import Literal

from sakti.core.errors import MemoryFailure
from sakti.core.resources import read_prompt
from sakti.core.tokens import Counter
from sakti.store import working_memory as pages
from sakti.store.database import Store

LIMIT_TOKENS = 2_000
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^[ \t]*(```|~~~)")


def sections(page: str) -> list[tuple[str, str]]:
    """(heading line, body) of each section; what stands before the first heading has an empty one. Headings
    inside code fences are text."""
    out: list[tuple[str, list[str]]] = [("", [])]
    fenced = False
    for line in page.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        if not fenced and _HEADING.match(line):
            out.append((line.rstrip(), []))
        else:
            out[-1][1].append(line)
    return [
        (heading, "\n".join(body).strip("\n")) for heading, body in out if heading or "".join(body).strip()
    ]


def _name(heading: str) -> str:
    match = _HEADING.match(heading)
    return match[2].strip().casefold() if match else ""


def merge(page: str, update: str) -> tuple[str, tuple[str, ...]]:
    """`page` with the sections of `update` in place of those with the same heading (whatever its level or
    case), new ones behind it; text before the first heading replaces that of the page. Returns the page and
    the headings that changed ("" for the text before the first)."""
    out = sections(page)
    changed: list[str] = []
    for heading, body in sections(update):
        name = _name(heading)
        place = next((i for i, (h, _) in enumerate(out) if _name(h) == name), None)
        if place is None:
            out.insert(0 if not heading else len(out), (heading, body))
        elif out[place][1] == body:
            continue
        else:
            out[place] = (out[place][0], body)
        match = _HEADING.match(heading)
        changed.append(match[2] if match else "")
    text = "\n\n".join("\n".join(t for t in (heading, body) if t) for heading, body in out)
    return text, tuple(changed)


def check_size(page: str, counter: Counter) -> int:
    """Tokens of `page`; raises `MemoryFailure` (too_long) above 2,000."""
    tokens = counter.count(page)
    if tokens > LIMIT_TOKENS:
        raise MemoryFailure(
            f"Working memory would have {tokens} tokens; {LIMIT_TOKENS} is the limit. "
            "Shorten a section, or keep details in a file or a task.",
            code="too_long",
        )
    return tokens


async def read(store: Store, *, scope: Literal["resource", "thread"], owner_id: str) -> str:
    """The page as it is, the template where there is none yet."""
    page = await store.read(pages.working_memory, scope, owner_id)
    return page[0] if page else read_prompt("working-memory")


async def update(
    store: Store, counter: Counter, *, scope: Literal["resource", "thread"], owner_id: str, content: str,
    replace: bool = False, actor: str = "", resource_id: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Merge `content` into the page (or put it in its place) and keep a version. Returns the page and the
    headings that changed; nothing changed, nothing written. Raises `MemoryFailure`: empty, too_long,
    conflict."""
    if not content.strip():
        raise MemoryFailure(
            "There is no content: give Markdown sections, each with its heading.", code="empty"
        )
    current = await store.read(pages.working_memory, scope, owner_id)
    before, version = current or (read_prompt("working-memory"), 0)
    page, changed = merge("" if replace else before, content)
    if replace and page == before:
        changed = ()
    if not changed:
        return before, ()
    tokens = check_size(page, counter)
    await store.write(
        pages.put_working_memory, id=store.ids.new(), scope=scope, owner_id=owner_id, content=page,
        tokens=tokens, actor=actor, now=store.clock.now(), expected_version=version,
        resource_id=resource_id or owner_id,
    )
    return page, changed


NOTES = "Notes"


async def add_note(store: Store, counter: Counter, *, owner_id: str, note: str, actor: str = "user") -> str:
    """Add a line to the section "Notes" of a workspace's page, which is made where there is none; returns
    the page. Raises as `update`."""
    page = await read(store, scope="resource", owner_id=owner_id)
    body = next((b for h, b in sections(page) if _name(h) == NOTES.casefold()), "")
    line = f"- {' '.join(note.split())}"
    content = f"# {NOTES}\n{f'{body}{chr(10)}{line}' if body else line}"
    changed, _ = await update(
        store,
        counter,
        scope="resource",
        owner_id=owner_id,
        content=content,
        actor=actor,
        resource_id=owner_id,
    )
    return changed
