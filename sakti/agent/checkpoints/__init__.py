"""Record file changes by the agent's calls, so that they can be undone exactly.

`scanner`, `surroundings` and `overflow` find what a command changed; `plan` decides what an undo writes (pure).
`objects` stores contents, `history` git's own files, and `records` maps turns to their changes. `safe_paths` follows no
links; `restore` writes back by a journal; `shadow` joins these for a workspace. `recorder` is the interface for tools,
`undoing` the one for users.
"""
