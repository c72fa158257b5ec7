"""Condense a log, by a model or extractively."""
