"""Store threads and their messages.

`threads` lists and changes threads, `messages` stores messages, their summaries and requests, `codec` converts parts
to JSON. `fork` begins a thread from another or with a block of earlier work; `removal` deletes.
`runs` are the calls of child threads and the commands that run in the background.
"""
