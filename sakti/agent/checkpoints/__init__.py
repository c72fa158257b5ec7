"""Keep what the agent's calls did to files, so that it can be undone exactly.

`plan` decides (pure), `scanner` and `uncovered` find what a command changed, `objects` keeps contents, `records` says
which turn changed what, `places` reads and writes files without following links, `restore` writes back by a journal,
`shadow` holds these together for a workspace, `recorder` is what tools call, `undoing` is what a user can do.
"""
