"""Transcript without widgets: `document` is a list of blocks, drawn as lines of styled text.

`blocks` and `tool` draw; `markdown`, `code` and `wrap` lay text out; `split` cuts Markdown while it streams.
`build` makes blocks of stored messages, `live` of a running turn; `copying` finds and copies text; `links` finds links.
"""
