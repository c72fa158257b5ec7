"""Choosing tasks."""

from filters.evaluate import holds
from filters.parser import parse


def choose(tasks, text):
    """Names of the tasks that a filter chooses, in order. Raises FilterError for a filter that cannot be read."""
    tree = parse(text)
    return [task["name"] for task in tasks if holds(tree, task)]


def task(name, *flags, **fields):
    return {"name": name, "flags": set(flags), "fields": fields}
