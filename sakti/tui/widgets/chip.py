"""Show a key with its description or value; a click acts like the key."""

from __future__ import annotations

from textual.widgets import Static


class Chip(Static):
    """`key` and a text; a click runs `action` of its screen. `behind`: a dot precedes it."""

    DEFAULT_CSS = """
    Chip { width: auto; height: 1; margin-right: 2; color: $sakti-muted; }
    Chip:hover { background: $panel; color: $foreground; }
    Chip.-on { color: $sakti-agent; text-style: bold; }
    """

    def __init__(self, key: str, text: str, action: str, *, behind: bool = False, id: str | None = None) -> None:
        super().__init__(f"{'· ' if behind else ''}{key} {text}", id=id, markup=False)
        self._key, self._action = key, action

    def say(self, text: str, *, on: bool) -> None:
        """Set the value that is shown; `on`: other than by default. `text` is safe to show."""
        self.update(f"{self._key} {text}")
        self.set_class(on, "-on")

    async def on_click(self) -> None:
        await self.run_action(self._action)
