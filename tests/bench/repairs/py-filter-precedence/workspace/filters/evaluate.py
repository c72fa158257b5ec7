"""A tree on a task."""


def holds(tree, task):
    """Whether a task, {"flags": set, "fields": {name: text}}, is chosen."""
    if tree is None:
        return True
    kind = tree[0]
    if kind == "flag":
        return tree[1] in task["flags"]
    if kind == "field":
        name, value = tree[1]
        return task["fields"].get(name, "").lower() == value.lower()
    if kind == "not":
        return not holds(tree[1], task)
    if kind == "and":
        return holds(tree[1], task) and holds(tree[2], task)
    return holds(tree[1], task) or holds(tree[2], task)
