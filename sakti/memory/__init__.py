"""Observational memory: old messages leave the context, and dated notes replace them.

`engine` is the only entry point. `policy` has the thresholds, `phases` and `state` the state machine; `jobs` observe
and condense in the background. `observe` and `reflect` write the log, `log` parses it, `statements` finds what a new
line replaces. `context` and `request` build memory's part of a request; `pages` are working memory; `summaries` do
not need a log.
"""
