"""A paste of ten megabytes into a real terminal: one sign in the prompt, keys before and after it where they belong."""

from __future__ import annotations

import threading

from tests.e2e.conftest import Place
from tests.e2e.terminal import BOUND, Terminal

LINE = "line of a log, with an é and \x1b[31mcolours\x1b[0m\n"
LINES = 10_000_000 // len(LINE.encode())


def send(terminal: Terminal, data: bytes) -> None:
    """Write while the screen is read: neither side may fill its buffer."""
    writer = threading.Thread(target=terminal.bytes, args=(data,), daemon=True)
    writer.start()
    while writer.is_alive():
        assert terminal.read(0.05)
    writer.join()


def test_ten_megabytes_become_one_sign_and_keys_stay_keys(place: Place) -> None:
    with place.open() as terminal:
        terminal.started()
        send(terminal, b"see " + b"\x1b[200~" + LINE.encode() * LINES + b"\x1b[201~" + b" please")
        terminal.until(f"see [pasted {LINES} lines] please")
        terminal.keys("\x7f" * len(" please"))
        terminal.until(lambda text: "lines]" in text and "please" not in text, "the words behind it are gone")
        terminal.keys("\x7f")
        terminal.until(lambda text: "see" in text and "pasted" not in text, "it goes as one")
        terminal.keys("\x7f" * 4)
        terminal.until("Message sakti")
        assert terminal.quit() == 0


def test_what_is_pasted_is_kept_as_it_was(place: Place) -> None:
    """The draft that a closed window leaves is the whole paste, with the escapes in it."""
    text = "".join(f"{n} é 🙂 \x1b[{n}m \x1b[200~\n" for n in range(3_000))
    with place.open() as terminal:
        terminal.started()
        send(terminal, f"\x1b[200~{text}\x1b[201~".encode())
        terminal.until("[pasted 3000 lines]")
        terminal.hang_up()
        terminal.process.wait(BOUND)
    assert place.rows("SELECT draft FROM unsent") == [(text,)]
