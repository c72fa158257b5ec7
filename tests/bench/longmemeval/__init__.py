"""Measure memory on conversations with questions: `python -m tests.bench longmemeval`.

`formats` reads the data, `samples` generates some, `ingest` plays it into the real engine, `recall` measures what is in
reach, `answers` asks models, `records` keeps the log, `tables` computes the figures, `run` drives it.
"""
