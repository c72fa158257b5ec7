"""Tools of other programs by MCP. The `mcp` package is imported only when a server starts."""
