"""The SDKs load on the first keystroke, beside what the user types."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Place
from tests.e2e.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def has_loaded_an_sdk(t: Terminal) -> bool:
    """Return whether the library that both SDKs bring is mapped into the process."""
    return "pydantic_core" in Path(f"/proc/{t.process.pid}/maps").read_text()


@pytest.mark.parametrize("name", ["openai/bench", "anthropic/bench"])
def test_no_sdk_is_loaded_before_the_first_key(place: Place, name: str) -> None:
    with place.open(model=name, forked=False) as t:
        t.started().until_idle()
        assert not has_loaded_an_sdk(t)
        t.keys("h")
        t.until(lambda _: has_loaded_an_sdk(t), "the SDK")
        assert t.quit() == 0


def test_typing_goes_on_while_the_sdk_of_a_sent_prompt_loads(place: Place) -> None:
    place.model.play("hello", "All good.")
    with place.open(model="anthropic/bench", forked=False) as t:
        t.started()
        t.keys("hello\r")
        t.keys("and more")
        t.until("and more")
        t.until("All good.")
        assert t.quit() == 0
    place.sound()
