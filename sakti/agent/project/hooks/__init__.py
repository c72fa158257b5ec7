"""Run commands of the user and of trusted projects at events, and apply their decisions.

`settings` reads hooks, `fire` chooses and runs those of an event, `guard` those of a tool's call; `payload` is their
input, `answers` their commands and decisions.
"""
