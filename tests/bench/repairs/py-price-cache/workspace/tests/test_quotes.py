import unittest

from shop import rates
from shop.quotes import quote


class Quotes(unittest.TestCase):
    def setUp(self):
        rates.price.forget()
        rates.calls.clear()

    def test_a_quote(self):
        self.assertEqual(quote(["tea", "pot"]), {"rows": ["tea: 4.50 €", "pot: 24.00 €"], "total": "28.50 €"})

    def test_a_price_is_asked_for_once(self):
        quote(["tea"])
        quote(["tea"])
        self.assertEqual(len(rates.calls), 1)


if __name__ == "__main__":
    unittest.main()
