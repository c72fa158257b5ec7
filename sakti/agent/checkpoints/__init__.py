"""Keep what the agent's calls did to files, so that it can be undone exactly.

`scanner`, `surroundings` and `overflow` find what a command changed; `plan` decides what an undo writes (pure).
`objects` keeps contents, `history` git's own files, and `records` says which turn changed what.
`safe_paths` follows no links; `restore` writes back by a journal; `shadow` joins these for a workspace.
`recorder` is what tools call, `undoing` is what a user can do.
"""
