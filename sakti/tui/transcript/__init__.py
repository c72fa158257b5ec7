"""Transcript without widgets: a `document` is a list of blocks, drawn as lines of styled text.

`blocks` and `tool` draw; `markdown`, `code` and `wrap` lay text out; `chunks` cuts Markdown while it streams.
`build` makes blocks of stored messages, `live_turn` of a running turn; `selection` finds and copies text; `links`
finds links.
"""
