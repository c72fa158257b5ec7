"""Make observations of messages, by a model or extractively."""
