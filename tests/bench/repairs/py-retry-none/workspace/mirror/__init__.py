"""Copies the index of an upstream package server."""
