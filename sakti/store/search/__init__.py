"""Search messages, observations and tasks."""
