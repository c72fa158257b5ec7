from shop import rates
from shop.memo import remember
from shop.quotes import quote


def fresh():
    rates.price.forget()
    rates.calls.clear()


def test_currencies():
    fresh()
    assert quote(["tea"], "EUR")["total"] == "4.50 €"
    assert quote(["tea"], "USD")["total"] == "4.95 $"
    assert quote(["tea"], "EUR")["total"] == "4.50 €"


def test_net_and_gross():
    fresh()
    assert quote(["pot"])["total"] == "24.00 €"
    assert quote(["pot"], net=True)["total"] == "20.00 €"


def test_an_article_is_no_bundle():
    fresh()
    assert rates.price(12) == 9_900
    assert rates.price("12") == 995


def test_each_is_asked_for_once():
    fresh()
    for _ in range(3):
        quote(["tea", "pot"], "USD")
        quote(["tea", "pot"], "EUR")
    assert len(rates.calls) == 4


def test_names_tell_calls_apart():
    asked = []

    @remember()
    def f(**kwargs):
        asked.append(kwargs)
        return len(asked)

    assert [f(a=1, b=2), f(a=2, b=1), f(a=1), f(b=1), f(a=1, b=2)] == [1, 2, 3, 4, 1]


def test_what_looks_alike_when_joined():
    @remember()
    def f(*args):
        return args

    assert f("a", "b|c") == ("a", "b|c")
    assert f("a|b", "c") == ("a|b", "c")
    assert f("a|b|c") == ("a|b|c",)


def test_the_limit_holds():
    @remember(limit=3)
    def f(n):
        return n

    assert [f(n) for n in range(10)] == list(range(10))
    assert f.size() == 3


def test_positional_currencies():
    fresh()
    assert rates.price("tea", "USD") == 495
    assert rates.price("tea", "EUR") == 450
