"""A small language that chooses tasks."""
