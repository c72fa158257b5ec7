"""Tasks of a workspace and their graph.

`service` changes tasks with what `changes` shares, `queries` answers questions, `describe` finds and describes a task.
`transfer` exports and imports JSON Lines, `beads` issues of that tracker.
"""
