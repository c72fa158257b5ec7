from tally import money, shares
from tally.statement import Trip


def test_every_amount_is_read_as_it_is_written():
    for cents in range(0, 20_000):
        assert money.parse(money.show(cents)) == cents
        assert money.parse(money.show(-cents)) == -cents


def test_large_amounts():
    assert money.parse("123456789012345.67") == 12345678901234567


def test_forms():
    assert [money.parse(t) for t in ("12", "12.5", " 12.50 ", "+1.15", "-0.05")] == [1200, 1250, 1250, 115, -5]


def test_what_is_refused():
    for text in ("1.234", "", "x", "1,50", ".5", "--1"):
        try:
            money.parse(text)
        except ValueError:
            continue
        raise AssertionError(text)


def test_spare_cents_go_to_the_first():
    assert shares.equally(10_000, ["a", "b", "c"]) == {"a": 3334, "b": 3333, "c": 3333}
    assert shares.equally(200, ["a", "b", "c"]) == {"a": 67, "b": 67, "c": 66}


def test_refunds():
    assert shares.equally(-10_000, ["a", "b", "c"]) == {"a": -3334, "b": -3333, "c": -3333}


def test_shares_add_up():
    for cents in range(-300, 300):
        for weights in ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 4}, {"a": 3, "b": 0, "c": 5}):
            parts = shares.split(cents, weights)
            assert sum(parts.values()) == cents
            assert parts.get("b") == 0 or weights["b"]
            for name, part in parts.items():
                assert abs(part - cents * weights[name] / sum(weights.values())) <= 1


def test_a_trip():
    trip = Trip(["ada", "bob", "cy"])
    trip.receipt("ada", "100.00")
    trip.receipt("bob", "1.15", {"bob": 1, "cy": 1})
    assert sum(trip.owed.values()) == sum(trip.paid.values()) == 10_115
    assert trip.text().splitlines()[0] == "ada: share 33.34"
    assert sum(trip.balance().values()) == 0


def test_nobody_pays():
    try:
        shares.split(100, {"a": 0})
    except ValueError:
        return
    raise AssertionError
