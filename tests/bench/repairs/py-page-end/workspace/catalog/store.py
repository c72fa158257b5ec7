"""Orders, kept in memory; the real store has the same two methods."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    number: int
    customer: str
    cents: int


class Orders:
    def __init__(self):
        self._orders = []

    def add(self, customer, cents):
        order = Order(len(self._orders) + 1, customer, cents)
        self._orders.append(order)
        return order

    def count(self, customer):
        return sum(1 for order in self._orders if order.customer == customer)

    def slice(self, customer, start, length):
        """The customer's orders, the newest first, from `start` on."""
        own = [order for order in reversed(self._orders) if order.customer == customer]
        return own[start : start + length]
