import unittest

from catalog.store import Orders
from catalog.views import order_list


def filled(n):
    orders = Orders()
    for i in range(n):
        orders.add("ada", 100 + i)
    return orders


class OrderList(unittest.TestCase):
    def test_the_newest_comes_first(self):
        self.assertEqual(order_list(filled(41), "ada")["orders"][0]["number"], 41)

    def test_three_pages(self):
        last = order_list(filled(41), "ada", 3)
        self.assertEqual(len(last["orders"]), 1)
        self.assertEqual(last["footer"], "page 3 of 3")
        self.assertIsNone(last["next"])

    def test_nobody(self):
        self.assertEqual(order_list(filled(5), "bob")["footer"], "page 1 of 1")


if __name__ == "__main__":
    unittest.main()
