"""User actions, each declared once: its facts, and a function whose value every surface shows.

An action is a coroutine function with `@action(...)` in a file of this package. The chat (`/name`), its completion,
help and palette, the plain chat, the shell (`sakti name`) and their help texts are made from that declaration.
`registry` finds the files, `reader` reads lines for them, `values` is what they return. The files are imported to
show help: what their actions work with is imported at their top, under `with lazy_imports:`.
"""
