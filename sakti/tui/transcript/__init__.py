"""Hold what the transcript shows, without a widget: blocks, and text, Markdown, code and diffs in them as lines."""
