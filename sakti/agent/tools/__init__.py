"""Define the agent's tools, by the names that models know from other agents; `catalog` lists them.

One file a tool: read, edit, apply_patch, write, ls, glob, grep, bash, wait, skill, web, cards.
`toolbox` runs calls: `arguments` and `call_texts` read them, `call_hooks` may change them, `approvals` asks.
`base`, `context` and `parameters` are what a tool is made of and what it gets.
`changes`, `matching`, `merging`, `patch` and `textfile` change files; `processes` and `background` run commands.
"""
