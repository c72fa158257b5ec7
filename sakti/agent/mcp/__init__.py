"""Tools of other programs by MCP. The `mcp` package is imported only when a server starts.

`config`, `foreign` and `administration` read and change entries, `servers` has the values, all without the SDK.
`lifecycle` starts `clients`, which owns a `connection` for each server: over HTTP, or by `transport` to a process.
`messages` reads what servers send; `schemas`, `tools` and `results` make tools and results of it; `faults` explains
errors. `login` is OAuth, `elicitation` asks the user.
"""
