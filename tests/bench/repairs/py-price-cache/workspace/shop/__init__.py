"""Prices in the customer's currency."""
