from catalog.pages import Page
from catalog.store import Orders
from catalog.views import order_list


def listed(n, number=1, size=20):
    orders = Orders()
    for i in range(n):
        orders.add("ada", 100 + i)
    return order_list(orders, "ada", number, size)


def test_an_exact_multiple_has_no_empty_page():
    assert listed(40)["footer"] == "page 1 of 2"
    assert listed(40, 2)["next"] is None
    assert len(listed(40, 2)["orders"]) == 20


def test_one_full_page():
    assert listed(20)["next"] is None
    assert listed(20)["footer"] == "page 1 of 1"


def test_a_page_behind_the_end_is_the_last_one():
    assert len(listed(40, 9)["orders"]) == 20


def test_the_footer_names_pages_that_exist():
    assert listed(60, 3)["pages"] == [1, 2, 3]


def test_a_rest_has_its_page():
    assert listed(41, 3)["footer"] == "page 3 of 3"
    assert len(listed(41, 3)["orders"]) == 1


def test_nothing_is_one_page():
    assert listed(0)["footer"] == "page 1 of 1"
    assert listed(0)["orders"] == []


def test_every_thing_is_on_one_page_exactly():
    for total in range(1, 30):
        for size in (1, 2, 7):
            count = Page(1, size, total).count
            assert (count - 1) * size < total <= count * size
