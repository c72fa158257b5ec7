"""Define the agent's tools, by the names that models know from other agents; `catalog` lists them.

A tool is an async function with `base.tool`; its `context` is what each call gets.
`toolbox` runs calls: `arguments` reads them, `call_hooks` may change them, `approvals` asks.
`files` finds files; `changes`, `matching`, `patch` and `textfile` change them.
`processes` and `background` run commands; `child` runs our own helpers `scan` and `draw`.
"""
