"""Reflectors: `model` asks a model, `extractive` drops sentences; `quality` checks and finishes their answers."""
