"""Tools of other programs by the Model Context Protocol. The `mcp` package is imported only when a server starts."""
