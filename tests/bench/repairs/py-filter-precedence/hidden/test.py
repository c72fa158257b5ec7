import itertools

from filters.errors import FilterError
from filters.parser import parse
from filters.tasks import choose, task

ALL = [task("".join(c), *c) for n in range(4) for c in itertools.combinations("abc", n)]


def chosen(text):
    return set(choose(ALL, text))


def wanted(rule):
    return {t["name"] for t in ALL if rule(*(f in t["flags"] for f in "abc"))}


def test_and_before_or():
    assert chosen("a or b and c") == wanted(lambda a, b, c: a or (b and c))


def test_the_other_way_round():
    assert chosen("a and b or c") == wanted(lambda a, b, c: (a and b) or c)


def test_not_takes_one_thing():
    assert chosen("not a and b") == wanted(lambda a, b, c: (not a) and b)
    assert chosen("not a or b") == wanted(lambda a, b, c: (not a) or b)


def test_not_inside():
    assert chosen("a and not b or c") == wanted(lambda a, b, c: (a and not b) or c)
    assert chosen("a or not b and c") == wanted(lambda a, b, c: a or ((not b) and c))


def test_not_not():
    assert chosen("not not a") == wanted(lambda a, b, c: a)


def test_not_of_a_bracket():
    assert chosen("not (a or b) and c") == wanted(lambda a, b, c: not (a or b) and c)


def test_longer_ones():
    assert chosen("a and b or b and c or not a and c") == wanted(
        lambda a, b, c: (a and b) or (b and c) or ((not a) and c)
    )


def test_brackets():
    assert chosen("(a or b) and c") == wanted(lambda a, b, c: (a or b) and c)


def test_trees_have_the_same_form_as_before():
    assert parse("a") == ("flag", "a")
    assert parse("team:core") == ("field", ("team", "core"))
    assert parse("a and b") == ("and", ("flag", "a"), ("flag", "b"))
    assert parse("") is None


def test_errors():
    for text in ("a and", "or a", "not", "(a or b", "a b", "a not b", "()"):
        try:
            parse(text)
        except FilterError:
            continue
        raise AssertionError(text)
