"""Widgets: `lines` is the base of those that scroll; `transcript_view` and `transcript` show messages.

`prompt` edits the input, with `vim` keys; `completions` are offered below it.
`approval` and `card` ask; `status` has the header and the last line; `start` fills an empty conversation.
"""
