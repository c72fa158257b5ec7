"""Collect all key bindings, default and custom, and format keys for display."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import unicodedata
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from msgspec import Struct
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key, key_to_character  # pyright: ignore[reportPrivateUsage]
from textual.message_pump import MessagePump
from textual.widgets import Input, TextArea

from sakti.core.text import quote, to_one_line

_REORDERING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))  # classes of Unicode
SHORT_NAMES = {"escape": "esc", "shift+tab": "⇧⇥"}  # else as pressed: `^P`, `F3`, `[`, `shift+enter`
SUSPEND = Binding("ctrl+z", "app.suspend_process", "Suspend", show=False, priority=True, id="app.suspend")
KEY_SIGNS = {"slash": "/", "plus": "+", "minus": "-"}  # names that Textual does not translate back


def is_text(event: events.Key) -> bool:
    """Return whether a key types a character, including joiners, direction marks and wide spaces.

    Textual accepts printable characters only, which would break Persian, Indic scripts and composed emoji. Characters
    that reorder the text around them are excluded, as in `sanitize_typed`.
    """
    character = event.character or ""
    if event.is_printable or len(character) != 1:
        return event.is_printable
    return (
        unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        and unicodedata.bidirectional(character) not in _REORDERING
    )


def iter_bindings(owner: type[Any]) -> Iterator[Binding]:
    """Yield the bindings that a class itself declares."""
    yield from (b for b in owner.__dict__.get("BINDINGS", ()) if isinstance(b, Binding))


def apply_custom_key(binding: Binding, own: Mapping[str, str]) -> Binding:
    """Return `binding` with the user's custom keys, if there are any."""
    keys = own.get(binding.id or "")
    return replace(binding, key=keys, key_display=None) if keys else binding


def format_key(key: str) -> str:
    """Format a key as printed on the keyboard: `[` for left_square_bracket."""
    sign = KEY_SIGNS.get(key.strip()) or key_to_character(key.strip())
    return sign if sign is not None and sign.isprintable() and not sign.isspace() else key.strip()


def abbreviate_key(keys: str) -> str:
    """Abbreviate the first of `keys` for a narrow line: `^P`, `F3`, `esc`."""
    first = keys.partition(",")[0].strip()
    if first in SHORT_NAMES:
        return SHORT_NAMES[first]
    sign = format_key(first)
    if sign.startswith("ctrl+") and len(sign) == len("ctrl+x"):
        return f"^{sign[-1].upper()}"
    return sign.upper() if sign[:1] == "f" and sign[1:].isdecimal() else sign


def format_keys(keys: Iterable[str]) -> str:
    """Format several keys: `shift+enter, ctrl+j`."""
    return ", ".join(format_key(k) for k in keys)


# --- the order of keys --------------------------------------------------------------------------------------

MAX_WAIT_S = 0.25  # maximum seconds that a key waits for the effect of the one before it
POLL_S = 0.002  # seconds between checks of a busy widget
SETTLE_ROUNDS = 2  # an action may post a message that moves the focus


class KeyQueue:
    """Handles keys and pastes one by one, so that those of a burst act as if they were typed slowly.

    Textual reads an entire burst before the first key has moved the focus or opened a screen. A letter typed into an
    input line has no such effect, so the next key is handled at once.
    """

    def __init__(self, app: App[Any], handle: Callable[[events.Key | events.Paste], Awaitable[None]]) -> None:
        self._app, self._handle = app, handle
        self._settling: asyncio.Task[None] | None = None
        self.waiting: deque[events.Key | events.Paste] = deque()

    def admit(self, event: events.Key | events.Paste) -> bool:
        """Return whether a key can be handled now; otherwise queue it behind those before it."""
        if self._settling is not None:
            self.waiting.append(event)
        return self._settling is None

    def wait_for_effect(self, event: events.Key | events.Paste) -> None:
        """Queue later keys until this one has had its effect."""
        if (start := self._find_target(event)) is not None:
            self._settling = asyncio.create_task(self._handle_waiting(start))

    def _find_target(self, event: events.Key | events.Paste) -> MessagePump | None:
        """Return the widget where the effect of a key begins; None for text typed into a line."""
        if not self._app.screen_stack:  # the window is closing
            return None
        focused = self._app.focused
        is_typed = isinstance(event, events.Paste) or is_text(event)
        return None if is_typed and isinstance(focused, Input | TextArea) else focused or self._app.screen

    async def _handle_waiting(self, start: MessagePump | None) -> None:
        try:
            while start is not None:
                await self._settle(start)
                start = None
                while self.waiting and start is None:
                    event = self.waiting.popleft()
                    await self._handle(event)
                    start = self._find_target(event)
        except Exception as error:
            self._app._handle_exception(error)  # pyright: ignore[reportPrivateUsage]  as for the first key
        finally:
            self._settling = None

    async def _settle(self, start: MessagePump) -> None:
        """Wait until the messages of a key, and those caused by them, are handled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_S):
                for _ in range(SETTLE_ROUNDS):
                    nodes = [start, *start.ancestors] if isinstance(start, DOMNode) else [start]
                    for node in dict.fromkeys((*nodes, self._app.screen, self._app)):
                        await _drain(node)
                    start = self._app.focused or self._app.screen


async def _drain(node: MessagePump) -> None:
    """Wait until a widget has handled its current queue or has been removed."""
    done = asyncio.Event()
    spins = 0
    while not done.is_set() and node.is_running and (spins or node.call_later(done.set)):
        spins += 1
        await asyncio.sleep(0 if spins < 100 else POLL_S)


# --- custom keys --------------------------------------------------------------------------------------------

MODIFIERS = {"ctrl", "shift", "alt", "super", "hyper", "meta"}
NAMED_KEYS = {k.value for k in Keys} | {"space"}
TYPING_PARTS = ("Everywhere", "Prompt")  # parts whose keys are active while the user types
PANE_GROUPS = (("Panes", "Memory"), ("Panes", "Observations", "Lists"), ("Panes", "Tasks", "Lists"))
SHARED_GROUPS = (TYPING_PARTS, *PANE_GROUPS)  # parts whose keys are active at the same time


class Keymap(Struct, frozen=True):
    """Keys by binding id, separated by commas, and the problems with keys in the settings."""

    keys: Mapping[str, str]
    problems: tuple[str, ...] = ()


def make_keymap(wanted: Mapping[str, Any], parts: Iterable[tuple[str, type[Any]]]) -> Keymap:
    """Check the keys in the settings against the bindings of all `parts`.

    An unknown binding, an invalid key, or a key that is already in use is skipped with a problem: the default key
    stays.
    """
    declared = {b.id: (part, b.key) for part, owner in parts for b in iter_bindings(owner) if b.id}
    chosen: dict[str, str] = {}
    problems: list[str] = []
    for binding_id, value in wanted.items():
        name, new_keys = to_one_line(binding_id, 60), _parse_keys(value)
        if binding_id not in declared:
            near = difflib.get_close_matches(binding_id, list(declared), 1)
            hint = f"did you mean {near[0]}?" if near else "F1 shows the ids."
            problems.append(f"There is no binding {name}: {hint}")
        elif not new_keys:
            problems.append(
                f'{name} = {quote(str(value), 40)} is not a key: write it as "ctrl+l", "f9" or "alt+enter".'
            )
        elif declared[binding_id][0] in TYPING_PARTS and any(_is_text(k) for k in new_keys):
            problems.append(f"{name} cannot be {format_keys(new_keys)}: they type text.")
        else:
            chosen[binding_id] = ",".join(new_keys)
    while clash := _find_clash(chosen, declared):
        key, custom_id, other = clash
        del chosen[custom_id]
        problems.append(
            f"{format_key(key)} is already used for {other}: "
            f"{custom_id} keeps {format_keys(declared[custom_id][1].split(','))}."
        )
    return Keymap(chosen, tuple(problems))


def _parse_keys(value: Any) -> list[str]:
    """Return the keys of a setting by their Textual names; [] if one of them cannot be pressed."""
    texts = cast("list[Any]", value) if isinstance(value, list) else value.split(",") if isinstance(value, str) else []
    names = [_parse_key(str(text).strip()) for text in texts]
    return [] if "" in names else names


def _parse_key(key: str) -> str:
    """Return the Textual name of a key such as `ctrl+x`, `?` or `Enter`; "" if it is not a key."""
    *modifiers, last = key.split("+") if key != "+" and not key.endswith("++") else [*key[:-2].split("+"), "+"]
    modifiers = [m.lower() for m in modifiers if m]
    if len(last) == 1:
        last = _character_to_key(last)
    elif (last := last.lower()) not in NAMED_KEYS and key_to_character(last) is None and last not in KEY_SIGNS:
        return ""
    return "+".join([*modifiers, last]) if set(modifiers) <= MODIFIERS else ""


def _is_text(key: str) -> bool:
    return "+" not in key and (len(key) == 1 or key == "space" or key in KEY_SIGNS or key_to_character(key) is not None)


def _find_clash(chosen: Mapping[str, str], declared: Mapping[str, tuple[str, str]]) -> tuple[str, str, str] | None:
    """Find a key that a custom binding now shares with another binding of the same part."""
    for custom_id in reversed(list(chosen)):
        part = declared[custom_id][0]
        for other, (where, keys) in declared.items():
            together = where == part or any(where in group and part in group for group in SHARED_GROUPS)
            if other == custom_id or not together or set(keys.split(",")) & set(declared[custom_id][1].split(",")):
                continue
            shared = set(chosen[custom_id].split(",")) & set(chosen.get(other, keys).split(","))
            if shared:
                return min(shared), custom_id, other
    return None
