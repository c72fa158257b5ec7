"""Observational memory: old messages leave the context, and dated notes on them stay.

Read `policy` (thresholds), `phases`, `state` and `engine`, the only entry point; `jobs` observe and condense in the
background. `observe` and `reflect` write the log, `log` parses it, `statements` finds what a new line replaces.
`context` and `request` build memory's part of a request; `pages` are working memory, `summaries` work without a log.
"""
