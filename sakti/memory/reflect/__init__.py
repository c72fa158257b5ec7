"""Condense a log, by a model or by code."""
