"""User actions, each declared once: its metadata, and a function whose result every surface shows.

An action is a coroutine function with `@action(...)` in a file of this package. Chat, completion, help, palette and
shell are built from it. `spec` declares, `registry` finds the files, `line` reads a line of the chat, `scope` is the
context of a run, `values` are its results. Help imports these files, so their own imports are lazy.
"""
