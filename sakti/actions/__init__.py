"""User actions, each declared once: its facts, and a function whose value every surface shows.

An action is a coroutine function with `@action(...)` in a file of this package. Chat, completion, help, palette and
shell are made from it. `spec` declares, `registry` finds the files, `line` reads a chat's line, `scope` is what a run
works with, `values` what it returns. Files are imported to show help, so what they work with is imported lazily.
"""
