"""Store threads and their messages.

`threads` lists and changes threads, `messages` stores messages and requests, `codec` converts their parts to JSON.
`fork` begins a thread from another, `summaries` holds what stands for older messages, `removal` deletes.
`child_runs` are the calls of child threads, `jobs` the commands that run in the background.
"""
