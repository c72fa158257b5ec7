import unittest

from tally import money
from tally.statement import Trip


class Trips(unittest.TestCase):
    def test_an_even_split(self):
        trip = Trip(["ada", "bob"])
        trip.receipt("ada", "10.50")
        self.assertEqual(trip.text(), "ada: share 5.25\nbob: share 5.25\ntotal 10.50")
        self.assertEqual(trip.balance(), {"ada": 525, "bob": -525})

    def test_amounts(self):
        self.assertEqual([money.parse(t) for t in ("12", "12.5", " 12.50 ", "-3.00")], [1200, 1250, 1250, -300])
        with self.assertRaises(ValueError):
            money.parse("1.234")
        self.assertEqual(money.show(-5), "-0.05")


if __name__ == "__main__":
    unittest.main()
