"""Reflectors: `model` asks a model, `extractive` drops sentences; `quality` checks their answers."""
