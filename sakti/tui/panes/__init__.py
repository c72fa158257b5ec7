"""Panes beside the chat: `memory`, `observations`, `tasks`, in a `sidebar`; `bars` has their titles."""
