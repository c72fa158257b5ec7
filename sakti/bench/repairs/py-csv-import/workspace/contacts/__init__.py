"""Contacts as CSV."""
