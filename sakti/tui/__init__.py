"""The terminal interface. `sakti.tui.run.run` starts it; nothing heavy is imported before it has painted."""
