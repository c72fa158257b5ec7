"""Tokens to a tree: ("flag", name), ("field", (name, value)), ("not", x), ("and", x, y), ("or", x, y)."""

from filters.errors import FilterError
from filters.lexer import tokens


def parse(text):
    """The tree of a filter; None for an empty one. Raises FilterError."""
    found = tokens(text)
    if not found:
        return None
    parser = _Parser(found, len(text))
    tree = parser.expression()
    parser.must_end()
    return tree


class _Parser:
    def __init__(self, found, length):
        self.found = found
        self.length = length
        self.at = 0

    def expression(self):
        left = self.factor()
        while self.next_is("and", "or"):
            operator = self.take()
            left = (operator, left, self.factor())
        return left

    def factor(self):
        if self.next_is("not"):
            self.take()
            return ("not", self.expression())
        if self.next_is("("):
            self.take()
            inside = self.expression()
            if not self.next_is(")"):
                raise FilterError("a bracket is not closed", self.position())
            self.take()
            return inside
        if self.next_is("flag", "field"):
            kind, value, _ = self.found[self.at]
            self.at += 1
            return (kind, value)
        raise FilterError("a flag or a field is missing", self.position())

    def next_is(self, *kinds):
        return self.at < len(self.found) and self.found[self.at][0] in kinds

    def take(self):
        kind = self.found[self.at][0]
        self.at += 1
        return kind

    def position(self):
        return self.found[self.at][2] if self.at < len(self.found) else self.length

    def must_end(self):
        if self.at < len(self.found):
            raise FilterError("an operator is missing", self.position())
