"""Panes beside the chat: `memory`, `observations` and `tasks`, arranged by `sidebar`; `bars` are their titles."""
