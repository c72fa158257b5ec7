"""Random but repeatable input: keys, text, mouse, sizes, suspensions; also run by hand.

`python -m tests.tui.random_input [INPUTS] [SEED]` starts three windows of the program on one database, in terminals of
their own, and gives each its share.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WORDS = [
    *("hello", "/help", "/search foo", "/new", "/threads", "/tasks", "/compact", "/undo", "/redo", "/memory"),
    *("/model", "/settings", "!echo hi", "!sleep 2", "@a.py", "/theme", "/approve", "/context", "/doctor", "/jobs"),
    *("/rename x y", "/export", "/skills", "/rules", "/cost", "/mode", "/clear", "/setup", "/copy", "/diff", "/trust"),
    *("/init", "/nope", "日本語", "e\u0301", "می\u200cخواهم", "#note", '"q', "$x", "[b]x[/b]", "👨\u200d👩"),
    *("long " * 60, "line\n" * 30),
]
KEYS = [
    *("enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "pageup", "pagedown", "home", "end"),
    *("backspace", "delete", "space", *(f"f{n}" for n in range(1, 9)), *(f"ctrl+{c}" for c in "pabdefklnorstuwxy")),
    *("ctrl+underscore", *"ynavxsdbjkgG/?pu1"),
]
SIZES = [(80, 24), (120, 35), (200, 50), (40, 12), (100, 30), (20, 6), (1, 1), (60, 20)]


class Input(NamedTuple):
    """`kind`: key, text, click, wheel, size or suspend; `value` is what it takes."""

    kind: str
    value: object


def inputs(seed: int, count: int) -> Iterator[Input]:
    """Yield `count` inputs; the same for the same seed."""
    chance = random.Random(seed)
    while count > 0:
        draw = chance.random()
        if draw < 0.2:
            batch = [Input("text", chance.choice(WORDS)), *([Input("key", "enter")] if chance.random() < 0.7 else [])]
        elif draw < 0.8:
            batch = [Input("key", chance.choice(KEYS)) for _ in range(chance.randint(1, 5))]
        elif draw < 0.95:
            batch = [Input(chance.choice(["click", "click", "wheel"]), (chance.random(), chance.random()))]
        elif draw < 0.99:
            batch = [Input("size", chance.choice(SIZES))]
        else:
            batch = [Input("suspend", None)]
        yield from batch[:count]
        count -= len(batch)


# --- by hand: three programs in terminals ---------------------------------------------------------------------

_BYTES = {
    **{"enter": "\r", "escape": "\x1b", "tab": "\t", "shift+tab": "\x1b[Z", "backspace": "\x7f", "space": " "},
    **{"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F"},
    **{"pageup": "\x1b[5~", "pagedown": "\x1b[6~", "delete": "\x1b[3~", "ctrl+underscore": "\x1f"},
    **{f"f{n}": f"\x1bO{'PQRS'[n - 1]}" for n in range(1, 5)},
    **{f"f{n}": f"\x1b[{code}~" for n, code in zip(range(5, 9), (15, 17, 18, 19), strict=True)},
}


def as_bytes(one: Input, size: tuple[int, int]) -> str:
    """Return what a terminal of that size sends for an input."""
    if one.kind in ("click", "wheel"):
        across, down = one.value  # type: ignore[misc]
        at = f"{1 + int(across * size[0])};{1 + int(down * size[1])}"
        return f"\x1b[<0;{at}M\x1b[<0;{at}m" if one.kind == "click" else f"\x1b[<{64 + (across > 0.5)};{at}M"
    text = str(one.value)
    if one.kind == "text":
        return f"\x1b[200~{text}\x1b[201~" if "\n" in text else text
    return _BYTES.get(text) or (chr(ord(text[-1]) & 31) if text.startswith("ctrl+") else text)


def main(count: int, seed: int) -> int:
    """Return how many of three windows ended or no longer take a key."""
    from tests.e2e import terminal
    from tests.e2e.conftest import Place
    from tests.e2e.server import serving

    terminal.BOUND = 120.0
    with serving() as model, tempfile.TemporaryDirectory(prefix="sakti-random-") as folder:
        place = Place(Path(folder) / "w", Path(folder) / "h", model)
        place.folder.mkdir()
        place.home.mkdir()
        (place.folder / "a.py").write_text("def f():\n    return 1\n")
        place.env |= {"VISUAL": "true"}
        windows = [place.open(size=(100, 30)) for _ in range(3)]
        for window in windows:
            end_flow_control(window)
        failed = 0
        try:
            for window in windows:
                window.started()
            shares = [inputs(seed + n, count // 3 + (n < count % 3)) for n in range(3)]
            sent = 0
            for together in zip(*shares, strict=False):
                for window, one in zip(windows, together, strict=True):
                    if window.process.poll() is None:
                        send(window, one)
                        sent += 1
                if sent % 300 < 3:
                    print(f"{sent} inputs, running: {[w.process.poll() is None for w in windows]}", flush=True)
            failed = sum(not answers(w) for w in windows)
            print(f"{sent} inputs in 3 windows, seed {seed}: {failed} windows failed", flush=True)
            log = place.home / "state" / "sakti" / "tui.log"
            print(log.read_text() if log.exists() else "no error was logged", flush=True)
        finally:
            for window in windows:
                window.__exit__(None, None, None)
    return failed


def end_flow_control(window: object) -> None:
    """Let Ctrl+S be a key like others: while the program is suspended, it would stop all output until Ctrl+Q."""
    from tests.e2e.terminal import Terminal

    assert isinstance(window, Terminal)
    attributes = termios.tcgetattr(window._fd)
    attributes[0] &= ~termios.IXON
    termios.tcsetattr(window._fd, termios.TCSANOW, attributes)


def send(window: object, one: Input) -> None:
    """Give a window one input, and read what it painted."""
    from tests.e2e.terminal import Terminal

    assert isinstance(window, Terminal)
    if one.kind == "size":
        window.resize(*one.value)  # type: ignore[misc]
    elif one.kind == "suspend":
        for number in (signal.SIGTSTP, signal.SIGCONT):
            os.kill(window.process.pid, number)
            time.sleep(0.2)
    else:
        window.bytes(as_bytes(one, (window.columns, window.lines)).encode())
    with contextlib.suppress(TypeError):  # a terminal echoes input while it is suspended: it may cut a sequence in two
        window.read(0.02)


def answers(window: object) -> bool:
    """Return whether the program runs and a typed word reaches the prompt."""
    from tests.e2e.terminal import Terminal

    assert isinstance(window, Terminal)
    if window.process.poll() is not None:
        print(f"ended with {window.process.poll()}:\n{window.raw[-2000:]!r}")
        return False
    window.process.send_signal(signal.SIGCONT)
    window.resize(100, 30)
    end = time.monotonic() + 120
    for number in range(40):
        window.keys("\x1b")
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            window.read(0.05)
        if number > 5 and "Message sakti" not in window.text:
            window.keys("\x15")  # a draft
        if number > 3 and "Message sakti" in window.text and "esc prompt" not in window.text:
            break
    window.keys("alive")
    while "alive" not in window.text and time.monotonic() < end:
        if not window.read(0.1):
            break
    if "alive" not in window.text:
        print(f"takes no keys:\n{window.text}")
    return "alive" in window.text


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]]
    raise SystemExit(main(*(numbers + [10_000, 1][len(numbers) :])))
