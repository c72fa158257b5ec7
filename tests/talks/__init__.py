"""Talks written by hand, with what must be known of them at the end."""
