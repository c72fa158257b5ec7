"""Offer tools of other programs through MCP. The `mcp` package is imported only when a server starts.

`config` and `administration` read and change entries, `servers` has the values and schemas, all without the SDK.
`lifecycle` starts `clients`, which owns a `connection` for each server: over HTTP, or by `transport` to a process.
`messages` reads messages of servers and explains errors; `tools` converts them to tools and results. `login` is OAuth,
`elicitation` asks the user.
"""
