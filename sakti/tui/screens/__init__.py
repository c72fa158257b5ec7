"""Screens over the chat, based on `panel`: `text` has screens to read, `lists` screens to choose from.

`search` lists hits, which `search_preview` draws; `board` shows tasks and `task_card` one of them;
the other lists are `agents`, `threads`, `settings` and `help`.
`undo` previews an undo; `trust` asks about files of a project; `welcome` is shown on the first start.
Each module is executed at its first use, so that the window starts fast.
"""

from __future__ import annotations

from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.tui.screens import agents as agents
    from sakti.tui.screens import board as board
    from sakti.tui.screens import help as help
    from sakti.tui.screens import lists as lists
    from sakti.tui.screens import panel as panel
    from sakti.tui.screens import search as search
    from sakti.tui.screens import search_preview as search_preview
    from sakti.tui.screens import settings as settings
    from sakti.tui.screens import task_card as task_card
    from sakti.tui.screens import text as text
    from sakti.tui.screens import threads as threads
    from sakti.tui.screens import trust as trust
    from sakti.tui.screens import undo as undo
    from sakti.tui.screens import welcome as welcome
