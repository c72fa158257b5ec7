"""Screens over the chat, all made from `panel`; `text` has those to read in, `lists` those that choose one.

`search` shows hits of `search_preview`; `board` tasks and `task_card` one; `agents`, `threads`, `settings`, `help`.
`undo` previews an undo; `trust` asks about files of a project; `welcome` is shown on the first start.
"""
