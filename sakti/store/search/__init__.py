"""Search over messages, observations and tasks."""
