"""Tasks of a workspace and their graph.

`service` changes tasks with helpers from `changes`, `queries` answers questions, `describe` finds and describes a
task. `transfer` exports and imports JSON Lines; `beads` imports issues of that tracker.
"""
