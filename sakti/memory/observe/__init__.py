"""Observers: `model` asks a model, `extractive` takes lines from the messages word for word.

`quoting` separates the user's words from quotations, `transcript` formats messages for a model. `faithfulness` checks
a line's exact `claims` and its speaker (`speaking`) against the messages; `tool_facts` fills the keys of a mode.
"""
